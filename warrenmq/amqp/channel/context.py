"""What a channel is given of its connection, and what the two say to each other.

    connection ─ Frames, Writable ──────────────────────────────► channel
               ─ StopConsuming, ConnectionClosing (calls) ──────►
               ◄ ChannelClosed, ChannelFailed, ChannelBlocked ───

A channel writes its own bytes to the transport.  Source: rabbit_reader, rabbit_channel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pykka import ActorRef

    from warrenmq.amqp.net.transport import Transport
    from warrenmq.amqp.wire.errors import AmqpError
    from warrenmq.amqp.wire.frames import Frame
    from warrenmq.broker.broker import Broker


class User(Protocol):
    """Who has logged in, and what he may do in the virtual host of the connection; cheap to ask.

    The default exchange is asked for as amq.default.
    """

    name: str
    tags: frozenset[str]

    def may_configure(self, name: str) -> bool:
        """Declare and delete the exchange or queue `name`."""

    def may_write(self, name: str) -> bool:
        """Publish to the exchange, bind the queue or (as destination) the exchange `name`."""

    def may_read(self, name: str) -> bool:
        """Consume from the queue, bind to the exchange `name`."""


class Closing:
    """Whether a connection is being closed: set once by the connection, read by its channels, each in its own thread."""

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun = False


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """The same for all channels of a connection."""

    broker: Broker
    """Of the virtual host; its name is broker.vhost.name."""
    user: User
    frame_max: int
    capabilities: dict[str, Any]
    """Of the client: consumer_cancel_notify and so on."""
    transport: Transport
    connection: ActorRef[Any]
    """The ConnectionProcess, which also owns the connection's exclusive queues."""
    name: str
    """127.0.0.1:50000 -> 127.0.0.1:5672."""
    closing: Closing = field(default_factory=Closing)
    """From then on channels answer what the client sent before, and send nothing of their own accord."""

    def can(self, capability: str) -> bool:
        """Whether the client announced this."""
        return self.capabilities.get(capability) is True


class Intake:
    """What one channel is handed of its connection's socket: what it has not dealt with keeps room from what follows.

    Two counters, each with one writer: the connection gives, the channel handles.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._given = 0
        self._handled = 0

    def give(self, frames: list[Frame], size: int) -> Frames:
        """The channel gets these, so many bytes on the wire."""
        self._given += size
        return Frames(frames, size, self)

    def handled(self, size: int) -> None:
        """The channel has dealt with so much of it."""
        self._handled += size
        self._transport.handled(size)

    def abandon(self) -> None:
        """The channel has ended: nobody will deal with the rest."""
        self._transport.handled(self._given - self._handled)


# -- connection -> channel


@dataclass(slots=True)
class Frames:
    """All frames of one read that are this channel's, in order: METHOD, HEADER and BODY.

    The first one of a channel's life is channel.open.  Who has dealt with them says so, in all cases:
    `frames.intake.handled(frames.size)`; without it the socket is not read on.
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


@dataclass(slots=True)
class ChannelClosed:
    """channel.close has been received: the number is free, and the channel ends.

    It is cast before close-ok is written: the client's next channel.open with this number may be on the wire already.
    When close-ok is received, the connection sees that itself, passes it on, and the channel only ends.
    """

    number: int
    channel: ActorRef[Any]
    """Who says so; another may have the number by now."""


@dataclass(slots=True)
class ChannelFailed:
    """A hard error: the connection closes with it."""

    error: AmqpError


@dataclass(slots=True)
class ChannelBlocked:
    """The channel has no credit left, or has again: the connection stops reading, or reads on."""

    number: int
    blocked: bool
