"""S1: the store counts the queues that hold a message."""

from __future__ import annotations

from warrenmq.replay.explain.story import count_chain
from warrenmq.replay.rules.passes.references import References
from warrenmq.replay.rules.rule import Exercised, Rule

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
    explain=count_chain,
)
