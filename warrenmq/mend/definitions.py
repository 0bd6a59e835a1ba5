"""Declares the definitions of a source again in the target.

    source         where it says so                     what comes along
    RabbitMQ's     Mnesia's files in the node's folder  durable classic queues, exchanges of every type, bindings to queues and
                                                        exchanges, all with their arguments, policies and limits
    ours           definitions.log of the vhost         the same

A refusal of the target becomes a note; a queue or exchange whose arguments are refused is declared without them, since
messages need a place.  A node of RabbitMQ 4 may keep its definitions in Khepri instead of Mnesia; then they are not read.

Source: rabbit_db_queue, rabbit_db_exchange, rabbit_db_binding; docs/reference/classic-queue.md#exchanges.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from warrenmq.actors.vhost.messages import SetParameter
from warrenmq.broker.broker import Broker
from warrenmq.directory.definitions import Declared, ExchangeRecord, QueueRecord
from warrenmq.erlang import definitions as mnesia
from warrenmq.errors import AccessRefused, CallerError, Error, NotFound, PreconditionFailed
from warrenmq.inspect.layout import Vhost
from warrenmq.inspect.reading import Findings
from warrenmq.mend.living import node_of
from warrenmq.message.plain_properties import dict_of_plain, name_of_rabbit
from warrenmq.routing.delayed import is_store
from warrenmq.supervisors.broker_sup import VHOST_PROCESS
from warrenmq.vhost.policies import COMPONENTS
from warrenmq.vhost.queue_folders import records_of

_CLASSIC = "rabbit_classic_queue"
_RESERVED = "amq."
"""The prefix of names that exist without being declared; "" is the default exchange."""
KHEPRI = (
    "this node's definitions are in Khepri (coordination/), which is not read: its queues are declared durable and "
    "without arguments, its exchanges and bindings have to be declared anew"
)
NOWHERE = (
    "there are no definitions beside these messages: queues are declared durable and without arguments, exchanges and "
    "bindings have to be declared anew"
)


class Bound(NamedTuple):
    """A binding; `to` is the kind of its destination: queue or exchange."""

    source: str
    destination: str
    to: str
    routing_key: str
    arguments: Mapping[str, Any]


@dataclass
class Definitions:
    """The definitions of one virtual host."""

    queues: dict[str, QueueRecord] = field(default_factory=dict)
    exchanges: list[ExchangeRecord] = field(default_factory=list)
    bindings: list[Bound] = field(default_factory=list)
    parameters: dict[tuple[str, str], Any] = field(default_factory=dict)
    """Policies, operator policies and limits: (component, name) -> value."""
    notes: list[str] = field(default_factory=list)
    """The definitions that cannot be moved, a sentence each."""


def of_vhost(findings: Findings, vhost: Vhost) -> dict[str, Definitions]:
    """The definitions of a folder's virtual hosts, by name: those of a 3.6 node share one folder."""
    if vhost.ours:
        return {vhost.name or "/": _of_ours(findings, vhost)}
    node = node_of(vhost.path)
    files = {name: data for name in mnesia.FILES if (data := findings.read(f"{node}/{name}"))}
    found = mnesia.read(files)
    if not found.vhosts:
        note = KHEPRI if os.path.isdir(f"{node}/coordination") else NOWHERE
        return {vhost.name or "/": Definitions(notes=[note])}
    names = [vhost.name] if vhost.name is not None else found.vhosts
    by_name = {name: _of_mnesia(found, name) for name in names}
    if found.unread:
        by_name[names[0]].notes.append(
            f"{found.unread} records of the definitions make no sense, and were left out"
        )
    return by_name


def _of_ours(findings: Findings, vhost: Vhost) -> Definitions:
    declared = Declared()
    declared.replay(findings.read(f"{vhost.path}/definitions.log") or b"")
    bindings = [
        Bound(each.source, each.destination, each.destination_type, each.routing_key, each.arguments)
        for each in declared.bindings
    ]
    for record in records_of(each.undeclared for each in vhost.queues if each.undeclared is not None):
        declared.queues[record.name] = record
    return Definitions(declared.queues, list(declared.exchanges.values()), bindings, declared.parameters)


def _of_mnesia(found: mnesia.Definitions, vhost: str) -> Definitions:
    said = Definitions()
    for queue in found.queues:
        if queue.vhost != vhost or queue.exclusive:  # an exclusive queue ended with its connection
            continue
        if queue.type != _CLASSIC:
            said.notes.append(
                f"queue {queue.name!r} is a {queue.type}: neither it nor its messages come along"
            )
            continue
        name = _name(queue.name, said.notes)
        said.queues[name] = QueueRecord(
            name, auto_delete=queue.auto_delete, arguments=dict_of_plain(queue.arguments)
        )
    for exchange in found.exchanges:
        if exchange.vhost == vhost and exchange.name and not exchange.name.startswith(_RESERVED):
            said.exchanges.append(ExchangeRecord(
                _name(exchange.name, said.notes), exchange.type, auto_delete=exchange.auto_delete,
                internal=exchange.internal, arguments=dict_of_plain(exchange.arguments),
            ))  # fmt: skip
    for binding in found.bindings:
        if binding.vhost == vhost and binding.source:
            source, destination, key = (
                _name(each, said.notes) for each in (binding.source, binding.destination, binding.routing_key)
            )
            arguments = dict_of_plain(binding.arguments)
            said.bindings.append(Bound(source, destination, binding.destination_kind, key, arguments))
    for each in found.parameters:
        if each.vhost == vhost:
            said.parameters[each.component, each.name] = each.value
    return said


def _name(name: str, notes: list[str]) -> str:
    """A name or key that can be declared here."""
    found, altered = name_of_rabbit(name)
    if altered and (note := f"{found} is not UTF-8; the invalid bytes are written as \\xNN") not in notes:
        notes.append(note)
    return found


# -- declaring


class Target(Protocol):
    """The target of declarations: a Broker, or a Remote."""

    def queue(self, name: str) -> object:
        """NotFound if no queue has this name."""

    def declare_queue(self, name: str, *, auto_delete: bool, arguments: Mapping[str, Any]) -> object:
        """Declare a durable queue."""

    def declare_exchange(
        self, name: str, type: str, *, auto_delete: bool, internal: bool, arguments: Mapping[str, Any]
    ) -> object:
        """Declare a durable exchange."""

    def bind(
        self,
        destination: str,
        source: str,
        routing_key: str,
        arguments: Mapping[str, Any],
        *,
        destination_type: str,
    ) -> None:
        """Bind a "queue" or an "exchange" to the source."""


def declare(target: Target, said: Definitions, notes: list[str]) -> dict[str, str]:
    """Declare all definitions in the target; returns the name that each queue has there.  `notes` gets what was refused.

    Queues of delayed messages are left out: their exchanges have them.
    """
    called = {
        name: have_queue(target, queue, notes) for name, queue in said.queues.items() if not is_store(name)
    }
    refused = {exchange.name for exchange in said.exchanges if not _have_exchange(target, exchange, notes)}
    lost = 0
    for each in said.bindings:
        if each.source in refused or (each.to == "exchange" and each.destination in refused):
            lost += 1
            continue
        to = called.get(each.destination, each.destination) if each.to == "queue" else each.destination
        try:
            target.bind(to, each.source, each.routing_key, each.arguments, destination_type=each.to)
        except CallerError as why:
            notes.append(f"the binding of {each.to} {to!r} to {each.source!r} was refused: {why}")
    if lost:
        notes.append(f"{lost} bindings of exchanges that were refused were left out")
    return called


def set_parameters(target: Broker, said: Definitions, notes: list[str]) -> None:
    """Set policies and limits in a virtual host that has its messages: a policy may drop some that are too many."""
    for (component, name), value in said.parameters.items():
        if component not in COMPONENTS:
            notes.append(f"the {component} {name!r} stays behind: there are no plugins here")
            continue
        try:
            target.inside.client.calls.call_named(VHOST_PROCESS, SetParameter(component, name, value))
        except (Error, ValueError, TypeError) as why:
            notes.append(f"the {component} {name!r} was refused: {why}")


def have_queue(target: Target, wanted: QueueRecord, notes: list[str]) -> str:
    """Declare a durable queue and return its name, which is another one where this one is the broker's to give."""
    name = wanted.name
    try:
        target.declare_queue(name, auto_delete=wanted.auto_delete, arguments=wanted.arguments)
    except AccessRefused:
        if _has_queue(target, name):
            return name
        return have_queue(target, QueueRecord(f"recovered-{name}", arguments=wanted.arguments), notes)
    except PreconditionFailed as why:
        if _has_queue(target, name):  # declared otherwise
            return name
        if not wanted.arguments:
            raise
        notes.append(_without("queue", wanted, why))
        return have_queue(target, QueueRecord(name, auto_delete=wanted.auto_delete), notes)
    return name


def _has_queue(target: Target, name: str) -> bool:
    try:
        target.queue(name)
    except NotFound:
        return False
    return True


def _have_exchange(target: Target, wanted: ExchangeRecord, notes: list[str]) -> bool:
    try:
        target.declare_exchange(
            wanted.name,
            wanted.type,
            auto_delete=wanted.auto_delete,
            internal=wanted.internal,
            arguments=wanted.arguments,
        )
    except CallerError as why:
        if wanted.arguments and _have_exchange(target, replace(wanted, arguments={}), []):
            notes.append(_without("exchange", wanted, why))
            return True
        notes.append(f"exchange {wanted.name!r} ({wanted.type}) was refused: {why}")
        return False
    return True


def _without(kind: str, wanted: QueueRecord | ExchangeRecord, why: CallerError) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in wanted.arguments.items())
    return f"{kind} {wanted.name!r} was declared without its arguments ({given}): {why}"
