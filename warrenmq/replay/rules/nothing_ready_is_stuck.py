"""Q5: no message is ready that could be delivered.

Key: (run, queue actor).  When a queue's mailbox is empty it has just dealt out what it could; it says how
many messages are ready all the same, and how many consumers and waiting gets have room, counted one by one
and not by the rounds in which it serves them (QUEUE_RESTS).

    ready    with room
    any      0            fine: no consumer could take more
    0        any          fine: there is nothing to take
    > 0      > 0          Q5: a message is stuck

There is a row a second at most, so these need no arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import Chain, Link, Story, links_in_time
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import Ev, QueueRests
from warrenmq.trace.index import Row


class Rest(NamedTuple):
    """A QUEUE_RESTS row."""

    ready: int
    with_room: int
    seq: int
    t: int


_rest = QueueRests.getter("ready", "with_room", "seq", "t")


class Rests(Machine):
    """Looks at queues that rest."""

    name: ClassVar[str] = "rests"
    events: ClassVar[frozenset[int]] = frozenset({Ev.QUEUE_RESTS})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Rest]]]:
        yield (piece.run, piece.actor), [Rest(*_rest(row)) for row in rows]

    def finish(self, key: Key, state: list[Rest], context: TraceContext) -> Outcome:
        who = int(key[0]), int(key[1])
        outcome = Outcome()
        stuck = [rest for rest in state if rest.ready > 0 and rest.with_room > 0]
        if stuck:
            ready, room, seq, t = stuck[0]
            text = f"{ready} messages were ready when the queue came to rest, and {room} consumers or gets had room"
            outcome.findings.append(
                Finding("Q5", f"queue {context.name(who)}", text, ((*who, seq),), t, (who,))
            )
        return outcome


def _stuck(story: Story) -> Chain:
    """The last consumer, delivery and publish before the rest."""
    seen = [
        story.near(event, story.last.t, after=False) for event in (Ev.CONSUMER_ADDED, Ev.DELIVER, Ev.PUBLISH)
    ]
    return [*links_in_time(seen), Link(story.run, None, "DELIVER: a consumer or a waiting get had room")]


_SQL = """
SELECT run, actor, seq FROM queue_rests_rows WHERE ready > 0 AND with_room > 0
"""

RULE = Rule(
    id="Q5",
    name="nothing ready is stuck",
    text=(
        "When a queue has nothing else to do, no message is ready that a consumer or a waiting get "
        "with room could have."
    ),
    sources=("docs/reference/classic-queue.md#consumers", "docs/reference/classic-queue.md#p6"),
    exercised=Exercised("a queue that came to rest", {Ev.QUEUE_RESTS: None}),
    machines=(Rests,),
    sql=_SQL,
    explain=_stuck,
)
