"""The process of the virtual host (rabbit_vhost_process): what is declared, and bringing it up.

It starts last in the tree.  Its init is the recovery of the vhost: durable exchanges, queues and bindings are
read from the definitions, one queue process is started for each queue, and folders that belong to no queue are
removed.  Afterwards it answers declarations one at a time, so two declares of one name cannot cross.

A declaration of something durable is on disk before it is answered (a real RabbitMQ lost queues that were killed
within two seconds of their declare).  Transient things live in `Router` and `transient_queues`, which outlive
this process as ETS tables of another owner would; after a crash of the vhost they come back empty.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError

from warrenmq.actors.queue_messages import Delete, Refused
from warrenmq.actors.queue_recovery import QueueSpec
from warrenmq.errors import AccessRefused, Blocked, Error, NotFound, PreconditionFailed
from warrenmq.routing import PREDECLARED, TYPES, Binding, Destination, ExchangeSpec
from warrenmq.runtime import Server
from warrenmq.storage.definitions import BindingRecord, ExchangeRecord, QueueRecord
from warrenmq.storage.disk import is_full
from warrenmq.supervisors import start_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from warrenmq.actors.message_sender import MessageIds
    from warrenmq.routing import Router
    from warrenmq.runtime import From, Name
    from warrenmq.settings import Settings
    from warrenmq.storage.definitions import Definitions
    from warrenmq.storage.directory import VhostDirectory
    from warrenmq.storage.disk import Disk
    from warrenmq.storage.resources import Resources

KNOWN_ARGUMENTS: frozenset[str] = frozenset()
"""Queue arguments that are honoured; the others (x-message-ttl and so on) are refused, not ignored."""


def queue_name(name: str) -> Name:
    """The registered name of a queue's process."""
    return f"queue:{name}"


@dataclass(slots=True)
class Vhost:
    """What outlives the processes of a vhost, as ETS tables and Mnesia do; shared by them and the face."""

    name: str
    directory: VhostDirectory
    disk: Disk
    settings: Settings
    definitions: Definitions
    router: Router
    resources: Resources
    ids: MessageIds
    transient_queues: dict[str, QueueRecord] = field(default_factory=dict)

    def queue(self, name: str) -> QueueRecord | None:
        """A queue's record, durable or not."""
        return self.definitions.queues.get(name) or self.transient_queues.get(name)


@dataclass(slots=True)
class DeclareQueue:
    """Call: have this queue; the reply is its name."""

    record: QueueRecord


@dataclass(slots=True)
class DeclareExchange:
    """Call: have this exchange."""

    spec: ExchangeSpec


@dataclass(slots=True)
class Bind:
    """Call: have this binding."""

    binding: Binding


@dataclass(slots=True)
class Unbind:
    """Call: do not have this binding."""

    binding: Binding


@dataclass(slots=True)
class DeleteQueue:
    """Call: delete a queue and its messages; the reply is how many ready ones."""

    name: str
    if_unused: bool
    if_empty: bool


@dataclass(slots=True)
class LastConsumerGone:
    """Queue -> vhost: an auto-delete queue lost its last consumer."""

    name: str


@dataclass(slots=True)
class DeleteExchange:
    """Call: delete an exchange."""

    name: str
    if_unused: bool


class VhostProcess(Server):
    """rabbit_vhost_process: no state of its own but where the tables are.

    vhost        the tables and the directory
    queue_sup    name of the supervisor of the queue processes
    stores       names of the persistent and the transient store
    """

    def init(self, vhost: Vhost, queue_sup: Name, persistent_store: str, transient_store: str) -> None:
        """Recover the vhost (rabbit_vhost:recover)."""
        self.vhost = vhost
        self._queue_sup = queue_sup
        self._stores = persistent_store, transient_store
        self._disk = vhost.disk.fenced(self.fence)
        records = [*vhost.definitions.queues.values(), *vhost.transient_queues.values()]
        vhost.directory.remove_unknown(self._disk, [record.name for record in records])
        for exchange in vhost.definitions.exchanges.values():
            if exchange.name not in vhost.router.exchanges:
                vhost.router.add_exchange(_spec(exchange))
        for record in records:
            self._start_queue(record)
            vhost.router.add_queue(record.name)
        for binding in vhost.definitions.bindings:
            if binding.source in vhost.router.exchanges and binding.destination in vhost.router.queues:
                vhost.router.bind(_binding(binding))

    def handle_call(self, request: Any, sender: From) -> Any:  # noqa: ARG002  # OTP's signature
        """Answer one declaration; what it refuses comes back as Refused."""
        handlers: dict[type, Callable[[Any], Any]] = {
            DeclareQueue: self._declare_queue,
            DeclareExchange: self._declare_exchange,
            Bind: self._bind,
            Unbind: self._unbind,
            DeleteQueue: self._delete_queue,
            DeleteExchange: self._delete_exchange,
        }
        try:
            return handlers[type(request)](request)
        except Error as error:
            return Refused(error)
        except OSError as error:
            if not is_full(error):
                raise
            return Refused(Blocked("the disk is full, so nothing was changed; make room and try again"))

    def handle_cast(self, message: Any) -> None:
        """An auto-delete queue may go, unless somebody consumes from it again."""
        if isinstance(message, LastConsumerGone):
            record = self.vhost.queue(message.name)
            if record is not None and record.auto_delete:
                with suppress(PreconditionFailed):
                    self._delete_queue(DeleteQueue(message.name, if_unused=True, if_empty=False))

    # -- queues

    def _declare_queue(self, request: DeclareQueue) -> str:
        record = request.record
        known = self.vhost.queue(record.name)
        if known is not None:
            _check_equivalent("queue", record.name, known, record, ("durable", "exclusive", "auto_delete", "arguments"))
            return record.name
        if record.name.startswith("amq.") and not record.name.startswith("amq.gen-"):
            msg = f"queue name {record.name!r} is reserved: names that begin with 'amq.' are the broker's"
            raise AccessRefused(msg)
        if unknown := sorted(set(record.arguments) - KNOWN_ARGUMENTS):
            msg = f"queue argument {unknown[0]!r} is not supported yet; leave it out"
            raise PreconditionFailed(msg)
        try:
            self._start_queue(record)
            if record.durable:  # last: what this process cannot finish is not declared
                self.vhost.definitions.put_queue(record)
        except OSError:
            self._undo_start(record)
            raise
        if not record.durable:
            self.vhost.transient_queues[record.name] = record
        self.vhost.router.add_queue(record.name)
        return record.name

    def _start_queue(self, record: QueueRecord) -> None:
        vhost, mine = self.vhost, self.name
        directory = vhost.directory.queue(record.name)
        if record.durable:
            vhost.directory.make_queue(self._disk, record.name)
        auto_delete = (lambda: self.runtime.cast(mine, LastConsumerGone(record.name))) if record.auto_delete else None
        spec = QueueSpec(record.name, directory, vhost.directory.quarantine, record.durable, *self._stores,
                         settings=vhost.settings, disk=vhost.disk, last_consumer_gone=auto_delete)  # fmt: skip
        start_child(self.runtime, self._queue_sup, spec, name=queue_name(record.name))

    def _undo_start(self, record: QueueRecord) -> None:
        """There was no room for a queue of which nobody has heard yet."""
        with suppress(ActorDeadError):
            delete = Delete(if_unused=False, if_empty=False, commit=lambda: None)
            self.call(queue_name(record.name), delete, timeout=None)
        self._disk.rmtree(self.vhost.directory.queue(record.name))

    def _delete_queue(self, request: DeleteQueue) -> int:
        record = self.vhost.queue(request.name)
        if record is None:
            msg = f"there is no queue {request.name!r}"
            raise NotFound(msg)

        def commit() -> None:
            # Run by the queue process when its conditions hold, before the files go: a crash in between leaves a
            # folder without a queue, which the next start removes, and never a queue without its messages.
            if record.durable:
                self.vhost.definitions.delete_queue(record.name)

        try:
            delete = Delete(request.if_unused, request.if_empty, commit)
            reply = self.call(queue_name(record.name), delete, timeout=None)
        except ActorDeadError:
            commit()
            reply = 0
        if isinstance(reply, Refused):
            raise reply.error
        self.vhost.transient_queues.pop(record.name, None)
        bindings = self.vhost.router.bindings_to(Destination("queue", record.name))
        self.vhost.router.remove_queue(record.name)
        for binding in bindings:
            self._delete_if_unbound(binding.source)
        self._disk.rmtree(self.vhost.directory.queue(record.name))
        return int(reply)

    # -- exchanges and bindings

    def _declare_exchange(self, request: DeclareExchange) -> None:
        spec = request.spec
        if not spec.name:
            msg = "the default exchange cannot be declared; it is always there"
            raise AccessRefused(msg)
        known = self.vhost.router.exchanges.get(spec.name)
        if known is not None:
            fields = ("type", "durable", "auto_delete", "internal", "arguments")
            _check_equivalent("exchange", spec.name, known, spec, fields)
            return
        if spec.name.startswith("amq."):
            msg = f"exchange name {spec.name!r} is reserved: names that begin with 'amq.' are the broker's"
            raise AccessRefused(msg)
        if spec.type not in TYPES:
            msg = f"exchange type {spec.type!r} is not built yet; use {' or '.join(TYPES)}"
            raise PreconditionFailed(msg)
        if spec.arguments:
            msg = f"exchange argument {min(spec.arguments)!r} is not supported yet; leave it out"
            raise PreconditionFailed(msg)
        if spec.durable:
            self.vhost.definitions.put_exchange(
                ExchangeRecord(spec.name, spec.type, auto_delete=spec.auto_delete, internal=spec.internal)
            )
        self.vhost.router.add_exchange(spec)

    def _delete_exchange(self, request: DeleteExchange) -> None:
        if not request.name or request.name in {spec.name for spec in PREDECLARED}:
            msg = f"exchange {request.name!r} is the broker's own and cannot be deleted"
            raise AccessRefused(msg)
        spec = self.vhost.router.exchanges.get(request.name)
        if spec is None:
            msg = f"there is no exchange {request.name!r}"
            raise NotFound(msg)
        if request.if_unused and self.vhost.router.bindings_of(request.name):
            msg = f"exchange {request.name!r} is in use: it has bindings"
            raise PreconditionFailed(msg)
        if spec.durable:
            self.vhost.definitions.delete_exchange(spec.name)
        self.vhost.router.remove_exchange(spec.name)

    def _bind(self, request: Bind) -> None:
        binding = request.binding
        spec = self._check_binding(binding)
        record = self.vhost.queue(binding.destination)
        if self.vhost.router.is_bound(binding):
            return
        if spec.durable and record is not None and record.durable:
            self.vhost.definitions.bind(_binding_record(binding))
        self.vhost.router.bind(binding)

    def _unbind(self, request: Unbind) -> None:
        binding = request.binding
        self._check_binding(binding)
        record = _binding_record(binding)
        if record in self.vhost.definitions.bindings:
            self.vhost.definitions.unbind(record)
        if self.vhost.router.unbind(binding):
            self._delete_if_unbound(binding.source)

    def _check_binding(self, binding: Binding) -> ExchangeSpec:
        if not binding.source:
            msg = "the default exchange has no bindings: it routes to the queue that the routing key names"
            raise AccessRefused(msg)
        spec = self.vhost.router.exchanges.get(binding.source)
        if spec is None:
            msg = f"there is no exchange {binding.source!r}; declare it first"
            raise NotFound(msg)
        if self.vhost.queue(binding.destination) is None:
            msg = f"there is no queue {binding.destination!r}; declare it first"
            raise NotFound(msg)
        return spec

    def _delete_if_unbound(self, exchange: str) -> None:
        """An auto-delete exchange goes with its last binding."""
        spec = self.vhost.router.exchanges.get(exchange)
        if spec is not None and spec.auto_delete and not self.vhost.router.bindings_of(exchange):
            self._delete_exchange(DeleteExchange(exchange, if_unused=False))


def _check_equivalent(kind: str, name: str, known: object, wanted: object, fields: tuple[str, ...]) -> None:
    """RabbitMQ's rule: a redeclare must ask for what is there (406 inequivalent arg)."""
    for each in fields:
        if getattr(known, each) != getattr(wanted, each):
            msg = (
                f"{kind} {name!r} exists with {each}={getattr(known, each)!r}, "
                f"it cannot be declared again with {each}={getattr(wanted, each)!r}"
            )
            raise PreconditionFailed(msg)


def _spec(record: ExchangeRecord) -> ExchangeSpec:
    return ExchangeSpec(record.name, record.type, True, record.auto_delete, record.internal, record.arguments)


def _binding(record: BindingRecord) -> Binding:
    return Binding(record.destination, record.source, record.routing_key, record.arguments)


def _binding_record(binding: Binding) -> BindingRecord:
    return BindingRecord(binding.source, binding.destination, binding.routing_key, binding.arguments)
