"""C3: a queue that stops cleanly owes no confirm."""

from __future__ import annotations

from warrenmq.replay.drive.machines import EXERCISED, Finding, Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.story import Chain, Link, Story, confirm_chain
from warrenmq.replay.rules.passes.confirms import Confirms, Windows
from warrenmq.replay.rules.rule import Exercised, Rule


def _owed(story: Story) -> Chain:
    """As of a confirm, up to the one that never came."""
    id_ = story.finding.about[0]
    return [
        *confirm_chain(story, id_),
        Link(story.run, None, f"CONFIRM of {id_}: nothing was missing for it"),
    ]


def _owed_at_the_stop(who: Who, state: Windows, context: TraceContext, outcome: Outcome) -> None:
    closed = context.actor_summary(who).closed
    if closed is not None:
        outcome.figures[EXERCISED, "C3"] = state.wanted
    owed = [
        id_
        for window in state.windows.values()
        for together in window.owed()
        for lo, hi, *_ in together
        for id_ in range(lo, hi)
    ]
    if closed is not None and owed:
        t, seq, *_ = closed
        text = f"it stopped and owed {len(owed)} confirms, from {min(owed)} on"
        outcome.findings.append(
            Finding("C3", f"queue {context.name(who)}", text, ((*who, seq),), t, (who,), (min(owed),))
        )


_SQL = """
WITH published AS (
    SELECT p.run, p.actor, p.seq, p.first_seq_id + n AS id, p.message + n AS message, p.flags,
           sum(CASE WHEN p.send > 0 THEN 1 ELSE 0 END) OVER (PARTITION BY p.run, p.actor ORDER BY p.seq) AS together
    FROM publish_rows AS p JOIN numbers ON n < p.count),
waiting AS (
    SELECT p.run, p.actor, p.seq, p.id, p.together, p.flags,
           (SELECT max(o.seq) FROM on_disk_rows AS o
            WHERE o.run = p.run AND o.actor = p.actor AND o.message = p.message AND o.seq > p.seq) AS reported,
           (SELECT min(s.seq) FROM qi_sync_rows AS s WHERE s.run = p.run AND s.actor = p.actor AND s.seq > p.seq) AS synced
    FROM published AS p
    WHERE p.flags & 2 = 2 AND NOT EXISTS (
        SELECT 1 FROM confirm_rows AS c WHERE c.run = p.run AND c.actor = p.actor
                  AND c.first_seq_id <= p.id AND c.first_seq_id + c.count > p.id)),
owed AS (
    SELECT run, actor, together, min(seq) AS seq, max(synced) AS synced, max(coalesce(reported, 0)) AS reported, count(*) - count(synced) AS unsynced
    FROM waiting GROUP BY run, actor, together
    HAVING sum(CASE WHEN flags & 4 = 4 AND reported IS NULL THEN 1 ELSE 0 END) = 0)
SELECT c.run, c.actor, c.seq FROM queue_closed_rows AS c
WHERE EXISTS (SELECT 1 FROM owed AS o WHERE o.run = c.run AND o.actor = c.actor)
"""

RULE = Rule(
    id="C3",
    name="every confirm is given",
    text=(
        "When a queue stops cleanly, every publish that wants a confirm has it, but for those with "
        "bodies of which no store has told."
    ),
    sources=(
        "docs/reference/classic-queue.md#confirms-inside-the-queue",
        "docs/reference/message-store.md#i20",
        "docs/reference/classic-queue.md#p12",
        "docs/reference/classic-queue.md#p25",
        "docs/reference/classic-queue.md#p26",
    ),
    exercised=Exercised("a publish that wants a confirm, to a queue that stopped cleanly"),
    machines=(Confirms,),
    judge={Confirms: _owed_at_the_stop},
    sql=_SQL,
    explain=_owed,
)
