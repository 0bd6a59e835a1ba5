"""Q2: a queue drops by itself what has been in it longest."""

from __future__ import annotations

from warrenmq.replay.explain.story import queue_chain
from warrenmq.replay.rules.passes.ready_order import MOVES_SQL, SHED, SHEDS, Fifo, Ready
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import Ev

_SQL = """
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
    sql=MOVES_SQL + _SQL,
    explain=queue_chain,
)
