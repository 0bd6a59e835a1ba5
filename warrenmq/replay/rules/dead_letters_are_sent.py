"""Q8: what a queue says it dead-letters it sends on, each message once.

Key: (run, queue actor), its rows in their order.  A queue that has a dead-letter exchange owes a copy of each message
that it drops as dead-lettered (DROP).  It sends them when it has handled what made it drop them, before it syncs its
index or stops:

    SEND to a queue           a copy for one queue or several: as many copies as there are message ids
    SEND to the vhost         perhaps a copy for a queue that sleeps
    UNROUTED                  copies that no queue got: none is bound, or the exchange is gone

==============================  ====================================================  ==
row                             when                                                  Q8
==============================  ====================================================  ==
SEND to a queue                 more copies were sent than were owed by then          Q8
QI_SYNC, ACTOR_STOP in order    more are owed than were sent, in all three ways       Q8
==============================  ====================================================  ==

Nothing is asked of a queue that dead-letters what it refuses: it never took that in, and drops nothing.

Array form: a queue that dead-letters nothing is fine; of the few others the machine reads all rows.
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
    OVERFLOW_REJECT_DLX,
    ActorStop,
    Drop,
    Ev,
    QueueLimits,
    Reason,
    Send,
    Unrouted,
)
from warrenmq.trace.index import Row

_DROP, _SEND, _UNROUTED = int(Ev.DROP), int(Ev.SEND), int(Ev.UNROUTED)
_LIMITS, _STOP = int(Ev.QUEUE_LIMITS), int(Ev.ACTOR_STOP)
_dropped = Drop.getter("count", "dead_lettered")
_sent = Send.getter("message", "receiver")
_unrouted = Unrouted.getter("count")
_overflow = QueueLimits.getter("overflow")
_reason = ActorStop.getter("reason")

OWES, SENDS, FORWARDS, NOBODY, SETTLES, REFUSES = range(6)
Step = tuple[int, int, int, int]
"""(OWES, messages, seq, t), (SENDS, message id, ...), (FORWARDS, 1, ...), (NOBODY, messages, ...), (SETTLES or REFUSES, 0, ...)."""
QUEUE, VHOST = "QueueProcess", "VhostProcess"


@dataclass(slots=True)
class Letters:
    """The dead letters of one queue process."""

    owed: int = 0
    copies: int = 0
    last: int = 0
    """Message id of the last copy."""
    elsewhere: int = 0
    """Copies that no SEND of a message shows."""
    since: int = 0
    """seq of the last DROP that dead-letters."""
    refuses: bool = False
    problems: list[tuple[str, int, int, int]] = field(default_factory=list)
    """(text, seq of the DROP, seq, t)"""

    def take(self, step: Step) -> None:
        """Handle the next step; of each kind of problem the first is enough."""
        what, n, seq, t = step
        if what == OWES:
            self.owed += n
            self.since = seq
        elif what == SENDS:
            self.copies += n != self.last
            self.last = n
            if self.copies == self.owed + 1:
                self._find(
                    f"it sent {self.copies} dead letters, and had dropped {self.owed} messages for them",
                    seq,
                    t,
                )
        elif what == SETTLES:
            done = self.copies + self.elsewhere
            if done < self.owed:
                self._find(
                    f"it dropped {self.owed} messages as dead letters, and had sent {done} of them", seq, t
                )
                self.elsewhere += self.owed - done
        elif what == REFUSES:
            self.refuses = True
        else:
            self.elsewhere += n

    def _find(self, text: str, seq: int, t: int) -> None:
        self.problems.append((text, self.since, seq, t))


class DeadLetters(Machine):
    """Counts what queues owe their dead-letter exchanges, and what they send."""

    name: ClassVar[str] = "letters"
    events: ClassVar[frozenset[int]] = frozenset(
        {Ev.DROP, Ev.SEND, Ev.UNROUTED, Ev.QI_SYNC, Ev.QUEUE_LIMITS, Ev.ACTOR_STOP}
    )

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Step]]]:
        actors = self.runs[piece.run].actors
        entry = actors.get(piece.actor)
        if entry is None or entry.kind != QUEUE:
            return
        steps = [step for row in rows if (step := self._step(piece.run, row)) is not None]
        if steps:
            yield (piece.run, piece.actor), steps

    def _step(self, run: int, row: Row) -> Step | None:
        match row.event:
            case Ev.DROP:
                count, dead_lettered = _dropped(row)
                return (OWES, count, row.seq, row.t) if dead_lettered else None
            case Ev.SEND:
                message, receiver = _sent(row)
                entry = self.runs[run].actors.get(receiver)
                if entry is None or entry.kind == VHOST:
                    return FORWARDS, 1, row.seq, row.t
                return (SENDS, message, row.seq, row.t) if entry.kind == QUEUE and message else None
            case Ev.UNROUTED:
                return NOBODY, _unrouted(row)[0], row.seq, row.t
            case Ev.QUEUE_LIMITS:
                return (REFUSES, 0, row.seq, row.t) if _overflow(row)[0] == OVERFLOW_REJECT_DLX else None
            case Ev.ACTOR_STOP:
                in_order = _reason(row)[0] in {Reason.NORMAL, Reason.SHUTDOWN}
                return (SETTLES, 0, row.seq, row.t) if in_order else None
            case _:
                return SETTLES, 0, row.seq, row.t

    def start(self, key: Key) -> Letters:
        return Letters()

    def absorb(self, state: Letters, summary: list[Step]) -> None:
        for step in summary:
            state.take(step)

    def finish(self, key: Key, state: Letters, context: TraceContext) -> Outcome:
        who, outcome = (int(key[0]), int(key[1])), Outcome()
        if state.refuses or not state.owed:
            return outcome
        outcome.figures[EXERCISED, "Q8"] = state.owed
        for text, since, seq, t in state.problems:
            rows = tuple((*who, each) for each in (since, seq) if each)
            outcome.findings.append(Finding("Q8", f"queue {context.name(who)}", text, rows, t, (who,)))
        return outcome


class DeadLettersPrecheck(Precheck):
    """The array form of the rule; see the module."""

    machine: ClassVar[type[Machine]] = DeadLetters

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        drops = unit.of(frozenset({Ev.DROP}))
        for actor in np.unique(drops.actor[Drop.of(drops).dead_lettered != 0]).tolist():
            yield (unit.run, actor), NEEDS_FULL_CHECK

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, OpenRows]]:
        """Of a unit that is not sound, too, a dead letter alone makes a queue one to look at."""
        if any(row.event == _DROP and _dropped(row)[1] for row in rows):
            yield (piece.run, piece.actor), NEEDS_FULL_CHECK

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        return None


def _dropped_before(story: Story) -> Chain:
    """The DROP, what was sent last, and the row itself."""
    seen = [story.near(event, story.last.t, after=False) for event in (Ev.DROP, Ev.SEND, Ev.UNROUTED)]
    return links_in_time([*story.evidence[:-1], *seen])


_SQL = """
WITH queues AS (
    SELECT a.run, a.actor FROM actors AS a WHERE a.kind = 'QueueProcess'
      AND EXISTS (SELECT 1 FROM drop_rows AS d WHERE d.run = a.run AND d.actor = a.actor AND d.dead_lettered = 1)
      AND NOT EXISTS (SELECT 1 FROM queue_limits_rows AS l WHERE l.run = a.run AND l.actor = a.actor AND l.overflow = 3)),
sends AS (
    SELECT s.run, s.actor, s.seq, s.message, coalesce(r.kind, 'VhostProcess') AS kind FROM send_rows AS s
    JOIN queues AS q ON q.run = s.run AND q.actor = s.actor LEFT JOIN actors AS r ON r.run = s.run AND r.actor = s.receiver),
copies AS (
    SELECT run, actor, seq, message, coalesce(lag(message) OVER (PARTITION BY run, actor ORDER BY seq), 0) AS before
    FROM sends WHERE kind = 'QueueProcess' AND message <> 0),
counted AS (
    SELECT d.run, d.actor, d.seq, d.count AS owed, 0 AS copies, 0 AS elsewhere, 0 AS what FROM drop_rows AS d WHERE d.dead_lettered = 1
    UNION ALL SELECT run, actor, seq, 0, CASE WHEN message <> before THEN 1 ELSE 0 END, 0, 1 FROM copies
    UNION ALL SELECT run, actor, seq, 0, 0, 1, 0 FROM sends WHERE kind = 'VhostProcess'
    UNION ALL SELECT run, actor, seq, 0, 0, count, 0 FROM unrouted_rows
    UNION ALL SELECT run, actor, seq, 0, 0, 0, 2 FROM qi_sync_rows
    UNION ALL SELECT run, actor, seq, 0, 0, 0, 2 FROM actor_stop_rows WHERE reason IN (1, 2)),
sums AS (
    SELECT run, actor, seq, what, sum(owed) OVER w AS owed, sum(copies) OVER w AS copies, sum(elsewhere) OVER w AS elsewhere
    FROM counted WINDOW w AS (PARTITION BY run, actor ORDER BY seq))
SELECT s.run, s.actor, s.seq FROM sums AS s JOIN queues AS q ON q.run = s.run AND q.actor = s.actor
WHERE (s.what = 1 AND s.copies > s.owed) OR (s.what = 2 AND s.copies + s.elsewhere < s.owed)
"""

RULE = Rule(
    id="Q8",
    name="dead letters are sent",
    text=(
        "Each message that a queue drops as a dead letter it publishes to its dead-letter exchange, once, before it "
        "syncs its index or stops, or says that no queue got it."
    ),
    sources=("docs/reference/classic-queue.md#dead-lettering",),
    exercised=Exercised("a message dropped as a dead letter"),
    machines=(DeadLetters,),
    sql=_SQL,
    explain=_dropped_before,
)
