"""C4: a confirm that waits for nothing more is given."""

from __future__ import annotations

from warrenmq.replay.drive.machines import Finding, Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.evidence import Near, OfMessage
from warrenmq.replay.explain.story import Chain, Link, Story, event_of, links_of
from warrenmq.replay.rules.passes.confirms import OVERDUE, Confirms, Windows
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import CONFIRM_DURABLE, Ev


def _overdue(story: Story) -> Chain:
    """The publish, the sync after it, the last word of the store, and no confirm."""
    id_ = story.finding.about[0]
    run, row = story.evidence[0]
    synced = story.known.row(Near(run, story.actor, int(Ev.QI_SYNC), row[0], after=True))
    told = [
        placed
        for placed in story.known.rows(OfMessage(story.scope, row[2] + id_ - row[5]))
        if event_of(placed) == Ev.ON_DISK and placed[0] == run
    ]
    after = [placed for placed in [synced, *told[-1:]] if placed is not None]
    missing = Link(run, None, f"CONFIRM of {id_}: nothing was missing for it")
    return [
        *story.sent(story.evidence[0]),
        Link(run, row),
        *links_of(sorted(after, key=lambda placed: placed[1][0])),
        missing,
    ]


def _waits_for_nothing(who: Who, state: Windows, context: TraceContext, outcome: Outcome) -> None:
    overdue = min((block for window in state.windows.values() for block in window.overdue()), default=None)
    if overdue is not None:
        text = f"{overdue[0]} has no confirm, and lacked nothing for it {OVERDUE} syncs ago"
        rows = ((*who, overdue[5]),)
        outcome.findings.append(
            Finding("C4", f"queue {context.name(who)}", text, rows, state.last_sync_t, (who,), (overdue[0],))
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
SELECT o.run, o.actor, o.seq FROM owed AS o JOIN qi_sync_rows AS s
  ON s.run = o.run AND s.actor = o.actor AND s.seq > o.synced AND s.seq > o.reported
WHERE o.unsynced = 0
GROUP BY o.run, o.actor, o.seq HAVING count(*) >= 2
"""

RULE = Rule(
    id="C4",
    name="no confirm is overdue",
    text=(
        "A durable confirm is given before the second sync of the index after the one that it waited "
        "for, and after its body was reported safe."
    ),
    sources=(
        "docs/reference/classic-queue.md#confirms-inside-the-queue",
        "docs/reference/classic-queue.md#p26",
    ),
    exercised=Exercised("a durable confirm", {Ev.CONFIRM: (CONFIRM_DURABLE,)}),
    machines=(Confirms,),
    judge={Confirms: _waits_for_nothing},
    sql=_SQL,
    explain=_overdue,
)
