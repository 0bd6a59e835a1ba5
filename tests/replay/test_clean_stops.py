"""Rules of a clean stop: no confirm is owed (C3), and the next start finds all that was left (E1)."""

from __future__ import annotations

import pytest

import warrenmq
from tests.replay.planted_violations import a_queue_that_begins_again_with_other_ids
from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import A, Actor, B, C, RunRows, become, event, flag, set_flag, write_trace
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.trace.events import CLEAN, DIRTY, IN_STORE, Ev
from warrenmq.trace.reader import open_memory


def texts(runs: list[RunRows], rule: str) -> list[str]:
    return [finding.text for finding in replay_memory(write_trace(runs)).violations if finding.rule == rule]


def silenced(in_store: bool, reported: bool) -> list[RunRows]:
    """A consistent trace in which a queue that stops cleanly leaves one message unconfirmed."""
    for seed in range(40):
        runs = consistent_trace(seed)
        for queue in runs[1].of("QueueProcess"):
            published = {
                row[2]: row
                for row in queue.find(Ev.PUBLISH)
                if row[B] == 1 and bool(flag(row) & IN_STORE) is in_store
            }
            for confirm in queue.find(Ev.CONFIRM):
                heard = [row for row in queue.find(Ev.ON_DISK) if row[2] == confirm[2]]
                if confirm[2] in published and queue.find(Ev.QUEUE_CLOSED) and (heard or not in_store):
                    become(confirm, Ev.QI_WRITE)
                    for row in [] if reported else heard:
                        become(row, Ev.QI_WRITE)
                    return runs
    pytest.fail("no trace has such a message")


@pytest.mark.parametrize(
    ("in_store", "reported", "owed"), [(False, True, 1), (True, True, 1), (True, False, 0)]
)
def test_a_confirm_is_owed_when_nothing_is_missing_for_it(in_store, reported, owed):
    assert len(texts(silenced(in_store, reported), "C3")) == owed


def test_a_queue_that_dies_owes_what_it_owes():
    runs = consistent_trace(3)
    queue = next(each for each in runs[0].of("QueueProcess") if each.find(Ev.CONFIRM))
    become(queue.find(Ev.CONFIRM)[0], Ev.QI_WRITE)
    assert texts(runs, "C3") == []


def recovered(runs: list[RunRows]) -> Actor:
    """The queue that begins in the last run, after a clean stop."""
    return runs[-1].of("QueueProcess")[0]


@pytest.mark.parametrize(
    ("column", "change", "kind", "broken"),
    [
        (B, 1, CLEAN, ["next sequence id"]),
        (B, -1, CLEAN, ["next sequence id"]),
        (B, 1, DIRTY, []),
        (C, 1_000, CLEAN, ["messages"]),
        (C, 1_000, DIRTY, []),
    ],
)
def test_a_clean_recovery_finds_what_a_clean_stop_left(column, change, kind, broken):
    runs = consistent_trace(4)
    row = recovered(runs).find(Ev.QUEUE_RECOVERED)[0]
    assert event(row) == Ev.QUEUE_RECOVERED
    row[column] += change
    set_flag(row, kind)
    assert [text.partition(":")[0] for text in texts(runs, "E1") if "had stopped" in text] == broken


def test_fewer_messages_are_no_wonder():
    """Transient ones that were in memory only go without a word."""
    runs = consistent_trace(4)
    stopped = [row for queue in runs[1].of("QueueProcess") for row in queue.find(Ev.QUEUE_CLOSED)]
    begun = [row for queue in runs[2].of("QueueProcess")[:2] for row in queue.find(Ev.QUEUE_RECOVERED)]
    assert any(two[A] + two[C] < one[A] for one, two in zip(stopped, begun, strict=True))
    assert texts(runs, "E1") == []


def test_with_a_run_missing_in_between_nothing_can_be_said():
    runs = consistent_trace(4)
    assert a_queue_that_begins_again_with_other_ids(runs)
    runs[-1].boot += 1
    for row in runs[-1].of("broker")[0].rows:
        if event(row) in {Ev.RUN_START, Ev.RUN_END}:
            row[A] += 1
    result = replay_memory(write_trace(runs))
    assert [finding for finding in result.violations if finding.rule == "E1"] == []
    assert any("had stopped" in finding.text for finding in result.indeterminate)


@pytest.mark.parametrize("settings", BOTH_PROFILES.values(), ids=BOTH_PROFILES)
def test_queues_that_stop_because_their_store_died_owe_only_the_confirms_that_it_had_not_reported(settings):
    host = SimulatedHost(3, settings)
    with host.open() as broker:
        queue = broker.declare_queue("q")
        queue.get()  # its process starts
        unsafe = queue.publish_many([b"small", b"m" * 3_000, b"m" * 3_000, b"small"])
        host.sim.kill(host.sim.whereis("msg_store_persistent"))
        with pytest.raises(warrenmq.Nacked):
            unsafe.result()
    host.check_trace()
    rows = of_queue(host)
    first_life = rows[: rows.index(Ev.QUEUE_CLOSED)]
    assert Ev.PUBLISH in first_life
    assert Ev.CONFIRM not in first_life
    host.close()


def of_queue(host: SimulatedHost) -> list[int]:
    """The events of queue processes, one life after the other."""
    trace = open_memory(host.sink.files())
    pieces = sorted(trace.catalog.chunks, key=lambda piece: piece.order)
    runs = trace.catalog.runs
    return [
        row[8] >> 8 & 0xFF
        for piece in pieces
        if runs[piece.run].actor_name(piece.actor) == "queue:q"
        for row in trace.rows(piece)
    ]
