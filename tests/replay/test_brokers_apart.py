"""Runs of different data directories in one trace are judged apart; a copied directory breaks no rule."""

import io
import shutil

import warrenmq
from warrenmq.directory.layout import DataDirectory
from warrenmq.replay.drive import engine
from warrenmq.replay.drive.batch_summary import batches, summarise_batch
from warrenmq.replay.drive.watch import Watch
from warrenmq.replay.replayed import replay
from warrenmq.replay.report.summary import summary_lines
from warrenmq.seams.disk import RealDisk
from warrenmq.settings import Settings
from warrenmq.trace.catalog import Run, find_lost_pages
from warrenmq.trace.reader import open_trace
from warrenmq.trace.tail import Tail


def run(folder, data, trace="trace", *, bodies=10, acks=5):
    with warrenmq.open(folder / data, trace=folder / trace, settings={"durability": "os"}) as broker:
        jobs = broker.declare_queue("jobs")
        jobs.publish_many([b"x" * 5_000 * (number % 2) + b"%d" % number for number in range(bodies)]).result(
            10
        )
        for _ in range(acks):
            jobs.get(0).ack()


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
