"""Q7: a queue is no longer than its max-length, and drops nothing for it that it need not.

Key: (run, queue actor), its rows in their order.  Its ready messages are counted from its rows:

    PUBLISH, RECOVERED, REQUEUE                more
    DELIVER, DROP                              fewer; not of rejected ones, which were delivered before
    QUEUE_LIMITS                               the limit from here on; without such a row a queue has none

======================  ======================================  ================================
row                     of a queue that, when it is full,       Q7 if then
======================  ======================================  ================================
DROP as too many        drops its oldest, by their number       fewer are ready than may be
                        refuses publishes                       it is there at all
PUBLISH                 refuses publishes                       more are ready than may be
QUEUE_RESTS             drops its oldest, and the vhost is up   more are ready than may be
======================  ======================================  ================================

How many bytes the ready messages have no row says: where bytes have a limit, only too many messages are found.  Nothing is
found of a process that lost messages to damage, which count until that is noticed.

Rows between two that matter go on as one: the sum of their changes, and the highest level that a PUBLISH left.
Array form: a queue without a row about limits is fine; of the few others the machine reads all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import Unit, np
from warrenmq.replay.drive.machines import EXERCISED, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import NEEDS_FULL_CHECK, OpenRows, Precheck
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import Chain, Story, links_in_time
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import (
    DEAD_LETTERED,
    DROP_DELETED,
    DROP_LOST,
    DROP_MAXLEN,
    DROP_REJECTED,
    OVERFLOW_DROP_HEAD,
    Ev,
    QueueLimits,
    QueueRests,
)
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T

_MOVES = frozenset({Ev.PUBLISH, Ev.RECOVERED, Ev.REQUEUE, Ev.DELIVER, Ev.DROP})
_PUBLISH, _DELIVER, _DROP = int(Ev.PUBLISH), int(Ev.DELIVER), int(Ev.DROP)
_LIMITS, _RESTS = int(Ev.QUEUE_LIMITS), int(Ev.QUEUE_RESTS)
_LEAVES_NONE = frozenset({DROP_REJECTED, DROP_DELETED})
"""Reasons of drops that change nothing here: those were delivered before, or it is the queue's end."""


class _Moved(Shared[T], of=_MOVES):
    count: T


_count = _Moved.getter("count")
_limits = QueueLimits.getter("overflow", "max_length", "max_length_bytes", "in_force")
_ready = QueueRests.getter("ready")

SPAN, SURPLUS, REST, LIMITS, LOST = range(5)
Step = tuple[int, int, int, int, int]
"""(SPAN, sum, highest after a PUBLISH, seq and t of that or 0), (SURPLUS, messages, 0, seq, t), (REST, ready, 0, seq, t),
(LIMITS, max-length, what it does, seq, t) or (LOST, messages, 0, seq, t)."""
BY_BYTES, IN_FORCE, REFUSES = 1, 2, 4
"""Flags of a limit: there is one of bytes, too; the oldest go at once, as the vhost is up; publishes are refused."""


@dataclass(slots=True)
class Length:
    """The length of a queue, and its limit."""

    ready: int = 0
    limit: int = -1
    does: int = 0
    since: int = 0
    """seq of the last QUEUE_LIMITS, 0 = none."""
    lost: bool = False
    cases: int = 0
    problems: list[tuple[str, int, int, int]] = field(default_factory=list)
    """(text, seq of the QUEUE_LIMITS, seq, t)"""

    def take(self, step: Step) -> None:
        """Handle the next step."""
        what, n, more, seq, t = step
        if what == LIMITS:
            self.limit, self.does, self.since = n, more, seq
        elif what == SPAN:
            if seq and self.limit >= 0 and self.does & REFUSES:
                level = self.ready + more
                self._case(
                    level > self.limit, f"{level} messages were ready when it had taken one in", seq, t
                )
            self.ready += n
        elif what == REST:
            if self.limit >= 0 and self.does & IN_FORCE and not self.does & REFUSES:
                self._case(n > self.limit, f"{n} messages were ready when it came to rest", seq, t)
        else:
            self.ready -= n
            self.lost = self.lost or what == LOST
            if what == SURPLUS and self.since:
                fewer = not self.does & BY_BYTES and (self.limit < 0 or self.ready < self.limit)
                wrong = fewer or self.does & REFUSES != 0
                self._case(wrong, f"{n} messages were dropped as too many, and {self.ready} left", seq, t)

    def _case(self, wrong: bool, text: str, seq: int, t: int) -> None:
        self.cases += 1
        if wrong:
            limit = "it has no max-length" if self.limit < 0 else f"its max-length is {self.limit}"
            self.problems.append((f"{text}; {limit}", self.since, seq, t))


class Lengths(Machine):
    """Counts the ready messages of queues, and compares them with their limits."""

    name: ClassVar[str] = "lengths"
    events: ClassVar[frozenset[int]] = _MOVES | {Ev.QUEUE_LIMITS, Ev.QUEUE_RESTS}

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Step]]]:
        steps: list[Step] = []
        level, highest, at, when = 0, 0, 0, 0
        for row in rows:
            word = row.who & 0xFFFF
            event, reason = word >> 8, word & 0xFF & ~DEAD_LETTERED
            if event == _PUBLISH:
                level += _count(row)[0]
                if not at or level > highest:
                    highest, at, when = level, row.seq, row.t
                continue
            if event == _DELIVER:
                level -= _count(row)[0]
                continue
            if event == _DROP:
                if reason in _LEAVES_NONE:
                    continue
                if reason not in {DROP_MAXLEN, DROP_LOST}:
                    level -= _count(row)[0]
                    continue
                step = (SURPLUS if reason == DROP_MAXLEN else LOST, _count(row)[0], 0, row.seq, row.t)
            elif event == _LIMITS:
                overflow, most, size, in_force = _limits(row)
                refuses = REFUSES * (overflow != OVERFLOW_DROP_HEAD)
                step = (LIMITS, most, refuses | IN_FORCE * in_force | BY_BYTES * (size >= 0), row.seq, row.t)
            elif event == _RESTS:
                step = (REST, _ready(row)[0], 0, row.seq, row.t)
            else:
                level += _count(row)[0]
                continue
            steps += ((SPAN, level, highest, at, when), step)
            level, highest, at, when = 0, 0, 0, 0
        yield (piece.run, piece.actor), [*steps, (SPAN, level, highest, at, when)]

    def start(self, key: Key) -> Length:
        return Length()

    def absorb(self, state: Length, summary: list[Step]) -> None:
        for step in summary:
            state.take(step)

    def finish(self, key: Key, state: Length, context: TraceContext) -> Outcome:
        who, outcome = (int(key[0]), int(key[1])), Outcome()
        if state.lost:
            return outcome
        if state.cases:
            outcome.figures[EXERCISED, "Q7"] = state.cases
        for text, since, seq, t in state.problems:
            rows = ((*who, since), (*who, seq))
            outcome.findings.append(Finding("Q7", f"queue {context.name(who)}", text, rows, t, (who,)))
        return outcome


class LengthsPrecheck(Precheck):
    """The array form of the rule; see the module."""

    machine: ClassVar[type[Machine]] = Lengths

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        for actor in np.unique(unit.of(frozenset({Ev.QUEUE_LIMITS})).actor).tolist():
            yield (unit.run, actor), NEEDS_FULL_CHECK

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, OpenRows]]:
        """Of a unit that is not sound, too, limits alone make a queue one to look at."""
        if any(row.event == _LIMITS for row in rows):
            yield (piece.run, piece.actor), NEEDS_FULL_CHECK

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        return None


def _grown(story: Story) -> Chain:
    """The limit, what came, left and was dropped last, and the row itself."""
    seen = [
        story.near(event, story.last.t, after=False)
        for event in (Ev.RECOVERED, Ev.PUBLISH, Ev.DELIVER, Ev.REQUEUE, Ev.DROP)
    ]
    return links_in_time([*story.evidence[:-1], *seen])


_SQL = """
WITH changes AS (
    SELECT run, actor, seq, count AS change, 1 AS what FROM publish_rows
    UNION ALL SELECT run, actor, seq, count, 0 FROM recovered_rows UNION ALL SELECT run, actor, seq, count, 0 FROM requeue_rows
    UNION ALL SELECT run, actor, seq, -count, 0 FROM deliver_rows
    UNION ALL SELECT run, actor, seq, -count, CASE reason WHEN 6 THEN 2 WHEN 4 THEN 4 ELSE 0 END FROM drop_rows WHERE reason NOT IN (1, 3)
    UNION ALL SELECT run, actor, seq, 0, 3 FROM queue_rests_rows),
levels AS (
    SELECT run, actor, seq, what, sum(change) OVER (PARTITION BY run, actor ORDER BY seq) AS ready FROM changes),
limits AS (
    SELECT run, actor, seq, overflow, max_length, max_length_bytes, in_force,
           lead(seq) OVER (PARTITION BY run, actor ORDER BY seq) AS until FROM queue_limits_rows)
SELECT q.run, q.actor, q.seq FROM levels AS q
JOIN limits AS l ON l.run = q.run AND l.actor = q.actor AND l.seq < q.seq AND coalesce(l.until, q.seq) >= q.seq
LEFT JOIN queue_rests_rows AS r ON r.run = q.run AND r.actor = q.actor AND r.seq = q.seq
WHERE NOT EXISTS (SELECT 1 FROM levels AS d WHERE d.run = q.run AND d.actor = q.actor AND d.what = 4)
  AND ((q.what = 1 AND l.overflow <> 1 AND l.max_length >= 0 AND q.ready > l.max_length)
    OR (q.what = 2 AND (l.overflow <> 1 OR (l.max_length_bytes < 0 AND (l.max_length < 0 OR q.ready < l.max_length))))
    OR (q.what = 3 AND l.overflow = 1 AND l.in_force = 1 AND l.max_length >= 0 AND r.ready > l.max_length))
"""

RULE = Rule(
    id="Q7",
    name="length limits hold",
    text=(
        "A queue with a max-length that drops its oldest messages has no more when it comes to rest, one that "
        "refuses publishes takes in no more, and none drops more as too many than it has to."
    ),
    sources=(
        "docs/reference/classic-queue.md#arguments-and-limits",
        "docs/reference/classic-queue.md#publish-path",
    ),
    exercised=Exercised(
        "a message dropped as too many, or a queue with a limit that took messages in or came to rest"
    ),
    machines=(Lengths,),
    sql=_SQL,
    explain=_grown,
)
