"""Site: the state that handlers of the HTTP API share: the AMQP server, its users, its virtual hosts, and rates.

A rate is the change between the last two samples, which are taken every five seconds (collect_statistics_interval).
"""

from __future__ import annotations

import ipaddress
import platform
import threading
import time
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError, Timeout

from warrenmq.amqp.access.users import DEFAULT_USER
from warrenmq.amqp.connection.server_properties import COMPATIBLE_WITH
from warrenmq.amqp.statistics import ChannelInfo, ConnectionInfo, Describe
from warrenmq.errors import NotFound
from warrenmq.management.errors import WITH, not_authorised, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warrenmq.amqp.access.users import Account, AuthenticatedUser
    from warrenmq.amqp.server import AmqpServer
    from warrenmq.broker.broker import Broker
    from warrenmq.queue.messages import QueueFigures

SAMPLE_EVERY = 5.0
"""Seconds between two samples."""
ASK_TIMEOUT = 2.0
"""Seconds that a connection or a channel has to describe itself; one that is busy for longer is left out."""


class Site:
    """The management API's view of the AMQP server."""

    def __init__(self, server: AmqpServer, address: tuple[str, int]) -> None:
        """`address` is the API's own listener."""
        self.server = server
        self.node = server.node
        self.users = server.node.users
        self.statistics = server.node.statistics
        self.address = address
        self.name = f"rabbit@{platform.node()}"
        """The node's name."""
        self.version = COMPATIBLE_WITH[1]
        self.started = time.time()
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="warrenmq-samples", daemon=True)
        self._samples: tuple[tuple[float, Any], tuple[float, Any]] | None = None

    def begin(self) -> None:
        """Start sampling rates."""
        first = self._take()
        self._samples = first, first
        self._sampler.start()

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

    def figures(self, broker: Broker, queue: str) -> QueueFigures | None:
        """The current figures of a queue; None if it has just been deleted."""
        read = broker.vhost.figures.get(queue)
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
            for name, count in broker.vhost.queue_events.items():
                found[name] = found.get(name, 0) + count
        return found

    # -- rates

    def rate_of(self, path: tuple[str, ...]) -> float:
        """The rate of one sampled count, a second."""
        if self._samples is None:
            return 0.0
        (then, old), (now, new) = self._samples
        first, last = old.get(path), new.get(path)
        if first is None or last is None or now <= then:
            return 0.0
        return round(float(last - first) / (now - then), 1)

    def with_rates(self, counts: dict[str, int], path: tuple[str, ...]) -> dict[str, Any]:
        """Add to each count its `_details` with the rate."""
        found: dict[str, Any] = {}
        for name, count in counts.items():
            found[name] = count
            found[f"{name}_details"] = {"rate": self.rate_of((*path, name))}
        return found

    def _take(self) -> tuple[float, dict[tuple[str, ...], int]]:
        sample: dict[tuple[str, ...], int] = {
            ("node", name): count for name, count in self.statistics.totals().items()
        }
        sample |= {("churn", name): count for name, count in self.events().items()}
        ready = unacked = 0
        for broker in self.brokers():
            vhost = broker.vhost.name
            for name, read in list(broker.vhost.figures.items()):
                figures = read()
                ready += figures.ready
                unacked += figures.unacked
                sample["queue", vhost, name, "messages_ready"] = figures.ready
                sample["queue", vhost, name, "messages_unacknowledged"] = figures.unacked
                sample["queue", vhost, name, "messages"] = figures.ready + figures.unacked
                sample["queue", vhost, name, "publish"] = figures.published
        sample["totals", "messages_ready"] = ready
        sample["totals", "messages_unacknowledged"] = unacked
        sample["totals", "messages"] = ready + unacked
        return time.monotonic(), sample

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_EVERY):
            taken = self._take()
            assert self._samples is not None
            self._samples = self._samples[1], taken


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
