"""The holders of a channel's deliveries at the queues: its consumers, and one getter for each queue of a basic.get.

A consumer is the outlet that its queue puts deliveries into, in the queue's thread; they arrive in the channel's mailbox as
Delivered.  `Taken` tells the queue how many have reached the socket; it is withheld while the client reads too slowly, so
that a queue never has more than a few hundred messages on the way to one (rabbit_writer:send_command_and_notify).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from pykka import ActorRef

from warrenmq.queue.messages import Deliveries, Taken
from warrenmq.runtime import Server

MORE_CONSUMER_CREDIT_AFTER = 50
"""Messages covered by one Taken while the mailbox is not empty."""


class Holder:
    """A holder of unacked messages, as a queue knows it."""

    __slots__ = ("id", "limited", "queue", "ref")

    def __init__(self, holder_id: int, queue: str, ref: ActorRef[Any], *, limited: bool) -> None:
        self.id = holder_id
        """The consumer's number at the queue."""
        self.queue = queue
        self.ref = ref
        """The queue's process."""
        self.limited = limited
        """True if its deliveries count for the channel's limiter; those of basic.get do not."""


class ConsumeParameters(NamedTuple):
    """The arguments of basic.consume, kept because the consumer is registered again after a crash of its queue."""

    tag: str
    no_ack: bool
    exclusive: bool
    prefetch: int
    priority: int
    arguments: Mapping[str, Any]


class ChannelConsumer(Holder):
    """One consumer of the channel, in one incarnation of its queue's process."""

    __slots__ = ("_send", "parameters", "sent", "tag")

    def __init__(self, holder_id: int, queue: str, ref: ActorRef[Any], parameters: ConsumeParameters,
                 send: Callable[[Delivered], object]) -> None:  # fmt: skip
        super().__init__(holder_id, queue, ref, limited=True)
        self.tag = parameters.tag
        self.parameters = parameters
        self.sent = 0
        """Messages sent to the client and not yet reported to the queue."""
        self._send = send

    def put(self, item: object, /) -> None:
        """Called by the queue, with Deliveries."""
        self._send(Delivered(self, cast("Deliveries", item)))


@dataclass(slots=True)
class Delivered:
    """Queue -> channel: messages for a consumer of it."""

    consumer: ChannelConsumer
    deliveries: Deliveries


@dataclass(slots=True)
class Cancelled:
    """Channel -> itself, behind what a queue had sent to a consumer before it was cancelled."""

    consumer: ChannelConsumer
    no_wait: bool


class SentNotices:
    """The Taken notices that a channel owes its queues; belongs to the channel process."""

    def __init__(self, server: Server, writable: Callable[[], bool]) -> None:
        self._server = server
        self._writable = writable
        self._untold: dict[ChannelConsumer, None] = {}

    def sent(self, consumer: ChannelConsumer, count: int) -> None:
        """Messages for a consumer were written."""
        consumer.sent += count
        self._untold[consumer] = None
        if consumer.sent >= MORE_CONSUMER_CREDIT_AFTER and self._writable():
            self._tell(consumer)

    def tell(self) -> None:
        """Send all notices, unless the client's socket is full."""
        while self._untold and self._writable():
            self._tell(next(iter(self._untold)))

    def _tell(self, consumer: ChannelConsumer) -> None:
        del self._untold[consumer]
        count, consumer.sent = consumer.sent, 0
        self._server.cast(consumer.ref, Taken(consumer.id, count))
