"""Declaring, deleting and binding exchanges (rabbit_exchange, rabbit_binding, and the checks of rabbit_channel).

    what is asked for                      refused when
    declare                                the type is unknown (503); it is the default exchange (403); a new name begins with
                                           "amq." (403); an argument is wrong, or the exchange is there and different (406)
    delete                                 it is the default exchange or begins with "amq." (403); if_unused and it has
                                           bindings (406); it is not there (404, which RabbitMQ passes over)
    bind, unbind                           either end is the default exchange (403); the queue is another connection's (405)
    bind                                   either end is not there (404); x-match is wrong (406)

A binding is written if both ends are durable.  An auto-delete exchange goes with the last binding that leads away from
it, together with the bindings that lead to it, which may take other exchanges along; the log has all of that in one frame.

An exchange of type x-delayed-message has a queue in which messages wait (routing/delayed.py); it is made
before the exchange, and goes with it, messages and all.
"""

from __future__ import annotations

from typing import Protocol

from warrenmq.actors.vhost import equivalence
from warrenmq.actors.vhost.messages import Bind, DeclareExchange, DeleteExchange, Unbind
from warrenmq.actors.vhost.vhost import Vhost
from warrenmq.directory.definition_frames import check_storable
from warrenmq.directory.definitions import BindingRecord, ExchangeRecord
from warrenmq.errors import AccessRefused, CommandInvalid, NotFound, PreconditionFailed
from warrenmq.routing import TYPES, Binding, Destination, ExchangeSpec
from warrenmq.routing.delayed import X_DELAYED_MESSAGE, store_of
from warrenmq.routing.exchange_types import routing_type

RESERVED = "amq."
NAME_BYTES = 255
"""Bytes of a short string of AMQP."""


class Stores(Protocol):
    """The queues in which messages for delayed exchanges wait (queue_declarations.py)."""

    def have_store(self, name: str, *, durable: bool) -> None: ...
    def trace_deletion(self, name: str) -> None: ...
    def remove_store(self, name: str, *, durable: bool) -> None: ...


class ExchangeDeclarations:
    """The exchanges and bindings of a vhost; belongs to the vhost process."""

    stores: Stores

    def __init__(self, vhost: Vhost) -> None:
        """`stores` is set before anything is asked."""
        self._vhost = vhost
        self._router = vhost.router

    def recover(self) -> None:
        """Durable exchanges and their bindings, once the queues are known."""
        router, definitions = self._router, self._vhost.definitions
        for record in definitions.exchanges.values():
            if record.name not in router.exchanges:
                router.add_exchange(_spec(record))
        for name in router.exchanges:  # those that are always there, too
            router.set_alternate(name, self._vhost.policies.alternate(name))
        for spec in router.exchanges.values():
            if spec.type == X_DELAYED_MESSAGE:
                self.stores.have_store(store_of(spec.name), durable=spec.durable)
        for each in definitions.bindings:
            binding = Binding(
                each.destination, each.source, each.routing_key, each.arguments, each.destination_type
            )
            if binding.source in router.exchanges and self._is_there(binding.to):
                router.bind(binding)

    def check_declare(self, request: DeclareExchange) -> DeclareExchange:
        """Refuse an exchange that breaks a rule."""
        spec = request.spec
        if spec.type not in TYPES:
            msg = f"there is no exchange type {spec.type!r}; use {', '.join(TYPES)}"
            raise CommandInvalid(msg, reply_text=f"unknown exchange type '{spec.type}'")
        _refuse_default(spec.name)
        words = self._vhost.words("exchange", spec.name)
        known = self._router.exchanges.get(spec.name)
        if known is not None:
            equivalence.check_exchange(words, known, spec)
        else:
            check_name("exchange", spec.name)
            check_storable(f"exchange {spec.name!r}", spec.arguments)
            equivalence.check_alternate(words, spec.arguments)
            equivalence.check_delayed_type(spec)
        return request

    def declare(self, request: DeclareExchange) -> None:
        """Declare an exchange."""
        spec = request.spec
        if spec.name in self._router.exchanges:
            return
        if spec.type == X_DELAYED_MESSAGE:  # first: an exchange is never without it
            self.stores.have_store(store_of(spec.name), durable=spec.durable)
        if spec.durable:
            self._vhost.definitions.put_exchange(
                ExchangeRecord(spec.name, spec.type, spec.auto_delete, spec.internal, spec.arguments)
            )
        self._router.add_exchange(spec)
        self._router.set_alternate(spec.name, self._vhost.policies.alternate(spec.name))

    def check_delete(self, request: DeleteExchange) -> DeleteExchange:
        """Refuse to delete an exchange that is not there, in use or the broker's own."""
        name = request.name
        _refuse_default(name)
        words = self._vhost.words("exchange", name)
        if name.startswith(RESERVED):
            msg = f"exchange {name!r} is the broker's own and cannot be deleted"
            raise AccessRefused(msg, reply_text=f"deletion of system {words} not allowed")
        if name not in self._router.exchanges:
            raise self._not_found(Destination("exchange", name))
        if request.if_unused and self._router.bindings_of(name):
            msg = f"exchange {name!r} is in use: it has bindings"
            raise PreconditionFailed(msg, reply_text=f"{words} in use")
        return request

    def delete(self, request: DeleteExchange) -> None:
        """Delete an exchange, and what goes with it."""
        name = request.name
        left = self._router.left_unused(self._router.bindings_to(Destination("exchange", name)))
        gone = [*dict.fromkeys([name, *left])]
        self.write_deletion(exchanges=gone)
        self.forget(gone)

    def check_bind(self, request: Bind) -> Bind:
        """Refuse a binding that breaks a rule."""
        binding = request.binding
        _refuse_default_ends(binding)
        check_storable("a binding", binding.arguments, binding.routing_key)
        _check_length("a binding's routing key", binding.routing_key)
        source = self._router.exchanges.get(binding.source)
        if source is None:
            raise self._not_found(Destination("exchange", binding.source))
        if not self._is_there(binding.to):
            raise self._not_found(binding.to)
        if routing_type(source.type, source.arguments) == "headers":
            equivalence.check_x_match(binding.arguments)
        self._check_access(request)
        return request

    def bind(self, request: Bind) -> None:
        """Add a binding."""
        binding = request.binding
        if self._router.is_bound(binding):
            return
        source = self._router.exchanges[binding.source]
        if source.durable and self._is_durable(binding.to):
            self._vhost.definitions.bind(_record(binding))
        self._router.bind(binding)

    def check_unbind(self, request: Unbind) -> Unbind:
        """Refuse to undo a binding of the default exchange, or of another connection's queue."""
        binding = request.binding
        _refuse_default_ends(binding)
        check_storable("a binding", binding.arguments, binding.routing_key)
        if self._router.is_bound(binding):
            self._check_access(request)
        return request

    def unbind(self, request: Unbind) -> None:
        """Do not have a binding."""
        binding = request.binding
        if not self._router.is_bound(binding):
            return
        gone = self._router.left_unused([binding])
        if any(self._router.exchanges[name].durable for name in gone):
            self.write_deletion(exchanges=gone)  # of its source, too, so the binding with it
        elif (record := _record(binding)) in self._vhost.definitions.bindings:
            self._vhost.definitions.unbind(record)
        self._router.unbind(binding)
        self.forget(gone)

    def left_without(self, queue: str) -> list[str]:
        """The auto-delete exchanges that go with a queue."""
        return self._router.left_unused(self._router.bindings_to(Destination("queue", queue)))

    def write_deletion(self, *, queues: list[str] | None = None, exchanges: list[str]) -> None:
        """Write the deletion of these exchanges and bindings to disk, if any of them is there."""
        definitions = self._vhost.definitions
        stores = [name for name in map(store_of, exchanges) if name in definitions.queues]
        durable_queues = [*(name for name in queues or () if name in definitions.queues), *stores]
        durable_exchanges = [name for name in exchanges if name in definitions.exchanges]
        for name in stores:  # their processes hear of it when it is written
            self.stores.trace_deletion(name)
        if durable_queues or durable_exchanges:
            definitions.delete(queues=durable_queues, exchanges=durable_exchanges)

    def forget(self, exchanges: list[str]) -> None:
        """Exchanges that are deleted route nothing any more."""
        for name in exchanges:
            spec = self._router.exchanges[name]
            self._router.remove_exchange(name)
            if spec.type == X_DELAYED_MESSAGE:
                self.stores.remove_store(store_of(name), durable=spec.durable)

    def _check_access(self, request: Bind | Unbind) -> None:
        if request.binding.destination_type == "queue":
            record = self._vhost.existing_queue(request.binding.destination)
            self._vhost.check_exclusive_access(record, request.owner)

    def _is_there(self, destination: Destination) -> bool:
        if destination.type == "exchange":
            return destination.name in self._router.exchanges
        return self._vhost.queue(destination.name) is not None

    def _is_durable(self, destination: Destination) -> bool:
        if destination.type == "exchange":
            return self._router.exchanges[destination.name].durable
        return self._vhost.existing_queue(destination.name).durable

    def _not_found(self, what: Destination) -> NotFound:
        msg = f"there is no {what.type} {what.name!r}; declare it first"
        return NotFound(msg, reply_text=f"no {self._vhost.words(what.type, what.name)}")


def check_name(kind: str, name: str) -> None:
    """Refuse a new name that is the broker's to give (AccessRefused), or that AMQP has no room for."""
    if name.startswith(RESERVED):
        msg = f"{kind} name {name!r} is reserved: names that begin with 'amq.' are the broker's"
        raise AccessRefused(msg, reply_text=f"{kind} name '{name}' contains reserved prefix 'amq.*'")
    check_storable(f"{kind} {name!r}", {}, name)
    _check_length(f"{kind} name", name)


def _check_length(what: str, text: str) -> None:
    if len(text.encode()) > NAME_BYTES:
        msg = f"{what} {text[:20]!r}... is too long: AMQP has room for {NAME_BYTES} bytes of UTF-8"
        raise PreconditionFailed(msg)


def _refuse_default_ends(binding: Binding) -> None:
    if binding.destination_type == "exchange":
        _refuse_default(binding.destination)
    _refuse_default(binding.source)


def _refuse_default(exchange: str) -> None:
    if not exchange:
        msg = "the default exchange is always there, has every queue under its name, and cannot be declared, deleted or bound"
        raise AccessRefused(msg, reply_text="operation not permitted on the default exchange")


def _spec(record: ExchangeRecord) -> ExchangeSpec:
    return ExchangeSpec(record.name, record.type, True, record.auto_delete, record.internal, record.arguments)


def _record(binding: Binding) -> BindingRecord:
    return BindingRecord(
        binding.source, binding.destination, binding.routing_key, binding.arguments, binding.destination_type
    )
