"""A3: a consumer that is gone holds nothing."""

from __future__ import annotations

from warrenmq.replay.drive.columns import Ints, np
from warrenmq.replay.drive.machines import Finding, Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.story import settle_chain
from warrenmq.replay.rules.passes.settlements import GIVEN_BACK, NEVER, Held, Settled, Settles, next_of
from warrenmq.replay.rules.rule import Exercised, Judge, Rule


def _kept_or_given(who: Who, state: Held, context: TraceContext, outcome: Outcome) -> None:
    subject = f"queue {context.name(who)}"
    for late in state.late:
        text = f"{late.id} was delivered to consumer {late.consumer}, which was gone"
        evidence = ((*who, late.since), (*who, late.seq))
        outcome.findings.append(Finding("A3", subject, text, evidence, late.t, (who,), (late.id,)))
    for kept in state.kept:
        first = min(kept.ids)
        text = f"consumer {kept.consumer} is gone, and {len(kept.ids)} messages from {first} on did not come back"
        outcome.findings.append(Finding("A3", subject, text, ((*who, kept.since),), kept.t, (who,), (first,)))


def _nothing_kept(settled: Settled, gone: Ints, lasts: Ints, firsts: Ints) -> bool:
    """True if consumers that are gone got nothing more, and what they gave back came back at once; by arrays."""
    last_of: dict[int, int] = {}
    for consumer, seq in lasts.tolist() if len(gone) else ():
        last_of[consumer] = max(last_of.get(consumer, 0), seq)
    for consumer, taken, seq, next_other in gone.tolist():
        if last_of.get(consumer, 0) > seq:
            return False
        if taken < 0:
            continue
        first, end = (np.searchsorted(settled.consumer, consumer, side=side) for side in ("left", "right"))
        tag, how, when = settled.tag[first:end], settled.how[first:end], settled.when[first:end]
        later = next_other or int(next_of(firsts, np.array([seq]))[0]) or NEVER
        if np.any((tag > taken) & (when > seq) & ((how != GIVEN_BACK) | (when >= later))):
            return False
    return True


_SQL = """
WITH delivered AS (
    SELECT d.run, d.actor, d.seq, d.flags, d.first_seq_id + n AS id, d.consumer, d.delivery_tag + n AS tag
    FROM deliver_rows AS d JOIN numbers ON n < d.count WHERE d.consumer <> 0),
held AS (
    SELECT g.run, g.actor, g.seq, d.id,
           (SELECT min(s.seq) FROM steps AS s WHERE s.run = d.run AND s.actor = d.actor AND s.id = d.id AND s.seq > d.seq
              AND (s.event <> 27 OR s.flag & 15 = 1)) AS next_step
    FROM consumer_gone_rows AS g JOIN delivered AS d ON d.run = g.run AND d.actor = g.actor AND d.consumer = g.consumer AND d.seq < g.seq
    WHERE g.last_tag >= 0 AND d.tag > g.last_tag AND d.flags & 2 = 0),
others AS (
    SELECT run, actor, seq FROM delivered UNION SELECT run, actor, seq FROM ack_rows
    UNION SELECT run, actor, seq FROM requeue_rows WHERE cause <> 2 UNION SELECT run, actor, seq FROM drop_rows WHERE reason = 1
    UNION SELECT run, actor, seq FROM qi_sync_rows UNION SELECT run, actor, seq FROM queue_closed_rows)
SELECT d.run, d.actor, d.seq FROM delivered AS d JOIN consumer_gone_rows AS g
  ON g.run = d.run AND g.actor = d.actor AND g.consumer = d.consumer AND g.seq < d.seq
UNION
SELECT h.run, h.actor, h.seq FROM held AS h
WHERE (h.next_step IS NULL OR h.next_step > h.seq) AND EXISTS (
    SELECT 1 FROM others AS o WHERE o.run = h.run AND o.actor = h.actor AND o.seq > h.seq AND o.seq <= coalesce(h.next_step, o.seq))
"""

RULE = Rule(
    id="A3",
    name="unsettled deliveries come back",
    text=(
        "When a consumer is cancelled, what it had not taken is requeued at once, and when its "
        "channel ends, whatever it held; it gets nothing more."
    ),
    sources=("docs/reference/classic-queue.md#consumers", "docs/reference/classic-queue.md#p5"),
    exercised=Exercised("a consumer that went"),
    machines=(Settles,),
    judge={Settles: Judge(decide=_kept_or_given, proves=_nothing_kept)},
    sql=_SQL,
    explain=settle_chain,
)
