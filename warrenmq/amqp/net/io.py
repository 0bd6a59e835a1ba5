"""Sockets: one asyncio loop, in the threads "amqp-io", which reads and writes for all connections.

Purpose.  A socket costs a few KB here, not a thread; the actors never wait for one, and the loop never for an
actor (runtime/leading.py).

    accept ──► listener (starts a ConnectionProcess) ──attach──► Received, Writable, Disconnected casts
    write(), any thread ──► kernel, while it takes everything at once
                        └─► what is pending, joined ──one wake-up, one send──► kernel

Bounds.  At most READ_LIMIT bytes of a connection wait to be dealt with: then its socket is not read, and TCP
holds the peer up.  Above WRITE_HIGH bytes that the peer does not read, `writable` is False, and channels send
nothing but answers; above WRITE_LIMIT the socket is not read either, and channels leave alone what they have
not begun with (`overfull`), so that a peer cannot ask for more answers than it reads.

Guarantees.  Bytes are sent in the order of the calls of `write`.  After `close` nothing more is written; what
waits is sent, for LINGER seconds at most.  Everything that touches the socket runs in the loop, but for the
short cut of `write`, which saves an answer a change of threads; `_lock` guards it and what is waiting to be
sent, and no thread waits while holding it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, cast

from pykka import ActorRef

from warrenmq import forks
from warrenmq.accepting import ONE, complain, may_wait
from warrenmq.amqp.channel.context import Writable
from warrenmq.amqp.connection.messages import Disconnected, Received
from warrenmq.amqp.net import local_socket
from warrenmq.amqp.net.tls import Handshake
from warrenmq.amqp.net.transport import Peer
from warrenmq.errors import ResourceError
from warrenmq.log import Log
from warrenmq.runtime.leading import SharedLoop
from warrenmq.runtime.life import inbox_of

Deliver = Callable[[ActorRef[Any], Any], object]

READ_LIMIT = 4 << 20
"""Or twice frame_max, if that is more: a frame counts as waiting until it is whole."""
WRITE_HIGH = 1 << 20
WRITE_LOW = 1 << 18
WRITE_LIMIT = 32 << 20
LINGER = 5.0
BACKLOG = 1024
_ACCEPTING = 0.5
"""Seconds that accepted sockets have to become connections when no more are accepted: TLS may be slow."""

log = Log("warrenmq.amqp")


class SocketTransport(asyncio.Protocol):
    """One socket: see transport.Transport for what others may call."""

    peer: Peer

    def __init__(self, io: AmqpIo, accepted: Callable[[SocketTransport], None], read_limit: int) -> None:
        self._io = io
        self._accepted = accepted
        self._read_limit = read_limit
        self._lock = threading.Lock()
        self._pending: list[bytes] = []
        self._waiting = 0
        """Bytes in _pending."""
        self._handled = 0
        """Bytes that the connection is done with."""
        self._awaited = False
        """A sender saw `writable` False: cast Writable when there is room."""
        self.written = 0
        """Bytes that were given to `write`."""
        self._direct: int | None = None
        """The descriptor to write to, while nothing waits to be sent: neither in _pending nor in asyncio's buffer."""
        # From here on, the loop's alone; others may look.
        self._socket: asyncio.Transport
        self.descriptor = -1
        self._descriptor: int | None = None
        """None with TLS, where only asyncio knows what is to be written."""
        self._connection: ActorRef[Any] | None = None
        self._early: list[bytes] = []
        """Bytes received before `attach`."""
        self._received = 0
        """Bytes that came; the reading pauses when they are too far ahead of `_handled`."""
        self._choked = False
        """The kernel takes no more: above WRITE_HIGH."""
        self._buffered = 0
        """Bytes in asyncio's buffer after the last write, or at the last change of _choked."""
        self._held = False
        """The connection has paused reading."""
        self._reading = True
        """The loop reads the socket."""
        self._closing = False
        self._lost = False

    # -- for everyone

    def write(self, data: bytes) -> None:
        with self._lock:
            self.written += len(data)
            if self._direct is not None:
                data = self._write_now(self._direct, data)
                if not data:
                    return
            wake = not self._pending
            self._pending.append(data)
            self._waiting += len(data)
        if wake:
            self._io.soon(self._flush)

    def _write_now(self, descriptor: int, data: bytes) -> bytes:
        """Write at once; returns the bytes that the kernel did not accept, which the loop writes later."""
        try:
            sent = os.write(descriptor, data)
        except OSError:  # it is full, or broken, which the loop finds out by itself
            sent = 0
        if sent < len(data):
            self._direct = None
        return data[sent:]

    def writable(self) -> bool:
        if self._has_room():
            return True
        self._awaited = True
        return self._has_room()  # it may have drained before _awaited was set, without a notice

    def overfull(self) -> bool:
        if self._waiting + self._buffered <= WRITE_LIMIT:
            return False
        self._awaited = True
        return not self._has_room()  # as above

    def _has_room(self) -> bool:
        return not self._choked and self._waiting < WRITE_HIGH

    def handled(self, size: int) -> None:
        with self._lock:
            self._handled += size
        if not self._reading:
            self._io.soon(self._regulate)

    def pause_reading(self) -> None:
        self._held = True
        self._io.soon(self._regulate)

    def resume_reading(self) -> None:
        self._held = False
        self._io.soon(self._regulate)

    def close(self) -> None:
        self._io.soon(self._close)

    def abort(self) -> None:
        self._io.soon(self._abort)

    def attach(self, connection: ActorRef[Any]) -> None:
        """Cast everything that happens on the socket to this actor; the socket closes when the actor ends,
        for whatever reason.
        """
        inbox_of(connection).on_close(lambda _reason: self.close())
        self._io.soon(lambda: self._attach(connection))

    # -- in the loop: what asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._socket.set_write_buffer_limits(WRITE_HIGH, WRITE_LOW)
        raw = self._socket.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        tls = self._socket.get_extra_info("ssl_object")
        if raw.family == socket.AF_UNIX:
            process = local_socket.process_of(raw)
            self.peer = Peer(local_socket.SOCKET, 0, local_socket.SOCKET, 0, loopback=True, process=process)
        else:
            there, here = self._socket.get_extra_info("peername"), self._socket.get_extra_info("sockname")
            if not there:  # it has gone already
                self._socket.abort()
                return
            self.peer = Peer(
                there[0], there[1], here[0], here[1], _is_loopback(there[0]), tls.version() if tls else ""
            )
        self.descriptor = raw.fileno()
        self._io.open[self] = None
        if not tls:
            self._descriptor = self._direct = self.descriptor
        self._accepted(self)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._connection is None:
            self._early.append(data)
        else:
            self._io.deliver(self._connection, Received(data))
        if self._received - self._handled > self._read_limit:
            self._regulate()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._choked = True
        self._buffered = self._socket.get_write_buffer_size()
        self._regulate()

    def resume_writing(self) -> None:
        self._choked = False
        self._buffered = 0
        self._regulate()
        self._tell_writable()

    def _tell_writable(self) -> None:
        if self._awaited and self._has_room() and self._connection is not None:
            self._awaited = False
            self._io.deliver(self._connection, Writable())

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._io.open.pop(self, None)
        with self._lock:  # asyncio closes the descriptor after this, and another socket may get its number
            self._direct = None
            self._pending.clear()
            self._waiting = 0
        if self._connection is not None:
            self._io.deliver(self._connection, Disconnected(str(exc or "end of file")))

    # -- in the loop: what others asked for

    def _attach(self, connection: ActorRef[Any]) -> None:
        self._connection = connection
        for data in self._early:
            self._io.deliver(connection, Received(data))
        self._early.clear()
        if self._lost:
            self._io.deliver(connection, Disconnected("end of file"))

    def _flush(self) -> None:
        with self._lock:
            data = b"".join(self._pending)
            self._pending.clear()
            self._waiting = 0
        if not self._lost and not self._closing and data:
            self._socket.write(data)
            self._buffered = self._socket.get_write_buffer_size()
            if self._choked:
                self._regulate()
            else:
                self._tell_writable()
                self._allow_direct()

    def _allow_direct(self) -> None:
        with self._lock:
            if (
                not self._pending
                and not self._socket.get_write_buffer_size()
                and not self._socket.is_closing()
            ):
                self._direct = self._descriptor

    def _regulate(self) -> None:
        """Resume or pause reading, by the bytes that wait in both directions."""
        unhandled = self._received - self._handled
        full = unhandled > (self._read_limit if self._reading else self._read_limit // 2)
        unread = self._choked and self._buffered > WRITE_LIMIT
        wanted = not (self._held or full or unread) or self._closing
        if wanted is self._reading or self._lost:
            return
        self._reading = wanted
        if wanted:
            self._socket.resume_reading()
        else:
            self._socket.pause_reading()

    def _close(self) -> None:
        if self._closing or self._lost:
            return
        self._flush()
        with self._lock:
            self._direct = None
        self._closing = True
        self._socket.close()
        self._io.loop.call_later(LINGER, self._abort)

    def _abort(self) -> None:
        if not self._lost:
            with self._lock:
                self._direct = None
            self._closing = True
            self._socket.abort()


def _is_loopback(host: str) -> bool:
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


class AmqpIo:
    """The loop and its threads; ResourceError when the system has none left.

    `deliver(ref, message)` casts a message; it is called in the loop.
    """

    def __init__(self, deliver: Deliver) -> None:
        self.deliver = deliver
        self.open: dict[SocketTransport, None] = {}
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(complain)
        self._servers: list[asyncio.Server] = []
        self._forked = False
        forks.register(self)
        try:
            self._threads = SharedLoop(self.loop.run_forever, self.loop.stop, "amqp-io")
        except ResourceError:
            self.loop.close()
            raise

    def after_fork(self) -> None:
        """See forks.py: without this a child would keep the port, and the connections of the parent's clients, open.

        The loop and its selector are shared with the parent, so nothing of asyncio is called: each descriptor is turned
        into one of /dev/null, which whatever owns its number may close in peace.
        """
        self._forked = True
        selector = getattr(self.loop, "_selector", None)
        listening = [each for server in self._servers for each in server.sockets]
        connected = [each.descriptor for each in self.open]
        own = [getattr(self.loop, name, None) for name in ("_ssock", "_csock")]
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for each in (*listening, *own, selector):
            if each is not None and (number := each.fileno()) >= 0:
                os.dup2(null, number, inheritable=False)
        for number in connected:
            if number >= 0:
                os.dup2(null, number, inheritable=False)
        os.close(null)

    def soon(self, what: Callable[[], object]) -> None:
        """Run a callback in the loop, behind those scheduled before.  Does nothing once the loop is closed,
        or in a forked child.
        """
        if self._forked:
            return
        try:
            self.loop.call_soon_threadsafe(what)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def listen(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        accepted: Callable[[SocketTransport], None],
        read_limit: int,
        sock: socket.socket | None = None,
    ) -> tuple[str, int]:
        """Accept connections from now on; returns the address, whose port is chosen when it was 0.  OSError.

        With `sock`, a listening socket, host and port are those of it.

        `accepted` is called in the loop, and the socket keeps what comes until `attach`.
        """
        where: dict[str, Any] = {"sock": sock}
        if sock is None:
            where = {"host": host, "port": port, "reuse_address": True}

        def protocol() -> asyncio.Protocol:
            return SocketTransport(self, accepted, read_limit)

        first = protocol if tls is None else lambda: Handshake(tls, protocol, log)

        async def start() -> asyncio.Server:
            return await may_wait(self.loop.create_server(first, **where, backlog=ONE), BACKLOG)

        server = asyncio.run_coroutine_threadsafe(start(), self.loop).result()
        self._servers.append(server)
        address = server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    def listen_in(self, directory: str, accepted: Callable[[SocketTransport], None], read_limit: int) -> None:
        """Accept connections over the directory's own socket, as `listen` does.  OSError, CallerError."""
        listener = local_socket.listen(directory, BACKLOG)

        async def start() -> asyncio.Server:
            made = self.loop.create_server(
                lambda: SocketTransport(self, accepted, read_limit), sock=listener, backlog=ONE
            )
            return await may_wait(made, BACKLOG)

        self._servers.append(asyncio.run_coroutine_threadsafe(start(), self.loop).result())

    def stop_listening(self) -> None:
        """Stop accepting; open connections stay."""

        async def stop() -> None:
            # Sockets that were accepted just now: asyncio forgets to close them if their server is closed before.
            while accepting := asyncio.all_tasks() - {asyncio.current_task()}:
                _, slow = await asyncio.wait(accepting, timeout=_ACCEPTING)
                if slow:
                    break
            for server in self._servers:
                server.close()

        asyncio.run_coroutine_threadsafe(stop(), self.loop).result()
        self._servers.clear()

    def close(self) -> None:
        """Close all sockets and end the threads."""

        async def stop() -> None:
            for each in list(self.open):
                each.abort()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self._threads.end()

        asyncio.run_coroutine_threadsafe(stop(), self.loop)
        self._threads.join()
        self.loop.close()
