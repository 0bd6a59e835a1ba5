"""The broker as an application sees it: declare, publish, consume, close.

Broker and the handles of its queues and exchanges (handles.py) check what they are given (arguments.py) and pass it on:
to queue processes by a cast (publish, ack), to them or the vhost process by a call (everything that is not on a message's way).
All their names are for users but one, `Broker.inside`, by which other packages of warrenmq reach what runs
behind them:

    Engine       the open directory and its supervision tree
    Client       calls to actors, each thread's publishing, acks
    Publishing   one thread's way to the queues: routing, message ids, credit
    Consumer     an iterator over deliveries, which subscribes again when a queue was restarted
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Self, TypeAlias, Unpack

from warrenmq.actors.node.alarm import RABBIT_ALARM, GetAlarms
from warrenmq.actors.node.disk_monitor import RABBIT_DISK_MONITOR, SetDiskFreeLimit
from warrenmq.actors.node.vm_memory_monitor import VM_MEMORY_MONITOR, SetVmMemoryHighWatermark
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.actors.vhost.messages import (
    Bind,
    ClearParameter,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    SetParameter,
    Unbind,
)
from warrenmq.actors.vhost.vhost import Vhost
from warrenmq.broker import arguments as check
from warrenmq.broker.arguments import Named
from warrenmq.broker.client import Client
from warrenmq.broker.engine import Engine
from warrenmq.broker.handles import Exchange, QueueHandle
from warrenmq.broker.message_options import MessageOptions, read_options
from warrenmq.broker.parts import AlarmTable, BrokerClient, Calls, OpenState
from warrenmq.broker.stats import Stats
from warrenmq.broker.transaction import Transaction
from warrenmq.checks import SURELY_SHORT, flag, is_a, of_this_process, seconds, short_text, shown, text, whole
from warrenmq.directory.definitions import QueueRecord
from warrenmq.directory.layout import DataDirectory
from warrenmq.errors import ArgumentValueError, Error
from warrenmq.message.properties import Properties
from warrenmq.node.resources import Resources
from warrenmq.queue.messages import Purge
from warrenmq.routing import Binding, ExchangeSpec
from warrenmq.routing.delayed import LATER
from warrenmq.runtime import Runtime
from warrenmq.seams.disk import Disk
from warrenmq.seams.memory import LARGE, Memory
from warrenmq.settings import Settings
from warrenmq.supervisors.broker_sup import VHOST_PROCESS
from warrenmq.trace.marks import mark
from warrenmq.trace.recorder import Recorder
from warrenmq.vhost.policies import OPERATOR_POLICY, POLICY, Policy

Watermark: TypeAlias = float | str | tuple[str, float | str]


class Broker:
    """An open data directory; also a context manager.  All methods may be called from any thread.

    path, settings, runtime   what it was opened with
    check_open                raises BrokerClosed, with the reason, unless it is open; ForkedProcess in a forked child
    inside                    for this package, see Inside
    """

    __reduce__ = of_this_process

    def __init__(self, path: str, settings: Settings, runtime: Runtime, disk: Disk, memory: Memory,
                 trace: str | Recorder | None = None, vhost: str = "/",
                 directory: DataDirectory | None = None) -> None:  # fmt: skip
        """Use `open`; `directory` is given by its owner, who serves another of its virtual hosts."""
        engine = Engine(path, settings, runtime, disk, memory, trace, vhost, directory)
        self._local = engine
        self._engine: OpenState = engine
        self.path = path
        self.settings = settings
        self.runtime = runtime
        self.check_open = engine.check_open
        client = Client(engine)
        self._client: BrokerClient = client
        self._calls: Calls = client.calls
        self._alarms: AlarmTable = engine.resources.alarms
        self.inside = Inside(client, self._alarms, lambda: self, lambda: client)
        self._closing = threading.RLock()
        """Held by the thread that closes it; the others wait until the directory is free."""
        self._largest = settings.max_message_size
        self._large = min(LARGE, self._largest)
        try:
            # from here on the alarms that the monitors found are in force
            client.calls.call_named(RABBIT_ALARM, GetAlarms())
        except BaseException:
            engine.give_up()
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r}{'' if self.is_open else ', closed'}>"

    # -- publish

    def publish(self, exchange: str | Exchange, routing_key: str, body: bytes, *,
                properties: Properties | None = None, persistent: bool = True, mandatory: bool = False,
                timeout: float | None = None, **options: Unpack[MessageOptions]) -> Confirm:  # fmt: skip
        """Publish one message; returns at once, but waits while an alarm is set (docs/alarms.md) or a queue is so far
        behind that it grants no credit.

        `body` is bytes, a bytearray or a memoryview, which are copied.  The Confirm is settled when every queue that the
        message was routed to has it safe; a message that is routed to no queue is confirmed at once, or with `mandatory`
        fails with Returned.  Headers CC and BCC of the properties (lists) are more routing keys.
        NotFound: no such exchange.  AccessRefused: it is internal.  ArgumentTypeError,
        ArgumentValueError: an argument is wrong; PreconditionFailed: the body is larger than max_message_size.
        Blocked: it would have waited longer than `timeout` seconds (0 = not at all); nothing was published.

        Keywords: priority, headers, expiration, message_id, correlation_id, reply_to and content_type are
        fields of the properties; with `delay` (seconds) or `at` (a datetime with a time zone) the message
        waits, on disk if it is persistent, and is routed to `exchange` when its time has come; the Confirm
        then says that it waits (MessageOptions).
        """
        if not self._engine.is_open:
            self.check_open()
        if options:
            properties, due = read_options(properties, options, self.runtime.wall_ns, mandatory=mandatory)
            if due:
                return self._publish_later(
                    exchange, routing_key, [body], properties, persistent, timeout, due
                )
        if type(body) is not bytes or len(body) > self._large:
            body = check.body(body, self._largest)
        if (
            type(exchange) is not str or len(exchange) > SURELY_SHORT or type(routing_key) is not str or not routing_key.isascii()
            or properties is not None or persistent is not True or mandatory is not False or timeout is not None
        ):  # fmt: skip
            exchange, routing_key, properties, persistent, mandatory, timeout = check.publish_arguments(
                exchange, routing_key, properties, persistent, mandatory, timeout
            )
        publishing = self._client.publishing.own
        if timeout is not None or self._alarms.active:
            publishing.wait_for_turn(exchange, routing_key, timeout, properties)
        if (pending := publishing.pending) is None:
            return publishing.publish_one(exchange, routing_key, body, properties, persistent, mandatory)
        return pending.publish(exchange, routing_key, [body], properties, persistent, mandatory)

    def publish_many(self, exchange: str | Exchange, routing_key: str, bodies: Iterable[bytes], *,
                     properties: Properties | None = None, persistent: bool = True, mandatory: bool = False,
                     timeout: float | None = None, **options: Unpack[MessageOptions]) -> Confirm:  # fmt: skip
        """Publish many messages that differ in their bodies only: one cast to each queue, one Confirm for all.

        An exception of `bodies` is passed on, and nothing was published then.
        """
        self.check_open()
        check.check_bodies(bodies)
        if options:
            properties, due = read_options(properties, options, self.runtime.wall_ns, mandatory=mandatory)
            if due:
                return self._publish_later(
                    exchange, routing_key, bodies, properties, persistent, timeout, due
                )
        exchange, routing_key, properties, persistent, mandatory, timeout = check.publish_arguments(
            exchange, routing_key, properties, persistent, mandatory, timeout
        )
        publishing = self._client.publishing.own
        if timeout is not None or self._alarms.active:
            publishing.wait_for_turn(exchange, routing_key, timeout, properties)
        bodies = check.bodies(bodies, self._largest)
        sender = publishing if publishing.pending is None else publishing.pending
        return sender.publish(exchange, routing_key, bodies, properties, persistent, mandatory)

    def _publish_later(self, exchange: str | Named, routing_key: str, bodies: Iterable[bytes], properties: Properties | None,
                       persistent: bool, timeout: float | None, due: int) -> Confirm:  # fmt: skip
        exchange, routing_key, properties, persistent, _, timeout = check.publish_arguments(
            exchange, routing_key, properties, persistent, timeout=timeout
        )
        bodies = check.bodies(bodies, self._largest)
        publishing = self._client.publishing.own
        publishing.check(exchange, "", properties)
        self._client.have_later()
        if timeout is not None or self._alarms.active:
            publishing.wait_for_turn("", LATER, timeout)
        sender = publishing if publishing.pending is None else publishing.pending
        return sender.publish_later(exchange, routing_key, bodies, properties, persistent, due)

    def would_block(
        self, exchange: str | Exchange, routing_key: str, properties: Properties | None = None
    ) -> bool:
        """True if a publish by this thread would wait, for credit or for a queue that is being restarted or sleeps.

        Alarms, which concern all publishers alike, are in `stats`.
        """
        self.check_open()
        exchange, routing_key, properties, *_ = check.publish_arguments(exchange, routing_key, properties)
        return self._client.publishing.own.would_block(exchange, routing_key, properties)

    def tx(self) -> Transaction:
        """A context manager: what this thread publishes and acks inside takes effect together at its end, when it
        also waits for the confirms; on an exception none of it does (AMQP's tx).
        """
        self.check_open()
        return Transaction(self._client, self.publish)

    def mark(self, text: str) -> None:
        """Give this place in the trace a name, of at most 255 bytes of UTF-8; without a trace it does nothing.

        The row (MARK) is the calling thread's, behind what it has published and acked so far.  `warrenmq
        trace show` has it as a sentence, the lens as a mark on its timeline.  A trace holds 1,024 different
        marks at least; more are numbered 0.  ArgumentTypeError: it is no str; ArgumentValueError: it is too
        long.
        """
        text = short_text("text", text)
        self.check_open()
        recorder, trace = self.runtime.recorder, self._client.trace()
        if recorder is not None and trace is not None:
            mark(recorder, trace, text)

    # -- declarations

    def declare_queue(self, name: str = "", *, durable: bool = True, exclusive: bool = False,
                      auto_delete: bool = False, arguments: Mapping[str, Any] | None = None) -> QueueHandle:  # fmt: skip
        """Declare a queue; a durable one is on disk when this returns.

        An empty name is replaced by one of the broker's ("amq.gen-...").  An exclusive queue lives as long as this
        Broker and is not durable.  Arguments that RabbitMQ's classic queues know (x-message-ttl, x-dead-letter-exchange
        and so on) are checked, others are kept.  Raises PreconditionFailed when a queue of this name exists with other
        properties or an argument is wrong, AccessRefused for names that begin with "amq.", ResourceLocked when the queue is
        exclusive to another connection.
        """
        record = QueueRecord(short_text("name", name), flag("durable", durable), flag("exclusive", exclusive),
                             flag("auto_delete", auto_delete), check.table("arguments", arguments))  # fmt: skip
        return QueueHandle(self, self._calls.call_named(VHOST_PROCESS, DeclareQueue(record)))

    def declare_exchange(self, name: str, type: str = "direct", *, durable: bool = True,
                         auto_delete: bool = False, internal: bool = False,
                         arguments: Mapping[str, Any] | None = None) -> Exchange:  # fmt: skip
        """Declare an exchange of type "direct", "fanout", "topic", "headers" or "x-delayed-message"; a durable one is on
        disk when this returns.

        An auto-delete exchange goes when the last binding goes that leads away from it.  An internal exchange
        refuses publishes; its messages come through bindings of other exchanges to it.  Argument
        "alternate-exchange" names the exchange for messages that match nothing, and "x-delayed-type" the type
        by which a delayed exchange routes when the milliseconds of a message's header x-delay are over.
        Raises PreconditionFailed when an exchange of this name exists with other properties, AccessRefused
        for names that begin with "amq." and are not there, CommandInvalid for another type.
        """
        spec = ExchangeSpec(short_text("name", name), short_text("type", type), flag("durable", durable),
                            flag("auto_delete", auto_delete), flag("internal", internal), check.table("arguments", arguments))  # fmt: skip
        self._calls.call_named(VHOST_PROCESS, DeclareExchange(spec))
        return Exchange(self, spec.name)

    def bind(self, destination: str | Named, source: str | Named, routing_key: str = "",
             arguments: Mapping[str, Any] | None = None, *, destination_type: str | None = None) -> None:  # fmt: skip
        """Route messages of exchange `source` to a queue or another exchange; on disk when this returns, if both are durable.

        `destination` is a handle of either; a name is a queue's, or with destination_type="exchange" an exchange's.
        The type of the source selects the messages: those with this routing key, all, those whose key fits the
        pattern ("*" is one word, "#" any number), those whose headers fit the arguments ("x-match": "all", "any",
        "all-with-x" or "any-with-x").  NotFound, AccessRefused for the default exchange, PreconditionFailed for a
        wrong x-match.
        """
        self._calls.call_named(
            VHOST_PROCESS, Bind(_binding(destination, source, routing_key, arguments, destination_type))
        )

    def unbind(self, destination: str | Named, source: str | Named, routing_key: str = "",
               arguments: Mapping[str, Any] | None = None, *, destination_type: str | None = None) -> None:  # fmt: skip
        """Undo a binding, all of whose particulars have to be given again; a missing binding is no error (AMQP)."""
        self._calls.call_named(
            VHOST_PROCESS, Unbind(_binding(destination, source, routing_key, arguments, destination_type))
        )

    def delete_queue(self, name: str | Named, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue and its messages; returns how many were ready.  NotFound, PreconditionFailed."""
        deleted = self._calls.call_named(
            VHOST_PROCESS,
            DeleteQueue(check.name("name", name), flag("if_unused", if_unused), flag("if_empty", if_empty)),
        )
        return int(deleted)

    def delete_exchange(self, name: str | Named, *, if_unused: bool = False) -> None:
        """Delete an exchange and its bindings; its queues stay, auto-delete exchanges that led to nothing else go.

        NotFound, PreconditionFailed when it is used and must not be, AccessRefused for names that begin with "amq.".
        """
        self._calls.call_named(
            VHOST_PROCESS, DeleteExchange(check.name("name", name), flag("if_unused", if_unused))
        )

    def purge(self, name: str | Named) -> int:
        """Drop all ready messages of a queue; returns how many.  Unacked ones stay."""
        return int(self._calls.call_queue(check.name("name", name), Purge())[0])

    def queue(self, name: str) -> QueueHandle:
        """A queue that exists (AMQP's passive declare); NotFound when it does not, ResourceLocked when it is
        exclusive to another connection.
        """
        self.check_open()
        plain = check.name("name", name)
        self.inside.vhost.check_exclusive_access(self.inside.vhost.existing_queue(plain), None)
        return QueueHandle(self, plain)

    def queues(self) -> list[QueueHandle]:
        """All queues of the virtual host, by name."""
        self.check_open()
        return [QueueHandle(self, name) for name in sorted(self.inside.vhost.router.queues)]

    # -- policies

    def set_policy(self, name: str, pattern: str, definition: Mapping[str, Any], *, apply_to: str = "all",
                   priority: int = 0, operator: bool = False) -> None:  # fmt: skip
        """Set a policy (`rabbitmqctl set_policy`) for all queues or exchanges in whose names `pattern`, a regular
        expression, is found, those to come as well; on disk when this returns.

        `definition` has the keys of docs/operating.md, as {"max-length": 1000}; with `operator` it sets
        bounds for what policies and declarations say.  PreconditionFailed for a key or a value that is wrong.
        """
        self._set_policy(Policy(
            short_text("name", name), text("pattern", pattern), check.table("definition", definition),
            text("apply_to", apply_to), whole("priority", priority, -(1 << 31), 1 << 31), flag("operator", operator),
        ))  # fmt: skip

    def _set_policy(self, policy: Policy) -> None:
        self._calls.call_named(VHOST_PROCESS, SetParameter(policy.component, policy.name, policy.value))

    def clear_policy(self, name: str, *, operator: bool = False) -> None:
        """Remove a policy; queues and exchanges go by the next one that fits, or by their arguments.  NotFound."""
        self._clear_policy(short_text("name", name), operator=flag("operator", operator))

    def _clear_policy(self, name: str, *, operator: bool) -> None:
        self._calls.call_named(VHOST_PROCESS, ClearParameter(OPERATOR_POLICY if operator else POLICY, name))

    def policies(self) -> list[Policy]:
        """All policies and operator policies, the highest priority first; one with `refused` holds for
        nothing, for that reason.
        """
        self.check_open()
        return list(self.inside.vhost.policies)

    # -- state

    def stats(self) -> Stats:
        """A snapshot of queues, stores, actors and alarms, and of the publishers that wait for the alarms to clear.

        It includes what this thread published and acked before.
        """
        return self.inside.local_client.stats(self._calls)

    def set_vm_memory_high_watermark(self, watermark: Watermark) -> int:
        """Set another vm_memory_high_watermark, from now until the broker is closed; returns it in bytes.

        0.4 or ("relative", 0.4); 2_000_000_000, "2GB" or ("absolute", "2GB").  SettingsError for anything else.
        """
        changed = Settings.load(environ={}, vm_memory_high_watermark=watermark).vm_memory_high_watermark
        return self._set_limit(VM_MEMORY_MONITOR, SetVmMemoryHighWatermark(changed))

    def set_disk_free_limit(self, limit: Watermark) -> int:
        """Set another disk_free_limit, from now until the broker is closed; returns it in bytes.

        Bytes as above, or a multiple of the memory: 1.5 or ("mem_relative", 1.5).  SettingsError for anything else.
        """
        changed = Settings.load(environ={}, disk_free_limit=limit).disk_free_limit
        return self._set_limit(RABBIT_DISK_MONITOR, SetDiskFreeLimit(changed))

    def _set_limit(self, monitor: str, request: SetVmMemoryHighWatermark | SetDiskFreeLimit) -> int:
        in_bytes: int = self._calls.call_named(monitor, request)
        # the alarm has handled the monitor's cast when it answers this
        self._calls.call_named(RABBIT_ALARM, GetAlarms())
        return in_bytes

    # -- the end

    @property
    def is_owner(self) -> bool:
        """True if this process owns the directory; a broker that is not shared always does."""
        return True

    @property
    def is_open(self) -> bool:
        """True if it takes calls: False once closed, or when its supervision tree gave up."""
        return self._engine.is_open

    @property
    def trace_path(self) -> str | None:
        """The folder into which the broker writes its trace; None without one."""
        return self._engine.trace_path

    def close(self, timeout: float | None = 60.0) -> tuple[str, ...]:
        """Stop cleanly: outstanding confirms are waited for (`timeout` seconds), everything is on disk,
        consumers end, the directory is free.  Closing twice is no error, in two threads neither.  In a forked
        child, and while the interpreter ends, it does nothing.

        Returns what could not be written because the disk is full, a sentence for each queue (they are in the
        log, too), after a few seconds at the most; publishers of these messages get Nacked.  Empty after a
        clean stop.
        """
        timeout = seconds("timeout", timeout)
        if self.runtime.has_ended:
            return ()
        with self._closing:
            if not self._local.is_closed:
                self._delete_exclusive_queues()
                self._local.drain(timeout)
            # asked here, as the handler of a signal may have closed it meanwhile, or interrupted an earlier call
            return () if self._local.is_released else self._local.stop(timeout)

    def _delete_exclusive_queues(self) -> None:
        vhost = self.inside.vhost
        for record in vhost.records():
            if record.exclusive and vhost.owner(record.name) is None:
                with suppress(Error):
                    self.delete_queue(record.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Inside:
    """The parts behind a Broker, for the other packages of warrenmq; no promise to users.

    client         calls, each thread's publishing and acks: of the actors of this process, or over the link to the owner's
    alarms         the alarms that publishers wait for
    local          the Broker of this process; PreconditionFailed of a shared one that another process owns
    local_client   its Client; the vhost and the resources below are its as well
    kept           what other packages keep for this broker as long as it is there, one object of a class each
    """

    def __init__(
        self,
        client: BrokerClient,
        alarms: AlarmTable,
        local: Callable[[], Broker],
        owner: Callable[[], Client],
    ) -> None:
        self.client = client
        self.alarms = alarms
        self.local = local
        self.kept: dict[type, Any] = {}
        self._owner = owner

    @property
    def local_client(self) -> Client:
        return self._owner()

    @property
    def vhost(self) -> Vhost:
        """The tables of the virtual host."""
        return self._owner().engine.vhost

    @property
    def resources(self) -> Resources:
        """Memory and disk, as the monitors measure them."""
        return self._owner().engine.resources


def _binding(destination: str | Named, source: str | Named, routing_key: str,
             arguments: Mapping[str, Any] | None, destination_type: str | None) -> Binding:  # fmt: skip
    if destination_type is None:
        destination_type = "exchange" if is_a(destination, Exchange) else "queue"
    elif text("destination_type", destination_type) not in ("queue", "exchange"):
        raise ArgumentValueError(f"destination_type is {shown(destination_type)}; use 'queue' or 'exchange'")
    return Binding(check.name("destination", destination), check.name("source", source), short_text("routing_key", routing_key),
                   check.table("arguments", arguments), text("destination_type", destination_type))  # fmt: skip
