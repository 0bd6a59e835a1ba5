"""The broker as an application sees it: open a directory, declare, publish, consume, close.

A Broker is no actor.  It owns the directory and the runtime, starts the supervision tree, and turns calls into
casts to queue processes (publish, ack) or calls (everything that is not on a message's way).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from pykka import ActorDeadError, Timeout

from warrenmq import forks
from warrenmq.actors.node.alarm import RABBIT_ALARM, GetAlarms
from warrenmq.actors.node.disk_monitor import RABBIT_DISK_MONITOR, SetDiskFreeLimit
from warrenmq.actors.node.vm_memory_monitor import VM_MEMORY_MONITOR, SetVmMemoryHighWatermark
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.actors.sending.message_sender import MessageIds
from warrenmq.actors.store.messages import Statistics
from warrenmq.actors.vhost.vhost import Vhost, queue_name
from warrenmq.broker import arguments
from warrenmq.broker.consumer import CLOSED
from warrenmq.broker.declarations import Declarations
from warrenmq.broker.handles import Exchange, Queue
from warrenmq.broker.publisher import Publishing
from warrenmq.broker.run_trace import RunTrace
from warrenmq.broker.stats import ActorStats, QueueStats, Stats, StoreStats, alarm_stats, damage_stats
from warrenmq.broker.transaction import Transaction
from warrenmq.checks import SURELY_SHORT, flag, is_a, mapping, path_of, seconds, short_text, shown, text
from warrenmq.directory.definitions import Definitions
from warrenmq.directory.layout import DataDirectory
from warrenmq.errors import ArgumentTypeError, BrokerClosed, Error, NotFound, SettingsError
from warrenmq.log import Log
from warrenmq.node.resources import Resources
from warrenmq.queue.messages import Drain, Info
from warrenmq.routing import Router
from warrenmq.runtime import Runtime, Threads
from warrenmq.runtime.life import inbox_of
from warrenmq.seams.disk import RealDisk
from warrenmq.seams.memory import RealMemory
from warrenmq.settings import Settings
from warrenmq.supervisors.broker_sup import (
    PERSISTENT_STORE,
    RABBIT_SUP,
    TRANSIENT_STORE,
    RabbitSup,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike
    from types import TracebackType

    from pykka import ActorRef

    from warrenmq.message.properties import Properties
    from warrenmq.queue.messages import Ack, Cancel, Reject, Taken
    from warrenmq.runtime import Channel
    from warrenmq.seams.disk import Disk
    from warrenmq.seams.memory import Memory
    from warrenmq.trace.recorder import ActorTrace, Recorder

Watermark: TypeAlias = float | str | tuple[str, float | str]

log = Log("warrenmq.broker.broker")


def open(  # noqa: A001  # the promised name
    path: str | PathLike[str],
    *,
    settings: Settings | Mapping[str, Any] | None = None,
    trace: str | PathLike[str] | None = None,
    runtime: Runtime | None = None,
    vhost: str = "/",
) -> Broker:
    """Start or recover the store in the folder `path`; made when it is not there.

    `settings` is a Settings or a mapping of its fields; None reads WARRENMQ_* variables and defaults.
    `trace` is a folder for trace segments; None = no trace.  `runtime` schedules the actors; None = Threads().
    `vhost` is the one of the folder's virtual hosts that is served; `warrenmq recover` may have filled several.
    Raises DirectoryInUse when another broker has the folder, SettingsError for a bad setting, OSError when the
    folder cannot be used.  Damaged files never raise: their bad bytes go to quarantine/ and are reported.
    """
    data = path_of("path", path)
    trace_to = None if trace is None else path_of("trace", trace)
    vhost = short_text("vhost", vhost)
    if runtime is not None and not is_a(runtime, Runtime):
        raise ArgumentTypeError(
            f"runtime is {shown(runtime)}; give a warrenmq.runtime.Threads or Simulation, or None"
        )
    chosen = settings if type(settings) is Settings else Settings.load(**_keywords(settings))
    return Broker(
        data, chosen, runtime or Threads(), RealDisk(chosen.durability), RealMemory(), trace_to, vhost
    )


def _keywords(settings: object) -> dict[str, Any]:
    try:
        return {text("the name of a setting", name): value for name, value in mapping("settings", settings)}
    except ArgumentTypeError as why:
        raise SettingsError(str(why)) from why


def _checked(exchange: object, routing_key: object, properties: object, persistent: object = True, mandatory: object = False,
             timeout: object = None) -> tuple[str, str, Properties | None, bool, bool, float | None]:  # fmt: skip
    """What a publish is given besides its bodies."""
    return (
        arguments.name("exchange", exchange), text("routing_key", routing_key),
        arguments.properties(properties), flag("persistent", persistent), flag("mandatory", mandatory),
        seconds("timeout", timeout),
    )  # fmt: skip


class Broker(Declarations):
    """An open data directory; also a context manager.  All methods may be called from any thread."""

    def __init__(self, path: str, settings: Settings, runtime: Runtime, disk: Disk, memory: Memory,
                 trace: str | Recorder | None = None, vhost: str = "/",
                 directory: DataDirectory | None = None) -> None:  # fmt: skip
        """Use `open`; `directory` is given by who owns it and serves another of its virtual hosts."""
        super().__init__()
        self.path = path
        self.settings = settings
        self._largest = settings.max_message_size
        self.runtime = runtime
        self._directory = directory or DataDirectory.open(disk, path, settings)
        self._local = threading.local()
        self._consumer_ids = count(1)
        self._closing = False
        self._down: str | None = None
        """Why the supervision tree ended by itself; None while it stands."""
        self.consumers: dict[int, Channel] = {}
        """Channels of running consumers, to be told when the broker closes."""
        self._trace: RunTrace | None = None
        try:
            vhost_directory = self._directory.vhost(vhost)
            definitions = Definitions.open(disk, vhost_directory.definitions, vhost_directory.quarantine)
            self.resources = Resources(memory, disk, path, settings)
            boot = self._directory.next_boot()
            self.ids = MessageIds(runtime, boot, runtime.lock())
            self.vhost = Vhost(vhost, vhost_directory, disk, vhost_directory.settings, definitions, Router(vhost), self.resources,
                                self.ids)  # fmt: skip
            self.vhost.sort_out_folders(disk)
            if trace is not None:
                self._trace = RunTrace(trace, runtime, self._directory, vhost, boot, settings)
            runtime.count_anew()
            self._root = runtime.start(RabbitSup, self.vhost, name=RABBIT_SUP)
            self.call_named(
                RABBIT_ALARM, GetAlarms()
            )  # what the monitors found at once is in force from here on
        except BaseException:
            if self._trace is not None:
                self._trace.end(clean=False)
            self._directory.close()
            raise
        inbox_of(self._root).on_close(self._root_ended)
        forks.register(self)
        log.info("broker open", path=path, boot=boot, queues=len(definitions.queues))

    # -- publish

    def publish(self, exchange: str | Exchange, routing_key: str, body: bytes, *,
                properties: Properties | None = None, persistent: bool = True, mandatory: bool = False,
                timeout: float | None = None) -> Confirm:  # fmt: skip
        """Publish one message; returns at once, but waits while an alarm is set (docs/alarms.md) or a queue is so far
        behind that it grants no credit.

        `body` is bytes, a bytearray or a memoryview, which are copied.  The Confirm is settled when every queue it was routed to has it safe; one that no
        queue wants is confirmed at once, or with `mandatory` fails with Returned.  Headers CC and BCC of the properties (lists)
        are more routing keys.  NotFound: no such exchange.  AccessRefused: it is internal.  ArgumentTypeError,
        ArgumentValueError: an argument is wrong; PreconditionFailed: the body is larger than max_message_size.
        Blocked: it would have waited longer than `timeout` seconds (0 = not at all); nothing was published.
        """
        if self._closing or self._down is not None:
            self.check_open()
        if type(body) is not bytes or len(body) > self._largest:
            body = arguments.body(body, self._largest)
        if (
            type(exchange) is not str or len(exchange) > SURELY_SHORT or type(routing_key) is not str or not routing_key.isascii()
            or properties is not None or persistent is not True or mandatory is not False or timeout is not None
        ):  # fmt: skip
            exchange, routing_key, properties, persistent, mandatory, timeout = _checked(
                exchange, routing_key, properties, persistent, mandatory, timeout
            )
        publishing = self.publishing()
        if timeout is not None or self.resources.alarms.active:
            publishing.wait_for_turn(exchange, routing_key, timeout, properties)
        if publishing.transaction is None:
            return publishing.publish(exchange, routing_key, [body], properties, persistent, mandatory)
        return publishing.transaction.add_publish(
            exchange, routing_key, [body], properties, persistent, mandatory
        )

    def publish_many(self, exchange: str | Exchange, routing_key: str, bodies: Iterable[bytes], *,
                     properties: Properties | None = None, persistent: bool = True, mandatory: bool = False,
                     timeout: float | None = None) -> Confirm:  # fmt: skip
        """Publish many messages that differ in their bodies only: one cast to each queue, one Confirm for all.

        What `bodies` raises is raised, and nothing was published then.
        """
        self.check_open()
        arguments.check_bodies(bodies)
        exchange, routing_key, properties, persistent, mandatory, timeout = _checked(
            exchange, routing_key, properties, persistent, mandatory, timeout
        )
        publishing = self.publishing()
        if timeout is not None or self.resources.alarms.active:
            publishing.wait_for_turn(exchange, routing_key, timeout, properties)
        bodies = arguments.bodies(bodies, self._largest)
        publish = publishing.publish if publishing.transaction is None else publishing.transaction.add_publish
        return publish(exchange, routing_key, bodies, properties, persistent, mandatory)

    def would_block(
        self, exchange: str | Exchange, routing_key: str, properties: Properties | None = None
    ) -> bool:
        """Whether a publish by this thread would wait, for credit or for a queue that is being restarted.

        Alarms, which concern all publishers alike, are in `stats`.
        """
        self.check_open()
        exchange, routing_key, properties, *_ = _checked(exchange, routing_key, properties)
        return self.publishing().would_block(exchange, routing_key, properties)

    def tx(self) -> Transaction:
        """A context manager: what this thread publishes and acks inside takes effect together at its end, when it
        also waits for the confirms; on an exception none of it does (AMQP's tx).
        """
        self.check_open()
        return Transaction(self)

    # -- state

    def stats(self) -> Stats:
        """A snapshot of queues, stores, actors and alarms, and of who waits for the alarms to clear."""
        self.check_open()
        queues = []
        for name in sorted(self.vhost.router.queues):
            with suppress(NotFound):
                record = self.vhost.queue(name)
                info, _ = self.call_queue(name, Info())
                queues.append(QueueStats.of(name, info, durable=record is not None and record.durable))
        stores = [StoreStats.of(name, self.call_named(name, Statistics()))
                  for name in (PERSISTENT_STORE, TRANSIENT_STORE)]  # fmt: skip
        actors = tuple(ActorStats(*each) for each in self.runtime.living())
        return Stats(tuple(queues), tuple(stores), actors, alarm_stats(self.resources),
                     self.resources.alarms.waiting(), damage_stats(self.vhost.damage, self.path))  # fmt: skip

    def set_vm_memory_high_watermark(self, watermark: Watermark) -> int:
        """Another vm_memory_high_watermark, from now until the broker is closed; returns what it is in bytes.

        0.4 or ("relative", 0.4); 2_000_000_000, "2GB" or ("absolute", "2GB").  SettingsError: it is none of these.
        """
        changed = Settings.load(environ={}, vm_memory_high_watermark=watermark).vm_memory_high_watermark
        return self._set_limit(VM_MEMORY_MONITOR, SetVmMemoryHighWatermark(changed))

    def set_disk_free_limit(self, limit: Watermark) -> int:
        """Another disk_free_limit, from now until the broker is closed; returns what it is in bytes.

        Bytes as above, or a multiple of the memory: 1.5 or ("mem_relative", 1.5).  SettingsError: it is none of these.
        """
        changed = Settings.load(environ={}, disk_free_limit=limit).disk_free_limit
        return self._set_limit(RABBIT_DISK_MONITOR, SetDiskFreeLimit(changed))

    def _set_limit(self, monitor: str, request: SetVmMemoryHighWatermark | SetDiskFreeLimit) -> int:
        in_bytes: int = self.call_named(monitor, request)
        self.call_named(
            RABBIT_ALARM, GetAlarms()
        )  # what the monitor asked of it is done when this is answered
        return in_bytes

    @property
    def is_open(self) -> bool:
        """Whether it takes calls: False once closed, or when its supervision tree gave up."""
        return not self._closing and self._down is None

    def after_fork(self) -> None:
        """See forks.py: every call raises ForkedProcess from now on."""
        if self.runtime.forked_from is not None:
            self._down = "it is in another process"

    def check_open(self) -> None:
        """Raise BrokerClosed, with the reason, unless it is open; ForkedProcess in a forked child."""
        self.runtime.check_process()
        if self._down is not None:
            msg = f"the broker of {self.path} is down: {self._down}; close it and open the directory again"
            raise BrokerClosed(msg)
        if self._closing:
            msg = f"the broker of {self.path} is closed"
            raise BrokerClosed(msg)

    def close(self, timeout: float | None = 60.0) -> tuple[str, ...]:
        """Stop cleanly: outstanding confirms are waited for (`timeout` seconds), everything is on disk, consumers
        end, the directory is free.  Closing twice is no error.  In a forked child it does nothing.

        Returns what could not be written because the disk is full, a sentence for each queue (they are in the log, too), after a
        few seconds at the most; publishers of these messages get Nacked.  Empty after a clean stop.
        """
        timeout = seconds("timeout", timeout)
        if self._closing or self.runtime.forked_from is not None:
            return ()
        for name in self._exclusive_queues:
            with suppress(Error):
                self.delete_queue(name)
        self._drain(timeout)
        self._closing = True
        self.resources.alarms.wake_all()
        clean = self._down is None and self.runtime.stop_actor(self._root, timeout=timeout)
        if not clean:
            self.runtime.shutdown()
        for channel in list(self.consumers.values()):
            channel.put(CLOSED)
        if self._trace is not None:
            self._trace.end(clean=clean)
        self.vhost.definitions.close()
        self._directory.close()
        log.info("broker closed", path=self.path, clean=clean)
        return tuple(self.vhost.unwritten)

    def _drain(self, timeout: float | None) -> None:
        for name in list(self.vhost.router.queues):
            with suppress(Error, ActorDeadError, Timeout):
                self.runtime.call(queue_name(name), Drain(), timeout)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        self.close()

    def _root_ended(self, reason: Any) -> None:
        if not self._closing:
            restarts, period = self.settings.vhost_restart_intensity
            self._down = f"its supervisor gave up ({reason}); it allows {restarts} restarts in {period} s"
            self.resources.alarms.wake_all()
            for channel in list(self.consumers.values()):
                channel.put(CLOSED)

    # -- for Queue, Consumer and Publishing

    def queue_handle(self, name: str) -> Queue:
        """A handle of a queue, whether it is there or not."""
        return Queue(self, name)

    def exchange_handle(self, name: str) -> Exchange:
        """A handle of an exchange, whether it is there or not."""
        return Exchange(self, name)

    def publishing(self) -> Publishing:
        """The calling thread's publishing side."""
        try:
            return self._local.publishing  # type: ignore[no-any-return]
        except AttributeError:
            credit = self.settings.credit_flow_default_credit[0]
            self._local.publishing = Publishing(
                self.runtime, self.vhost.router, self.ids, credit, self.trace(), self.address,
                self.resources.alarms, self.check_open,
            )  # fmt: skip
            return self._local.publishing  # type: ignore[no-any-return]

    def trace(self) -> ActorTrace | None:
        """The calling thread's trace: an application thread is a client in the trace."""
        return None if self._trace is None else self._trace.client()

    def settle(self, ref: ActorRef[Any], message: Ack | Reject | Taken | Cancel) -> None:
        """Cast what a consumer has to say; a dead queue process needs no acks (its messages come again)."""
        if (transaction := self.publishing().transaction) is not None:
            transaction.add_settle(ref, message)
        else:
            self.runtime.cast(ref, message, self.trace())

    def next_consumer_id(self) -> int:
        """A number for a consumer, unique in this broker."""
        return next(self._consumer_ids)
