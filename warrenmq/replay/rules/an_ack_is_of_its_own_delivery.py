"""A1: an ack settles what was delivered under the tag that it names."""

from __future__ import annotations

from warrenmq.replay.explain.story import settle_chain
from warrenmq.replay.rules.passes.settlements import Settles
from warrenmq.replay.rules.rule import Exercised, Rule

RULE = Rule(
    id="A1",
    name="an ack is of its own delivery",
    text=(
        "What a client acks, rejects or requeues under a delivery tag is the message that was "
        "delivered under it to that consumer; with multiple, what was delivered up to it."
    ),
    sources=("docs/reference/classic-queue.md#channel-methods",),
    exercised=Exercised("a message settled by a delivery tag"),
    machines=(Settles,),
    explain=settle_chain,
)
