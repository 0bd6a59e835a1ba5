"""SharedBroker: the Broker API for a broker that may run in another process."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import ParamSpec, Self

from warrenmq import forks
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker import arguments as check
from warrenmq.broker.broker import Broker, Inside, Watermark
from warrenmq.broker.handles import QueueHandle
from warrenmq.broker.stats import Stats
from warrenmq.checks import seconds
from warrenmq.errors import Blocked, PreconditionFailed
from warrenmq.node.alarms import Alarm, Alarms, BlockedPublisher
from warrenmq.seams.memory import LARGE
from warrenmq.settings import Settings
from warrenmq.shared.client import SharedClient
from warrenmq.shared.links import AfterLoss, Links, OpenArguments, Owned
from warrenmq.shared.patience import Unanswered, limited
from warrenmq.vhost.policies import Policy

P = ParamSpec("P")


def _in_time(publish: Callable[P, Confirm]) -> Callable[P, Confirm]:
    """`publish` of Broker, whose timeout holds for an owner that does not answer, too."""

    @wraps(publish)
    def bounded(*arguments: P.args, **options: P.kwargs) -> Confirm:
        if (timeout := options.get("timeout")) is None:
            return publish(*arguments, **options)
        try:
            return limited(seconds("timeout", timeout), lambda: publish(*arguments, **options))
        except Unanswered as why:
            raise Blocked(
                "the owner of the directory does not answer, nothing was published; try again later"
            ) from why

    return bounded


class SharedBroker(Broker):
    """A Broker whose directory several processes have open: one owns it, the others attach to the owner.

    Everything that Broker has works alike in all of them.  When the owner ends, another takes over by itself;
    calls and publishes wait for that, consumers subscribe again, and what was confirmed is there.
    """

    def __init__(
        self, path: str, settings: Settings, trace: str | None, vhost: str, unconfirmed: AfterLoss
    ) -> None:
        """Use `warrenmq.open(path, shared=True)`; `opened` comes next."""
        self._links = links = Links(OpenArguments(path, settings, trace, vhost, unconfirmed))
        self.path = path
        self.settings = settings
        self.runtime = links.runtime
        self._alarms = SharedAlarms(links)
        self._connect(SharedClient(links))
        self._largest = settings.max_message_size
        self._large = min(LARGE, self._largest)
        forks.register(self)

    def opened(self) -> Self:
        """Itself, once it owns the directory or is attached to its owner."""
        self._links.open()
        return self

    def _connect(self, client: SharedClient) -> None:
        self._client = client
        self._engine = self._consumers = client.engine
        self._shared_calls = self._calls = client.calls
        self.check_open = client.engine.check_open
        self.inside = Inside(client, self._alarms, lambda: self._owned().broker, lambda: self._owned().client)

    def after_fork(self) -> None:
        """Reset after a fork: the child attaches anew and receives none of its parent's answers (forks.py)."""
        self.runtime = self._links.runtime
        self._connect(SharedClient(self._links))

    publish = _in_time(Broker.publish)
    publish_many = _in_time(Broker.publish_many)

    @property
    def is_owner(self) -> bool:
        """True while this process owns the directory; False while it is attached to another, or looks for one."""
        return isinstance(self._links.current, Owned)

    def _owned(self) -> Owned:
        link = self._links.link()
        if isinstance(link, Owned):
            return link
        raise PreconditionFailed(
            f"{self.path} is owned by another process, and only the owner can do that; have `warrenmq serve` own the directory"
        )

    def queue(self, name: str) -> QueueHandle:
        """Return a handle to an existing queue, as Broker.queue does."""
        self.check_open()
        plain = check.name("name", name)
        self._shared_calls.check_queue(plain)
        return QueueHandle(self, plain)

    def queues(self) -> list[QueueHandle]:
        """Return handles to all queues, as Broker.queues does."""
        self.check_open()
        names = self._shared_calls.ask(lambda here: [queue.name for queue in here.queues()], "queues")
        return [QueueHandle(self, name) for name in names]

    def stats(self) -> Stats:
        """Return the owner's statistics, as Broker.stats does."""
        self.check_open()
        found: Stats = self._shared_calls.ask(Broker.stats, "stats", Stats.from_dict)
        return found

    def _set_policy(self, policy: Policy) -> None:
        self._shared_calls.ask(lambda here: here._set_policy(policy), "set_policy", policy=[*policy])  # noqa: SLF001  # the same class's

    def _clear_policy(self, name: str, *, operator: bool) -> None:
        self._shared_calls.ask(
            lambda here: here._clear_policy(name, operator=operator),  # noqa: SLF001  # the same class's
            "clear_policy", policy=name, operator=operator,
        )  # fmt: skip

    def policies(self) -> list[Policy]:
        """Return the owner's policies, as Broker.policies does."""
        self.check_open()
        found: list[Policy] = self._shared_calls.ask(
            Broker.policies, "policies", lambda rows: [Policy(*fields) for fields in rows]
        )
        return found

    def set_vm_memory_high_watermark(self, watermark: Watermark) -> int:
        """Change the owner's memory limit, as Broker.set_vm_memory_high_watermark does; the next owner starts
        with its own setting.
        """
        changed = Settings.load(environ={}, vm_memory_high_watermark=watermark).vm_memory_high_watermark
        limit: int = self._shared_calls.ask(
            lambda here: here.set_vm_memory_high_watermark(watermark),
            "set_vm_memory_high_watermark",
            limit=changed,
        )
        return limit

    def set_disk_free_limit(self, limit: Watermark) -> int:
        """Change the owner's disk limit, as Broker.set_disk_free_limit does; the next owner starts with its own setting."""
        changed = Settings.load(environ={}, disk_free_limit=limit).disk_free_limit
        found: int = self._shared_calls.ask(
            lambda here: here.set_disk_free_limit(limit), "set_disk_free_limit", limit=changed
        )
        return found

    def close(self, timeout: float | None = 60.0) -> tuple[str, ...]:
        """Close the broker, as Broker.close does.  An owner stops cleanly and another process takes over; an
        attached process disconnects.
        """
        timeout = seconds("timeout", timeout)
        if self.runtime.has_ended:
            return ()
        unwritten = self._links.close(timeout)
        self._consumers.end_consumers()
        self._links.wait_until_released(timeout)
        return unwritten


class SharedAlarms:
    """The resource alarms of the process that owns the directory."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._next = count(1).__next__
        self._tickets: dict[int, tuple[Alarms, int]] = {}

    def _table(self) -> Alarms:
        link = self._links.current
        return link.client.engine.resources.alarms if isinstance(link, Owned) else self._links.alarms

    @property
    def active(self) -> tuple[Alarm, ...]:
        """The alarms in force."""
        return self._table().active

    def add_waiting(self, publisher: BlockedPublisher, wake: Callable[[], None]) -> int:
        """Register a blocked publisher, as Alarms.add_waiting does."""
        table, ticket = self._table(), self._next()
        self._tickets[ticket] = table, table.add_waiting(publisher, wake)
        return ticket

    def remove_waiting(self, ticket: int) -> None:
        """Remove a blocked publisher, as Alarms.remove_waiting does."""
        table, its = self._tickets.pop(ticket)
        table.remove_waiting(its)
