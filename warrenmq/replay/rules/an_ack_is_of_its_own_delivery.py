"""A1: an ack settles what was delivered under the tag that it names."""

from __future__ import annotations

from warrenmq.replay.explain.story import settle_chain
from warrenmq.replay.rules.passes.settlements import Settles
from warrenmq.replay.rules.rule import Exercised, Rule

_SQL = """
WITH delivered AS (
    SELECT d.run, d.actor, d.seq, d.first_seq_id + n AS id, d.consumer, d.delivery_tag + n AS tag
    FROM deliver_rows AS d JOIN numbers ON n < d.count WHERE d.flags & 2 = 0 AND d.consumer <> 0),
named AS (
    SELECT run, actor, seq, first_seq_id, count, multiple AS up_to, consumer, delivery_tag FROM ack_rows
    UNION ALL SELECT run, actor, seq, first_seq_id, count, CASE cause WHEN 1 THEN 1 ELSE 0 END, consumer, delivery_tag FROM requeue_rows
              WHERE cause <> 2
    UNION ALL SELECT run, actor, seq, first_seq_id, count, multiple, consumer, delivery_tag FROM drop_rows WHERE reason = 1),
settled AS (
    SELECT s.run, s.actor, s.seq, s.count, s.up_to, s.consumer, s.first_seq_id + n AS id,
           s.delivery_tag + CASE s.up_to WHEN 0 THEN n ELSE 0 END AS tag, s.delivery_tag AS named
    FROM named AS s JOIN numbers ON n < s.count WHERE s.consumer <> 0),
pairs AS (
    SELECT s.run, s.actor, s.seq, s.count, s.up_to, s.consumer, s.tag, s.named, d.consumer AS holder, d.tag AS held
    FROM settled AS s JOIN delivered AS d ON d.run = s.run AND d.actor = s.actor AND d.id = s.id
    WHERE d.seq = (SELECT max(x.seq) FROM delivered AS x
                   WHERE x.run = s.run AND x.actor = s.actor AND x.id = s.id AND x.seq < s.seq))
SELECT p.run, p.actor, p.seq FROM pairs AS p
WHERE p.holder <> p.consumer OR (p.up_to = 1 AND p.held > p.tag)
   OR (p.up_to = 0 AND p.held <> p.tag AND NOT (p.held < p.tag AND (p.count > 1 OR EXISTS (
    SELECT 1 FROM settled AS o WHERE o.run = p.run AND o.actor = p.actor AND o.seq <> p.seq AND o.up_to = 0
              AND o.consumer = p.consumer AND o.named = p.named))))
"""

RULE = Rule(
    id="A1",
    name="an ack is of its own delivery",
    text=(
        "What a client acks, rejects or requeues under a delivery tag is the message that was "
        "delivered under it to that consumer; with multiple, what was delivered up to it."
    ),
    sources=("docs/reference/classic-queue.md#channel-methods",),
    exercised=Exercised("a message settled by a delivery tag"),
    machines=(Settles,),
    sql=_SQL,
    explain=settle_chain,
)
