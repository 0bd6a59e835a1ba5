"""A raw client on a real socket, which sends any frames, right or wrong."""

from __future__ import annotations

import socket
import ssl
from typing import Any, Self

from pamqp import frame
from pamqp.commands import Channel, Connection

from tests.support.limits import LIMIT
from warrenmq.amqp.connection.handshake import PROTOCOL_HEADER
from warrenmq.amqp.wire.codec import decode_method, make
from warrenmq.amqp.wire.frames import METHOD, Frame, FrameCutter


class RawClient:
    """One socket; also a context manager."""

    def __init__(
        self, port: int, *, receive_buffer: int | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(LIMIT)
        self.socket.connect(("127.0.0.1", port))
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._cutter = FrameCutter(0)
        self._frames: list[Frame] = []

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def method(self, method: Any, channel: int = 0) -> None:
        self.send(frame.marshal(method, channel))

    def read(self) -> bytes:
        """Some bytes; empty at the end, however it came about."""
        try:
            return self.socket.recv(1 << 16)
        except ConnectionResetError:
            return b""

    def frame(self) -> Frame | None:
        """The next frame; None at the end."""
        while not self._frames:
            data = self.read()
            if not data:
                return None
            self._frames += self._cutter.feed(data)
        return self._frames.pop(0)

    def next(self, kind: type) -> Any:
        """The next method, which must be of this kind."""
        got = self.frame()
        assert got.type == METHOD
        method = decode_method(got.payload)
        assert isinstance(method, kind), method
        return method

    def open(self, *channels: int, heartbeat: int = 0) -> RawClient:
        """Open a connection as guest, with these channels."""
        self.send(PROTOCOL_HEADER)
        self.next(Connection.Start)
        self.method(Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
        self.next(Connection.Tune)
        self.method(make(Connection.TuneOk, channel_max=2047, frame_max=131072, heartbeat=heartbeat))
        self.method(Connection.Open("/"))
        self.next(Connection.OpenOk)
        for number in channels:
            self.method(Channel.Open(), number)
            self.next(Channel.OpenOk)
        return self

    def at_end(self) -> bool:
        """True if the server has closed; frames before that are skipped."""
        while self.read():
            pass
        return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
