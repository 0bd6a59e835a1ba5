"""Counters of channels and of the server, and what connections and channels say of themselves (rabbit_core_metrics).

A channel counts in an object of its own, which it alone writes; anyone may read it.  When a channel ends, what it counted is
added to the sum of those that have ended, so the totals never fall.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykka import ActorRef

    from warrenmq.amqp.net.transport import Peer

COUNTED = (
    "publish", "confirm", "return_unroutable", "drop_unroutable", "deliver", "deliver_no_ack", "get", "get_no_ack",
    "get_empty", "redeliver", "ack",
)  # fmt: skip
"""What a channel counts, in the words of the management API's message_stats."""
EVENTS = (
    "connection_created", "connection_closed", "channel_created", "channel_closed",
    "auth_attempts_succeeded", "auth_attempts_failed",
)  # fmt: skip
"""What the server counts, in the words of its churn_rates."""


class ChannelCounters:
    """The messages of one channel, by what was done with them; 0 at the beginning."""

    __slots__ = COUNTED

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

    def __init__(self) -> None:
        for name in COUNTED:
            setattr(self, name, 0)

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return {name: getattr(self, name) for name in COUNTED}


class ServerStatistics:
    """The counters of all channels of a server, and how often things happened; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: dict[ChannelCounters, str] = {}
        """Those of open channels -> the user."""
        self._connections: dict[ActorRef[Any], tuple[str, str]] = {}
        """Open connections -> user and virtual host."""
        self._ended = dict.fromkeys(COUNTED, 0)
        self._events = dict.fromkeys(EVENTS, 0)

    def happened(self, event: str) -> None:
        """Count one of EVENTS."""
        with self._lock:
            self._events[event] += 1

    def connection_opened(self, connection: ActorRef[Any], user: str, vhost: str) -> None:
        """A connection is open in a virtual host."""
        with self._lock:
            self._connections[connection] = user, vhost

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

    def channel_created(self, user: str) -> ChannelCounters:
        """Count a channel of a user; returns its counters."""
        counters = ChannelCounters()
        with self._lock:
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
            for name, count in counters.as_dict().items():
                self._ended[name] += count

    def events(self) -> dict[str, int]:
        """The number of times that each of EVENTS happened."""
        with self._lock:
            return dict(self._events)

    def totals(self) -> dict[str, int]:
        """The counts of all channels there have been."""
        with self._lock:
            totals, channels = dict(self._ended), list(self._channels)
        for counters in channels:
            for name, count in counters.as_dict().items():
                totals[name] += count
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
    """Of consumers to come."""
    global_prefetch: int
    blocked: bool
    counters: dict[str, int]
