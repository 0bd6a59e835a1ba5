"""Machine of queues that rest: Q5.

Key: (run, queue actor).  When a queue's mailbox is empty it has just dealt out what it could; it says how many messages are ready
all the same, and how many consumers and waiting gets have room, counted one by one and not by the rounds in which it serves
them (QUEUE_RESTS).

    ready    with room
    any      0            fine: nobody could take more
    0        any          fine: there is nothing to take
    > 0      > 0          Q5: a message is stuck

There is a row a second at most, so these need no arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from warrenmq.replay.drive.machines import JUDGED, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import Ev
from warrenmq.trace.index import Row

Rest = tuple[int, int, int, int]
"""(ready messages, consumers with room, seq, t)"""


class Rests(Machine):
    """See the module."""

    name: ClassVar[str] = "rests"
    events: ClassVar[frozenset[int]] = frozenset({Ev.QUEUE_RESTS})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Rest]]]:
        yield (piece.run, piece.actor), [(row[5], row[6], row[1], row[0]) for row in rows]

    def start(self, key: Key) -> list[Rest]:
        return []

    def absorb(self, state: list[Rest], summary: list[Rest]) -> None:
        state += summary

    def finish(self, key: Key, state: list[Rest], context: TraceContext) -> Outcome:
        who = int(key[0]), int(key[1])
        outcome = Outcome()
        outcome.figures[JUDGED, "Q5"] = len(state)
        stuck = [rest for rest in state if rest[0] > 0 and rest[1] > 0]
        if stuck:
            ready, room, seq, t = stuck[0]
            text = f"{ready} messages were ready when the queue came to rest, and {room} consumers or gets had room"
            outcome.findings.append(
                Finding("Q5", f"queue {context.name(who)}", text, ((*who, seq),), t, (who,))
            )
        return outcome
