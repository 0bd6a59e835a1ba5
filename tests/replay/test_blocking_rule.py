"""W1: the table of who waits, by the machine and by its precheck, however the rows are cut."""

from __future__ import annotations

import pytest

from tests.support.trace_writer import Actor, RunRows, write_trace
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.trace.events import CREDIT_GRANTED, Ev, Reason

BROKER, THREAD, OTHER, QUEUE, NEXT = 1, 2, 3, 4, 5
KINDS = {
    BROKER: "broker",
    THREAD: "client",
    OTHER: "ConnectionProcess",
    QUEUE: "QueueProcess",
    NEXT: "QueueProcess",
}

BLOCKED = (Ev.CREDIT_BLOCKED, QUEUE)
UNBLOCKED = (Ev.CREDIT_UNBLOCKED, QUEUE)
SENT = (Ev.SEND, QUEUE)
ALARMED = (Ev.ALARM_BLOCKED, 0)
CLEARED = (Ev.ALARM_UNBLOCKED, 0)


def trace(actor: int, rows: list[tuple[Ev, int]]) -> list[RunRows]:
    """One run in which an actor writes these rows: (event, peer)."""
    run = RunRows("made", 1)
    run.actors = [Actor(number, f"actor {number}", kind, 0) for number, kind in KINDS.items()]
    written = [
        (BROKER, Ev.RUN_START, 0),
        *((actor, *row) for row in rows),
        (actor, Ev.ACTOR_STOP, 0),
        (BROKER, Ev.RUN_END, 0),
    ]
    for t, (who, event, peer) in enumerate(written, 1000):
        its = run.actors[who - 1]
        its.last += 1
        flag = {Ev.CREDIT_UNBLOCKED: CREDIT_GRANTED, Ev.ACTOR_STOP: Reason.SHUTDOWN}.get(event, 0)
        its.rows.append(
            [t, its.last, 7 if event == Ev.SEND else 0, peer, 0, 0, 1, 0, who << 16 | event << 8 | flag]
        )
    run.actors = [each for each in run.actors if each.rows or each.id in {QUEUE, NEXT}]
    return [run]


CASES = [
    # credit
    (THREAD, [BLOCKED, UNBLOCKED, SENT], []),
    (THREAD, [SENT, BLOCKED], []),
    (THREAD, [BLOCKED, BLOCKED, UNBLOCKED], ["it began to wait a second time for the credit of actor 4"]),
    (THREAD, [UNBLOCKED], ["it went on, and had not waited for the credit of actor 4"]),
    (QUEUE, [BLOCKED, UNBLOCKED, UNBLOCKED], ["it went on, and had not waited for the credit of actor 4"]),
    (QUEUE, [BLOCKED, (Ev.CREDIT_BLOCKED, NEXT), UNBLOCKED, (Ev.CREDIT_UNBLOCKED, NEXT)], []),
    # messages while it waits: of one thread to the one peer, told once a wait
    (THREAD, [SENT, BLOCKED, SENT, SENT, UNBLOCKED, SENT], ["it sent messages while it waited for the credit of actor 4"]),
    (THREAD, [BLOCKED, SENT, UNBLOCKED, SENT, BLOCKED, SENT], ["it sent messages while it waited for the credit of actor 4"] * 2),
    (THREAD, [BLOCKED, (Ev.SEND, NEXT), UNBLOCKED], []),
    (OTHER, [BLOCKED, SENT, UNBLOCKED], []),
    # alarms: coroutines of a thread wait at a time
    (THREAD, [ALARMED, ALARMED, CLEARED, CLEARED], []),
    (THREAD, [ALARMED, CLEARED, CLEARED], ["it went on, and had not waited for the alarms"]),
    (THREAD, [ALARMED, SENT, CLEARED], []),
    (OTHER, [ALARMED, CLEARED, ALARMED], []),
    (OTHER, [ALARMED, ALARMED, CLEARED], ["it began to wait a second time for the alarms"]),
    (OTHER, [CLEARED], ["it went on, and had not waited for the alarms"]),
]  # fmt: skip


def told(runs: list[RunRows], piece: int) -> list[str]:
    found = replay_memory(write_trace(runs, piece)).violations
    return [finding.text for finding in found if finding.rule == "W1"]


@pytest.mark.parametrize(("actor", "rows", "expected"), CASES)
def test_the_table_of_waiting_actors(actor, rows, expected):
    for piece in (1, 2, 50):
        assert told(trace(actor, rows), piece) == expected


@pytest.mark.parametrize(("actor", "rows", "expected"), CASES)
def test_the_precheck_leaves_to_the_machine_what_is_wrong(monkeypatch, actor, rows, expected):
    pytest.importorskip("numpy")
    from warrenmq.replay.drive import columns
    from warrenmq.replay.drive.array_engine import replay_arrays
    from warrenmq.trace.reader import open_memory

    for unit_rows in (1, 100):
        monkeypatch.setattr(columns, "UNIT_ROWS", unit_rows)
        found = replay_arrays(open_memory(write_trace(trace(actor, rows), 2))).violations
        assert [finding.text for finding in found if finding.rule == "W1"] == expected
