"""Q1: the order of a queue, and the states of its messages."""

from __future__ import annotations

from warrenmq.replay.explain.story import queue_chain
from warrenmq.replay.rules.passes.queue_ledger import Ledger
from warrenmq.replay.rules.passes.ready_order import Fifo
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import Ev

RULE = Rule(
    id="Q1",
    name="first in, first out",
    text=(
        "Sequence ids rise; a delivery takes the smallest ready one, of the highest priority; a "
        "message is acked or requeued only while it is unacked, and is flagged redelivered if, and "
        "only if, it was delivered before."
    ),
    sources=(
        "docs/reference/classic-queue.md#five-queues",
        "docs/reference/classic-queue.md#priority-queues",
        "docs/reference/classic-queue.md#p1",
        "docs/reference/classic-queue.md#p2",
        "docs/reference/classic-queue.md#p3",
        "docs/reference/classic-queue.md#p4",
        "docs/reference/classic-queue.md#p5",
        "docs/reference/classic-queue.md#p22",
    ),
    exercised=Exercised(
        "a message that is published, delivered, acked, requeued or dropped",
        dict.fromkeys((Ev.PUBLISH, Ev.DELIVER, Ev.ACK, Ev.REQUEUE, Ev.DROP)),
    ),
    machines=(Fifo, Ledger),
    explain=queue_chain,
)
