"""`info` and `stats` count all that the same thread did before; a delivery that is not acked in time goes back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warrenmq
from tests.support.simulated import SMALL, SimulatedHost
from warrenmq.broker.broker import Broker
from warrenmq.broker.handles import QueueHandle
from warrenmq.queue.ack_timeout import handed_out_before

STEPS = st.sampled_from([
    "publish", "publish large", "publish many", "tx", "rollback", "get", "get no_ack", "ack", "ack multiple", "nack", "reject", "drop",
    "purge", "break off a consumer", "close a consumer",
])  # fmt: skip


class Ledger:
    """One thread's use of a queue, and what there must be after each step."""

    def __init__(self, broker: Broker, queue: QueueHandle) -> None:
        self.broker, self.queue = broker, queue
        self.ready = 0
        self.held: list[warrenmq.Delivery] = []

    def step(self, name: str) -> None:
        queue = self.queue
        match name:
            case "publish" | "publish large":
                queue.publish(b"x" * (5 if name == "publish" else 500))
                self.ready += 1
            case "publish many":
                queue.publish_many([b"a", b"b" * 500, b"c"])
                self.ready += 3
            case "tx":
                with self.broker.tx():
                    queue.publish(b"in a transaction")
                    if self.held:
                        self.held.pop().ack()
                self.ready += 1
            case "rollback":
                with pytest.raises(KeyError), self.broker.tx():
                    queue.publish(b"never")
                    raise KeyError
            case "get" if (delivery := queue.get()) is not None:
                self.held.append(delivery)
                self.ready -= 1
            case "get no_ack":
                self.ready -= queue.get(no_ack=True) is not None
            case "ack" if self.held:
                self.held.pop().ack()
            case "ack multiple" if self.held:
                self.held[-1].ack(multiple=True)
                self.held.clear()
            case "nack" if self.held:
                self.held.pop().nack()
                self.ready += 1
            case "reject" if self.held:
                self.held.pop(0).reject()
                self.ready += 1
            case "drop" if self.held:
                self.held.pop().nack(requeue=False)
            case "purge":
                queue.purge()
                self.ready = 0
            case "close a consumer" if self.ready:
                with queue.consume(prefetch=2) as consumer:
                    next(consumer).ack()
                self.ready -= 1
            case "break off a consumer" if self.ready:
                for delivery in queue.consume(prefetch=2):
                    delivery.ack()
                    break
                self.ready -= 1


@given(st.lists(STEPS, max_size=25), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_info_and_stats_count_what_the_same_thread_did_before(steps: list[str], seed: int) -> None:
    with SimulatedHost(seed, traced=False) as host:
        broker = host.open()
        ledger = Ledger(broker, broker.declare_queue("q"))
        for number, step in enumerate(steps):
            ledger.step(step)
            info = ledger.queue.info()
            assert (info.ready, info.unacked) == (ledger.ready, len(ledger.held)), step
            if number % 3 == 0:
                (queue,) = broker.stats().queues
                assert (queue.ready, queue.unacked) == (ledger.ready, len(ledger.held)), step


@pytest.mark.parametrize(
    ("marks", "moment", "tag", "left"),
    [
        ([], 5, 0, []),
        ([(10, 3)], 5, 0, [(10, 3)]),
        ([(10, 3), (20, 7)], 10, 3, [(10, 3), (20, 7)]),
        ([(10, 3), (20, 7), (30, 9)], 25, 7, [(20, 7), (30, 9)]),
        ([(10, 3), (20, 7)], 99, 7, [(20, 7)]),
    ],
)
def test_the_table_of_marks(
    marks: list[tuple[int, int]], moment: int, tag: int, left: list[tuple[int, int]]
) -> None:
    assert handed_out_before(marks, moment) == tag
    assert marks == left


@pytest.fixture
def host() -> Iterator[SimulatedHost]:
    made = SimulatedHost(5, replace(SMALL, consumer_timeout=10_000, channel_tick_interval=1_000))
    yield made
    made.close()


def test_a_consumer_that_does_not_ack_in_time_is_cancelled_and_loses_what_it_holds(
    host: SimulatedHost,
) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"1", b"2", b"3"]).result(5)
    late = queue.consume(prefetch=2)
    held = next(late)
    host.sleep(8)
    assert queue.info().unacked == 2
    host.sleep(5)
    info = queue.info()
    assert (info.ready, info.unacked, info.consumers) == (3, 0, 0)
    for use in (lambda: next(late), held.ack, lambda: late.get(1), lambda: late.take(5)):
        with pytest.raises(warrenmq.PreconditionFailed, match=r"consumer_timeout \(10,000 ms\)"):
            use()
    late.cancel()
    with queue.consume() as again:
        got = [next(again) for _ in range(3)]
        assert [(each.body, each.redelivered) for each in got] == [(b"1", True), (b"2", True), (b"3", False)]
    host.sleep(20)
    assert queue.info().ready == 3, "a consumer that is closed holds its messages no longer than others"
    broker.close()
    host.check_trace()


def test_messages_in_the_prefetch_of_a_busy_consumer_are_not_late(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"%d" % number for number in range(10)]).result(5)
    with queue.consume(prefetch=10) as slow:
        for number, delivery in zip(range(10), slow, strict=False):
            host.sleep(7)
            delivery.ack()
            assert queue.info().unacked == 9 - number


def test_a_message_that_was_got_and_not_settled_goes_back_alone(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"1", b"2"]).result(5)
    first = queue.get()
    host.sleep(8)
    second = queue.get()
    assert first is not None
    assert second is not None
    host.sleep(5)
    assert queue.info().ready == 1, "the first is back"
    second.ack()
    first.ack()  # has no effect
    back = queue.get()
    assert (back.body, back.redelivered) == (b"1", True)
