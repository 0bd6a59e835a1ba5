"""A4: a consumer holds no more messages than its prefetch count."""

from __future__ import annotations

from warrenmq.replay.drive.columns import Ints, np
from warrenmq.replay.drive.machines import Finding, Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.story import settle_chain
from warrenmq.replay.rules.passes.settlements import Held, Settled, Settles
from warrenmq.replay.rules.rule import Exercised, Judge, Rule


def _too_many(who: Who, state: Held, context: TraceContext, outcome: Outcome) -> None:
    for over in state.over:
        text = f"consumer {over.consumer} holds {over.held} messages with {over.id}, and its prefetch count is {over.prefetch}"
        evidence = ((*who, over.since), (*who, over.seq))
        outcome.findings.append(
            Finding("A4", f"queue {context.name(who)}", text, evidence, over.t, (who,), (over.id,))
        )


def _within(settled: Settled, *_: Ints) -> bool:
    """True if no consumer held more than the lowest prefetch count that it had; by arrays."""
    return all(
        np.all(settled.most[settled.most[:, 0] == consumer, 1] <= prefetch)
        for consumer, prefetch in settled.added.tolist()
    )


_SQL = """
WITH limits AS (
    SELECT run, actor, consumer, seq, prefetch, lead(seq) OVER (PARTITION BY run, actor, consumer ORDER BY seq) AS until
    FROM consumer_added_rows WHERE prefetch > 0 AND flags & 2 = 0),
held AS (
    SELECT d.run, d.actor, d.seq, d.consumer, d.first_seq_id + n AS id FROM deliver_rows AS d JOIN numbers ON n < d.count
    WHERE d.consumer <> 0 AND d.flags & 2 = 0),
spans AS (
    SELECT h.run, h.actor, h.seq, h.consumer, h.id,
           (SELECT min(s.seq) FROM steps AS s WHERE s.run = h.run AND s.actor = h.actor AND s.id = h.id AND s.seq > h.seq
              AND (s.event IN (24, 25, 26) OR (s.event = 27 AND s.flag & 15 = 1))) AS until
    FROM held AS h)
SELECT d.run, d.actor, d.seq FROM deliver_rows AS d
JOIN limits AS l ON l.run = d.run AND l.actor = d.actor AND l.consumer = d.consumer AND l.seq < d.seq AND coalesce(l.until, d.seq) >= d.seq
JOIN spans AS h ON h.run = d.run AND h.actor = d.actor AND h.consumer = d.consumer AND h.seq <= d.seq AND coalesce(h.until, d.seq + 1) > d.seq
WHERE d.flags & 2 = 0 GROUP BY d.run, d.actor, d.seq, l.prefetch HAVING count(*) > l.prefetch
"""

RULE = Rule(
    id="A4",
    name="prefetch counts hold",
    text="A consumer with a prefetch count of its own holds no more unacked messages than that.",
    sources=("docs/reference/classic-queue.md#consumers", "docs/reference/classic-queue.md#p7"),
    exercised=Exercised("a consumer with a prefetch count"),
    machines=(Settles,),
    judge={Settles: Judge(decide=_too_many, proves=_within)},
    sql=_SQL,
    explain=settle_chain,
)
