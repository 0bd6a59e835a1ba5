"""Definitions of the HTTP API: export and import of users, virtual hosts, policies, queues, exchanges and
bindings (rabbit_definitions).

Import adds to what is there: users, permissions and parameters are replaced, a queue or an exchange that is
there in another form is an error.  All of a file is read before the first change.  `Parsed.left` names what
this server does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from warrenmq.actors.vhost.messages import Bind, DeclareExchange, DeclareQueue, SetParameter
from warrenmq.amqp.access.users import Users, rows_of, text_of
from warrenmq.broker.broker import Broker
from warrenmq.directory.definitions import QueueRecord
from warrenmq.errors import CallerError, PreconditionFailed
from warrenmq.log import Log
from warrenmq.management.errors import bad_request
from warrenmq.management.exchanges import declared
from warrenmq.management.http import Reply, Request, Route
from warrenmq.management.policies import parameter_row, parameters, policy_row
from warrenmq.management.site import Site
from warrenmq.management.vhosts import grant, require_name
from warrenmq.queue.arguments import OTHER_QUEUE_TYPES
from warrenmq.routing import TYPES, Binding, Destination, ExchangeSpec
from warrenmq.routing.declared import PREDECLARED
from warrenmq.supervisors.broker_sup import VHOST_PROCESS
from warrenmq.vhost.policies import COMPONENTS, LIMITS, LIMITS_NAME, OPERATOR_POLICY, POLICY, check_parameter

log = Log("warrenmq.management")

_PREDECLARED = frozenset(("", *(spec.name for spec in PREDECLARED)))
_ABOUT = frozenset(
    ("rabbit_version", "rabbitmq_version", "product_name", "product_version", "rabbitmq_definition_format", "explanation",
     "original_cluster_name", "original_vhost_name")
)  # fmt: skip
"""Keys that tell the origin of the definitions."""
_KNOWN = frozenset((
    "users", "vhosts", "permissions", "topic_permissions", "parameters", "policies", "queues", "exchanges",
    "bindings",
))  # fmt: skip


@dataclass(slots=True)
class OfVhost:
    """The declarations for one virtual host, in the order in which they are applied."""

    parameters: list[tuple[str, str, Any]] = field(default_factory=list)
    exchanges: list[ExchangeSpec] = field(default_factory=list)
    queues: list[QueueRecord] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)


@dataclass(slots=True)
class Parsed:
    """Parsed and checked definitions."""

    vhosts: dict[str, OfVhost] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    """The definitions that are not applied, in words."""


def parse(definitions: Any, *, vhost: str | None = None, quorum_as_classic: bool = False) -> Parsed:
    """Parse definitions; those of one virtual host do not name it.  Raises ValueError if they are malformed."""
    if type(definitions) is not dict:
        raise ValueError("it is not a JSON object with definitions")
    parsed = Parsed()
    parsed.left += sorted(
        f"{key} ({len(value)})" if isinstance(value, list) else key
        for key, value in definitions.items()
        if value
        and key not in _KNOWN
        and key not in _ABOUT
        and not (key == "global_parameters" and _only_ids(value))
    )

    def place(row: dict[str, Any], what: str) -> OfVhost:
        name = vhost if vhost is not None else text_of(row, "vhost", what)
        return parsed.vhosts.setdefault(name, OfVhost())

    _read_parameters(definitions, place, parsed.left)
    for row in rows_of(definitions, "exchanges"):
        name = text_of(row, "name", "an exchange")
        spec = ExchangeSpec(name, text_of(row, "type", f"exchange {name!r}"), _flag(row, "durable", True),
                            _flag(row, "auto_delete"), _flag(row, "internal"), _arguments(row))  # fmt: skip
        if spec.type not in TYPES:
            parsed.left.append(f"exchange {name!r} of type {spec.type}")
        elif name not in _PREDECLARED:
            place(row, f"exchange {name!r}").exchanges.append(spec)
    for row in rows_of(definitions, "queues"):
        name = text_of(row, "name", "a queue")
        arguments, kind = _arguments(row), row.get("type", "classic")
        kind = arguments.get("x-queue-type", kind)
        if kind in OTHER_QUEUE_TYPES and not (kind == "quorum" and quorum_as_classic):
            parsed.left.append(f"queue {name!r} of type {kind}")
            continue
        record = QueueRecord(name, _flag(row, "durable", True), False, _flag(row, "auto_delete"), arguments)
        place(row, f"queue {name!r}").queues.append(record)
    for row in rows_of(definitions, "bindings"):
        if not row.get("source"):
            continue  # of the default exchange, in files of 3.7 and older
        source, to = (text_of(row, key, "a binding") for key in ("source", "destination"))
        key = text_of({"routing_key": ""} | row, "routing_key", f"the binding of {source!r} to {to!r}")
        kind = row.get("destination_type", "queue")
        if kind not in ("queue", "exchange"):
            raise ValueError(
                f"the binding of {source!r} to {to!r} leads to {kind!r}, neither a queue nor an exchange"
            )
        binding = Binding(to, source, key, _arguments(row), kind)
        place(row, "a binding").bindings.append(binding)
    return parsed


def _read_parameters(
    definitions: dict[str, Any], place: Callable[[dict[str, Any], str], OfVhost], left: list[str]
) -> None:
    for row in rows_of(definitions, "policies"):
        name = text_of(row, "name", "a policy")
        value = {key: row[key] for key in ("pattern", "definition", "priority", "apply-to") if key in row}
        _add_parameter(place(row, f"policy {name!r}"), left, POLICY, name, value)
    for row in rows_of(definitions, "parameters"):
        component, name = (text_of(row, key, "a parameter") for key in ("component", "name"))
        if component not in COMPONENTS:
            left.append(f"parameter {name!r} of {component}")
            continue
        _add_parameter(place(row, f"parameter {name!r}"), left, component, name, row.get("value"))


def _add_parameter(of: OfVhost, left: list[str], component: str, name: str, value: Any) -> None:
    try:
        check_parameter(component, name, value)
    except PreconditionFailed as why:
        left.append(f"{component.replace('_', ' ')} {name!r}, {why}")
    else:
        of.parameters.append((component, name, value))


def apply(broker: Broker, of: OfVhost) -> list[str]:
    """Apply definitions; returns the refusals, a sentence each."""
    refused = []

    def have(what: str, request: Any) -> None:
        try:
            broker.inside.client.calls.call_named(VHOST_PROCESS, request)
        except CallerError as why:
            refused.append(f"{what} in vhost {broker.inside.vhost.name!r}: {why}")

    limits = [each for each in of.parameters if each[0] == LIMITS]
    for component, name, value in of.parameters:
        if component != LIMITS:
            have(f"{component} {name!r}", SetParameter(component, name, value))
    for spec in of.exchanges:
        have(f"exchange {spec.name!r}", DeclareExchange(spec))
    for record in of.queues:
        have(f"queue {record.name!r}", DeclareQueue(record))
    for binding in of.bindings:
        have(f"binding of {binding.source!r} to {binding.destination!r}", Bind(binding))
    for _, _, value in limits:  # limits last, as in RabbitMQ: they do not reject the file's own queues
        have("limits", SetParameter(LIMITS, LIMITS_NAME, value))
    return refused


def import_file(
    brokers: Iterable[Broker], path: str, definitions: Any, *, quorum_as_classic: bool = False
) -> None:
    """Apply a definitions file at the start of a server; one warning lists what was not applied.  ValueError
    if it is malformed.
    """
    parsed = parse(definitions, quorum_as_classic=quorum_as_classic)
    left = parsed.left
    by_name = {broker.inside.vhost.name: broker for broker in brokers}
    for name, of in parsed.vhosts.items():
        if name in by_name:
            left += apply(by_name[name], of)
        else:
            left.append(_unlisted(name))
    if left:
        log.warning("parts of the definitions file were not applied", file=path, parts="; ".join(left))


# -- export


def of_broker(broker: Broker, *, with_vhost: bool = True) -> dict[str, list[dict[str, Any]]]:
    """Export a virtual host's declarations, without exclusive queues and their bindings."""
    where = {"vhost": broker.inside.vhost.name} if with_vhost else {}
    records = broker.inside.vhost.records()
    exclusive = {Destination("queue", each.name) for each in records if each.exclusive}
    exchanges = [
        spec for spec in list(broker.inside.vhost.router.exchanges.values()) if spec.name not in _PREDECLARED
    ]
    found: dict[str, list[dict[str, Any]]] = {
        "parameters": [parameter_row(broker, *each) for each in parameters(broker, OPERATOR_POLICY, LIMITS)],
        "policies": [policy_row(broker, name, value) for _, name, value in parameters(broker, POLICY)],
        "queues": [
            {"name": each.name, **where, "durable": each.durable, "auto_delete": each.auto_delete,
             "arguments": each.arguments}
            for each in records if not each.exclusive
        ],
        "exchanges": [
            {"name": each.name, **where, "type": each.type, "durable": each.durable, "auto_delete": each.auto_delete,
             "internal": each.internal, "arguments": each.arguments}
            for each in exchanges
        ],
        "bindings": [
            {"source": each.source, **where, "destination": each.destination, "destination_type": each.destination_type,
             "routing_key": each.routing_key, "arguments": each.arguments}
            for each in declared(broker) if each.to not in exclusive
        ],
    }  # fmt: skip
    if not with_vhost:
        for key in ("parameters", "policies"):
            for row in found[key]:
                del row["vhost"]
    return found


def export(site: Site, request: Request) -> Any:
    """GET /api/definitions and /api/definitions/vhost."""
    about = {"rabbit_version": site.version, "rabbitmq_version": site.version,
             "product_name": site.node.properties["product"], "product_version": site.node.properties["version"]}  # fmt: skip
    if "vhost" in request.at:
        return about | of_broker(site.visible(request.account, request.at["vhost"]), with_vhost=False)
    everything: dict[str, Any] = about | site.users.definitions() | {"global_parameters": []}
    for broker in site.brokers():
        for key, rows in of_broker(broker).items():
            everything.setdefault(key, []).extend(rows)
    return everything


def import_all(site: Site, request: Request) -> Any:
    """POST /api/definitions and /api/definitions/vhost: 204; 400 with all refusals, after applying the rest."""
    definitions = request.json()
    vhost = request.at.get("vhost")
    quorum = site.node.settings.quorum_as_classic
    parsed = parse(definitions, vhost=vhost, quorum_as_classic=quorum)
    if vhost is None:
        Users().add(definitions)  # checked before anything is changed
        names = [text_of(row, "name", "a vhost") for row in rows_of(definitions, "vhosts")]
        new = [name for name in names if name not in site.node.vhosts]
        for name in new:
            require_name(name)
        with site.users.change():
            site.users.adopt(definitions)
        for name in names:
            site.server.add_vhost(name)
        for name in new:
            grant(site, request, name)
    left = parsed.left
    for name, of in parsed.vhosts.items():
        if vhost is None and name not in site.node.vhosts:
            left.append(_unlisted(name))
        else:
            left += apply(site.broker(name), of)
    if left:
        raise bad_request(f"not applied: {'; '.join(left)}")
    return Reply(204)


def _unlisted(vhost: str) -> str:
    return f"all of vhost {vhost!r}, which the file does not list"


def _only_ids(rows: Any) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, dict) and row.get("name") in ("internal_cluster_id", "cluster_name") for row in rows
    )


def _arguments(row: dict[str, Any]) -> dict[str, Any]:
    arguments = row.get("arguments") or {}
    if not isinstance(arguments, dict):
        msg = f"the arguments of {row.get('name')!r} are no object"
        raise ValueError(msg)  # noqa: TRY004  # of the file, not of the caller
    return arguments


def _flag(row: dict[str, Any], key: str, default: bool = False) -> bool:
    return row.get(key, default) is True


ROUTES = (
    Route("GET", "definitions", export, "administrator"),
    Route("POST", "definitions", import_all, "administrator"),
    Route("GET", "definitions/{vhost}", export, "administrator"),
    Route("POST", "definitions/{vhost}", import_all, "administrator"),
)
