"""Q2: what a queue drops by itself is what has been in it longest."""

from __future__ import annotations

from warrenmq.replay.explain.story import queue_chain
from warrenmq.replay.rules.passes.ready_order import SHEDS, Fifo
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import Ev

RULE = Rule(
    id="Q2",
    name="the oldest goes first",
    text=(
        "What a queue drops by itself, because it has expired or is too much, has the smallest ready "
        "sequence id, of the highest priority."
    ),
    sources=(
        "docs/reference/classic-queue.md#arguments-and-limits",
        "docs/reference/classic-queue.md#priority-queues",
    ),
    exercised=Exercised("a message dropped because it had expired or was too much", {Ev.DROP: SHEDS}),
    machines=(Fifo,),
    explain=queue_chain,
)
