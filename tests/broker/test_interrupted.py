"""Calls that an exception of a signal handler interrupts (Ctrl-C, a time limit): what they took goes back, and nobody waits for them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

import warrenmq
from tests.support.interrupted_calls import interrupt, signalled
from tests.support.limits import LIMIT
from tests.support.simulated import SimulatedHost
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.queue.messages import Ack, Consume, Get, GiveUp, Got, QueueInfo
from warrenmq.runtime import Threads

BODIES = [b"1", b"2", b"3"]


class Interrupt(BaseException):
    """Raised by the handler of a signal, as KeyboardInterrupt is."""


@contextmanager
def alarms() -> Iterator[Callable[[float], object]]:
    """Interrupt after so many seconds; 0 = not at all."""

    def raise_interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, raise_interrupt)
    try:
        yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("scheduler", ["pool", "threads"])
def test_a_get_that_was_interrupted_while_it_waited_takes_no_message(tmp_path: Path, scheduler: str) -> None:
    with warrenmq.open(tmp_path, settings={"scheduler": scheduler}) as broker, alarms() as alarm:
        queue = broker.declare_queue("q")
        alarm(0.05)
        with pytest.raises(Interrupt):
            queue.get(timeout=LIMIT)
        queue.publish(b"m").result(LIMIT)
        delivery = queue.get()
        assert delivery is not None
        assert (delivery.body, delivery.redelivered) == (b"m", False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a __del__, too
@pytest.mark.parametrize("scheduler", ["pool", "threads"])
def test_a_broker_whose_calls_are_interrupted_again_and_again_serves_everybody(
    tmp_path: Path, scheduler: str
) -> None:
    rng = Random(0)
    confirmed: set[bytes] = set()
    got: set[bytes] = set()
    end = threading.Event()
    beside_ran = []

    def beside() -> None:
        while not end.is_set():
            other.publish(b"beside").result(LIMIT)
            delivery = other.get()
            assert delivery is not None
            delivery.ack()
        beside_ran.append(True)

    def act(number: int) -> None:
        way = number % 4
        if way == 0:
            queue.publish(b"%d" % number).result(LIMIT)
            confirmed.add(b"%d" % number)
        elif way == 1:
            bodies = [b"%d.%d" % (number, place) for place in range(20)]
            queue.publish_many(bodies).result(LIMIT)
            confirmed.update(bodies)
        elif way == 2:
            keep(queue.get())
        else:
            with queue.consume(5) as consumer:
                keep(consumer.get(1))

    def keep(delivery: warrenmq.Delivery | None) -> None:
        if delivery is not None:
            got.add(delivery.body)
            delivery.ack()

    with warrenmq.open(tmp_path, settings={"scheduler": scheduler}) as broker, alarms() as alarm:
        queue, other = broker.declare_queue("q"), broker.declare_queue("other")
        thread = threading.Thread(target=beside)
        thread.start()
        interrupted = 0
        for number in range(1500):
            try:
                alarm(rng.uniform(0.00002, 0.0006))
                act(number)
                alarm(0)
            except Interrupt:
                interrupted += 1
        end.set()
        thread.join(LIMIT)
        assert beside_ran
        assert interrupted > 100
        queue.publish(b"last").result(LIMIT)
    with warrenmq.open(tmp_path) as broker:
        queue = broker.queue("q")
        while (delivery := queue.get()) is not None:
            keep(delivery)
    assert confirmed <= got
    assert b"last" in got


def test_the_handler_of_a_signal_may_wait_for_a_confirm_where_another_wait_begins() -> None:
    runtime = Threads()
    first, second = Confirm(runtime), Confirm(runtime)
    number = 1
    while signalled(
        number, lambda: first.on_settled(second.confirm), lambda: second.on_settled(first.confirm)
    ):
        number += 1
    first.confirm()
    assert number > 1
    assert second.done()


def info(broker: warrenmq.Broker) -> tuple[int, int, int]:
    found: QueueInfo = broker.queue("q").info()
    return found.ready, found.unacked, found.consumers


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("acked", [False, True])
def test_what_a_get_took_that_nobody_waits_for_goes_back_unless_it_was_acked(
    answered: bool, acked: bool
) -> None:
    with SimulatedHost(1) as host:
        broker = host.open()
        queue, runtime, calls = broker.declare_queue("q"), broker.runtime, broker.inside.client.calls
        request = Get(1000, no_ack=False, timeout=60.0)
        if answered:
            queue.publish_many(BODIES).result()

        def get() -> None:
            with suppress(warrenmq.BrokerClosed):  # the broker is closed before anyone answers
                calls.call_queue("q", request)

        host.sim.spawn(get, "getter")
        host.sleep(1)
        if answered and acked:
            runtime.cast(queue_name("q"), Ack(1000, 1))
        for _ in range(2):  # the second has nothing to give up
            runtime.cast(queue_name("q"), GiveUp(request))
        if not answered:
            queue.publish_many(BODIES).result()
        left = BODIES[1:] if answered and acked else BODIES
        assert info(broker) == (len(left), 0, 0)
        bodies = []
        while (delivery := queue.get()) is not None:
            bodies.append(delivery.body)
            delivery.ack()
        assert bodies == left
        broker.close()
        host.check_trace()


def test_a_later_get_of_the_same_handle_keeps_its_message() -> None:
    with SimulatedHost(1) as host:
        broker = host.open()
        queue, runtime, calls = broker.declare_queue("q"), broker.runtime, broker.inside.client.calls
        queue.publish_many(BODIES).result()
        first, second = (Get(1000, no_ack=False, timeout=0) for _ in range(2))
        got: list[Any] = [calls.call_queue("q", request)[0] for request in (first, second)]
        assert [each.tag for each in got if isinstance(each, Got)] == [1, 2]
        runtime.cast(queue_name("q"), GiveUp(first))
        assert info(broker) == (2, 1, 0)
        runtime.cast(queue_name("q"), Ack(1000, 2))
        assert [each.body for each in queue.peek(3)] == [b"1", b"3"]


def test_a_consumer_that_nobody_knows_of_is_cancelled() -> None:
    with SimulatedHost(1) as host:
        broker = host.open()
        queue, runtime = broker.declare_queue("q"), broker.runtime
        queue.publish_many(BODIES).result()
        request = Consume(1000, runtime.channel(), 2, no_ack=False, exclusive=True)
        broker.inside.client.calls.call_queue("q", request)
        host.sleep(1)
        assert info(broker) == (1, 2, 1)
        runtime.cast(queue_name("q"), GiveUp(request))
        assert info(broker) == (3, 0, 0)
        assert [each.body for each in queue.peek(3)] == BODIES
        broker.close()
        host.check_trace()


@pytest.mark.parametrize("scheduler", ["pool", "threads"])
def test_a_loop_that_was_interrupted_leaves_no_consumer_in_its_traceback(
    tmp_path: Path, scheduler: str
) -> None:
    """Notebooks and the interactive interpreter keep the last traceback, whose consumer went on taking messages."""
    with warrenmq.open(tmp_path, settings={"scheduler": scheduler}) as broker, alarms() as alarm:
        queue = broker.declare_queue("q")

        def loop() -> None:
            for _ in queue.consume():
                pass

        for _ in range(3):
            alarm(0.05)
            with pytest.raises(Interrupt) as kept:
                loop()
            assert queue.info().consumers == 0
            assert kept.traceback
        with queue.consume() as consumer:  # one that has a name goes on
            alarm(0.05)
            with pytest.raises(Interrupt):
                next(consumer)
            queue.publish(b"m").result(LIMIT)
            assert next(consumer).body == b"m"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in the __del__
def test_a_consumer_that_is_dropped_while_a_signal_comes_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler's exception in a finalizer reaches nobody, and the queue kept its consumer."""
    with warrenmq.open(tmp_path) as broker:
        queue = broker.declare_queue("q")
        queue.publish_many([b"1", b"2"]).result(LIMIT)
        client = broker.inside.local_client
        settle, consumer = client.settle, queue.consume()
        assert consumer.get(LIMIT) is not None

        def interrupted(*_arguments: object) -> None:
            monkeypatch.setattr(client, "settle", settle)
            raise Interrupt

        monkeypatch.setattr(client, "settle", interrupted)
        del consumer
        assert queue.info().consumers == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a __del__
def test_a_close_that_was_interrupted_can_be_made_again(tmp_path: Path) -> None:
    """It did nothing then, and the directory was in use until the process ended."""
    for number in range(1, 10_000, 67):
        broker = warrenmq.open(tmp_path)
        at = interrupt(number, broker.close)
        broker.close()
        if not at:
            break
    assert number > 67


def test_a_shared_brokers_close_that_was_interrupted_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise Interrupt

    broker = warrenmq.open(tmp_path, shared=True)
    with monkeypatch.context() as patched, pytest.raises(Interrupt):
        patched.setattr(broker.inside.local(), "close", interrupted)
        broker.close()
    broker.close()
    warrenmq.open(tmp_path).close()
