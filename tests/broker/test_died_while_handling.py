"""A request whose receiver died while it handled it is sent once, and its caller gets an error; a checked request kills
no receiver.
"""

from __future__ import annotations

import queue as queue_module
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

import warrenmq
from warrenmq.actors.queue.process import QueueProcess
from warrenmq.actors.vhost import queue_declarations
from warrenmq.actors.vhost.messages import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    Sync,
    Unbind,
)
from warrenmq.actors.vhost.process import VhostProcess
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.amqp import serve
from warrenmq.broker.consumer import Consumer
from warrenmq.queue.messages import (
    Consume,
    CountBytes,
    Delete,
    Deliveries,
    Drain,
    Get,
    Info,
    ListConsumers,
    Purge,
    Stat,
)
from warrenmq.supervisors.broker_sup import VHOST_PROCESS
from warrenmq.testing import SimulatedMachine

SETTINGS = {"durability": "os", "vhost_restart_intensity": (1000, 1)}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[warrenmq.Broker]:
    with warrenmq.open(tmp_path / "data", settings=SETTINGS) as made:
        made.declare_queue("q").publish_many([b"kept"] * 3).result(10)
        made.declare_queue("other").publish_many([b"kept"] * 3).result(10)
        made.declare_exchange("x")
        made.bind("q", "x", "key")
        yield made


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Counter[type], set[type]]]:
    """Number of times that each request was handled, and the requests that a process dies of; queue "other" is left
    alone.
    """
    counts: Counter[type] = Counter()
    deadly: set[type] = set()

    def dying(kind: type, handle: Callable[..., Any]) -> Callable[..., Any]:
        def handle_call(self: Any, request: Any, sender: Any) -> Any:
            if self.name != queue_name("other"):
                counts[type(request)] += 1
                if type(request) in deadly:
                    msg = f"{kind.__name__} dies of {type(request).__name__}"
                    raise RuntimeError(msg)
            return handle(self, request, sender)

        return handle_call

    for kind in (QueueProcess, VhostProcess):
        monkeypatch.setattr(kind, "handle_call", dying(kind, kind.handle_call))
    yield counts, deadly
    deadly.clear()


OF_QUEUES: dict[type, Callable[[warrenmq.Broker], object]] = {
    Get: lambda b: b.queue("q").get(timeout=5), Consume: lambda b: b.queue("q").consume(), Purge: lambda b: b.purge("q"),
    Info: lambda b: b.queue("q").info(), Stat: lambda b: b.inside.client.calls.call_queue("q", Stat()),
    CountBytes: lambda b: b.inside.client.calls.call_queue("q", CountBytes()),
    ListConsumers: lambda b: b.inside.client.calls.call_queue("q", ListConsumers()), Drain: lambda b: b.inside.client.calls.call_queue("q", Drain()),
}  # fmt: skip
OF_THE_VHOST: dict[type, Callable[[warrenmq.Broker], object]] = {
    DeclareQueue: lambda b: b.declare_queue("new"), DeleteQueue: lambda b: b.delete_queue("q"), Bind: lambda b: b.bind("q", "x", "new"),
    Unbind: lambda b: b.unbind("q", "x", "key"), DeclareExchange: lambda b: b.declare_exchange("new"),
    DeleteExchange: lambda b: b.delete_exchange("x"), Sync: lambda b: b.inside.client.calls.call_named(VHOST_PROCESS, Sync()),
}  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "ask"), (OF_QUEUES | OF_THE_VHOST).items(), ids=lambda each: getattr(each, "__name__", "")
)
def test_it_is_sent_once_and_everything_goes_on(broker: warrenmq.Broker, handled: tuple[Counter[type], set[type]], request_: type,
                                                ask: Callable[[warrenmq.Broker], object]) -> None:  # fmt: skip
    counts, deadly = handled
    deadly.add(request_)
    counts.clear()
    with pytest.raises(
        warrenmq.ProcessDied,
        match=rf"^the process that was handling {request_.__name__} died \(RuntimeError\), so it may",
    ):
        ask(broker)
    assert counts[request_] == 1
    deadly.clear()
    ask(broker)
    assert broker.is_open
    assert len([broker.queue("other").get() for _ in range(3)]) == 3


def test_an_error_of_a_check_reaches_the_caller_and_counts_no_restart(
    broker: warrenmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object) -> None:
        msg = "a mistake of ours"
        raise RuntimeError(msg)

    for _ in range(20):
        with pytest.raises(TypeError, match="cannot be asked object"):
            broker.inside.client.calls.call_named(VHOST_PROCESS, object())
        with pytest.raises(TypeError, match="cannot be asked object"):
            broker.inside.client.calls.call_queue("q", object())
        with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="a mistake of ours"):
            patched.setattr(queue_declarations, "check_storable", fails)
            broker.declare_queue("new")
    assert not [actor for actor in broker.stats().actors if actor.restarts]
    assert broker.declare_queue("new").info().ready == 0


def test_a_get_that_waits_is_no_reason_for_a_death_and_goes_to_the_successor() -> None:
    """In the simulation, as a kill may meet a get that has not begun to wait, whose caller is told of the death."""
    for seed in range(20):
        with SimulatedMachine(seed) as machine:
            broker = machine.open()
            empty = broker.declare_queue("empty")
            got: list[Any] = []
            machine.sim.spawn(lambda of=empty, into=got: into.append(of.get(timeout=20)))
            for _ in range(3):
                machine.sleep(1)
                machine.sim.kill(broker.inside.client.calls.address("empty"))
            empty.publish(b"for the one who waits").result(10)
            machine.sleep(1)
            assert got[0].body == b"for the one who waits", seed


@pytest.mark.parametrize(("request_", "method"), [(Purge, "queue_purge"), (Get, "basic_get"), (Consume, "basic_consume"), (Delete, "queue_delete"), (Stat, "queue_declare")])  # fmt: skip
def test_over_amqp_the_channel_is_closed_and_the_others_go_on(broker: warrenmq.Broker, handled: tuple[Counter[type], set[type]],
                                                              request_: type, method: str) -> None:  # fmt: skip
    counts, deadly = handled
    # a call of the vhost process, which takes a dead queue for one that can be deleted
    if request_ is Delete:
        request_ = DeleteQueue
    with serve(broker, port=0) as server:
        parameters = pika.ConnectionParameters("127.0.0.1", server.port)
        with pika.BlockingConnection(parameters) as connection:
            channel, neighbour = connection.channel(), connection.channel()
            deadly.add(request_)
            counts.clear()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
                if method == "basic_consume":
                    channel.basic_consume("q", lambda *_: None)
                elif method == "queue_declare":
                    channel.queue_declare("q", durable=True)
                else:
                    getattr(channel, method)("q")
            deadly.clear()
            assert closed.value.reply_code == 541
            assert "may or may not have taken effect" in closed.value.reply_text
            assert counts[request_] == 1
            assert neighbour.basic_get("other")[2] == b"kept"


def test_a_queue_that_was_killed_delivers_nothing_any_more(broker: warrenmq.Broker) -> None:
    """Its successor counts deliveries anew, so that an ack of one that comes late would be one of another message."""
    queue = broker.inside.client.calls.address("other")

    class Outlet(queue_module.SimpleQueue[Any]):
        def put(self, item: Any, *_: Any, **__: Any) -> None:
            super().put(item)
            if isinstance(item, Deliveries):
                broker.runtime.kill(queue)

    broker.purge("other")
    outlets = [Outlet(), Outlet()]
    consumers = [
        Consumer(broker.inside.client, "other", 1, no_ack=False, exclusive=False, priority=0, channel=each)
        for each in outlets
    ]
    broker.queue("other").publish_many([b"1", b"2"])
    while not all(each.qsize() for each in outlets):
        broker.runtime.event().wait(0.01)
    assert sorted(isinstance(item, Deliveries) for each in outlets for item in list_of(each)) == [
        False,
        False,
        True,
    ]
    for each in consumers:
        each.cancel()


def list_of(items: queue_module.SimpleQueue[Any]) -> list[Any]:
    return [items.get_nowait() for _ in range(items.qsize())]


def test_a_consumer_that_is_cancelled_while_it_subscribes_again_is_gone() -> None:
    for moment in range(0, 60, 3):
        with SimulatedMachine(moment) as machine:
            broker = machine.open()
            jobs = broker.declare_queue("jobs")
            consumer = jobs.consume()
            machine.sim.spawn(lambda of=consumer: list(of))
            machine.sim.kill(broker.inside.client.calls.address("jobs"))
            for _ in range(moment):
                machine.sim.checkpoint()
            consumer.cancel()
            machine.sleep(1)
            assert jobs.info().consumers == 0, moment


def test_a_get_whose_queue_dies_again_and_again_keeps_its_timeout() -> None:
    with SimulatedMachine(seed=1) as machine:
        broker = machine.open()
        queue = broker.declare_queue("q")
        queue.get()  # its process starts

        def kill() -> None:
            machine.sim.kill(machine.sim.whereis(queue_name("q")))

        for seconds in (3.0, 6.0):
            machine.sim.spawn(lambda: (machine.sleep(seconds), kill()))  # noqa: B023 - it is there before the next
        began = machine.sim.monotonic_ns()
        assert queue.get(timeout=7.0) is None
        assert machine.sim.monotonic_ns() - began < 8e9
