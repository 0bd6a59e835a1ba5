"""Site: the state that handlers of the HTTP API share: the AMQP server, its users, its virtual hosts, and rates.

The server's counts are sampled every five seconds (collect_statistics_interval); history.py makes rates of them.
"""

from __future__ import annotations

import ipaddress
import platform
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pykka import ActorDeadError, Timeout

from warrenmq.amqp.access.permissions import AuthenticatedUser
from warrenmq.amqp.access.users import DEFAULT_USER, Account
from warrenmq.amqp.connection.server_properties import COMPATIBLE_WITH
from warrenmq.amqp.server import AmqpServer
from warrenmq.amqp.statistics import COUNTED, EVENTS, ChannelInfo, ConnectionInfo, Describe
from warrenmq.broker.broker import Broker
from warrenmq.broker.stats import AlarmStats, alarm_stats
from warrenmq.errors import NotFound
from warrenmq.management.errors import WITH, not_authorised, not_found
from warrenmq.management.history import History, Path, Span
from warrenmq.queue.messages import QueueFigures
from warrenmq.runtime.thread_start import start_thread

DELIVERED = ("deliver", "deliver_no_ack", "get", "get_no_ack")
"""The counts that deliver_get is the sum of."""
LENGTHS = ("messages", "messages_ready", "messages_unacknowledged")
STATS = ("publish", *DELIVERED, "ack", "deliver_get")
OCTETS = ("recv_oct", "send_oct")
ROUTED = ("publish_in", "publish_out")
CHURN = (
    *(name for name in EVENTS if not name.startswith("auth_")),
    "queue_created",
    "queue_declared",
    "queue_deleted",
)
SAMPLE_EVERY = 5.0
"""Seconds between two samples."""
ASK_TIMEOUT = 2.0
"""Seconds that a connection or a channel has to describe itself; one that is busy for longer is left out."""


class Site:
    """The management API's view of the AMQP server."""

    def __init__(self, server: AmqpServer) -> None:
        self.server = server
        self.node = server.node
        self.users = server.node.users
        self.statistics = server.node.statistics
        self.listeners: list[tuple[str, str, int]] = []
        """Protocol ("http" or "https"), host and port of each of the API's own listeners."""
        self.secured: dict[tuple[str, str, int], ssl.SSLContext] = {}
        """The TLS context of each of them that has one."""
        self.name = f"rabbit@{platform.node()}"
        """The node's name."""
        self.version = COMPATIBLE_WITH[1]
        self.started = time.time()
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="warrenmq-samples", daemon=True)
        self._history = History(
            {
                "queue": (*LENGTHS, *STATS),
                "vhost": (*LENGTHS, *STATS),
                "totals": LENGTHS,
                "churn": CHURN,
                "node": (*COUNTED, "deliver_get"),
                "channel": (*COUNTED, "deliver_get"),
                "connection": OCTETS,
                "exchange": ROUTED,
            }
        )

    def begin(self) -> None:
        """Start sampling rates."""
        self._take()
        start_thread(self._sampler)

    def end(self) -> None:
        """Stop sampling rates."""
        self._ended.set()
        self._sampler.join()

    # -- users

    def log_in(self, name: str, password: bytes, peer: str) -> Account:
        """Authenticate a user; HttpError 401, which does not tell whether name or password was wrong."""
        account = None
        if self.users.check_password(name, password):
            account = self.users.account(name)
        if account is None or (
            name == DEFAULT_USER == self.node.settings.loopback_users and not _is_loopback(peer)
        ):
            self.statistics.happened("auth_attempts_failed")
            raise not_authorised("Login failed")
        self.statistics.happened("auth_attempts_succeeded")
        return account

    def at_work(self, account: Account, vhost: str) -> AuthenticatedUser:
        """The user's access to a virtual host.  HttpError 404 for an unknown host, 401 without any permission there."""
        self.broker(vhost)
        user = self.users.in_vhost(account.name, vhost)
        if user is None:
            raise not_authorised(f"User not authorised to access virtual host {vhost}")
        return user

    def visible_vhosts(self, account: Account) -> list[str]:
        """The virtual hosts that a user may see: all with the tag monitoring, else those with permissions."""
        names = list(self.node.vhosts)
        if WITH["monitoring"].intersection(account.tags):
            return names
        return [name for name in names if self.users.in_vhost(account.name, name) is not None]

    def visible(self, account: Account, vhost: str) -> Broker:
        """The broker of a virtual host that the user may see.  HttpError 404, 401."""
        broker = self.broker(vhost)
        if vhost not in self.visible_vhosts(account):
            raise not_authorised(f"User not authorised to access virtual host {vhost}")
        return broker

    def visible_brokers(self, account: Account, vhost: str | None = None) -> list[Broker]:
        """The broker of this virtual host; without one, those of all that the user may see.  HttpError as `visible`."""
        return [
            self.visible(account, name)
            for name in ([vhost] if vhost is not None else self.visible_vhosts(account))
        ]

    # -- virtual hosts

    def broker(self, vhost: str) -> Broker:
        """The broker of a virtual host.  HttpError 404 for an unknown one."""
        served = self.node.vhosts.get(vhost)
        if served is None:
            raise not_found()
        return served.broker

    def brokers(self) -> list[Broker]:
        """The brokers of all virtual hosts."""
        return [served.broker for served in list(self.node.vhosts.values())]

    def alarms(self) -> tuple[AlarmStats, ...]:
        """The alarms, which all virtual hosts share, that of the memory first."""
        return alarm_stats(self.brokers()[0].inside.resources)

    def figures(self, broker: Broker, queue: str) -> QueueFigures | None:
        """The current figures of a queue; None if it has just been deleted."""
        read = broker.inside.vhost.figures.get(queue)
        return None if read is None else read()

    # -- connections and channels

    def connections(self) -> Iterator[ConnectionInfo]:
        """The figures of every connection that answers."""
        for ref in self.server.connection_refs():
            info = self._ask(self.server.runtime, ref)
            if isinstance(info, ConnectionInfo) and info.vhost:
                yield info

    def channels(self, connection: ConnectionInfo) -> Iterator[ChannelInfo]:
        """The figures of every channel that answers."""
        served = self.node.vhosts.get(connection.vhost)
        if served is None:
            return
        for ref in connection.channels:
            info = self._ask(served.broker.runtime, ref)
            if isinstance(info, ChannelInfo):
                yield info

    def describe(self, broker: Broker, channel: Any) -> ChannelInfo | None:
        """The figures of one channel; None if it does not answer."""
        info = self._ask(broker.runtime, channel)
        return info if isinstance(info, ChannelInfo) else None

    @staticmethod
    def _ask(runtime: Any, ref: Any) -> Any:
        try:
            return runtime.call(ref, Describe(), ASK_TIMEOUT)
        except (ActorDeadError, Timeout, NotFound):
            return None

    def events(self) -> dict[str, int]:
        """Event counts under the names of RabbitMQ's churn_rates."""
        found = self.statistics.events()
        for broker in self.brokers():
            for name, count in broker.inside.vhost.queue_events.items():
                found[name] = found.get(name, 0) + count
        return found

    def routed(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Virtual host and exchange -> ROUTED, of those exchanges that clients have published to."""
        known = {
            (broker.inside.vhost.name, name)
            for broker in self.brokers()
            for name in ("", *broker.inside.vhost.router.exchanges.copy())
        }
        return self.statistics.exchanges(known)

    # -- rates

    def with_rates(self, counts: dict[str, int], path: Path, span: Span | None = None) -> dict[str, Any]:
        """Add to each count its `_details` with the rate, with a span its samples, too."""
        now = time.time_ns() // 1_000_000
        found: dict[str, Any] = {}
        for name, count in counts.items():
            found[name] = count
            found[f"{name}_details"] = self._history.details(path, name, now, span)
        return found

    def _take(self) -> None:
        statistics = self.statistics.totals()
        events = self.events()
        sample: dict[Path, tuple[int, ...]] = {
            ("node",): (*(statistics[name] for name in COUNTED), delivered(statistics)),
            ("churn",): tuple(events[name] for name in CHURN),
        }
        for channel in self.statistics.channels():
            counts = channel.as_dict()
            sample["channel", channel.serial] = *counts.values(), delivered(counts)
        for serial, octets in self.statistics.octets().items():
            sample["connection", serial] = octets
        for (vhost, name), routed in self.routed().items():
            sample["exchange", vhost, name] = routed
        everything = [0] * len(LENGTHS)
        for broker in self.brokers():
            vhost, total = broker.inside.vhost.name, [0] * len(LENGTHS + STATS)
            for name, read in list(broker.inside.vhost.figures.items()):
                figures = read()
                values = tuple((lengths_of(figures) | stats_of(figures)).values())
                sample["queue", vhost, name] = values
                total = [one + other for one, other in zip(total, values, strict=True)]
            sample["vhost", vhost] = tuple(total)
            everything = [one + other for one, other in zip(everything, total, strict=False)]
        sample["totals",] = tuple(everything)
        self._history.take(time.time_ns() // 1_000_000, sample)

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_EVERY):
            self._take()


def delivered(counts: Mapping[str, int]) -> int:
    """The messages that were delivered in any way (deliver_get)."""
    return sum(counts[name] for name in DELIVERED)


def lengths_of(figures: QueueFigures) -> dict[str, int]:
    """A queue's numbers of messages."""
    return {
        "messages": figures.ready + figures.unacked, "messages_ready": figures.ready,
        "messages_unacknowledged": figures.unacked,
    }  # fmt: skip


def bytes_of(figures: QueueFigures) -> dict[str, int]:
    """The bytes of the bodies of a queue's messages; empty if they are not counted."""
    ready = figures.ready_bytes if figures.ready + figures.unacked else 0
    if ready is None:
        return {}
    unacked = figures.unacked_bytes if figures.unacked else 0
    return {
        "message_bytes": ready + unacked, "message_bytes_ready": ready, "message_bytes_unacknowledged": unacked,
    }  # fmt: skip


def stats_of(figures: QueueFigures) -> dict[str, int]:
    """A queue's message_stats."""
    ways = dict(zip(DELIVERED, figures.delivered, strict=True))
    return {"publish": figures.published, **ways, "ack": figures.acked, "deliver_get": sum(figures.delivered)}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
