"""Reads the definitions of a RabbitMQ node (virtual hosts, durable queues, exchanges, bindings, policies)
from Mnesia's files.

    rabbit_durable_queue      {amqqueue, Resource, Durable, AutoDelete, ExclusiveOwner, Arguments, Pid, ...}
    rabbit_durable_exchange   {exchange, Resource, Type, Durable, AutoDelete, Internal, Arguments, ...}
    rabbit_durable_route      {route, {binding, Source, RoutingKey, Destination, Arguments}, _}
    rabbit_vhost              {vhost, Name, ...}
    rabbit_runtime_parameters {runtime_parameters, {VHost, Component, Name}, Value}      policies, limits, shovels, ...
    Resource                  {resource, VHost, queue | exchange, Name}

The fields named are in the same places from 3.5 to 3.13; later nodes may keep all this in Khepri, which is not
read here.  Arguments are in amqp_table's notation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from warrenmq.erlang import mnesia
from warrenmq.erlang.amqp_table import BadTable
from warrenmq.erlang.amqp_table_terms import table_of_term
from warrenmq.erlang.message_parts import name as text

TABLES = (
    "rabbit_durable_queue",
    "rabbit_durable_exchange",
    "rabbit_durable_route",
    "rabbit_vhost",
    "rabbit_runtime_parameters",
)
FILES = (*(f"{table}.{kind}" for table in TABLES for kind in ("DCD", "DCL")), *mnesia.LOGS)
"""The files of a node directory to hand to `read`, those of them that are there."""

_TYPE = 19
"""The position of a queue's type in its record, since 3.8."""


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A durable queue."""

    vhost: str
    name: str
    durable: bool
    auto_delete: bool
    exclusive: bool
    arguments: list[Any]
    type: str
    """rabbit_classic_queue, rabbit_quorum_queue, ..."""


@dataclass(frozen=True, slots=True)
class ExchangeDefinition:
    """A durable exchange."""

    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: list[Any]


@dataclass(frozen=True, slots=True)
class BindingDefinition:
    """A durable binding.  Each queue's binding to the default exchange is nowhere: it goes without saying."""

    vhost: str
    source: str
    destination: str
    destination_kind: str
    """queue or exchange."""
    routing_key: str
    arguments: list[Any]


@dataclass(frozen=True, slots=True)
class ParameterDefinition:
    """A parameter of a virtual host: a policy, an operator policy, its limits, or one of a plugin."""

    vhost: str
    component: str
    name: str
    value: Any
    """The parameter's value as in JSON."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """Each list by virtual host and name."""

    vhosts: list[str]
    queues: list[QueueDefinition]
    exchanges: list[ExchangeDefinition]
    bindings: list[BindingDefinition]
    parameters: list[ParameterDefinition]
    unread: int
    """Records that are not as they should be."""


def read(files: Mapping[str, bytes]) -> Definitions:
    """Read the files, as far as they can be read."""
    records = mnesia.tables(TABLES, files)
    # those of the cluster are none of a virtual host
    parameters = _each(records.pop("rabbit_runtime_parameters"), _parameter)
    queues = _each(records["rabbit_durable_queue"], _queue)
    exchanges = _each(records["rabbit_durable_exchange"], _exchange)
    bindings = _each(records["rabbit_durable_route"], _binding)
    vhosts = _each(records["rabbit_vhost"], _vhost)
    return Definitions(
        vhosts=sorted(vhosts),
        queues=sorted(queues, key=lambda queue: (queue.vhost, queue.name)),
        exchanges=sorted(exchanges, key=lambda exchange: (exchange.vhost, exchange.name)),
        bindings=sorted(
            bindings, key=lambda each: (each.vhost, each.source, each.destination, each.routing_key)
        ),
        parameters=sorted(parameters, key=lambda each: (each.vhost, each.component, each.name)),
        unread=sum(map(len, records.values())) - sum(map(len, (queues, exchanges, bindings, vhosts))),
    )


def _each(records: list[tuple[Any, ...]], one: Callable[[Any], Any]) -> list[Any]:
    """The definitions of those records that are some."""
    found = []
    for record in records:
        try:
            definition = one(record)
        except BadTable:
            continue
        if definition is not None:
            found.append(definition)
    return found


def _queue(record: Any) -> QueueDefinition | None:
    match record:
        case (
            "amqqueue",
            ("resource", bytes() as vhost, "queue", bytes() as name),
            durable,
            deleted,
            owner,
            given,
            *_,
        ):
            kind = record[_TYPE] if len(record) > _TYPE else "rabbit_classic_queue"
            return QueueDefinition(
                vhost=text(vhost),
                name=text(name),
                durable=durable == "true",
                auto_delete=deleted == "true",
                exclusive=owner != "none",
                arguments=table_of_term(given),
                type=str(kind) if isinstance(kind, str) else "unknown",
            )
    return None


def _exchange(record: Any) -> ExchangeDefinition | None:
    match record:
        case (
            "exchange", ("resource", bytes() as vhost, "exchange", bytes() as name), str() as kind, durable, deleted,
            internal, given, *_
        ):  # fmt: skip
            return ExchangeDefinition(
                vhost=text(vhost),
                name=text(name),
                type=str(kind),
                durable=durable == "true",
                auto_delete=deleted == "true",
                internal=internal == "true",
                arguments=table_of_term(given),
            )
    return None


def _binding(record: Any) -> BindingDefinition | None:
    match record:
        case (
            "route",
            (
                "binding", ("resource", bytes() as vhost, _, bytes() as source), bytes() as key,
                ("resource", _, str() as kind, bytes() as destination), given
            ),
            *_,
        ):  # fmt: skip
            return BindingDefinition(
                vhost=text(vhost),
                source=text(source),
                destination=text(destination),
                destination_kind=str(kind),
                routing_key=text(key),
                arguments=table_of_term(given),
            )
    return None


def _vhost(record: Any) -> str | None:
    match record:
        case ("vhost", bytes() as name, *_):
            return text(name)
    return None


def _parameter(record: Any) -> ParameterDefinition | None:
    match record:
        case ("runtime_parameters", (bytes() as vhost, bytes() as component, bytes() as name), value, *_):
            return ParameterDefinition(text(vhost), text(component), text(name), _json(value))
    return None


def _json(term: Any) -> Any:
    """A term as the JSON that it was made of; a list of pairs is an object."""
    match term:
        case bytes():
            return text(term)
        case "true" | "false":
            return term == "true"
        case list() if term and all(isinstance(each, tuple) and len(each) == 2 for each in term):
            return {str(_json(key)): _json(value) for key, value in term}
        case list():
            return [_json(each) for each in term]
    return term
