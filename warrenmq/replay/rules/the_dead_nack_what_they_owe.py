"""C5: what a queue process owed when it ended is nacked before its supervisor hears of the end.

Key: (run, queue actor).  A publish that wants a confirm has a CONFIRM of its queue, or a NACKED row of
whoever found the process dead; there may be more of these, for publishes that it never took in.

    wanted - confirmed    nacked    CHILD_EXIT     then
    any                   any       none           the supervisor did not hear: nothing is known
    0                     any       there          fine
    n                     >= n      there          fine
    n                     < n       there          C5: publishers wait for ever

C3 judges what a clean stop leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from warrenmq.replay.drive.columns import Rows
from warrenmq.replay.drive.machines import EXERCISED, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.story import Chain, Link, Story, links_of
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import STRANGER, Chunk
from warrenmq.trace.events import WANTS_CONFIRM, ChildExit, Confirm, Ev, Nacks, Publish
from warrenmq.trace.index import Row

_publish = Publish.getter("flags", "count")
_count = {int(Ev.CONFIRM): Confirm.getter("count"), int(Ev.NACKED): Nacks.getter("count")}
_queue, _child = Nacks.getter("queue"), ChildExit.getter("child")


class Share(NamedTuple):
    """The part of some rows in what a queue process owes."""

    wanted: int = 0
    answered: int = 0
    end: tuple[int, int, int] | None = None
    """(actor, seq, t) of the CHILD_EXIT."""


class Answers(Machine):
    """Counts what was to be confirmed, and what was answered."""

    name: ClassVar[str] = "answers"
    events: ClassVar[frozenset[int]] = frozenset({Ev.PUBLISH, Ev.CONFIRM, Ev.NACKED, Ev.CHILD_EXIT})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Share]]:
        wanted = answered = 0
        for row in rows:
            if row.event == Ev.PUBLISH:
                flags, count = _publish(row)
                wanted += count if flags & WANTS_CONFIRM else 0
            elif row.event == Ev.CONFIRM:
                answered += _count[row.event](row)[0]
            else:
                yield from self._of_others(piece, row)
        if wanted or answered:
            yield (piece.run, piece.actor), Share(wanted, answered)

    def fold(self, piece: Chunk, rows: Rows) -> Iterator[tuple[Key, Share]]:
        """Report the sums of columns."""
        event = rows.event
        publishes, confirms = Publish.of(rows.where(event == Ev.PUBLISH)), rows.where(event == Ev.CONFIRM)
        wants = publishes.flags & WANTS_CONFIRM != 0
        wanted, answered = int(publishes.count[wants].sum()), int(Confirm.of(confirms).count.sum())
        if wanted or answered:
            yield (piece.run, piece.actor), Share(wanted, answered)
        for row in rows.where(rows.are((Ev.NACKED, Ev.CHILD_EXIT))).tuples():
            yield from self._of_others(piece, row)

    def _of_others(self, piece: Chunk, row: Row) -> Iterator[tuple[Key, Share]]:
        """A row that another actor wrote about the queue's process."""
        if row.event == Ev.NACKED:
            yield (piece.run, _queue(row)[0]), Share(answered=_count[row.event](row)[0])
        else:
            yield (piece.run, _child(row)[0]), Share(end=(row.actor, row.seq, row.t))

    def absorb(self, state: list[Share], summary: Share) -> None:
        before = state.pop() if state else Share()
        state.append(
            Share(
                before.wanted + summary.wanted, before.answered + summary.answered, summary.end or before.end
            )
        )

    def finish(self, key: Key, state: list[Share], context: TraceContext) -> Outcome:
        who, outcome = (int(key[0]), int(key[1])), Outcome()
        wanted, answered, end = state[0]
        if not wanted or end is None or context.actor_summary(who).closed is not None:
            return outcome
        outcome.figures[EXERCISED, "C5"] = wanted
        if answered < wanted:
            supervisor, seq, t = end
            text = (
                f"its process has ended, and {wanted - answered} publishes were neither confirmed nor nacked"
            )
            finding = Finding(
                "C5",
                f"queue {context.name(who)}",
                text,
                ((who[0], supervisor, seq),),
                t,
                _needs(who, context),
            )
            outcome.findings.append(finding)
        return outcome


def _needs(who: Who, context: TraceContext) -> tuple[Who, ...]:
    """The queue's process, the actors that nacked for it, and those that may have, of which nothing is known."""
    stranger = who[0], STRANGER
    return (who, *context.started_by(who), *((stranger,) if stranger in context.coverage else ()))


def _unanswered(story: Story) -> Chain:
    """The end of the process, and no nack before it."""
    return [*links_of(story.evidence[:1]), Link(story.run, None, "NACKED: publishes had no answer")]


_SQL = """
WITH wanted AS (
    SELECT run, actor, sum(count) AS n FROM publish_rows WHERE flags & 2 = 2 GROUP BY run, actor),
answered AS (
    SELECT run, actor, sum(n) AS n FROM (
        SELECT run, actor, count AS n FROM confirm_rows UNION ALL SELECT run, queue, count FROM nacked_rows) AS a GROUP BY run, actor)
SELECT x.run, x.actor, x.seq FROM child_exit_rows AS x JOIN wanted AS w ON w.run = x.run AND w.actor = x.child
LEFT JOIN answered AS a ON a.run = x.run AND a.actor = x.child
WHERE coalesce(a.n, 0) < w.n
  AND NOT EXISTS (SELECT 1 FROM queue_closed_rows AS c WHERE c.run = x.run AND c.actor = x.child)
"""

RULE = Rule(
    id="C5",
    name="the dead nack what they owe",
    text=(
        "When a queue's process ends otherwise than cleanly, every publish that it had not confirmed is nacked before its supervisor hears of it."
    ),
    sources=(
        "docs/reference/classic-queue.md#confirms-inside-the-queue",
        "docs/reference/classic-queue.md#p12",
    ),
    exercised=Exercised("a publish that wants a confirm, to a queue process that crashed or was deleted"),
    machines=(Answers,),
    sql=_SQL,
    explain=_unanswered,
)
