"""Q1 against two simple judges of small histories: a list that is a queue, and a search through all orders.

The rows of a queue process stand in the order in which it did things, so its history is sequential: Q1 holds if and only if a
plain queue with requeues could have done the same.  Clients see concurrent operations: each operation takes effect somewhere between
its call and its answer.  If no order of the operations explains what clients saw, then the queue's own order does not
either, and Q1 says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.trace_writer import Actor, RunRows, write_trace
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.trace.events import (
    DIRTY,
    DROP_MAXLEN,
    DROP_PURGED,
    DROP_REJECTED,
    NO_ACK,
    PERSISTENT,
    PRIORITY_SHIFT,
    REDELIVERED,
    WANTS_CONFIRM,
    Ev,
)


class Step(NamedTuple):
    """One row of a queue."""

    event: Ev
    flag: int
    first: int
    count: int


@dataclass
class PlainQueue:
    """The steps that a queue with priorities and requeues may take, one message after the other; nothing clever."""

    ready: list[int] = field(default_factory=list)
    unacked: list[int] = field(default_factory=list)
    delivered: set[int] = field(default_factory=set)
    met: list[int] = field(default_factory=list)

    def next(self) -> int | None:
        """Highest priority, then the oldest."""
        return min(self.ready, key=lambda each: (-(each >> PRIORITY_SHIFT), each), default=None)

    def take(self, step: Step) -> str:
        """Do it; the rule that it breaks, or nothing."""
        broken = ""
        for each in range(step.first, step.first + step.count):
            broken = broken or self._take(step, each)
        return broken

    def _take(self, step: Step, each: int) -> str:
        match step.event:
            case Ev.PUBLISH:
                same = [met for met in self.met if met >> PRIORITY_SHIFT == each >> PRIORITY_SHIFT]
                if same and each <= max(same):
                    return "Q1"
                self.met.append(each)
                self.ready.append(each)
            case Ev.DELIVER:
                again = each in self.delivered
                if each != self.next() or again is not bool(step.flag & REDELIVERED):
                    return "Q1"
                self.ready.remove(each)
                self.delivered.add(each)
                if not step.flag & NO_ACK:
                    self.unacked.append(each)
            case Ev.DROP if step.flag in {DROP_PURGED, DROP_MAXLEN}:
                if each not in self.ready:
                    return "Q1"
                if step.flag == DROP_MAXLEN and each != self.next():
                    return "Q2"
                self.ready.remove(each)
            case Ev.ACK | Ev.REQUEUE | Ev.DROP:
                if each not in self.unacked:
                    return "Q1"
                self.unacked.remove(each)
                if step.event == Ev.REQUEUE:
                    self.ready.append(each)
        return ""


def judged(steps: list[Step], piece: int) -> set[str]:
    """The rules about order that a replay calls violated."""
    run = RunRows("run", 1)
    queue = Actor(1, "queue/q", "QueueProcess", 0)
    run.actors.append(queue)
    rows = [Step(Ev.QUEUE_RECOVERED, DIRTY, 0, 0), Step(Ev.ACTOR_START, 0, 1, 0), *steps]
    for seq, (event, flag, first, count) in enumerate(rows, 1):
        queue.rows.append([100 * seq, seq, 0, 0, 0, first, count, 0, 1 << 16 | event << 8 | flag])
    queue.last = len(rows)
    result = replay_memory(write_trace([run], piece))
    return {finding.rule for finding in result.violations} & {"Q1", "Q2"}


KINDS = (
    (Ev.PUBLISH, WANTS_CONFIRM | PERSISTENT), (Ev.DELIVER, 0), (Ev.DELIVER, REDELIVERED), (Ev.DELIVER, NO_ACK), (Ev.ACK, 0),
    (Ev.REQUEUE, 0), (Ev.DROP, DROP_REJECTED), (Ev.DROP, DROP_PURGED), (Ev.DROP, DROP_MAXLEN),
)  # fmt: skip


@st.composite
def histories(draw: st.DrawFn, *, wild: float) -> list[Step]:
    """Mostly what a queue would do, with a step of any kind and id now and then."""
    queue, steps = PlainQueue(), []
    top = {0: 0, 1: 0}
    for _ in range(draw(st.integers(1, 14))):
        event, flag = draw(st.sampled_from(KINDS))
        priority = draw(st.sampled_from((0, 0, 0, 1)))
        base = priority << PRIORITY_SHIFT
        count = draw(st.integers(1, 3))
        if draw(st.floats(0, 1)) < wild:
            first = base + draw(st.integers(0, 6))
        elif event == Ev.PUBLISH:
            first = base + top[priority]
        else:
            of_unacked = event in {Ev.ACK, Ev.REQUEUE} or (event, flag) == (Ev.DROP, DROP_REJECTED)
            pool = queue.unacked if of_unacked else queue.ready
            if not pool:
                continue
            first, count = draw(st.sampled_from(sorted(pool))), 1
            if event == Ev.DELIVER or (event, flag) == (Ev.DROP, DROP_MAXLEN):
                first = queue.next()
            if event == Ev.DELIVER:
                flag = flag & NO_ACK | (REDELIVERED if first in queue.delivered else 0)
        step = Step(event, flag, first, count)
        if event == Ev.PUBLISH:
            top[first >> PRIORITY_SHIFT] = max(top[first >> PRIORITY_SHIFT], (first & 0xFFFF) + count)
        steps.append(step)
        queue.take(step)
    return steps


@settings(max_examples=250, deadline=None)
@given(histories(wild=0.15), st.sampled_from((1, 2, 50)))
def test_q1_and_q2_say_what_a_plain_queue_says(steps: list[Step], piece: int) -> None:
    queue = PlainQueue()
    first_broken = next((broken for step in steps if (broken := queue.take(step))), "")
    found = judged(steps, piece)
    assert bool(found) == bool(first_broken)
    if first_broken:
        assert first_broken in found


class Call(NamedTuple):
    """An operation as its client saw it."""

    step: Step
    begin: int
    end: int


def explicable(calls: list[Call]) -> bool:
    """True if some order that respects the order of finished operations is a plain queue's: all orders are tried."""
    for order in permutations(calls):
        if any(later.end < earlier.begin for at, earlier in enumerate(order) for later in order[at + 1 :]):
            continue
        queue = PlainQueue()
        if not any(queue.take(call.step) for call in order):
            return True
    return False


@settings(max_examples=100, deadline=None)
@given(histories(wild=0.1), st.data())
def test_a_history_that_no_order_explains_is_a_violation(steps: list[Step], data: st.DataObject) -> None:
    steps = steps[:6]
    assume(steps)
    calls = []
    for number, step in enumerate(steps):
        # it took effect at 100 * number: called before, answered after
        begin = 100 * number - data.draw(st.integers(1, 250))
        calls.append(Call(step, begin, 100 * number + data.draw(st.integers(1, 250))))
    if not explicable(calls):
        assert judged(steps, 50)


def test_a_queue_that_swaps_two_messages_is_explained_only_while_both_were_being_taken() -> None:
    publish = Step(Ev.PUBLISH, WANTS_CONFIRM, 0, 2)
    one = Step(Ev.DELIVER, 0, 1, 1)
    two = Step(Ev.DELIVER, 0, 0, 1)
    assert not explicable([Call(publish, 0, 1), Call(one, 2, 3), Call(two, 4, 5)])
    assert explicable([Call(publish, 0, 1), Call(one, 2, 5), Call(two, 4, 6)])
    assert judged([publish, one, two], 50) == {"Q1"}, (
        "the queue's own order is known, so Q1 decides where clients cannot"
    )
