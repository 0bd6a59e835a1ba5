"""A3: a consumer that is gone holds nothing."""

from __future__ import annotations

from warrenmq.replay.explain.story import settle_chain
from warrenmq.replay.rules.passes.settlements import Settles
from warrenmq.replay.rules.rule import Exercised, Rule

RULE = Rule(
    id="A3",
    name="what a consumer leaves comes back",
    text=(
        "When a consumer is cancelled, what it had not taken is requeued at once, and when its "
        "channel ends, whatever it held; it gets nothing more."
    ),
    sources=("docs/reference/classic-queue.md#consumers", "docs/reference/classic-queue.md#p5"),
    exercised=Exercised("a consumer that went"),
    machines=(Settles,),
    explain=settle_chain,
)
