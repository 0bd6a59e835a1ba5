"""C2 and queues that were deleted: by the machine, by arrays and in SQL."""

from __future__ import annotations

import pytest

from tests.support.trace_writer import Actor, RunRows, write_trace
from warrenmq.replay.drive.array_engine import replay_arrays
from warrenmq.replay.drive.engine import replay_trace
from warrenmq.replay.rules.registry import RULES
from warrenmq.replay.rules.sql import violations
from warrenmq.trace.events import CONFIRM_DURABLE, DROP_LOST, EMPTY, PERSISTENT, WANTS_CONFIRM, Ev
from warrenmq.trace.reader import open_memory

ROWS = {
    "up": (Ev.QUEUE_RECOVERED, EMPTY, 0),
    "publish": (Ev.PUBLISH, PERSISTENT | WANTS_CONFIRM, 1),
    "confirm": (Ev.CONFIRM, CONFIRM_DURABLE, 1),
    "found": (Ev.RECOVERED, 0, 1),
    "damaged": (Ev.DROP, DROP_LOST, 1),
    "deleted": (Ev.QUEUE_DELETED, 0, 0),
}
"""A row of a queue's actor: event, flag, and how many messages it is about, from sequence id 0 on."""
LOST, DELETED = "up publish confirm", "up publish confirm deleted"


def run_of(number: int, lives: list[str]) -> RunRows:
    """A run, and a queue's actors in it with these rows."""
    run = RunRows(f"run-{number}", number, directory="d")
    for actor, life in enumerate(lives, 1):
        its = Actor(actor, "queue:q", "QueueProcess", 0)
        for what in life.split():
            event, flag, count = ROWS[what]
            its.last += 1
            t = (number * 10 + actor) * 1_000 + its.last
            its.rows.append(
                [t, its.last, 100 * bool(count), 0, 0, 0, count, 0, actor << 16 | event << 8 | flag]
            )
        run.actors.append(its)
    return run


@pytest.mark.parametrize(
    ("lives", "is_fine"),
    [
        ([LOST], True),
        ([LOST, "up"], False),
        ([LOST, "deleted", "up"], True),
        ([LOST, "deleted", "up", "up"], True),
        ([DELETED, "up"], True),
        ([LOST, "up", "deleted"], False),
        ([LOST, "deleted", LOST, "up"], False),
        ([LOST, "deleted", LOST, "found up", "up"], False),
        ([DELETED, LOST, "deleted", "up"], True),
        ([DELETED, "up publish damaged"], True),
        ([LOST, "deleted", "up publish damaged"], True),
        ([LOST, "found up damaged"], False),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 9])
def test_what_was_confirmed_before_a_queue_was_deleted_is_not_owed_any_more(
    lives: list[str], is_fine: bool, at: int
) -> None:
    """Two runs, the second from the incarnation `at` on."""
    trace = open_memory(write_trace([run_of(1, lives[:at]), run_of(2, lives[at:])]))
    judged = [
        any(each.rule == "C2" for each in result.violations)
        for result in (replay_trace(trace), replay_arrays(trace))
    ]
    (by_query,) = violations(trace, [RULES["C2"].sql])
    assert {*judged, bool(by_query)} == {not is_fine}
