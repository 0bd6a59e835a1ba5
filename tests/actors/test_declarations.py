"""Declaring, binding and deleting through the vhost process, under simulation: rules, words, restarts, power cuts."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from pykka import ActorRef

import warrenmq
from tests.support.simulated import SimulatedHost
from warrenmq.actors.vhost.messages import Bind, DeclareQueue, DeleteQueue, Unbind
from warrenmq.broker.broker import Broker
from warrenmq.directory.definitions import QueueRecord
from warrenmq.errors import CommandInvalid
from warrenmq.routing import Binding
from warrenmq.runtime import Server
from warrenmq.supervisors.broker_sup import VHOST_PROCESS


@pytest.fixture
def host() -> Iterator[SimulatedHost]:
    made = SimulatedHost(11)
    yield made
    made.close()


@pytest.fixture
def broker(host: SimulatedHost) -> Broker:
    return host.open()


class Connection(Server):
    """An owner of exclusive queues."""


def connection(host: SimulatedHost) -> ActorRef[Any]:
    return host.sim.start(Connection)


def declare(
    broker: Broker, owner: ActorRef[Any] | None, name: str = "mine", *, exclusive: bool = True
) -> str:
    return str(
        broker.inside.client.calls.call_named(
            VHOST_PROCESS, DeclareQueue(QueueRecord(name, exclusive=exclusive), owner)
        )
    )


LOCKED = (
    "cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be originally declared on another "
    "connection or the exclusive property value does not match that of the original declaration."
)
DEFAULT = "operation not permitted on the default exchange"

REFUSALS: list[tuple[str, Callable[[Broker], object], type[warrenmq.Error], str]] = [
    ("a type", lambda b: b.declare_exchange("x", "magic"), CommandInvalid, "unknown exchange type 'magic'"),
    ("the default", lambda b: b.declare_exchange(""), warrenmq.AccessRefused, DEFAULT),
    ("a reserved exchange", lambda b: b.declare_exchange("amq.x"), warrenmq.AccessRefused,
     "exchange name 'amq.x' contains reserved prefix 'amq.*'"),
    ("another type", lambda b: b.declare_exchange("amq.topic"), warrenmq.PreconditionFailed,
     "inequivalent arg 'type' for exchange 'amq.topic' in vhost '/': received 'direct' but current is 'topic'"),
    ("a reserved queue", lambda b: b.declare_queue("amq.q"), warrenmq.AccessRefused,
     "queue name 'amq.q' contains reserved prefix 'amq.*'"),
    ("no queue", lambda b: b.queue("none"), warrenmq.NotFound, "no queue 'none' in vhost '/'"),
    ("delete of no queue", lambda b: b.delete_queue("none"), warrenmq.NotFound, "no queue 'none' in vhost '/'"),
    ("purge of no queue", lambda b: b.purge("none"), warrenmq.NotFound, "no queue 'none' in vhost '/'"),
    ("publish nowhere", lambda b: b.publish("none", "", b""), warrenmq.NotFound, "no exchange 'none' in vhost '/'"),
    ("an internal exchange", lambda b: b.publish("amq.rabbitmq.trace", "", b""), warrenmq.AccessRefused,
     "cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'"),
    ("an argument", lambda b: b.declare_queue("q", arguments={"x-expires": 0}), warrenmq.PreconditionFailed,
     "invalid arg 'x-expires' for queue 'q' in vhost '/': {value_zero,0}"),
    ("an alternate", lambda b: b.declare_exchange("x", arguments={"alternate-exchange": 1}), warrenmq.PreconditionFailed,
     "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"),
    ("bind from the default", lambda b: b.bind("q", ""), warrenmq.AccessRefused, DEFAULT),
    ("bind to the default", lambda b: b.bind("", "amq.direct", destination_type="exchange"), warrenmq.AccessRefused, DEFAULT),
    ("bind from nowhere", lambda b: b.bind("none", "nowhere"), warrenmq.NotFound, "no exchange 'nowhere' in vhost '/'"),
    ("bind of no queue", lambda b: b.bind("none", "amq.direct"), warrenmq.NotFound, "no queue 'none' in vhost '/'"),
    ("bind of no exchange", lambda b: b.bind("none", "amq.direct", destination_type="exchange"), warrenmq.NotFound,
     "no exchange 'none' in vhost '/'"),
    ("a way to match", lambda b: b.bind(b.declare_queue("q"), "amq.headers", arguments={"x-match": "one"}),
     warrenmq.PreconditionFailed, 'Invalid x-match field value <<"one">>; expected all, any, all-with-x, or any-with-x'),
    ("delete of the default", lambda b: b.delete_exchange(""), warrenmq.AccessRefused, DEFAULT),
    ("delete of the broker's", lambda b: b.delete_exchange("amq.direct"), warrenmq.AccessRefused,
     "deletion of system exchange 'amq.direct' in vhost '/' not allowed"),
    ("delete of no exchange", lambda b: b.delete_exchange("none"), warrenmq.NotFound, "no exchange 'none' in vhost '/'"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "request_", "error", "text"), REFUSALS, ids=[each[0] for each in REFUSALS])
def test_refusals_are_in_rabbitmqs_words_and_change_nothing(
    broker: Broker, what: str, request_: Callable[[Broker], object], error: type[warrenmq.Error], text: str
) -> None:
    before = dict(broker.inside.vhost.router.exchanges)
    with pytest.raises(error) as refused:
        request_(broker)
    assert refused.value.reply_text == text  # type: ignore[attr-defined]
    assert dict(broker.inside.vhost.router.exchanges) == before, what
    assert not broker.inside.vhost.definitions.bindings


def test_queues_and_exchanges_in_use_are_not_deleted_if_they_must_be_unused(broker: Broker) -> None:
    queue, exchange = broker.declare_queue("q"), broker.declare_exchange("x")
    broker.bind(queue, exchange)
    with pytest.raises(warrenmq.PreconditionFailed) as refused:
        broker.delete_exchange(exchange, if_unused=True)
    assert refused.value.reply_text == "exchange 'x' in vhost '/' in use"
    with queue.consume(), pytest.raises(warrenmq.PreconditionFailed) as refused:
        broker.delete_queue(queue, if_unused=True)
    assert refused.value.reply_text == "queue 'q' in vhost '/' in use"
    queue.publish(b"x").result()
    with pytest.raises(warrenmq.PreconditionFailed) as refused:
        broker.delete_queue(queue, if_empty=True)
    assert refused.value.reply_text == "queue 'q' in vhost '/' not empty"


@pytest.mark.parametrize(
    "request_",
    [
        lambda b: b.declare_queue("\ud800"),
        lambda b: b.declare_queue("q" * 256),
        lambda b: b.declare_queue("ü" * 128),
        lambda b: b.declare_exchange("x" * 256),
        lambda b: b.declare_queue("q", arguments={"mine": object()}),
        lambda b: b.declare_exchange("x", arguments={"mine": {1: 2}}),
        lambda b: b.bind("q", "amq.headers", arguments={"n": 1 << 70}),
        lambda b: b.bind("q", "amq.direct", "\udcff"),
        lambda b: b.bind("q", "amq.direct", destination_type="moon"),
    ],
)
def test_names_and_arguments_that_amqp_cannot_express_are_refused_without_a_crash(
    broker: Broker, request_: Callable[[Broker], object]
) -> None:
    before = broker.runtime.whereis(VHOST_PROCESS)
    with pytest.raises(warrenmq.PreconditionFailed):
        request_(broker)
    broker.declare_queue("q" * 255)
    assert broker.runtime.whereis(VHOST_PROCESS) is before


def test_unbinding_what_is_not_there_is_nothing(broker: Broker) -> None:
    broker.unbind("none", "nowhere", "key")
    broker.unbind("none", "amq.direct", "key")


def test_a_queue_without_a_name_gets_one_of_rabbitmqs_kind(broker: Broker) -> None:
    names = {broker.declare_queue().name for _ in range(3)}
    assert len(names) == 3
    for name in names:
        assert name.startswith("amq.gen-")
        assert len(name) == len("amq.gen-JzTY20BRgKO-HjmUJj0wLg")
        assert not set(name) & {"+", "/", "="}


# -- exclusive queues


def test_an_exclusive_queue_is_for_its_owner_alone(host: SimulatedHost, broker: Broker) -> None:
    mine, another = connection(host), connection(host)
    assert declare(broker, mine) == declare(broker, mine) == "mine"
    assert broker.inside.vhost.owner("mine") is mine
    binding = Binding("mine", "amq.direct", "key")
    for owner in (another, None):
        for request in (
            DeclareQueue(QueueRecord("mine", exclusive=True), owner),
            DeclareQueue(QueueRecord("mine"), owner),
            Bind(binding, owner),
            DeleteQueue("mine", if_unused=False, if_empty=False, owner=owner),
        ):
            with pytest.raises(warrenmq.ResourceLocked) as refused:
                broker.inside.client.calls.call_named(VHOST_PROCESS, request)
            assert refused.value.reply_text == LOCKED
    with pytest.raises(warrenmq.ResourceLocked):
        broker.queue("mine")
    with pytest.raises(warrenmq.ResourceLocked, match="exclusive"):
        declare(broker, mine, exclusive=False)
    broker.inside.client.calls.call_named(VHOST_PROCESS, Bind(binding, mine))
    with pytest.raises(warrenmq.ResourceLocked):
        broker.inside.client.calls.call_named(VHOST_PROCESS, Unbind(binding, another))
    broker.inside.client.calls.call_named(VHOST_PROCESS, Unbind(binding, mine))
    broker.inside.client.calls.call_named(
        VHOST_PROCESS, DeleteQueue("mine", if_unused=False, if_empty=False, owner=mine)
    )
    assert declare(broker, another) == "mine"


def test_a_queue_of_everybody_is_not_made_exclusive(host: SimulatedHost, broker: Broker) -> None:
    broker.declare_queue("mine")
    for owner in (connection(host), None):
        with pytest.raises(warrenmq.ResourceLocked) as refused:
            declare(broker, owner)
        assert refused.value.reply_text == LOCKED


def test_exclusive_queues_go_with_their_owner_even_if_processes_restart_meanwhile(
    host: SimulatedHost, broker: Broker
) -> None:
    mine, another = connection(host), connection(host)
    for name, owner in (("a", mine), ("b", mine), ("c", another)):
        declare(broker, owner, name)
    broker.declare_exchange("x", "fanout", auto_delete=True)
    broker.inside.client.calls.call_named(VHOST_PROCESS, Bind(Binding("a", "x"), mine))
    host.sim.kill(host.sim.whereis(VHOST_PROCESS))
    host.wait_until(lambda: host.sim.is_registered(VHOST_PROCESS))
    broker.declare_queue("answers again")
    host.sim.stop_actor(mine)
    host.wait_until(lambda: set(broker.inside.vhost.router.queues) == {"c", "answers again"})
    host.wait_until(lambda: "x" not in broker.inside.vhost.router.exchanges)
    assert list(broker.inside.vhost.owners) == ["c"]


def test_a_full_disk_delays_what_goes_with_an_owner(host: SimulatedHost, broker: Broker) -> None:
    mine = connection(host)
    declare(broker, mine)
    broker.declare_exchange("x", "fanout", auto_delete=True)
    broker.inside.client.calls.call_named(VHOST_PROCESS, Bind(Binding("mine", "x"), mine))
    vhost_process = host.sim.whereis(VHOST_PROCESS)
    host.disk.fail_next("append", "definitions.log", errno.ENOSPC)
    host.sim.stop_actor(mine)
    host.wait_until(lambda: "x" not in broker.inside.vhost.router.exchanges)
    assert host.sim.whereis(VHOST_PROCESS) is vhost_process
    assert not broker.inside.vhost.router.queues


# -- routes


def test_each_type_of_exchange_routes_and_exchanges_lead_to_exchanges(broker: Broker) -> None:
    topic = broker.declare_exchange("topic", "topic")
    broker.declare_exchange("by header", "headers", arguments={"alternate-exchange": "rest"})
    rest = broker.declare_exchange("rest", "fanout", internal=True)
    for name in ("disk", "urgent", "rest"):
        broker.declare_queue(name)
    broker.bind("disk", topic, "*.disk.#")
    broker.bind("by header", topic, "#", destination_type="exchange")
    broker.bind("urgent", "by header", arguments={"x-match": "any", "priority": 9})
    broker.bind("rest", rest)
    urgent = warrenmq.Properties(headers={"priority": 9.0})
    for key, properties in (("kern.disk.full", urgent), ("kern", urgent), ("kern", None)):
        topic.publish(key, key.encode(), properties=properties).result()
    assert {name: broker.queue(name).info().ready for name in ("disk", "urgent", "rest")} == {
        "disk": 1,
        "urgent": 2,
        "rest": 1,
    }
    broker.unbind("by header", topic, "#", destination_type="exchange")
    broker.bind(rest, topic, "only")
    topic.publish("only", b"").result()
    assert broker.queue("rest").info().ready == 2


# -- what stays


def exchanges(broker: Broker) -> set[str]:
    return {name for name in broker.inside.vhost.router.exchanges if not name.startswith("amq.")}


def bound(broker: Broker) -> set[tuple[str, str, str]]:
    router = broker.inside.vhost.router
    return {(each.source, *each.to) for name in router.exchanges for each in router.bindings_of(name)}


@pytest.mark.parametrize("end", ["close", "crash", "power cut"])
def test_durable_exchanges_and_bindings_between_durable_ends_survive(
    host: SimulatedHost, broker: Broker, end: str
) -> None:
    for durable in (True, False):
        name = "durable" if durable else "transient"
        broker.declare_exchange(
            f"{name} x", "topic", durable=durable, arguments={"alternate-exchange": "amq.fanout"}
        )
        broker.declare_queue(f"{name} q", durable=durable)
    broker.declare_exchange("inner", "headers", internal=True, auto_delete=True)
    for source in ("durable x", "transient x"):
        for queue in ("durable q", "transient q"):
            broker.bind(queue, source, "#", {"n": 1})
        broker.bind("inner", source, "#", destination_type="exchange")
    broker.bind("transient x", "durable x", "#", destination_type="exchange")
    if end == "close":
        broker.close()
    else:
        host.crash(power_cut=end == "power cut")
    again = host.open()
    assert exchanges(again) == {"durable x", "inner"}
    assert bound(again) == {("durable x", "queue", "durable q"), ("durable x", "exchange", "inner")}
    again.declare_exchange("durable x", "topic", arguments={"alternate-exchange": "amq.fanout"})
    again.declare_exchange("inner", "headers", internal=True, auto_delete=True)
    again.close()


def test_transient_things_outlive_a_restart_of_the_vhost(host: SimulatedHost, broker: Broker) -> None:
    broker.declare_exchange("x", "topic", durable=False)
    broker.bind(broker.declare_queue("q", durable=False), "x", "#")
    host.sim.kill(host.sim.whereis(VHOST_PROCESS))
    host.wait_until(lambda: host.sim.is_registered(VHOST_PROCESS))
    broker.publish("x", "a", b"", mandatory=True).result()
    assert bound(broker) == {("x", "queue", "q")}


# -- what goes by itself


def chain(broker: Broker) -> None:
    """Exchanges that go one after the other when the queue goes, and one that stays."""
    for name in ("first", "second", "third", "stays"):
        broker.declare_exchange(name, "fanout", auto_delete=name != "stays", durable=name != "second")
    broker.declare_queue("q")
    for destination, source in (("second", "first"), ("third", "second"), ("third", "stays")):
        broker.bind(destination, source, destination_type="exchange")
    broker.bind("q", "third")


@pytest.mark.parametrize(
    "last",
    [
        lambda broker: broker.unbind("q", "third"),
        lambda broker: broker.delete_queue("q"),
        lambda broker: broker.delete_exchange("third"),
    ],
)
def test_auto_delete_exchanges_go_in_a_row_and_for_good(
    host: SimulatedHost, broker: Broker, last: Callable[[Broker], object]
) -> None:
    chain(broker)
    assert exchanges(broker) == {"first", "second", "third", "stays"}
    last(broker)
    assert exchanges(broker) == {"stays"}
    assert not bound(broker)
    host.crash(power_cut=True)
    again = host.open()
    assert exchanges(again) == {"stays"}
    assert not bound(again)
    again.close()


def test_an_auto_delete_exchange_that_was_never_bound_stays(broker: Broker) -> None:
    broker.declare_exchange("x", auto_delete=True)
    broker.declare_exchange("y", auto_delete=True)
    broker.bind("y", "x", destination_type="exchange")
    broker.delete_exchange("x")
    assert exchanges(broker) == {"y"}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("change", ["unbind", "delete queue", "delete exchange"])
def test_a_power_cut_at_any_moment_leaves_what_was_or_what_was_wanted(seed: int, change: str) -> None:
    for operation in range(1, 60):
        host = SimulatedHost(seed * 100 + operation, traced=False)
        broker = host.open()
        chain(broker)
        before = exchanges(broker) - {"second"}, set(broker.inside.vhost.definitions.queues)
        with host.disk.power_fails_at(operation) as outage, suppress(warrenmq.Error):
            match change:
                case "unbind":
                    broker.unbind("q", "third")
                case "delete queue":
                    broker.delete_queue("q")
                case _:
                    broker.delete_exchange("third")
        host.crash(power_cut=True)
        again = host.open()
        after = exchanges(again), set(again.inside.vhost.definitions.queues)
        wanted = {"stays"}, set() if change == "delete queue" else {"q"}
        assert after in (before, wanted) if outage.came else after == wanted
        again.close()
        host.close()
        if not outage.came:
            return
    raise AssertionError("there was no end to it")
