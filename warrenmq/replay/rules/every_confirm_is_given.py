"""C3: a queue that stops cleanly owes no confirm."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Link, Story, confirm_chain
from warrenmq.replay.rules.passes.confirms import Confirms
from warrenmq.replay.rules.rule import Exercised, Rule


def _owed(story: Story) -> Chain:
    """As of a confirm, up to the one that never came."""
    id_ = story.finding.about[0]
    return [
        *confirm_chain(story, id_),
        Link(story.run, None, f"CONFIRM of {id_}: nothing was missing for it"),
    ]


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
    explain=_owed,
)
