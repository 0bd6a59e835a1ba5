"""Counters of channels and of the server, and what connections and channels say of themselves (rabbit_core_metrics).

A channel counts in an object of its own, which it alone writes; anyone may read it.  When a channel ends, what it counted is
added to the sum of those that have ended, so the totals never fall.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from pykka import ActorRef

from warrenmq.amqp.net.transport import Peer

COUNTED = (
    "publish", "confirm", "return_unroutable", "drop_unroutable", "deliver", "deliver_no_ack", "get", "get_no_ack",
    "get_empty", "redeliver", "ack",
)  # fmt: skip
"""The counters of a channel, in the words of the management API's message_stats."""
EVENTS = (
    "connection_created", "connection_closed", "channel_created", "channel_closed",
    "auth_attempts_succeeded", "auth_attempts_failed",
)  # fmt: skip
"""The counters of the server, in the words of the management API's churn_rates."""


class ChannelCounters:
    """The messages of one channel, by what was done with them; 0 at the beginning."""

    __slots__ = (*COUNTED, "_exchanges", "serial", "vhost")

    publish: int
    confirm: int
    return_unroutable: int
    drop_unroutable: int
    deliver: int
    deliver_no_ack: int
    get: int
    get_no_ack: int
    get_empty: int
    redeliver: int
    ack: int

    def __init__(self, vhost: str, serial: int) -> None:
        self.vhost, self.serial = vhost, serial
        self._exchanges: dict[str, list[int]] = {}
        for name in COUNTED:
            setattr(self, name, 0)

    def published(self, exchange: str, messages: int, queues: int) -> None:
        """Count messages that an exchange routed to so many queues."""
        self.publish += messages
        counts = self._exchanges.get(exchange) or self._exchanges.setdefault(exchange, [0, 0])
        counts[0] += messages
        counts[1] += messages * queues

    def exchanges(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Virtual host and exchange -> the messages that came in, and those that went to queues."""
        return {(self.vhost, name): (came, went) for name, (came, went) in list(self._exchanges.items())}

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return {name: getattr(self, name) for name in COUNTED}


class ServerStatistics:
    """The counters of all channels of a server, and how often things happened; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: dict[ChannelCounters, str] = {}
        """Counters of open channels -> the user."""
        self._connections: dict[ActorRef[Any], tuple[str, str, int, Callable[[], tuple[int, int]]]] = {}
        """Open connections -> user, virtual host, serial number, and what reads the bytes received and sent."""
        self._serials = count(1)
        self._routed: tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]] = Counter(), Counter()
        """Publishes into exchanges, and from them to queues, through channels that have ended."""
        self._ended = dict.fromkeys(COUNTED, 0)
        self._events = dict.fromkeys(EVENTS, 0)

    def happened(self, event: str) -> None:
        """Count one of EVENTS."""
        with self._lock:
            self._events[event] += 1

    def connection_opened(
        self, connection: ActorRef[Any], user: str, vhost: str, octets: Callable[[], tuple[int, int]]
    ) -> int:
        """A connection is open in a virtual host; returns its serial number.  `octets` is called in any thread."""
        with self._lock:
            serial = next(self._serials)
            self._connections[connection] = user, vhost, serial, octets
        return serial

    def connection_closed(self, connection: ActorRef[Any]) -> None:
        """A connection has ended."""
        with self._lock:
            self._events["connection_closed"] += 1
            self._connections.pop(connection, None)

    def connections_of(self, *, user: str | None = None, vhost: str | None = None) -> list[ActorRef[Any]]:
        """The open connections of a user, of a virtual host, or all."""
        with self._lock:
            return [
                connection
                for connection, each in self._connections.items()
                if user in (None, each[0]) and vhost in (None, each[1])
            ]

    def octets(self) -> dict[int, tuple[int, int]]:
        """The bytes received and sent of each open connection, by its serial number."""
        with self._lock:
            connections = list(self._connections.values())
        return {serial: octets() for _, _, serial, octets in connections}

    def channel_created(self, user: str, vhost: str) -> ChannelCounters:
        """Count a channel of a user; returns its counters."""
        with self._lock:
            counters = ChannelCounters(vhost, next(self._serials))
            self._events["channel_created"] += 1
            self._channels[counters] = user
        return counters

    def channels_of(self, user: str) -> int:
        """The number of open channels of a user."""
        with self._lock:
            return sum(1 for each in self._channels.values() if each == user)

    def channel_closed(self, counters: ChannelCounters) -> None:
        """A channel has ended; its counters stay in the totals."""
        with self._lock:
            if counters not in self._channels:
                return
            del self._channels[counters]
            self._events["channel_closed"] += 1
            for name, number in counters.as_dict().items():
                self._ended[name] += number
            self._add_routed(counters, *self._routed)

    @staticmethod
    def _add_routed(counters: ChannelCounters, came_in: Counter[Any], went_out: Counter[Any]) -> None:
        for exchange, (came, went) in counters.exchanges().items():
            came_in[exchange] += came
            went_out[exchange] += went

    def channels(self) -> list[ChannelCounters]:
        """The counters of the open channels."""
        with self._lock:
            return list(self._channels)

    def exchanges(self, known: Container[tuple[str, str]]) -> dict[tuple[str, str], tuple[int, int]]:
        """The messages that came into each exchange, and went to queues; those that are not `known` any more
        are forgotten.
        """
        with self._lock:
            for each in self._routed:
                for exchange in [name for name in each if name not in known]:
                    del each[exchange]
            came_in, went_out = (Counter(each) for each in self._routed)
            channels = list(self._channels)
        for counters in channels:
            self._add_routed(counters, came_in, went_out)
        return {name: (came, went_out[name]) for name, came in came_in.items() if name in known}

    def events(self) -> dict[str, int]:
        """The number of times that each of EVENTS happened."""
        with self._lock:
            return dict(self._events)

    def totals(self) -> dict[str, int]:
        """The counts of all channels there have been."""
        with self._lock:
            totals, channels = dict(self._ended), list(self._channels)
        for counters in channels:
            for name, number in counters.as_dict().items():
                totals[name] += number
        return totals


@dataclass(slots=True)
class Describe:
    """Call to a connection or a channel: the reply is a ConnectionInfo or a ChannelInfo."""


@dataclass(slots=True, frozen=True)
class ConnectionInfo:
    """An AMQP connection (rabbit_reader:infos)."""

    name: str
    peer: Peer
    state: str
    user: str
    vhost: str
    """Empty before connection.open, as `user` is before start-ok."""
    mechanism: str
    client_properties: Mapping[str, Any]
    channel_max: int
    frame_max: int
    heartbeat: int
    connected_at: int
    """Milliseconds since 1970."""
    channels: tuple[ActorRef[Any], ...]
    bytes_received: int
    bytes_sent: int
    serial: int
    """A number unique among the server's connections and channels, as names of attached processes'
    connections are equal; 0 before connection.open.
    """


@dataclass(slots=True, frozen=True)
class ChannelInfo:
    """An AMQP channel (rabbit_channel:infos)."""

    number: int
    connection: str
    user: str
    vhost: str
    confirm: bool
    transactional: bool
    consumers: int
    unacked: int
    unconfirmed: int
    uncommitted: int
    prefetch: int
    """The prefetch count of consumers to come."""
    global_prefetch: int
    blocked: bool
    counters: dict[str, int]
    serial: int
