"""The supervision tree of the AMQP side, as data (rabbit_networking, rabbit_connection_sup, rabbit_channel_sup_sup).

    amqp_sup                    one_for_one   10 in 10 s
     ├ amqp_connection_sup      simple_one_for_one
     │  └ one process a connection      temporary: the client connects again
     └ amqp_listener            starts a connection process for each socket

    amqp_channel_sup            simple_one_for_one, one in the runtime of each virtual host's broker
     └ one process a channel            temporary, linked to its connection

RabbitMQ has a supervisor a connection and a supervisor of channels in each; here links do that: when a connection ends its
channels end; when a channel crashes, its connection is notified and closes only that channel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from warrenmq.amqp.channel.process import ChannelProcess
from warrenmq.amqp.connection.process import ConnectionProcess
from warrenmq.amqp.net.io import SocketTransport
from warrenmq.amqp.node import Node
from warrenmq.errors import ResourceError
from warrenmq.log import Log
from warrenmq.runtime import Server
from warrenmq.supervisors import ChildSpec, Supervisor, start_child

AMQP_SUP = "amqp_sup"
CONNECTION_SUP = "amqp_connection_sup"
CHANNEL_SUP = "amqp_channel_sup"
LISTENER = "amqp_listener"

log = Log("warrenmq.amqp")


@dataclass(frozen=True, slots=True)
class Names:
    """The registered names of one server's processes: an application may have a server for TCP and one for
    the directory's socket.
    """

    of: str = ""
    """Empty, or which server it is, as "local"."""

    def _name(self, plain: str) -> str:
        return f"{plain} {self.of}" if self.of else plain

    @property
    def root(self) -> str:
        """The supervisor at the top, AmqpSup."""
        return self._name(AMQP_SUP)

    @property
    def connection_sup(self) -> str:
        """The supervisor of its connections."""
        return self._name(CONNECTION_SUP)

    @property
    def channel_sup(self) -> str:
        """The supervisor of the channels in each virtual host's runtime."""
        return self._name(CHANNEL_SUP)

    @property
    def listener(self) -> str:
        """The process that gets new sockets."""
        return self._name(LISTENER)


class ConnectionSup(Supervisor):
    """rabbit_connection_sup of all connections."""

    strategy = "simple_one_for_one"
    helpable = True

    def children(self, node: Node) -> Iterable[ChildSpec]:
        """The template; each connection adds its transport."""
        return [ChildSpec("connection", ConnectionProcess, kwargs={"node": node}, restart="temporary")]


class ChannelSup(Supervisor):
    """rabbit_channel_sup_sup of all connections to one virtual host."""

    strategy = "simple_one_for_one"
    helpable = True

    def children(self) -> Iterable[ChildSpec]:
        """The template; each channel adds its number, its connection and its context."""
        return [ChildSpec("channel", ChannelProcess, restart="temporary")]


@dataclass(slots=True)
class Accepted:
    """io -> listener: a client has connected."""

    transport: SocketTransport


class Listener(Server):
    """tcp_listener and ranch's acceptors: gives each socket its process."""

    helpable = True

    def init(self, connection_sup: str) -> None:
        """`connection_sup` is the name of the supervisor that starts them."""
        self._connection_sup = connection_sup

    def handle_cast(self, message: Any) -> None:
        """Start a connection for an accepted socket (Accepted)."""
        transport = message.transport
        try:
            transport.attach(start_child(self, self._connection_sup, transport))
        except ResourceError as error:
            log.warning("connection refused", peer=str(transport.peer), reason=str(error))
            transport.abort()
        except BaseException:
            transport.abort()
            raise

    @staticmethod
    def undelivered(message: Any) -> None:
        """The listener is dead: close the socket."""
        if isinstance(message, Accepted):
            message.transport.abort()


class AmqpSup(Supervisor):
    """The root of the AMQP side, beside rabbit_sup."""

    strategy = "one_for_one"
    intensity = 10
    period = 10.0

    def children(self, node: Node, names: Names) -> Iterable[ChildSpec]:
        """The connections before the listener, which starts them."""
        connections = names.connection_sup
        return [
            ChildSpec(CONNECTION_SUP, ConnectionSup, args=(node,), name=connections, shutdown=None),
            ChildSpec(LISTENER, Listener, args=(connections,), name=names.listener),
        ]
