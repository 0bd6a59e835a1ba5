"""C3: a queue that stops cleanly owes no confirm."""

from __future__ import annotations

from warrenmq.replay.drive.machines import EXERCISED, Finding, Outcome
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext, Who
from warrenmq.replay.explain.story import Chain, Link, Story, confirm_chain
from warrenmq.replay.rules.passes.confirms import OWED_SQL, Confirms, Open, Windows
from warrenmq.replay.rules.rule import Exercised, Judge, Rule


def _owed(story: Story) -> Chain:
    """Explain a missing confirm: the chain of the confirm, up to the place where it should follow."""
    id_ = story.finding.about[0]
    return [
        *confirm_chain(story, id_),
        Link(story.run, None, f"CONFIRM of {id_}: nothing was missing for it"),
    ]


def _owed_at_the_stop(who: Who, state: Windows, context: TraceContext, outcome: Outcome) -> None:
    closed = context.actor_summary(who).closed
    if closed is None:
        return
    outcome.figures[EXERCISED, "C3"] = state.wanted
    owed = [
        id_
        for window in state.windows.values()
        for together in window.owed()
        for lo, hi, *_ in together
        for id_ in range(lo, hi)
    ]
    if owed:
        subject, first = f"queue {context.name(who)}", min(owed)
        text, rows = f"it stopped and owed {len(owed)} confirms, from {first} on", ((*who, closed.seq),)
        outcome.findings.append(Finding("C3", subject, text, rows, closed.t, (who,), (first,)))


def _nothing_owed(left: Open, mark: ActorSummary) -> bool:
    return mark.closed is None or not left.owed().any()


_SQL = """
SELECT c.run, c.actor, c.seq FROM queue_closed_rows AS c
WHERE EXISTS (SELECT 1 FROM owed AS o WHERE o.run = c.run AND o.actor = c.actor)
"""

RULE = Rule(
    id="C3",
    name="every confirm is given",
    text=(
        "When a queue stops cleanly, every publish that wants a confirm has it, but for those with "
        "bodies that no store has reported."
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
    judge={Confirms: Judge(decide=_owed_at_the_stop, proves=_nothing_owed)},
    sql=OWED_SQL + _SQL,
    explain=_owed,
)
