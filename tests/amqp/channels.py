"""Channels of AMQP without a network: a transport that keeps what is written, and a client that speaks pamqp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pamqp import body, commands, frame, header
from pykka import ActorRef

from warrenmq.amqp.channel.context import (
    ChannelBlocked,
    ChannelClosed,
    ConnectionClosing,
    ConnectionContext,
    Intake,
    hard_error,
)
from warrenmq.amqp.channel.process import ChannelProcess
from warrenmq.amqp.net.transport import Peer
from warrenmq.amqp.wire.frames import Frame, FrameCutter
from warrenmq.broker.broker import Broker
from warrenmq.runtime import Server
from warrenmq.runtime.life import inbox_of

TIMEOUT = 60.0
"""Seconds of virtual time."""


class KeptTransport:
    """A socket that takes everything; it is full, or not read at all, when a test says so."""

    def __init__(self) -> None:
        self.peer = Peer("127.0.0.1", 50_000, "127.0.0.1", 5672, loopback=True)
        self.pieces: list[bytes] = []
        self.written = 0
        self.writes = 0
        self.full = False
        self.unread = False
        self.handled_bytes = 0
        self.closed = False

    def write(self, data: bytes) -> None:
        self.pieces.append(data)
        self.written += len(data)
        self.writes += 1

    def writable(self) -> bool:
        return not self.full

    def overfull(self) -> bool:
        return self.unread

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def handled(self, size: int) -> None:
        self.handled_bytes += size

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


@dataclass
class NamedUser:
    """A user who may do everything but what is listed."""

    name: str = "guest"
    tags: frozenset[str] = frozenset({"administrator"})
    may_not: set[tuple[str, str]] = field(default_factory=set)

    def may_configure(self, name: str) -> bool:
        return ("configure", name) not in self.may_not

    def may_write(self, name: str) -> bool:
        return ("write", name) not in self.may_not

    def may_read(self, name: str) -> bool:
        return ("read", name) not in self.may_not

    def may_write_topic(self, exchange: str, key: str) -> bool:
        return ("write topic", f"{exchange} {key}") not in self.may_not

    def may_read_topic(self, exchange: str, key: str) -> bool:
        return ("read topic", f"{exchange} {key}") not in self.may_not


class ConnectionStub(Server):
    """A connection as channels see one; keeps the messages that they send it."""

    def init(self) -> None:
        self.told: list[Any] = []

    def handle_cast(self, message: Any) -> None:
        assert isinstance(message, ChannelBlocked | ChannelClosed)
        self.told.append(message)

    def handle_call(self, request: Any, sender: Any) -> Any:
        return request(self)


@dataclass
class Message:
    """A method with content, as a client gets it."""

    method: Any
    properties: commands.Basic.Properties
    body: bytes


class Client:
    """One connection with any number of channels."""

    def __init__(self, broker: Broker, *, user: NamedUser | None = None, capabilities: dict[str, Any] | None = None,
                 frame_max: int = 131_072) -> None:  # fmt: skip
        self.broker = broker
        self.runtime = broker.runtime
        self.user = user or NamedUser()
        self.transport = KeptTransport()
        self.connection: ActorRef[Any] = self.runtime.start(ConnectionStub)
        self.context = ConnectionContext(broker, self.user, frame_max, capabilities or {"consumer_cancel_notify": True},
                                         self.transport, self.connection, "127.0.0.1:50000 -> 127.0.0.1:5672")  # fmt: skip
        self.refs: dict[int, ActorRef[Any]] = {}
        self.intake = Intake(self.transport)
        self._cutter = FrameCutter(1 << 24)
        self.arrivals: list[tuple[int, Any]] = []
        """Everything that was received, of all channels in one order."""
        self._seen = 0
        self._inbox: dict[int, list[Any]] = {}
        self._partial: dict[int, list[Any]] = {}

    # -- what is sent

    def open(self, number: int) -> Channel:
        """Open a channel."""
        self.refs[number] = self.runtime.start(ChannelProcess, number, self.connection, self.context)
        channel = Channel(self, number)
        channel.call(commands.Channel.Open(), commands.Channel.OpenOk)
        return channel

    def send(self, number: int, data: bytes) -> None:
        """Have bytes arrive in one read."""
        frames = FrameCutter(1 << 24).feed(data)
        self.runtime.cast(self.refs[number], self.intake.give(frames, len(data)))

    def told(self) -> list[Any]:
        """The messages that the channels sent to their connection."""
        return self.runtime.call(self.connection, lambda connection: list(connection.told))

    def close(self) -> None:
        """Close the channel as a connection does that closes cleanly."""
        for ref in self.refs.values():
            if ref.is_alive():
                self.runtime.call(ref, ConnectionClosing())
        self.runtime.stop_actor(self.connection)

    # -- what is received

    def received(self, number: int) -> list[Any]:
        """All that a channel has sent and no test has taken: methods, and Messages."""
        while self._seen < len(self.transport.pieces):
            self._seen += 1
            for each in self._cutter.feed(self.transport.pieces[self._seen - 1]):
                self._add(each)
        return self._inbox.setdefault(number, [])

    def _add(self, each: Frame) -> None:
        _, number, decoded = frame.unmarshal(each_bytes(each))
        partial = self._partial.setdefault(number, [])
        if partial or isinstance(
            decoded, commands.Basic.Deliver | commands.Basic.GetOk | commands.Basic.Return
        ):
            partial.append(decoded)
        else:
            self._arrive(number, decoded)
            return
        if len(partial) > 1 and isinstance(partial[1], header.ContentHeader):
            content = b"".join(piece.value for piece in partial[2:])
            if len(content) == partial[1].body_size:
                self._arrive(number, Message(partial[0], partial[1].properties, content))
                partial.clear()

    def _arrive(self, number: int, found: Any) -> None:
        self._inbox.setdefault(number, []).append(found)
        self.arrivals.append((number, found))


class Channel:
    """One channel, as a client has it."""

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number

    @property
    def ref(self) -> ActorRef[Any]:
        return self.client.refs[self.number]

    def send(self, *methods: Any) -> None:
        """Send methods in one go."""
        self.client.send(self.number, b"".join(frame.marshal(method, self.number) for method in methods))

    def publish(self, routing_key: str, *bodies: bytes, exchange: str = "", mandatory: bool = False,
                immediate: bool = False, **properties: Any) -> None:  # fmt: skip
        """Publish in one go."""
        self.client.send(self.number, b"".join(
            self.published(routing_key, each, exchange=exchange, mandatory=mandatory, immediate=immediate, **properties)
            for each in bodies))  # fmt: skip

    def published(self, routing_key: str, content: bytes, *, exchange: str = "", mandatory: bool = False,
                  immediate: bool = False, **properties: Any) -> bytes:  # fmt: skip
        """The bytes of one publish."""
        method = commands.Basic.Publish(
            exchange=exchange, routing_key=routing_key, mandatory=mandatory, immediate=immediate
        )
        parts = [
            frame.marshal(method, self.number),
            frame.marshal(
                header.ContentHeader(0, len(content), commands.Basic.Properties(**properties)), self.number
            ),
        ]
        size = self.client.context.frame_max - 8
        parts += [frame.marshal(body.ContentBody(content[at : at + size]), self.number)
                  for at in range(0, len(content), size)]  # fmt: skip
        return b"".join(parts)

    def call(self, method: Any, kind: type) -> Any:
        """Send a method and wait for an answer of this kind; what comes before it stays to be taken."""
        self.send(method)
        before = []
        while not isinstance(what := method_of(found := self.next()), kind):
            assert not isinstance(what, commands.Channel.Close), (
                f"{describe(found)} where {kind.__name__} was expected"
            )
            before.append(found)
        self.client.received(self.number)[:0] = before
        return found

    def next(self, kind: type = object) -> Any:
        """The next thing that comes: a method, or a Message."""
        waited = 0.0
        while not (inbox := self.client.received(self.number)):
            assert waited < TIMEOUT, f"nothing came where {kind.__name__} was expected"
            self.client.runtime.event().wait(0.01)
            waited += 0.01
        found = inbox.pop(0)
        assert isinstance(method_of(found), kind), f"{describe(found)} where {kind.__name__} was expected"
        return found

    def all(self) -> list[Any]:
        """All that has come and was not taken, after a while in which nothing else is done."""
        self.client.runtime.event().wait(1.0)
        inbox = self.client.received(self.number)
        found = list(inbox)
        inbox.clear()
        return found

    def get(self, queue: str, *, no_ack: bool = True) -> Message | None:
        """basic.get."""
        found = self.call(commands.Basic.Get(queue=queue, no_ack=no_ack), object)
        return found if isinstance(found, Message) else None

    def bodies(self, queue: str) -> list[bytes]:
        """Take everything that is ready."""
        found = []
        while (message := self.get(queue)) is not None:
            found.append(message.body)
        return found

    def declare(self, queue: str = "", **arguments: Any) -> commands.Queue.DeclareOk:
        """queue.declare."""
        return self.call(commands.Queue.Declare(queue=queue, **arguments), commands.Queue.DeclareOk)

    def consume(self, queue: str, **arguments: Any) -> str:
        """basic.consume; returns the consumer tag."""
        tag: str = self.call(
            commands.Basic.Consume(queue=queue, **arguments), commands.Basic.ConsumeOk
        ).consumer_tag
        return tag

    def closed(self, code: int, text: str) -> commands.Channel.Close:
        """The server closes the channel, for this reason; answered."""
        close = self.next(commands.Channel.Close)
        assert (close.reply_code, close.reply_text) == (code, text)
        self.send(commands.Channel.CloseOk())
        return close

    def failed(self, code: int, text: str) -> None:
        """Assert that the connection has to close, for this reason."""
        self.client.runtime.event().wait(1.0)
        assert (error := hard_error(inbox_of(self.ref).reason)) is not None
        assert (error.code, error.reply_text) == (code, text)


def each_bytes(each: Frame) -> bytes:
    """A frame as it was on the wire."""
    return (
        bytes([each.type])
        + each.channel.to_bytes(2, "big")
        + len(each.payload).to_bytes(4, "big")
        + each.payload
        + b"\xce"
    )


def method_of(found: Any) -> Any:
    """The method of a Message, or the method."""
    return found.method if isinstance(found, Message) else found


def describe(found: Any) -> str:
    """For messages of tests."""
    method = method_of(found)
    return f"{type(method).__name__} {dict(method)}"


def tags(found: list[Any]) -> Iterator[int]:
    """Delivery tags of messages."""
    return (each.method.delivery_tag for each in found)
