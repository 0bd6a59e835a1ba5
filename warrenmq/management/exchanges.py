"""Exchanges and bindings of the HTTP API (rabbit_mgmt_wm_exchange, _bindings, _binding).

A binding's properties_key is its routing key, encoded as in a query ("~" is %7E), and behind "~" a
fingerprint of its arguments if it has any; a binding with neither is "~".
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus

from warrenmq.actors.vhost.messages import Bind, DeclareExchange, DeleteExchange, Unbind
from warrenmq.amqp.channel.access import is_topic
from warrenmq.amqp.channel.declarations import ALTERNATE
from warrenmq.broker.broker import Broker
from warrenmq.management.errors import bad_request, not_found
from warrenmq.management.history import span_of
from warrenmq.management.http import Reply, Request, Route, encode, segment
from warrenmq.management.inputs import arguments_of, flag, require, require_other, require_topic, texts
from warrenmq.management.site import ROUTED, Site
from warrenmq.routing import Binding, Destination, ExchangeSpec
from warrenmq.supervisors.broker_sup import VHOST_PROCESS

DEFAULT = ExchangeSpec("", "direct")
_KINDS = {"q": "queue", "e": "exchange"}


def row(broker: Broker, spec: ExchangeSpec) -> dict[str, Any]:
    """JSON object of one exchange."""
    found = {
        "name": spec.name, "vhost": broker.inside.vhost.name, "type": spec.type, "durable": spec.durable,
        "auto_delete": spec.auto_delete, "internal": spec.internal, "arguments": spec.arguments,
    }  # fmt: skip
    if spec.name and (policy := broker.inside.vhost.policies.of("exchange", spec.name).policy) is not None:
        found["policy"] = policy.name
    return found


def rows(
    site: Site, broker: Broker, specs: list[ExchangeSpec], query: Mapping[str, str]
) -> list[dict[str, Any]]:
    """JSON objects of exchanges with message_stats, if clients have published to them."""
    span, routed, vhost = span_of(query, "msg_rates"), site.routed(), broker.inside.vhost.name
    found = []
    for spec in specs:
        one = row(broker, spec)
        if (counts := routed.get((vhost, spec.name))) is not None:
            stats = dict(zip(ROUTED, counts, strict=True))
            one["message_stats"] = site.with_rates(stats, ("exchange", vhost, spec.name), span)
        found.append(one)
    return found


def specs(broker: Broker) -> list[ExchangeSpec]:
    """All exchanges of a virtual host, the default one first."""
    return [DEFAULT, *list(broker.inside.vhost.router.exchanges.values())]


def list_exchanges(site: Site, request: Request) -> Any:
    """GET /api/exchanges and /api/exchanges/vhost."""
    return [
        each
        for broker in site.visible_brokers(request.account, request.at.get("vhost"))
        for each in rows(site, broker, specs(broker), request.query)
    ]


def show(site: Site, request: Request) -> Any:
    """GET /api/exchanges/vhost/name."""
    broker, spec = _existing(site, request)
    return rows(site, broker, [spec], request.query)[0] | {"incoming": [], "outgoing": []}


def declare(site: Site, request: Request) -> Any:
    """PUT /api/exchanges/vhost/name."""
    vhost, name = request.at["vhost"], request.at["name"]
    user = site.at_work(request.account, vhost)
    broker = site.broker(vhost)
    body, _ = request.fields("type")
    (kind,) = texts(body, "type")
    require(user.may_configure(name), "exchange", name, request)
    spec = ExchangeSpec(name, kind, flag(body, "durable", True), flag(body, "auto_delete", False),
                        flag(body, "internal", False), arguments_of(body))  # fmt: skip
    known = name in broker.inside.vhost.router.exchanges
    if not known:
        require_other(body, ALTERNATE, "exchange", name, request, user)
    broker.inside.client.calls.call_named(VHOST_PROCESS, DeclareExchange(spec))
    return Reply(204 if known else 201)


def delete(site: Site, request: Request) -> None:
    """DELETE /api/exchanges/vhost/name?if-unused=true."""
    broker, spec = _existing(site, request)
    user = site.at_work(request.account, broker.inside.vhost.name)
    require(user.may_configure(spec.name), "exchange", spec.name, request)
    broker.inside.client.calls.call_named(VHOST_PROCESS, DeleteExchange(spec.name, request.flag("if-unused")))


# -- bindings


def properties_key(binding: Binding) -> str:
    """The binding's properties key; see the module."""
    key = _quoted(binding.routing_key)
    if not binding.arguments:
        return key or "~"
    packed = json.dumps(json.loads(encode(binding.arguments)), sort_keys=True).encode()
    digest = hashlib.md5(packed, usedforsecurity=False).digest()[:5]
    return f"{key}~{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def binding_row(broker: Broker, binding: Binding) -> dict[str, Any]:
    """JSON object of one binding."""
    return {
        "source": binding.source, "vhost": broker.inside.vhost.name, "destination": binding.destination,
        "destination_type": binding.destination_type, "routing_key": binding.routing_key,
        "arguments": binding.arguments, "properties_key": properties_key(binding),
    }  # fmt: skip


def declared(broker: Broker) -> list[Binding]:
    """All bindings but those of the default exchange."""
    router = broker.inside.vhost.router
    return [binding for name in list(router.exchanges) for binding in router.bindings_of(name)]


def implicit(queue: str) -> Binding:
    """The implicit binding of a queue to the default exchange."""
    return Binding(queue, "", queue)


def _all(broker: Broker) -> list[Binding]:
    return [*map(implicit, list(broker.inside.vhost.router.queues)), *declared(broker)]


def _chosen(broker: Broker, chosen: Callable[[Binding], bool]) -> list[dict[str, Any]]:
    return [binding_row(broker, each) for each in _all(broker) if chosen(each)]


def list_bindings(site: Site, request: Request) -> Any:
    """GET /api/bindings and /api/bindings/vhost."""
    return [
        row
        for broker in site.visible_brokers(request.account, request.at.get("vhost"))
        for row in _chosen(broker, lambda _: True)
    ]


def of_source(site: Site, request: Request) -> Any:
    """GET /api/exchanges/vhost/name/bindings/source."""
    broker, spec = _existing(site, request)
    return _chosen(broker, lambda binding: binding.source == spec.name)


def to_exchange(site: Site, request: Request) -> Any:
    """GET /api/exchanges/vhost/name/bindings/destination."""
    broker, spec = _existing(site, request)
    return _chosen(broker, lambda binding: binding.to == Destination("exchange", spec.name))


def to_queue(site: Site, request: Request) -> Any:
    """GET /api/queues/vhost/name/bindings."""
    broker = site.visible(request.account, request.at["vhost"])
    if broker.inside.vhost.queue(request.at["name"]) is None:
        raise not_found()
    return _chosen(broker, lambda binding: binding.to == Destination("queue", request.at["name"]))


def between(site: Site, request: Request) -> Any:
    """GET /api/bindings/vhost/e/source/q/destination, and e for q."""
    broker, source, to = _ends(site, request)
    return _chosen(broker, lambda binding: binding.source == source and binding.to == to)


def bind(site: Site, request: Request) -> Any:
    """POST of the same path: 201, with the binding's path in Location."""
    broker, source, to = _ends(site, request)
    body = request.json()
    key = body.get("routing_key", "")
    if type(key) is not str:
        raise bad_request("routing_key must be a text")
    binding = Binding(to.name, source, key, arguments_of(body), to.type)
    _check_ends(site, request, binding)
    broker.inside.client.calls.call_named(VHOST_PROCESS, Bind(binding))
    # encoded once more: clients decode the last segment and look for it among the properties keys
    location = f"{request.path.rstrip('/').rsplit('/', 1)[-1]}/{segment(properties_key(binding))}"
    return Reply(201, headers=(("location", location),))


def _quoted(routing_key: str) -> str:
    return quote_plus(routing_key).replace("~", "%7E")


def _found(site: Site, request: Request) -> tuple[Broker, Binding]:
    broker, source, to = _ends(site, request)
    key = request.at["key"]
    found = {properties_key(each): each for each in _all(broker) if each.source == source and each.to == to}
    # a client may take the properties key for a path segment that is encoded already
    binding = found.get(key) or found.get(_quoted(key))
    if binding is None:
        raise not_found()
    return broker, binding


def show_binding(site: Site, request: Request) -> Any:
    """GET of a binding's path."""
    return binding_row(*_found(site, request))


def unbind(site: Site, request: Request) -> None:
    """DELETE of a binding's path."""
    broker, binding = _found(site, request)
    _check_ends(site, request, binding)
    broker.inside.client.calls.call_named(VHOST_PROCESS, Unbind(binding))


def _check_ends(site: Site, request: Request, binding: Binding) -> None:
    vhost, source, to, key = request.at["vhost"], binding.source, binding.to, binding.routing_key
    user = site.at_work(request.account, vhost)
    require(user.may_write(to.name), to.type, to.name, request)
    require(user.may_read(source or "amq.default"), "exchange", source, request)
    if is_topic(site.broker(vhost).inside.vhost, source):
        require_topic(user.may_read_topic(source, key), key, source, request)


def _ends(site: Site, request: Request) -> tuple[Broker, str, Destination]:
    at = request.at
    broker = site.visible(request.account, at["vhost"])
    source = "" if at["source"] == "amq.default" else at["source"]
    to = Destination(_KINDS[at["kind"]], at["destination"]) if at["kind"] in _KINDS else None
    router = broker.inside.vhost.router
    if to is None or (source and source not in router.exchanges):
        raise not_found()
    if to.name not in (router.queues if to.type == "queue" else router.exchanges):
        raise not_found()
    return broker, source, to


def _existing(site: Site, request: Request) -> tuple[Broker, ExchangeSpec]:
    broker, name = site.visible(request.account, request.at["vhost"]), request.at["name"]
    spec = DEFAULT if name in ("", "amq.default") else broker.inside.vhost.router.exchanges.get(name)
    if spec is None:
        raise not_found()
    return broker, spec


_PAIR = "bindings/{vhost}/e/{source}/{kind}/{destination}"

ROUTES = (
    Route("GET", "exchanges", list_exchanges),
    Route("GET", "exchanges/{vhost}", list_exchanges),
    Route("GET", "exchanges/{vhost}/{name}", show),
    Route("PUT", "exchanges/{vhost}/{name}", declare),
    Route("DELETE", "exchanges/{vhost}/{name}", delete),
    Route("GET", "exchanges/{vhost}/{name}/bindings/source", of_source),
    Route("GET", "exchanges/{vhost}/{name}/bindings/destination", to_exchange),
    Route("GET", "queues/{vhost}/{name}/bindings", to_queue),
    Route("GET", "bindings", list_bindings),
    Route("GET", "bindings/{vhost}", list_bindings),
    Route("GET", _PAIR, between),
    Route("POST", _PAIR, bind),
    Route("GET", f"{_PAIR}/{{key}}", show_binding),
    Route("DELETE", f"{_PAIR}/{{key}}", unbind),
)
