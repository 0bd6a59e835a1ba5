"""The same calls, drawn at random, of a broker that owns its directory and of one that is attached: both answer alike.

What differs is in docs/embedding.md: keys, properties and tables that AMQP has no room for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import warrenmq
from tests.support.limits import LIMIT
from tests.support.shared_directory import opened
from warrenmq.broker.delivery import Delivery, Message

INTERNAL = "internal"
NAMES = ("q1", "q1", "q2", "q2", "p", "", "amq.x", "none", " q1", "line\n", "é" * 100)
EXCHANGES = (
    "",
    "",
    "x1",
    "x1",
    "x2",
    INTERNAL,
    "amq.direct",
    "amq.topic",
    "amq.fanout",
    "amq.none",
    "none",
    "it's",
)
KEYS = (
    "q1",
    "q2",
    "p",
    "",
    "a.b",
    "a.*",
    "#",
    "amq.warrenmq.rpc",
    "amq.warrenmq.batch",
    "amq.rabbitmq.reply-to",
)
VALUES = (
    None,
    True,
    1,
    -1,
    2**31,
    2**63 - 1,
    2**63,
    1.5,
    "text",
    "",
    b"bytes",
    [1, "a"],
    {"a": 1},
    object(),
    {1: 2},
)
QUEUE_ARGUMENTS = {
    "x-message-ttl": (1_000_000, -1, "x"), "x-max-length": (3, 0, "x"), "x-overflow": ("reject-publish", "drop-head", "x"),
    "x-max-priority": (5, 0, 256), "x-dead-letter-exchange": ("", "x1", 3), "x-single-active-consumer": (True, 1),
    "x-queue-type": ("classic", "quorum", 1), "other": VALUES,
}  # fmt: skip
PROPERTIES = {
    "headers": ({"CC": ["q2"]}, {"CC": 3}, {"h": 1}, {"h": object()}), "priority": (0, 5, 256), "expiration": ("1000000", "x"),
    "delivery_mode": (1, 2, 3), "message_id": ("m", 3), "user_id": ("guest",), "reply_to": ("amq.rabbitmq.reply-to",),
}  # fmt: skip
POLICIES = ({"max-length": 2}, {"dead-letter-exchange": "x1"}, {"max-length": "x"}, {"none": 1}, {})
SEEDS, STEPS = 5, 60
_MADE = re.compile(r"amq\.gen-[\w-]+")


class Side:
    """One of both brokers, and what it was given."""

    def __init__(self, broker: warrenmq.Broker) -> None:
        self.broker = broker
        self.held: list[Delivery] = []
        self.consumers: list[Any] = []
        self.handles = {name: warrenmq.QueueHandle(broker, name) for name in NAMES}

    def answer(self, call: Callable[[Side], Any]) -> Any:
        """Answer of a call, or its error."""
        try:
            return shown(call(self))
        except warrenmq.Error as error:
            return type(error).__name__, _MADE.sub("*", str(error))

    def keep(self, delivery: Delivery | None) -> Delivery | None:
        self.held += [] if delivery is None else [delivery]
        return delivery

    def take(self, number: int, most: int) -> int:
        if not self.consumers:
            return 0
        taken = self.consumers[number % len(self.consumers)].take(most, 0.01)
        self.held += taken
        return len(taken)

    def settle(self, number: int, how: Callable[[Delivery], Any]) -> Any:
        return how(self.held[number % len(self.held)]) if self.held else None

    def transact(self, calls: list[Callable[[Side], Any]], *, fails: bool) -> list[Any]:
        answers = []
        with suppress(KeyError), self.broker.tx():
            answers += [self.answer(call) for call in calls]
            if fails:
                raise KeyError
        return answers


def shown(value: Any) -> Any:
    match value:
        case Delivery() | Message():
            properties = value.properties
            return (type(value).__name__, bytes(value.body), value.exchange, _MADE.sub("*", value.routing_key), value.redelivered,
                    properties.headers, properties.priority, properties.expiration, properties.message_id)  # fmt: skip
        case warrenmq.QueueHandle() | warrenmq.Exchange():
            return type(value).__name__, _MADE.sub("*", value.name)
        case list():
            return [shown(each) for each in value]
    return value


def counts(queue: warrenmq.QueueHandle) -> tuple[int, int, int]:
    info = queue.info()
    return info.ready, info.unacked, info.consumers


def some(rng: Random, choices: dict[str, Any]) -> dict[str, Any] | None:
    names = rng.sample([*choices], rng.choice([0, 0, 1, 2]))
    return {name: rng.choice(choices[name]) for name in names} or None


def publish(rng: Random) -> Callable[[Side], Any]:
    exchange, key, mandatory = rng.choice(EXCHANGES), rng.choice(KEYS), rng.random() < 0.3
    bodies = [
        b"%d" % rng.randrange(100) + b"." * rng.choice([0, 5_000]) for _ in range(rng.choice([0, 1, 1, 5]))
    ]
    properties = warrenmq.Properties(**some(rng, PROPERTIES) or {})
    persistent = rng.random() < 0.7

    def call(side: Side) -> Any:
        confirm = side.broker.publish_many(
            exchange, key, bodies, properties=properties, persistent=persistent, mandatory=mandatory
        )
        return None if side.broker.inside.client.publishing.own.pending else confirm.result(LIMIT)

    return call


def drawn(rng: Random) -> tuple[str, Callable[[Side], Any]]:
    """A call, and its name."""
    name, other, exchange, key = rng.choice(NAMES), rng.choice(NAMES), rng.choice(EXCHANGES), rng.choice(KEYS)
    yes, no, number = rng.random() < 0.3, rng.random() < 0.1, rng.randrange(100)
    arguments, table = some(rng, QUEUE_ARGUMENTS), some(rng, {"x-match": ("all", "x"), "h": VALUES})
    kind, definition = rng.choice(["direct", "fanout", "topic", "headers", "odd"]), rng.choice(POLICIES)
    prefetch, many = rng.choice([0, 1, 20, -1]), rng.choice([1, 5, 0, -1])
    how = rng.choice([
        lambda each: each.ack(yes), lambda each: each.nack(not no, yes), lambda each: each.reject(not no), Delivery.dead_letter,
    ])  # fmt: skip
    calls: dict[str, Callable[[Side], Any]] = {
        "declare": lambda side: side.broker.declare_queue(name, durable=not no, exclusive=no, auto_delete=no, arguments=arguments),
        "declare exchange": lambda side: side.broker.declare_exchange(exchange, kind, auto_delete=no, internal=exchange == INTERNAL),
        "bind": lambda side: side.broker.bind(name, exchange or "x1", key, table),
        "bind exchanges": lambda side: side.broker.bind("x2", exchange, key, destination_type="exchange"),
        "unbind": lambda side: side.broker.unbind(name, exchange or "x1", key, table),
        "delete": lambda side: side.broker.delete_queue(name, if_unused=yes, if_empty=no),
        "delete exchange": lambda side: side.broker.delete_exchange(exchange, if_unused=yes),
        "purge": lambda side: side.broker.purge(name),
        "queue": lambda side: side.broker.queue(name),
        "queues": lambda side: side.broker.queues(),
        "publish": publish(rng),
        "get": lambda side: side.keep(side.handles[other].get(0.002 if yes else None)),
        "get without acks": lambda side: side.handles[other].get(no_ack=True),
        "settle": lambda side: side.settle(number, how),
        "consume": lambda side: side.consumers.append(side.handles[name].consume(prefetch, exclusive=no, priority=number % 3)),
        "take": lambda side: side.take(number, max(many, 1)),
        "cancel": lambda side: side.consumers and side.consumers[number % len(side.consumers)].cancel(),
        "peek": lambda side: side.handles[name].peek(many),
        "count": lambda side: counts(side.handles[name]),
        "stats": lambda side: [(_MADE.sub("*", each.name), each.ready, each.unacked) for each in side.broker.stats().queues],
        "policy": lambda side: side.broker.set_policy("a", "^q", definition, operator=no),
        "clear": lambda side: side.broker.clear_policy("a", operator=no),
        "policies": lambda side: side.broker.policies(),
        "retries": lambda side: side.handles[name].retry_policy(2, 0.001, other if yes else None) and None,
    }  # fmt: skip
    inner = [publish(rng), calls["settle"], calls["get"]]
    calls["transaction"] = lambda side: side.transact(inner, fails=yes)
    often = {"declare": 3, "publish": 6, "get": 3, "settle": 5, "take": 3}
    chosen = rng.choices([*calls], [often.get(each, 1) for each in calls])[0]
    return chosen, calls[chosen]


def clear(broker: warrenmq.Broker) -> None:
    for queue in broker.queues():
        with suppress(warrenmq.NotFound):  # one that goes with its last consumer
            queue.delete()
    for policy in broker.policies():
        broker.clear_policy(policy.name, operator=policy.operator)
    for exchange in "x1", "x2", INTERNAL, "it's":
        with suppress(warrenmq.NotFound):
            broker.delete_exchange(exchange)


def test_an_attached_broker_answers_as_an_owner_does(tmp_path: Path) -> None:
    settings = {"durability": "os"}
    with (
        warrenmq.open(tmp_path / "alone", settings=settings) as alone,
        opened(tmp_path / "shared", settings=settings),
        opened(tmp_path / "shared", settings=settings) as attached,
    ):
        for seed in range(SEEDS):
            rng = Random(seed)
            both = Side(alone), Side(attached)
            said = []
            for _ in range(STEPS):
                name, call = drawn(rng)
                said.append(name)
                answers = [side.answer(call) for side in both]
                assert answers[0] == answers[1], (seed, said)
            for side in both:
                for consumer in side.consumers:
                    consumer.cancel()
                clear(side.broker)
