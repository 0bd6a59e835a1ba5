"""Q1: the order of a queue, and the states of its messages."""

from __future__ import annotations

from warrenmq.replay.explain.story import queue_chain
from warrenmq.replay.rules.passes.queue_ledger import Ledger
from warrenmq.replay.rules.passes.ready_order import Fifo
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import Ev

_SQL = """
WITH states AS (
    SELECT run, actor, seq, t, id, event, flag,
           CASE WHEN event IN (20, 31, 26) THEN 'ready'
                WHEN event = 24 AND flag & 2 = 0 THEN 'unacked' ELSE 'gone' END AS becomes
    FROM steps),
moves AS (
    SELECT run, actor, seq, id, event, flag, becomes,
           coalesce(lag(becomes) OVER (PARTITION BY run, actor, id ORDER BY seq), 'none') AS was,
           lead(seq) OVER (PARTITION BY run, actor, id ORDER BY seq) AS until
    FROM states),
first_deliveries AS (
    SELECT run, actor, id, min(seq) AS first FROM steps WHERE event = 24 GROUP BY run, actor, id)
SELECT run, actor, seq FROM moves
WHERE CASE WHEN event IN (20, 31) THEN was <> 'none'
           WHEN event = 24 THEN was <> 'ready'
           WHEN event IN (25, 26) THEN was <> 'unacked'
           WHEN event = 27 AND flag & 15 = 1 THEN was <> 'unacked'
           WHEN event = 27 AND flag = 3 THEN was NOT IN ('ready', 'unacked')
           ELSE was <> 'ready' END
UNION
SELECT m.run, m.actor, m.seq FROM moves AS m JOIN first_deliveries AS f ON f.run = m.run AND f.actor = m.actor AND f.id = m.id
WHERE m.event = 24 AND ((m.seq > f.first AND m.flag & 1 = 0)
   OR (m.seq = f.first AND m.flag & 1 = 1 AND EXISTS (
        SELECT 1 FROM steps AS p WHERE p.run = m.run AND p.actor = m.actor AND p.id = m.id AND p.event = 20)))
UNION
SELECT d.run, d.actor, d.seq FROM moves AS d JOIN moves AS r
  ON r.run = d.run AND r.actor = d.actor AND r.becomes = 'ready' AND r.seq < d.seq AND coalesce(r.until, d.seq + 1) > d.seq
WHERE d.event = 24 AND (r.id >> 48 > d.id >> 48 OR (r.id >> 48 = d.id >> 48 AND r.id < d.id))
UNION
SELECT p.run, p.actor, p.seq FROM moves AS p JOIN moves AS o
  ON o.run = p.run AND o.actor = p.actor AND o.seq < p.seq AND o.id >> 48 = p.id >> 48 AND o.id >= p.id
WHERE p.event = 20 AND o.event IN (20, 31)
"""

RULE = Rule(
    id="Q1",
    name="first in, first out",
    text=(
        "Sequence ids rise; a delivery takes the smallest ready one, of the highest priority; a "
        "message is acked or requeued only while it is unacked, and is flagged redelivered if, and "
        "only if, it was delivered before."
    ),
    sources=(
        "docs/reference/classic-queue.md#five-queues",
        "docs/reference/classic-queue.md#priority-queues",
        "docs/reference/classic-queue.md#p1",
        "docs/reference/classic-queue.md#p2",
        "docs/reference/classic-queue.md#p3",
        "docs/reference/classic-queue.md#p4",
        "docs/reference/classic-queue.md#p5",
        "docs/reference/classic-queue.md#p22",
    ),
    exercised=Exercised(
        "a message that is published, delivered, acked, requeued or dropped",
        dict.fromkeys((Ev.PUBLISH, Ev.DELIVER, Ev.ACK, Ev.REQUEUE, Ev.DROP)),
    ),
    machines=(Fifo, Ledger),
    sql=_SQL,
    explain=queue_chain,
)
