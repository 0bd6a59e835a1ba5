"""State that a channel shares with its connection, and the messages between the two.

    connection ─ Frames, Writable ──────────────────────────────► channel
               ─ StopConsuming, ConnectionClosing (calls) ──────►
               ◄ ChannelClosed, ChannelBlocked ──────────────────

A channel writes its own bytes to the transport, and ends with a hard error as its reason.  Source:
rabbit_reader, rabbit_channel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pykka import ActorRef

from warrenmq.amqp.net.transport import Transport
from warrenmq.amqp.statistics import ServerStatistics
from warrenmq.amqp.wire.errors import AmqpError
from warrenmq.amqp.wire.frames import Frame
from warrenmq.broker.broker import Broker


class User(Protocol):
    """The logged-in user and his permissions in the connection's virtual host; checks are cheap.

    The default exchange is asked for as amq.default.
    """

    name: str
    tags: frozenset[str]
    max_channels: Callable[[], int | None]
    """The most channels that all his connections may have together; None = no limit."""

    def may_configure(self, name: str) -> bool:
        """Declare and delete the exchange or queue `name`."""

    def may_write(self, name: str) -> bool:
        """Publish to the exchange, bind the queue or (as destination) the exchange `name`."""

    def may_read(self, name: str) -> bool:
        """Consume from the queue, bind to the exchange `name`."""

    def may_write_topic(self, exchange: str, key: str) -> bool:
        """Publish to the topic exchange with this routing key."""

    def may_read_topic(self, exchange: str, key: str) -> bool:
        """Bind to the topic exchange with this routing key."""


class Closing:
    """A flag that the connection is closing: set once by the connection, read by its channels in their threads."""

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun = False


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """The context that all channels of a connection share."""

    broker: Broker
    """The virtual host's broker; broker.inside.vhost.name is the host's name."""
    user: User
    frame_max: int
    capabilities: dict[str, Any]
    """The client's capabilities: consumer_cancel_notify and so on."""
    transport: Transport
    connection: ActorRef[Any]
    """The ConnectionProcess, which also owns the connection's exclusive queues."""
    name: str
    """127.0.0.1:50000 -> 127.0.0.1:5672."""
    closing: Closing = field(default_factory=Closing)
    """Once set, channels answer what the client sent before and send nothing else."""
    statistics: ServerStatistics = field(default_factory=ServerStatistics)
    """The server's."""

    def can(self, capability: str) -> bool:
        """True if the client announced this capability."""
        return self.capabilities.get(capability) is True


class Intake:
    """The bytes that a channel was handed and has not handled, which count against the socket's read limit.

    Two counters, each with one writer: `give` is called by the connection, `handled` by the channel.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._given = 0
        self._handled = 0

    def give(self, frames: list[Frame], size: int) -> Frames:
        """Count bytes handed to the channel."""
        self._given += size
        return Frames(frames, size, self)

    def handled(self, size: int) -> None:
        """Count bytes that the channel has handled."""
        self._handled += size
        self._transport.handled(size)

    def abandon(self) -> None:
        """The channel has ended: count all it had as handled."""
        self._transport.handled(self._given - self._handled)


# -- connection -> channel


@dataclass(slots=True)
class Frames:
    """Message to a channel: its frames of one read, in order: METHOD, HEADER and BODY.

    The first one of a channel's life is channel.open.  The receiver must call
    `frames.intake.handled(frames.size)` in all cases: otherwise the socket is not read on.
    """

    frames: list[Frame]
    size: int
    """Bytes of them on the wire."""
    intake: Intake


@dataclass(slots=True)
class Writable:
    """io -> connection -> channel: what waited to be sent is below the low-water mark again."""


@dataclass(slots=True)
class StopConsuming:
    """Call: the connection closes; nothing more may be delivered, or what other channels give back would go to this one."""


@dataclass(slots=True)
class ConnectionClosing:
    """Call: give back what is unacked, and end; the answer (None) comes before the connection's close-ok."""


# -- channel -> connection


def hard_error(reason: Any) -> AmqpError | None:
    """The hard error that a channel ended with, which closes its connection; None when it ended for another reason.

    It is no message: the exit signal would overtake that, and the channel's next frames would be those of no channel.
    """
    match reason:
        case (_, AmqpError() as error):
            return error
    return None


@dataclass(slots=True)
class ChannelClosed:
    """channel.close has been received: the number is free, and the channel ends.

    It is cast before close-ok is written: the client's next channel.open with this number may be on the wire already.
    When close-ok is received, the connection sees that itself, passes it on, and the channel only ends.
    """

    number: int
    channel: ActorRef[Any]
    """The channel process that closed; another channel may have its number by now."""


@dataclass(slots=True)
class ChannelBlocked:
    """The channel has no credit left, or has again: the connection stops reading, or reads on."""

    number: int
    channel: ActorRef[Any]
    """The channel process, which may have ended by now."""
    blocked: bool
