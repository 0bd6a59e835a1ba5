"""Q3: a message that is dropped because it has expired had a time to live, which was over.

That a message which was published in the same incarnation had one, the ledger's pass asks of each DROP;
whether its time was over, the machine here compares.  Key: (scope, queue name, sequence id >> 12), as the
ledger's: a time to live goes on while the broker is down, so it is compared across restarts.

    EXPIRY           these messages expire at a time, of the wall clock
    DROP as expired  the queue's wall clock showed a time then; or as released, of a message whose delay was over

============================  ===========================  ========
the last EXPIRY of a message  the time of its DROP         verdict
============================  ===========================  ========
none                          any                          fine: it was published before the trace begins
e                             e or later                   fine
e                             before e                     Q3
============================  ===========================  ========
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.story import Chain, Story, event_of, links_of
from warrenmq.replay.rules.passes.message_life import MORTAL, PUBLISHED, SHIFT, SIZE, is_expired
from warrenmq.replay.rules.passes.queue_ledger import Ledger, Lives
from warrenmq.replay.rules.rule import Exercised, Judge, Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import DEAD_LETTERED, DROP_EXPIRED, DROP_RELEASED, Drop, Ev, Expiry
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T

_EXPIRY = int(Ev.EXPIRY)


class _Moved(Shared[T], of=(Ev.EXPIRY, Ev.DROP)):
    first_seq_id: T
    count: T


_moved = _Moved.getter("t", "seq", "who", "first_seq_id", "count")
_expires_at = Expiry.getter("expires_at")
_expired_at = Drop.getter("expired_at")

Operation = tuple[bool, int, int, int, int, int]
"""(whether it is an EXPIRY, first id, end, microseconds, seq, t)."""


@dataclass(slots=True)
class Times:
    """The times that each incarnation of the queue gave for 4,096 ids."""

    said: dict[Who, list[Operation]] = field(default_factory=dict)


class TimesToLive(Machine):
    """Compares the times at which messages expired with those at which they should."""

    name: ClassVar[str] = "expiry"
    of_one_run: ClassVar[bool] = False
    events: ClassVar[frozenset[int]] = frozenset({Ev.EXPIRY, Ev.DROP})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, tuple[Who, list[Operation]]]]:
        found: dict[int, list[Operation]] = {}
        for row in rows:
            t, seq, who, lo, n = _moved(row)
            is_expiry = who >> 8 & 0xFF == _EXPIRY
            if not is_expiry and not is_expired(who & 0xFFFF):
                continue
            (time,) = (_expires_at if is_expiry else _expired_at)(row)
            at = lo
            while at < lo + n:
                end = min(lo + n, (at & -SIZE) + SIZE)
                found.setdefault(at >> SHIFT, []).append((is_expiry, at, end, time, seq, t))
                at = end
        run = self.runs[piece.run]
        for bucket, operations in found.items():
            yield (run.scope, run.actor_name(piece.actor), bucket), ((piece.run, piece.actor), operations)

    def start(self, key: Key) -> Times:
        return Times()

    def absorb(self, state: Times, summary: tuple[Who, list[Operation]]) -> None:
        who, operations = summary
        state.said.setdefault(who, []).extend(operations)

    def finish(self, key: Key, state: Times, context: TraceContext) -> Outcome:
        name = str(key[1])
        expiries: dict[int, int] = {}
        findings = []
        for who, operations in sorted(state.said.items()):
            for is_expiry, lo, end, time, seq, t in operations:
                ids = range(lo, end)
                if is_expiry:
                    expiries.update(dict.fromkeys(ids, time))
                elif early := [each for each in ids if expiries.get(each, 0) > time]:
                    too_soon = expiries[early[0]] - time
                    text = (
                        f"{len(early)} messages from {early[0]} on expired {too_soon} microseconds too soon"
                    )
                    # a missing row of any incarnation could be a later EXPIRY of the same id
                    needs = context.namesakes(name, who[0])
                    findings.append(
                        Finding("Q3", f"queue {name}", text, ((*who, seq),), t, needs, (early[0],))
                    )
        return Outcome(findings)


def _had_a_limit(word: Any, _before: Any, mark: Any) -> Any:
    """True for expired messages that were published with a time to live in this incarnation; for numbers or arrays."""
    return (is_expired(word) ^ True) | (mark & (PUBLISHED | MORTAL) != PUBLISHED)


def _limitless(
    name: str, _incarnations: list[Who], state: Lives, _context: TraceContext, outcome: Outcome
) -> None:
    for who, life in state.lives.items():
        for odd in life.odd:
            ids = [
                id_ for id_, mark in enumerate(odd.marks, odd.first) if not _had_a_limit(odd.word, 0, mark)
            ]
            if ids:
                text = f"{ids[0]} expired, which has no time to live"
                outcome.findings.append(
                    Finding("Q3", f"queue {name}", text, ((*who, odd.seq),), odd.t, (who,), (ids[0],))
                )


def _expired(story: Story) -> Chain:
    rows = [
        placed
        for placed in story.of_id(story.finding.about[0])
        if event_of(placed) in {Ev.PUBLISH, Ev.EXPIRY, Ev.RECOVERED}
    ]
    sends = [link for placed in rows[:1] if event_of(placed) == Ev.PUBLISH for link in story.sent(placed)]
    return [*sends, *links_of(rows)]


_SQL = """
WITH limits AS (
    SELECT e.run, e.actor, e.seq, q.scope, q.name, e.first_seq_id + n AS id, e.expires_at
    FROM expiry_rows AS e JOIN numbers ON n < e.count JOIN actors AS q ON q.run = e.run AND q.actor = e.actor),
expired AS (
    SELECT d.run, d.actor, d.seq, q.scope, q.name, d.first_seq_id + n AS id, d.expired_at
    FROM drop_rows AS d JOIN numbers ON n < d.count JOIN actors AS q ON q.run = d.run AND q.actor = d.actor
    WHERE d.reason IN (5, 7))
SELECT d.run, d.actor, d.seq FROM expired AS d JOIN limits AS e
  ON e.scope = d.scope AND e.name = d.name AND e.id = d.id AND e.expires_at > d.expired_at
WHERE (e.run < d.run OR (e.run = d.run AND (e.actor < d.actor OR (e.actor = d.actor AND e.seq < d.seq))))
UNION
SELECT d.run, d.actor, d.seq FROM expired AS d JOIN steps AS p ON p.run = d.run AND p.actor = d.actor AND p.id = d.id AND p.event = 20
WHERE NOT EXISTS (SELECT 1 FROM limits AS e WHERE e.run = d.run AND e.actor = d.actor AND e.id = d.id AND e.seq > p.seq)
"""

RULE = Rule(
    id="Q3",
    name="nothing expires too soon",
    text=(
        "A message that is dropped because it has expired had a time to live, which was over by then, whatever the "
        "broker has been through since; a delayed message that was released had a delay, of which the same holds."
    ),
    sources=(
        "docs/reference/classic-queue.md#arguments-and-limits",
        "docs/reference/classic-queue.md#dead-lettering",
    ),
    exercised=Exercised(
        "a message dropped because it had expired, or released",
        {Ev.DROP: (DROP_EXPIRED, DROP_EXPIRED | DEAD_LETTERED, DROP_RELEASED)},
    ),
    machines=(TimesToLive, Ledger),
    judge={Ledger: Judge(_had_a_limit, _limitless)},
    sql=_SQL,
    explain=_expired,
)
