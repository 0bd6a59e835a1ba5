"""Runs of different data directories in one trace are judged apart; a copied directory breaks no rule."""

import io
import shutil
import tempfile
from functools import cache
from pathlib import Path
from random import Random

from hypothesis import assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st

import warrenmq
from warrenmq.directory.layout import DataDirectory
from warrenmq.replay.drive import engine
from warrenmq.replay.drive.batch_summary import batches, summarise_batch
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.replay.drive.watch import Watch
from warrenmq.replay.replayed import replay
from warrenmq.replay.report.summary import summary_lines
from warrenmq.seams.real_disk import RealDisk
from warrenmq.settings import Settings
from warrenmq.simulate.generate import generate
from warrenmq.simulate.run import run_traced
from warrenmq.trace.catalog import Run, find_lost_pages
from warrenmq.trace.reader import NotATrace, open_memory, open_trace
from warrenmq.trace.tail import Tail


def run(folder, data, trace="trace", *, bodies=10, acks=5):
    with warrenmq.open(folder / data, trace=folder / trace, settings={"durability": "os"}) as broker:
        jobs = broker.declare_queue("jobs")
        jobs.publish_many([b"x" * 5_000 * (number % 2) + b"%d" % number for number in range(bodies)]).result(
            10
        )
        for _ in range(acks):
            jobs.get(0).ack()


@cache
def simulated(seed, script):
    """The files of a clean run of a simulated machine; with another script it is another machine."""
    for tried in range(script, script + 1000, 10):
        outcome, files = run_traced(
            seed,
            generate(Random(tried), ("kill", "crash", "cut"), "short"),
            "classic" if seed % 3 else "modern",
        )
        if outcome.verdict == "ok" and replay_memory(files).verdict == "ok":
            return files
    raise AssertionError


@cache
def real(number):
    """The files of a broker with threads, opened twice."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            run(Path(folder), f"data-{number}")
        return {file.name: file.read_bytes() for file in (Path(folder) / "trace").iterdir()}


MACHINES = st.one_of(
    st.builds(simulated, st.integers(0, 5), st.integers(0, 2)), st.builds(real, st.integers(0, 2))
)


@examples(max_examples=60, deadline=None)
@given(st.lists(MACHINES, min_size=2, max_size=4), st.integers(0, 10**6), st.booleans())
def test_clean_traces_of_several_machines_in_one_folder_convict_nobody(machines, dice, loses_files):
    machines = {id(files): files for files in machines}.values()
    apart = len({open_memory(files).catalog.runs[0].directory for files in machines}) == len(machines)
    assume(apart or not loses_files)  # one seed's machines are told from each other by files that differ
    rng, union = Random(dice), {}
    for number, files in enumerate(machines):
        for name, content in files.items():
            if not (loses_files and rng.random() < 0.2):
                union[f"{rng.randrange(10**6)}-{number}-{name}"] = content
    try:
        found = replay_memory(union)
    except NotATrace:
        return
    assert found.violations == []
    assert found.figures["incidents"]["lost_messages"] == 0
    if not loses_files:
        assert found.verdict == ("ok" if apart else "indeterminate")
    with tempfile.TemporaryDirectory() as folder:
        for name, content in union.items():
            (Path(folder) / name).write_bytes(content)
        assert "violated" not in watched(folder, Path(folder) / "checkpoint")


def verdicts(trace):
    replayed = replay(trace, engine="python", picture=False)
    plain = engine.replay(trace)
    assert [each[:3] for each in plain.violations] == [each[:3] for each in replayed.result.violations]
    return replayed, [each["verdict"] for each in plain.figures["brokers"]]


def watched(trace, checkpoint):
    """The output of a watch that meets a whole trace at once."""
    out = io.StringIO()
    watch, tail = Watch(str(checkpoint), to=out), Tail(str(trace))
    now = tail.look({})
    watch.take([summarise_batch(batch) for batch in batches(tail, {}, now)], now)
    watch.close()
    return out.getvalue()


def test_two_directories_in_one_trace(tmp_path):
    for data in ("one", "two", "one", "two"):
        run(tmp_path, data)
    replayed, each = verdicts(tmp_path / "trace")
    assert (replayed.verdict, each) == ("ok", ["ok", "ok"])
    assert sum(line.startswith("broker ") for line in summary_lines(replayed)) == 2
    assert watched(tmp_path / "trace", tmp_path / "checkpoint") == ""


def test_rows_lost_by_one_broker_leave_the_others_verdict_alone(tmp_path):
    run(tmp_path, "one")
    run(tmp_path, "two")
    damaged = next((tmp_path / "two").rglob("msg_store_persistent/0.rdq"))
    damaged.write_bytes(bytes(damaged.stat().st_size))
    run(tmp_path, "two", acks=12)
    run(tmp_path, "one", acks=12)
    replayed, each = verdicts(tmp_path / "trace")
    assert replayed.verdict == "violated"
    assert sorted(each) == ["ok", "violated"]


def test_a_copy_of_a_directory_makes_it_undecided(tmp_path):
    run(tmp_path, "one", acks=0)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    run(tmp_path, "one", acks=10)
    run(tmp_path, "copy", acks=3)
    run(tmp_path, "one", acks=2)
    run(tmp_path, "copy", acks=10)
    assert verdicts(tmp_path / "trace")[0].verdict == "indeterminate"
    assert watched(tmp_path / "trace", tmp_path / "checkpoint") == ""


def test_a_directory_restored_from_a_backup_is_not_judged_by_what_it_forgot(tmp_path):
    run(tmp_path, "one")
    shutil.copytree(tmp_path / "one", tmp_path / "backup")
    run(tmp_path, "one", bodies=30)
    shutil.rmtree(tmp_path / "one")
    shutil.copytree(tmp_path / "backup", tmp_path / "one")
    with warrenmq.open(tmp_path / "one"):
        pass  # without a trace: its boot is the second, as that of the run that is forgotten
    run(tmp_path, "one")
    assert verdicts(tmp_path / "trace")[0].verdict == "indeterminate"
    assert watched(tmp_path / "trace", tmp_path / "checkpoint") == ""


def test_a_boot_that_was_killed_as_it_began_is_no_missing_run(tmp_path):
    """It was counted, and there is no trace of it: nor was there anything to trace."""
    run(tmp_path, "one")
    directory = DataDirectory.open(RealDisk("os"), str(tmp_path / "one"), Settings())
    directory.next_boot()
    directory.close()
    run(tmp_path, "one")
    replayed, each = verdicts(tmp_path / "trace")
    assert (replayed.verdict, each) == ("ok", ["ok"])
    assert watched(tmp_path / "trace", tmp_path / "checkpoint") == ""


def test_a_run_without_a_trace_makes_what_follows_undecided(tmp_path):
    run(tmp_path, "one")
    with warrenmq.open(tmp_path / "one") as broker:
        broker.queue("jobs").get().ack()
    run(tmp_path, "one")
    replayed, each = verdicts(tmp_path / "trace")
    assert (replayed.verdict, each) == ("indeterminate", ["indeterminate"])


def test_a_directory_keeps_its_id_and_gets_one_when_it_has_none(tmp_path):
    run(tmp_path, "one")
    ids = [(tmp_path / "one" / "warrenmq.id").read_text()]
    run(tmp_path, "one")
    ids.append((tmp_path / "one" / "warrenmq.id").read_text())
    (tmp_path / "one" / "warrenmq.id").write_text("not an id")
    run(tmp_path, "one")
    ids.append((tmp_path / "one" / "warrenmq.id").read_text())
    assert ids[0] == ids[1] != ids[2]
    with open_trace(tmp_path / "trace") as trace:
        assert [found.directory for found in trace.catalog.runs] == sorted(each.strip() for each in ids)


def test_a_killed_run_before_the_machine_was_started_again_may_have_lost_its_end():
    def told(boot, machine, *, closed):
        run = Run(f"{boot}", "n", 1, boot, boot, 0, 1, directory="d", machine=machine)
        run.closed = run.whole = closed
        return run

    runs = [told(1, "a", closed=False), told(2, "a", closed=False), told(3, "b", closed=True)]
    find_lost_pages(runs)
    assert [each.lossy for each in runs] == [True, True, False]
    same = [told(1, "a", closed=False), told(2, "a", closed=True)]
    find_lost_pages(same)
    assert not same[0].lossy
