"""Q2: a queue drops by itself what has been in it longest."""

from __future__ import annotations

from warrenmq.replay.explain.story import queue_chain
from warrenmq.replay.rules.passes.ready_order import SHED, SHEDS, Fifo, Ready
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
    FROM states)
SELECT d.run, d.actor, d.seq FROM moves AS d JOIN moves AS r
  ON r.run = d.run AND r.actor = d.actor AND r.becomes = 'ready' AND r.seq < d.seq AND coalesce(r.until, d.seq + 1) > d.seq
WHERE d.event = 27 AND d.flag & 15 IN (5, 6) AND (r.id >> 48 > d.id >> 48 OR (r.id >> 48 = d.id >> 48 AND r.id < d.id))
"""

RULE = Rule(
    id="Q2",
    name="the oldest goes first",
    text=(
        "What a queue drops by itself, because it has expired or is too much, has the smallest ready "
        "sequence id, of the highest priority."
    ),
    sources=(
        "docs/reference/classic-queue.md#arguments-and-limits",
        "docs/reference/classic-queue.md#priority-queues",
    ),
    exercised=Exercised("a message dropped because it had expired or was too much", {Ev.DROP: SHEDS}),
    machines=(Fifo,),
    judge={Fifo: {SHED: (Ready.ahead_of, "dropped {} while {} was ready")}},
    sql=_SQL,
    explain=queue_chain,
)
