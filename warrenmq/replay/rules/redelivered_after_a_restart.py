"""Q4: a message that may have been delivered before a restart is flagged redelivered."""

from __future__ import annotations

from warrenmq.replay.drive.columns import np
from warrenmq.replay.drive.machines import EXERCISED, Finding, Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.story import restart_chain
from warrenmq.replay.rules.passes.message_life import RECOVER, Life
from warrenmq.replay.rules.passes.queue_ledger import (
    WAS_DELIVERED,
    WAS_RECOVERED,
    Alone,
    Ledger,
    Lives,
    ids_with,
)
from warrenmq.replay.rules.rule import Exercised, Judge, Rule
from warrenmq.trace.events import DIRTY, REDELIVERED, QueueRecovered


def _compare_flags(
    name: str, incarnations: list[Who], state: Lives, context: TraceContext, outcome: Outcome
) -> None:
    before = 0
    for who in incarnations:
        life = state.lives.get(who) or Life()
        recovered, delivered = ids_with(life.marks, WAS_RECOVERED), ids_with(life.marks, WAS_DELIVERED)
        before = recovered if _was_dirty(who, context) else before & recovered
        outcome.figures[EXERCISED, "Q4"] += (before & delivered).bit_count()
        for place, (seq, t) in life.unflagged.items():
            if before >> 8 * place & 1:
                id_ = state.base + place
                text = f"delivered {id_} without the redelivered flag, which may have been delivered before the restart"
                needs = context.namesakes(name, who[0])
                outcome.findings.append(
                    Finding("Q4", f"queue {name}", text, ((*who, seq),), t, needs, (id_,))
                )
        before = before | delivered


def _was_dirty(who: Who, context: TraceContext) -> bool:
    row = context.actor_summary(who).recovered
    return row is not None and QueueRecovered.of(row).recovery == DIRTY


def _are_flagged(alone: Alone, context: TraceContext, outcome: Outcome) -> bool:
    """True if the first incarnation that has rows of these ids flags them; by arrays."""
    outcome.figures[EXERCISED, "Q4"] = 0
    if not _was_dirty(alone.who, context):
        return True
    walked = alone.walked
    recovered = (walked.entries.word.take(walked.begins) >> 8 == RECOVER) & (walked.delivery >= 0)
    flags = walked.entries.word.take(walked.delivery[recovered])
    outcome.figures[EXERCISED, "Q4"] = int(np.count_nonzero(recovered))
    return bool(np.all(flags & REDELIVERED))


_SQL = """
WITH found AS (
    SELECT s.run, s.actor, a.scope, a.name, s.id, min(CASE s.event WHEN 31 THEN s.seq END) AS recovered,
           min(CASE s.event WHEN 24 THEN s.seq END) AS delivered
    FROM steps AS s JOIN actors AS a ON a.run = s.run AND a.actor = s.actor GROUP BY s.run, s.actor, a.scope, a.name, s.id),
lives AS (
    SELECT *, sum(CASE WHEN recovered IS NULL THEN 1 ELSE 0 END) OVER (PARTITION BY scope, name, id ORDER BY run, actor) AS message
    FROM found)
SELECT d.run, d.actor, d.delivered FROM lives AS d
JOIN deliver_rows AS r ON r.run = d.run AND r.actor = d.actor AND r.seq = d.delivered AND r.flags & 1 = 0
WHERE d.recovered IS NOT NULL AND (
    EXISTS (SELECT 1 FROM queue_recovered_rows AS q WHERE q.run = d.run AND q.actor = d.actor AND q.recovery = 2)
    OR EXISTS (SELECT 1 FROM lives AS e WHERE e.scope = d.scope AND e.name = d.name AND e.id = d.id AND e.message = d.message
               AND e.delivered IS NOT NULL AND (e.run < d.run OR (e.run = d.run AND e.actor < d.actor)))
    OR EXISTS (SELECT 1 FROM lives AS e JOIN queue_recovered_rows AS q ON q.run = e.run AND q.actor = e.actor AND q.recovery = 2
               WHERE e.scope = d.scope AND e.name = d.name AND e.id = d.id AND e.message = d.message AND e.recovered IS NOT NULL
               AND (e.run < d.run OR (e.run = d.run AND e.actor < d.actor)))
)
"""
"""An id that is not recovered is another message's: ids may begin again after a crash."""

RULE = Rule(
    id="Q4",
    name="redelivered after a restart",
    text=(
        "A message that was recovered is flagged redelivered when it is delivered for the first time, "
        "if an earlier incarnation of its queue had delivered it, or if the queue was not stopped "
        "cleanly."
    ),
    sources=("docs/reference/classic-queue.md#delivery-marks", "docs/reference/classic-queue.md#p3"),
    exercised=Exercised("a recovered message that may have been delivered before, and is delivered"),
    machines=(Ledger,),
    judge={Ledger: Judge(decide=_compare_flags, proves=_are_flagged)},
    sql=_SQL,
    explain=restart_chain,
)
