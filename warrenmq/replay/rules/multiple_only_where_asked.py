"""A2: one tag is one message."""

from __future__ import annotations

from warrenmq.replay.explain.story import settle_chain
from warrenmq.replay.rules.passes.settlements import Settles
from warrenmq.replay.rules.rule import Exercised, Rule

RULE = Rule(
    id="A2",
    name="multiple only where asked",
    text=("An ack or reject of one tag settles one message."),
    sources=("docs/reference/classic-queue.md#channel-methods",),
    exercised=Exercised("a message settled by a delivery tag without multiple"),
    machines=(Settles,),
    explain=settle_chain,
)
