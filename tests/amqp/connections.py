"""Connections of AMQP without a network: bytes go to a ConnectionProcess in simulation, and what it writes is kept."""

from __future__ import annotations

from typing import Any

from pamqp import body, frame, header, heartbeat
from pamqp.commands import Basic, Channel, Connection
from pykka import ActorRef

from tests.amqp.channels import KeptTransport
from tests.support.simulated import SMALL, SimulatedHost
from warrenmq.amqp.access.users import Users
from warrenmq.amqp.amqp_sup import ChannelSup
from warrenmq.amqp.connection.handshake import PROTOCOL_HEADER
from warrenmq.amqp.connection.messages import Disconnected, Received
from warrenmq.amqp.connection.process import ConnectionProcess
from warrenmq.amqp.connection.server_properties import server_properties
from warrenmq.amqp.net.transport import Peer
from warrenmq.amqp.node import Node, ServedVhost
from warrenmq.amqp.wire.codec import make
from warrenmq.amqp.wire.frames import FrameCutter
from warrenmq.broker.broker import Broker
from warrenmq.settings import Settings

EVERYTHING = {
    "capabilities": dict.fromkeys(
        ["authentication_failure_close", "connection.blocked", "consumer_cancel_notify", "basic.nack"], True
    )
}


def published(size: int = 1, channel: int = 1, key: str = "q") -> bytes:
    """The frames of a publish."""
    parts: list[Any] = [
        Basic.Publish(routing_key=key),
        header.ContentHeader(0, size),
        body.ContentBody(bytes(size)),
    ]
    return b"".join(frame.marshal(each, channel) for each in parts)


class ReadTransport(KeptTransport):
    """A socket that knows whether it is read."""

    def __init__(self, *, loopback: bool) -> None:
        super().__init__()
        self.peer = Peer("127.0.0.1", 50_000, "127.0.0.1", 5672, loopback=loopback)
        self.reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class SimulatedNode:
    """A broker on a simulated machine that connections can be made to."""

    def __init__(
        self, seed: int = 1, users: Users | None = None, *, traced: bool = False, limits: Settings = SMALL
    ) -> None:
        self.host = SimulatedHost(seed, limits, traced=traced)
        self.broker: Broker = self.host.open()
        self.sim = self.host.sim
        channels = self.sim.start(ChannelSup)
        served = {self.broker.inside.vhost.name: ServedVhost(self.broker, channels)}
        settings = self.broker.settings
        properties = server_properties(settings.server_product)
        self.node = Node(users or Users.default(), settings, served, properties)
        self.connections: list[ActorRef[Any]] = []

    def connect(self, *, loopback: bool = True) -> SimulatedClient:
        """A socket; nothing has been sent."""
        return SimulatedClient(self, loopback=loopback)

    def opened(self, **tuning: int) -> SimulatedClient:
        """A connection that is open."""
        client = self.connect()
        client.open(**tuning)
        return client

    def close(self) -> None:
        self.sim.close()


class SimulatedClient:
    """One connection, from the client's side."""

    def __init__(self, node: SimulatedNode, *, loopback: bool) -> None:
        self.node = node
        self.transport = ReadTransport(loopback=loopback)
        self.ref: ActorRef[Any] = node.sim.start(ConnectionProcess, self.transport, node.node)
        self._cutter = FrameCutter(0)
        self._seen = 0
        self._unread: list[tuple[int, Any]] = []
        self.sent = 0
        """Bytes."""

    def send(self, data: bytes) -> None:
        self.sent += len(data)
        self.node.sim.cast(self.ref, Received(data))

    def method(self, method: Any, channel: int = 0) -> None:
        self.send(frame.marshal(method, channel))

    def disconnect(self) -> None:
        self.node.sim.cast(self.ref, Disconnected("end of file"))

    def sleep(self, seconds: float) -> None:
        self.node.host.sleep(seconds)

    def start(
        self, mechanism: str = "PLAIN", response: str = "\0guest\0guest", properties: Any = EVERYTHING
    ) -> None:
        """The protocol header, and start-ok."""
        self.send(PROTOCOL_HEADER)
        self.next(Connection.Start)
        self.method(Connection.StartOk(properties, mechanism, response, "en_US"))

    def tune(self, frame_max: int = 131_072, channel_max: int = 2047, heartbeat: int = 0) -> None:
        self.next(Connection.Tune)
        self.method(
            make(Connection.TuneOk, frame_max=frame_max, channel_max=channel_max, heartbeat=heartbeat)
        )

    def open(self, **tuning: int) -> None:
        self.start()
        self.tune(**tuning)
        self.call(Connection.Open("/"), Connection.OpenOk)

    def channel(self, number: int) -> None:
        assert self.call(Channel.Open(), Channel.OpenOk, number)[0] == number

    def received(self) -> list[tuple[int, Any]]:
        """All that has come and was not taken yet: (channel, method), heartbeats too."""
        while self._seen < len(self.transport.pieces):
            piece = self.transport.pieces[self._seen]
            self._seen += 1
            if piece == PROTOCOL_HEADER:
                self._unread.append((0, "protocol header"))
                continue
            for each in self._cutter.feed(piece):
                _, number, got = frame.unmarshal(
                    b"".join((bytes([each.type]), each.channel.to_bytes(2, "big"), len(each.payload).to_bytes(4, "big"),
                              each.payload, b"\xce"))
                )  # fmt: skip
                self._unread.append((number, got))
        return self._unread

    def next(self, kind: type) -> tuple[int, Any]:
        """The next thing that comes, which must be of this kind; its channel, and it."""
        self.node.host.wait_until(lambda: bool(self.received()))
        number, got = self._unread.pop(0)
        assert isinstance(got, kind), got
        return number, got

    def call(self, method: Any, answer: type, channel: int = 0) -> tuple[int, Any]:
        """Send a method; the next thing that comes must be its answer."""
        self.method(method, channel)
        return self.next(answer)

    def closed(self) -> tuple[int, str]:
        """Code and text of the next method, which has to be a connection.close."""
        _, close = self.next(Connection.Close)
        return close.reply_code, close.reply_text

    def heartbeats(self) -> int:
        """Number of heartbeats that have come; nothing else may have."""
        got = self.received()
        assert all(isinstance(each, heartbeat.Heartbeat) for _, each in got)
        count = len(got)
        got.clear()
        return count

    @property
    def over(self) -> bool:
        """True if the process has ended, and with it the socket."""
        assert self.transport.closed is not self.ref.is_alive()
        return self.transport.closed
