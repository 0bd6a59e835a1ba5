"""S1: the store counts the queues that hold a message."""

from __future__ import annotations

from warrenmq.replay.explain.story import count_chain
from warrenmq.replay.rules.passes.references import References
from warrenmq.replay.rules.rule import Exercised, Rule

_SQL = """
WITH counted AS (
    SELECT run, actor, seq, message, 'new' AS what, `references` AS now FROM store_write_rows WHERE decision = 1
    UNION ALL SELECT run, actor, seq, message, 'more', `references` FROM store_write_rows WHERE decision = 3
    UNION ALL SELECT run, actor, seq, message, 'less', `references` FROM store_remove_rows WHERE decision = 4
    UNION ALL SELECT run, actor, seq, message, 'less', `references` FROM ref_dropped_rows
    UNION ALL SELECT run, actor, seq, message, 'found', `references` FROM ref_recovered_rows)
SELECT run, actor, seq FROM (
    SELECT run, actor, seq, what, now,
           lag(now) OVER (PARTITION BY run, actor, message ORDER BY seq) AS before
    FROM counted) AS steps_of_counts
WHERE CASE what WHEN 'new' THEN now <> 1 OR coalesce(before, 0) <> 0
                WHEN 'more' THEN before IS NULL OR now <> before + 1
                WHEN 'less' THEN now < 0 OR now <> coalesce(before, 0) - 1
                ELSE before IS NOT NULL END
"""

RULE = Rule(
    id="S1",
    name="reference counts",
    text=(
        "A reference count moves by one, is never negative, and at a clean end equals the number of "
        "queues that hold the message."
    ),
    sources=(
        "docs/reference/message-store.md#write-action",
        "docs/reference/message-store.md#remove-action",
        "docs/reference/message-store.md#counting-references",
        "docs/reference/message-store.md#i3",
        "docs/reference/message-store.md#i28",
        "docs/reference/classic-queue.md#p27",
        "docs/reference/message-store.md#i22",
        "docs/reference/message-store.md#i23",
    ),
    exercised=Exercised("a write, a remove, a reference found or dropped", dict.fromkeys(References.events)),
    machines=(References,),
    sql=_SQL,
    not_in_sql=(
        "that a count equals the number of queues that hold the message at a clean end: it takes C2's and Q1's states of all queues"
    ),
    explain=count_chain,
)
