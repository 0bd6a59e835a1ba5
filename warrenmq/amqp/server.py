"""An AMQP server on one or several brokers, as an application or `warrenmq serve` starts it.

    with warrenmq.open("data") as broker, warrenmq.amqp.serve(broker) as server:
        print(server.url)                       # amqp://127.0.0.1:5672

It must be closed before its brokers: `close` stops accepting, sends every client connection.close (320
CONNECTION_FORCED), waits briefly for their close-ok, then stops the supervision tree and closes the sockets.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Self

from pykka import ActorDeadError, ActorRef

from warrenmq.amqp.access.users import Users
from warrenmq.amqp.amqp_sup import Accepted, AmqpSup, ChannelSup, Names
from warrenmq.amqp.connection.messages import ForceClose
from warrenmq.amqp.connection.server_properties import server_properties
from warrenmq.amqp.net import local_socket
from warrenmq.amqp.net.io import READ_LIMIT, AmqpIo, SocketTransport
from warrenmq.amqp.node import Node, ServedVhost
from warrenmq.amqp.statistics import Describe
from warrenmq.amqp.vhosts import open_beside, remove
from warrenmq.broker.broker import Broker
from warrenmq.errors import BrokerClosed, CallerError
from warrenmq.log import Log
from warrenmq.runtime import Runtime
from warrenmq.runtime.life import inbox_of
from warrenmq.supervisors import which_children

PORT, TLS_PORT = 5672, 5671
FORCED = "broker forced connection closure with reason 'shutdown'"
CLOSE_OK_TIMEOUT = 5.0
"""Seconds that clients have to answer connection.close when the server ends."""
_LOOK = 0.01

log = Log("warrenmq.amqp")


class AmqpServer:
    """Use `serve`.  Also a context manager."""

    def __init__(self, brokers: Sequence[Broker], host: str, port: int, users: Users, tls: ssl.SSLContext | None,
                 directory: str | None = None, sock: socket.socket | None = None,
                 beside: AmqpServer | None = None) -> None:  # fmt: skip
        """Listen at a host and port, or with a `directory` at the socket in it."""
        self._brokers = [*brokers]
        self._added: dict[str, Broker] = {}
        """Brokers of virtual hosts that were added while it ran, which are its own to close."""
        self._changing = threading.Lock()
        """Held while a virtual host is added or deleted."""
        self._all = [self] if beside is None else [self, beside]
        """The servers of these brokers, which serve what is added, too."""
        self._broker = brokers[0]
        self._runtime = runtime = self._broker.runtime
        settings = self._broker.settings
        self._directory = directory
        self._names = names = Names("" if directory is None else "local")
        for broker in brokers:
            broker.check_open()
            if broker.runtime.is_registered(names.channel_sup):
                raise CallerError(
                    f"{broker!r} is served already; close that server, or have it listen at one more address."
                )
        self._closing = False
        self._end = threading.RLock()
        """Held by the thread that closes it; the others wait until it has removed its socket, whose name may
        be the next owner's then.
        """
        self._down: str | None = None
        with ExitStack() as undo:
            self._io = AmqpIo(self._deliver)
            undo.callback(self._io.close)
            vhosts = {}
            for broker in brokers:
                sup = broker.runtime.start(ChannelSup, name=names.channel_sup)
                undo.callback(broker.runtime.stop_actor, sup)
                vhosts[broker.inside.vhost.name] = ServedVhost(broker, sup)
            properties = server_properties(settings.server_product)
            self.node = node = Node(users, settings, vhosts, properties, trusted=directory is not None)
            self._sup = runtime.start(AmqpSup, node, names, name=names.root)
            inbox_of(self._sup).on_close(self._sup_ended)
            undo.callback(runtime.stop_actor, self._sup)
            self.addresses: list[tuple[str, str, int]] = []
            """Protocol ("amqp" or "amqps"), host and port of each listener on the network."""
            self.secured: dict[tuple[str, str, int], ssl.SSLContext] = {}
            """The TLS context of each of them that has one."""
            self.host, self.port = host, port
            if directory is None:
                self.host, self.port = self.listen(host, port, tls, sock)
            else:
                self._listen_in(directory)
                undo.callback(local_socket.remove, directory)
            self._undo = undo.pop_all()

    def listen(
        self, host: str, port: int, tls: ssl.SSLContext | None = None, sock: socket.socket | None = None
    ) -> tuple[str, int]:
        """Listen at one more address, or with a socket that is listening; returns the address.  CallerError
        when it cannot be used.
        """
        with _cannot_listen(f"{host}:{port}"):
            found = self._io.listen(host, port, tls, self._accepted, self._read_limit(), sock)
        self.addresses.append(address := ("amqp" if tls is None else "amqps", *found))
        if tls is not None:
            self.secured[address] = tls
        log.info("started AMQP listener", address=_url(*self.addresses[-1]))
        return found

    def _listen_in(self, directory: str) -> None:
        with _cannot_listen(os.path.join(directory, local_socket.SOCKET)):
            self._io.listen_in(directory, self._accepted, self._read_limit())
        log.info("started AMQP listener", address=self.url)

    def _read_limit(self) -> int:
        return max(READ_LIMIT, 2 * self.node.settings.frame_max)

    @property
    def url(self) -> str:
        """amqp://HOST:PORT, or amqps, of the first listener; the path of the directory's socket."""
        if self._directory is not None:
            return os.path.join(self._directory, local_socket.SOCKET)
        return _url(*self.addresses[0])

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(which_children(self._runtime, self._names.connection_sup))

    @property
    def runtime(self) -> Runtime:
        """The runtime of the connections; channels run in the runtime of their virtual host's broker."""
        return self._runtime

    def connection_refs(self) -> list[ActorRef[Any]]:
        """The processes of all connections."""
        with suppress(ActorDeadError):
            return [
                child.ref
                for child in which_children(self._runtime, self._names.connection_sup)
                if child.ref is not None
            ]
        return []

    def close_connection(self, name: str, message: ForceClose) -> None:
        """Close the connection of this name in good order."""
        for ref in self.connection_refs():
            with suppress(ActorDeadError):
                info = self._runtime.call(ref, Describe(), CLOSE_OK_TIMEOUT)
                if info.name == name:
                    self._runtime.cast(ref, message)

    def add_vhost(self, name: str) -> None:
        """Serve one more virtual host of the directory; nothing happens when it is served already."""
        with self._changing:
            if name in self.node.vhosts or self._closing:
                return
            broker = open_beside(self._broker, name)
            try:
                for server in self._all:
                    server.begin_vhost(broker)
            except BaseException:
                broker.close()
                raise
            self._added[name] = broker

    def begin_vhost(self, broker: Broker) -> None:
        """Serve a virtual host."""
        sup = broker.runtime.start(ChannelSup, name=self._names.channel_sup)
        self._brokers.append(broker)
        self.node.vhosts[broker.inside.vhost.name] = ServedVhost(broker, sup)

    def end_vhost(self, name: str, why: str) -> None:
        """Close a virtual host's connections, and serve it no more."""
        served = self.node.vhosts.pop(name)
        self._brokers.remove(served.broker)
        statistics = self.node.statistics
        for ref in statistics.connections_of(vhost=name):
            self._runtime.cast(ref, ForceClose(why))
        waited = 0.0
        while statistics.connections_of(vhost=name) and waited < CLOSE_OK_TIMEOUT:
            self._runtime.event().wait(_LOOK)
            waited += _LOOK
        served.broker.runtime.stop_actor(served.channel_sup)

    def delete_vhost(self, name: str) -> None:
        """Close a virtual host's connections and its broker, and delete its files.  CallerError for the first one."""
        with self._changing:
            served = self.node.vhosts.get(name)
            if served is None:
                return
            if served.broker is self._broker:
                raise CallerError(f"the virtual host {name!r} owns the data directory and cannot be deleted.")
            for server in self._all:
                server.end_vhost(name, f"vhost '{name}' is deleted")
            served.broker.close()
            self._added.pop(name, None)
            remove(self._broker, name)

    def close(self, patience: float = CLOSE_OK_TIMEOUT) -> None:
        """Stop serving; the brokers stay open.  Closing twice is no error, in two threads neither; in a
        forked child it does nothing.
        """
        if self._runtime.has_ended:
            return
        with self._end:
            if not self._closing:
                self._closing = True
                self._stop(patience)

    def _stop(self, patience: float) -> None:
        self._io.stop_listening()
        with suppress(ActorDeadError):
            for child in which_children(self._runtime, self._names.connection_sup):
                if child.ref is not None:
                    self._runtime.cast(child.ref, ForceClose(FORCED))
            self._wait_for_clients(patience)
        self._undo.close()
        for name, broker in self._added.items():
            broker.runtime.stop_actor(self.node.vhosts[name].channel_sup)
            for server in self._all[1:]:
                server.end_vhost(name, FORCED)
            broker.close()
        log.info("stopped AMQP listener", address=self.url)

    def _wait_for_clients(self, patience: float) -> None:
        waited = 0.0
        while self.connections and waited < patience:
            self._runtime.event().wait(_LOOK)
            waited += _LOOK

    def check_open(self) -> None:
        """Raise BrokerClosed unless it accepts connections, and its brokers are open; ForkedProcess in a forked child."""
        self._runtime.check_process()
        if self._down is not None and not self._closing:
            raise BrokerClosed(f"the AMQP listener is down: its supervisor gave up after {self._down}")
        for broker in self._brokers:
            broker.check_open()

    def _sup_ended(self, reason: Any) -> None:
        self._down = self._runtime.why_down(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- called in the loop

    def _accepted(self, transport: SocketTransport) -> None:
        if not self._deliver(self._names.listener, Accepted(transport)):
            transport.abort()

    def _deliver(self, to: Any, message: Any) -> bool:
        return self._runtime.cast(to, message, self._broker.inside.client.trace())


@contextmanager
def _cannot_listen(where: str) -> Iterator[None]:
    """Make an OSError of listening a CallerError."""
    try:
        yield
    except OSError as why:
        reason = why.strerror if isinstance(why, socket.gaierror) else os.strerror(why.errno or 0)
        raise CallerError(f"cannot listen on {where}: {reason}.") from why
    except UnicodeError as why:
        raise CallerError(f"cannot listen on {where}: no host can have this name.") from why


def _url(protocol: str, host: str, port: int) -> str:
    return f"{protocol}://[{host}]:{port}" if ":" in host else f"{protocol}://{host}:{port}"


def serve(
    broker: Broker | Sequence[Broker],
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    users: Users | None = None,
    tls: ssl.SSLContext | None = None,
    sock: socket.socket | None = None,
    beside: AmqpServer | None = None,
) -> AmqpServer:
    """Serve a broker, or one broker for each virtual host, to AMQP 0-9-1 clients.

    Port 0 chooses a free one.  `users` are RabbitMQ's defaults unless given: guest, from this machine.
    CallerError when the address cannot be used or the broker is served already, BrokerClosed when it is
    closed.  With `sock`, a listening socket, host and port are those of it.  Several brokers must come from
    `open_vhosts`.  `beside`, that of `serve_locally`, gets and loses the virtual hosts that this server does;
    it is to be closed after this one.
    """
    brokers = (
        [broker.inside.local()] if isinstance(broker, Broker) else [each.inside.local() for each in broker]
    )
    return AmqpServer(brokers, host, port, users or Users.default(), tls, sock=sock, beside=beside)


def serve_locally(broker: Broker | Sequence[Broker]) -> AmqpServer:
    """Serve a broker, or one for each virtual host, to other processes of this machine over the socket in its directory.

    The broker must own the directory as one that shares it (owner_lock.py).  A user who may open the
    directory may do everything.  CallerError when there can be no such socket.
    """
    brokers = [broker] if isinstance(broker, Broker) else list(broker)
    return AmqpServer(brokers, "", 0, Users.default(), None, brokers[0].path)
