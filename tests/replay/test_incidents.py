"""A broker's losses break C2, and incidents are named before every verdict."""

from __future__ import annotations

import io
import json
import random

import pytest

from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import PEER, Actor, set_flag, write_trace
from warrenmq.cli import main
from warrenmq.replay.drive import engine
from warrenmq.replay.drive.batch_summary import batches, summarise_batch
from warrenmq.replay.drive.incidents import incidents_line, told
from warrenmq.replay.drive.watch import Watch
from warrenmq.replay.replayed import replay
from warrenmq.replay.report.summary import summary_lines
from warrenmq.trace.events import Ev, Reason
from warrenmq.trace.tail import Tail

MESSAGES = 40


def damaged_between_two_runs(seed: int, profile: str, *, killed: bool) -> tuple[dict[str, bytes], int]:
    """The trace of two runs, between which a part of each file of the store was zeroed; and how many messages were lost."""
    host = SimulatedHost(seed, BOTH_PROFILES[profile])
    broker = host.open()
    jobs = broker.declare_queue("jobs")
    jobs.publish_many([b"%d " % number + b"x" * 600 for number in range(MESSAGES)]).result(10)
    if killed:
        host.crash(power_cut=False)
    else:
        broker.close()
    rng = random.Random(seed)
    paths = [path for path in files(host, "/data") if path.endswith("msg_store_persistent/0.rdq")]
    for path in paths:
        content = bytearray(host.disk.read(path))
        at = rng.randrange(len(content) // 2)
        content[at : at + 1_500] = bytes(len(content[at : at + 1_500]))
        host.disk.replace(path, bytes(content))
    broker = host.open()
    jobs = broker.declare_queue("jobs")
    got = 0
    while (message := jobs.get(0)) is not None:
        message.ack()
        got += 1
    broker.close()
    found = dict(host.sink.files()) if host.sink is not None else {}
    host.close()
    return found, MESSAGES - got


def files(host: SimulatedHost, folder: str) -> list[str]:
    paths = [f"{folder}/{name}" for name in host.disk.listdir(folder)]
    return [each for path in paths for each in (files(host, path) if host.disk.is_dir(path) else [path])]


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("profile", BOTH_PROFILES)
def test_a_confirmed_message_that_was_lost_to_damage_breaks_c2(tmp_path, profile, killed):
    found, lost = damaged_between_two_runs(7, profile, killed=killed)
    assert 0 < lost < MESSAGES
    for name, content in found.items():
        (tmp_path / name).write_bytes(content)
    plain = engine.replay(tmp_path)
    replayed = replay(tmp_path, engine="python", picture=False)  # with arrays
    for result in (plain, replayed.result):
        assert result.verdict == "violated"
        assert {finding.rule for finding in result.violations} == {"C2"}
        assert result.as_dict()["incidents"]["lost_messages"] == lost
    happened, verdict = summary_lines(replayed)[-2:]
    assert f"{lost} confirmed messages lost" in happened
    assert verdict.startswith("verdict violated")
    tail = Tail(str(tmp_path))
    for _ in range(3):  # each goes on where the last one was killed
        watch = Watch(str(tmp_path / "checkpoint"), as_json=True, to=io.StringIO())
        place = watch.progress or {}
        now = tail.look(place)
        watch.take([summarise_batch(batch) for batch in batches(tail, place, now)], now)
        watch.close()
    watch = Watch(str(tmp_path / "checkpoint"), as_json=True, to=io.StringIO())
    assert watch.violations == len(plain.violations)
    assert watch.losses
    said = json.loads(watch.summary())["incidents"]
    assert said == {what: plain.figures["incidents"][what] for what in said}
    watch.close()


def test_a_process_that_cannot_be_started_is_told_in_the_verdict(tmp_path, capsys):
    """A store that crashed in its init, and with it the one of its supervisor; and the run ended."""
    runs = consistent_trace(1)
    for name in ("msg_store_persistent", "vhost_sup"):
        crash_in_init(runs[-1], name, is_up=False)
    for name, content in write_trace(runs).items():
        (tmp_path / name).write_bytes(content)
    for more, status in (["--json"], 1), (["--allow-damage"], 0):
        assert main(["replay", str(tmp_path), "--engine", "python", *more]) == status
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict.startswith("verdict ok, with 1 run that crashed until it was down: ")
    for more, status in ([], 1), (["--allow-damage"], 0):
        watch = ["trace", "watch", str(tmp_path), "--engine", "python", "--until-closed"]
        assert main([*watch, *more]) == status
        assert " 0 violations, with 1 run that crashed until it was down; " in capsys.readouterr().err


def test_a_start_that_fails_below_a_supervisor_that_is_up_is_refused_to_who_asked_for_it():
    """A queue that cannot be woken on a full disk takes no broker down."""
    runs = consistent_trace(1)
    crash_in_init(runs[-1], "queue:a", is_up=True)
    assert told(engine.replay_memory(write_trace(runs)).figures["incidents"]) == ""


def crash_in_init(run, name, *, is_up):
    """Add an actor to a run that crashed before it was up; is its supervisor up?"""
    number = max(each.id for each in run.actors) + 1
    like = next(actor for actor in run.actors if actor.name == name)
    ended = [like.rows[-1][0] + 1, 1, 0, 0, 0, 0, 0, 0, number << 16 | Ev.ACTOR_STOP << 8 | Reason.CRASH]
    run.actors.append(Actor(number, like.name, like.kind, like.parent if is_up else number + 1, [ended], 1))


def test_what_was_acked_before_a_power_cut_is_no_loss(tmp_path):
    """The power failed while the files of an index segment were deleted: its entries were there again, and its bodies were not."""
    trace = write_trace(consistent_trace(1))
    for name, content in trace.items():
        (tmp_path / name).write_bytes(content)
    assert replay(tmp_path, engine="python").told == ""
    assert told(engine.replay_memory(trace).figures["incidents"]) == ""


def test_incidents_are_counted_when_no_rule_is_broken():
    runs = consistent_trace(1)
    before = engine.replay_memory(write_trace(runs)).figures["incidents"]["crashes"]
    exited = next(
        row for each in runs[-1].of("QueueSup") for row in each.find(Ev.CHILD_EXIT, flag=Reason.SHUTDOWN)
    )
    queue = next(actor for actor in runs[-1].actors if actor.id == exited[PEER])
    for row in (exited, queue.rows[-1]):
        set_flag(row, Reason.CRASH)
    result = engine.replay_memory(write_trace(runs))
    assert (result.verdict, result.figures["incidents"]["crashes"]) == ("ok", before + 1)
    assert incidents_line(result.figures["incidents"]).startswith(f"{before + 1} crashes and")
