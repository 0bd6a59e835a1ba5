"""What declarations return: an exchange to publish to, a queue to publish to and to consume from."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from warrenmq.broker.arguments import Named
from warrenmq.broker.consumer import Consumer, Delivery, Subscription, ack_deadline
from warrenmq.checks import flag, seconds, whole
from warrenmq.queue.messages import Get, Got, Info

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warrenmq.actors.sending.confirms import Confirm
    from warrenmq.broker.broker import Broker
    from warrenmq.message.properties import Properties
    from warrenmq.queue.messages import QueueInfo

DEFAULT_PREFETCH = 250
MOST_PREFETCH = (1 << 31) - 1
PRIORITIES = -(1 << 31), (1 << 31) - 1
"""Of consumers: RabbitMQ's x-priority, in the integer that most clients send it in."""


class Exchange(Named):
    """A declared exchange."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker = broker
        self.name = name

    def publish(self, routing_key: str, body: bytes, *, properties: Properties | None = None,
                persistent: bool = True, mandatory: bool = False, timeout: float | None = None) -> Confirm:  # fmt: skip
        """As `Broker.publish` to this exchange."""
        return self._broker.publish(self.name, routing_key, body, properties=properties, persistent=persistent,
                                    mandatory=mandatory, timeout=timeout)  # fmt: skip

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r}>"


class Queue(Named):
    """A declared queue."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker = broker
        self.name = name
        self._getter = broker.next_consumer_id()
        self._ack_deadline = ack_deadline(broker)

    def publish(self, body: bytes, *, properties: Properties | None = None, persistent: bool = True,
                mandatory: bool = False, timeout: float | None = None) -> Confirm:  # fmt: skip
        """Publish to this queue, through the default exchange (see Broker.publish)."""
        return self._broker.publish("", self.name, body, properties=properties, persistent=persistent,
                                    mandatory=mandatory, timeout=timeout)  # fmt: skip

    def publish_many(self, bodies: Iterable[bytes], *, properties: Properties | None = None,
                     persistent: bool = True, mandatory: bool = False,
                     timeout: float | None = None) -> Confirm:  # fmt: skip
        """Publish many bodies in one cast; the Confirm covers all of them."""
        return self._broker.publish_many("", self.name, bodies, properties=properties, persistent=persistent,
                                         mandatory=mandatory, timeout=timeout)  # fmt: skip

    def get(self, timeout: float | None = None, *, no_ack: bool = False) -> Delivery | None:
        """One message, or None: at once when `timeout` is None or 0, else when none came within `timeout` s.

        It goes back to the queue, and settling it has no effect any more, after `consumer_timeout`.
        """
        patience = seconds("timeout", timeout) or 0.0
        request = Get(self._getter, flag("no_ack", no_ack), patience, ack_deadline=self._ack_deadline)
        reply, ref = self._broker.call_queue(self.name, request)
        if not isinstance(reply, Got):
            return None
        subscription = Subscription(self._broker, self.name, ref, self._getter, no_ack=request.no_ack)
        return Delivery(subscription, reply.tag, reply.message)

    def consume(self, prefetch: int = DEFAULT_PREFETCH, no_ack: bool = False, *,
                exclusive: bool = False, priority: int = 0) -> Consumer:  # fmt: skip
        """An iterator over deliveries, up to `prefetch` of them unacked (0 = no limit).

        With `no_ack` a message is gone once it is delivered.  An exclusive consumer shares with nobody
        (AccessRefused otherwise).  One of a lower `priority` gets messages only while all above it hold as many as
        they may (x-priority).
        """
        return Consumer(self._broker, self.name, **consume_options(prefetch, no_ack, exclusive, priority))

    def info(self) -> QueueInfo:
        """What the queue's process knows of itself (see QueueInfo)."""
        info: QueueInfo = self._broker.call_queue(self.name, Info())[0]
        return info

    def purge(self) -> int:
        """Drop all ready messages; returns how many."""
        return self._broker.purge(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"


class ConsumeOptions(TypedDict):
    """What a consumer is made with."""

    prefetch: int
    no_ack: bool
    exclusive: bool
    priority: int


def consume_options(prefetch: object, no_ack: object, exclusive: object, priority: object) -> ConsumeOptions:
    """The options of a consumer, checked."""
    return {
        "prefetch": whole("prefetch", prefetch, 0, MOST_PREFETCH),
        "no_ack": flag("no_ack", no_ack),
        "exclusive": flag("exclusive", exclusive),
        "priority": whole("priority", priority, *PRIORITIES),
    }
