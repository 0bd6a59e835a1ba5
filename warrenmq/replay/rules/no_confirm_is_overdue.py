"""C4: a confirm that waits for nothing more is given."""

from __future__ import annotations

from warrenmq.replay.drive.machines import Finding, Outcome
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext, Who
from warrenmq.replay.explain.evidence import Near, OfMessage
from warrenmq.replay.explain.story import Chain, Link, Story, event_of, links_in_time
from warrenmq.replay.rules.passes.confirms import HI, LO, OWED_SQL, SEQ, Confirms, Open, Windows
from warrenmq.replay.rules.rule import Exercised, Judge, Rule
from warrenmq.trace.events import CONFIRM_DURABLE, Ev, Publish

OVERDUE = 2
"""A confirm that waits for nothing is given with the sync, or the ON_DISK, that it waited for last; when so
many syncs have followed, it is overdue.
"""


def _overdue(story: Story) -> Chain:
    """The publish, the sync after it, the last word of the store, and no confirm."""
    id_ = story.finding.about[0]
    run, row = story.evidence[0]
    publish = Publish.of(row)
    synced = story.known.row(Near(run, story.actor, int(Ev.QI_SYNC), row.t, after=True))
    told = [
        placed
        for placed in story.known.rows(OfMessage(story.scope, publish.message + id_ - publish.first_seq_id))
        if event_of(placed) == Ev.ON_DISK and placed[0] == run
    ]
    missing = Link(run, None, f"CONFIRM of {id_}: nothing was missing for it")
    return [*story.sent(story.evidence[0]), Link(run, row), *links_in_time([synced, *told[-1:]]), missing]


def _waits_for_nothing(who: Who, state: Windows, context: TraceContext, outcome: Outcome) -> None:
    overdue = min(
        (
            together[0]
            for window in state.windows.values()
            for together in window.owed()
            if together[0][LO] < together[0][HI] and window.syncs - window.waited_until(together) >= OVERDUE
        ),
        default=None,
    )
    if overdue is not None:
        text = f"{overdue[LO]} has no confirm, and lacked nothing for it {OVERDUE} syncs ago"
        rows = ((*who, overdue[SEQ]),)
        outcome.findings.append(
            Finding("C4", f"queue {context.name(who)}", text, rows, state.last_sync_t, (who,), (overdue[LO],))
        )


def _none_waits(left: Open, _mark: ActorSummary) -> bool:
    """True if nothing that was published before the last sync is owed; by arrays, and rather strict."""
    return not len(left.syncs) or not (left.owed() & (left.published[:, 3] < left.syncs[-1])).any()


_SQL = """
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
    judge={Confirms: Judge(decide=_waits_for_nothing, proves=_none_waits)},
    sql=OWED_SQL + _SQL,
    explain=_overdue,
)
