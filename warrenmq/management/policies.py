"""Policies, operator policies, parameters and limits of virtual hosts of the HTTP API (rabbit_mgmt_wm_policy
and its like).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warrenmq.actors.vhost.messages import ClearParameter, SetParameter
from warrenmq.broker.broker import Broker
from warrenmq.management.errors import bad_request, not_found
from warrenmq.management.http import Reply, Request, Route
from warrenmq.management.inputs import whole
from warrenmq.management.site import Site
from warrenmq.supervisors.broker_sup import VHOST_PROCESS
from warrenmq.vhost.policies import COMPONENTS, LIMITS, LIMITS_NAME, OPERATOR_POLICY, POLICY


def parameters(broker: Broker, *components: str) -> list[tuple[str, str, Any]]:
    """The parameters of a virtual host, as (component, name, value)."""
    found = list(broker.inside.vhost.definitions.parameters.items())
    return [(component, name, value) for (component, name), value in found if component in components]


def policy_row(broker: Broker, name: str, value: dict[str, Any]) -> dict[str, Any]:
    """JSON object of one policy."""
    return {
        "vhost": broker.inside.vhost.name, "name": name, "pattern": value["pattern"], "apply-to": value.get("apply-to", "all"),
        "definition": value["definition"], "priority": value.get("priority", 0),
    }  # fmt: skip


def parameter_row(broker: Broker, component: str, name: str, value: Any) -> dict[str, Any]:
    """JSON object of one parameter."""
    return {"value": value, "vhost": broker.inside.vhost.name, "component": component, "name": name}


def _lister(component: str) -> Callable[[Site, Request], Any]:
    def list_policies(site: Site, request: Request) -> Any:
        return [
            policy_row(broker, name, value)
            for broker in site.visible_brokers(request.account, request.at.get("vhost"))
            for _, name, value in parameters(broker, component)
        ]

    return list_policies


def _shower(component: str) -> Callable[[Site, Request], Any]:
    def show(site: Site, request: Request) -> Any:
        broker, value = _existing(site, request, component)
        return policy_row(broker, request.at["name"], value)

    return show


def _setter(component: str) -> Callable[[Site, Request], Any]:
    def put(site: Site, request: Request) -> Any:
        body, _ = request.fields("pattern", "definition")
        if isinstance(body.get("priority"), str):  # as rabbitmqadmin sends it
            body["priority"] = whole(body["priority"], "priority")
        value = {key: body[key] for key in ("pattern", "definition", "priority", "apply-to") if key in body}
        return _set(site, request, component, value)

    return put


def _deleter(component: str) -> Callable[[Site, Request], Any]:
    def delete(site: Site, request: Request) -> None:
        broker, _ = _existing(site, request, component)
        broker.inside.client.calls.call_named(VHOST_PROCESS, ClearParameter(component, request.at["name"]))

    return delete


def _set(site: Site, request: Request, component: str, value: Any) -> Reply:
    site.at_work(request.account, request.at["vhost"])
    broker = site.broker(request.at["vhost"])
    known = broker.inside.client.calls.call_named(
        VHOST_PROCESS, SetParameter(component, request.at["name"], value)
    )
    return Reply(204 if known else 201)


def _existing(site: Site, request: Request, component: str) -> tuple[Broker, Any]:
    broker = site.visible(request.account, request.at["vhost"])
    value = broker.inside.vhost.definitions.parameters.get((component, request.at["name"]))
    if value is None:
        raise not_found()
    return broker, value


# -- parameters


def list_parameters(site: Site, request: Request) -> Any:
    """GET /api/parameters and /api/parameters/component/vhost; policies have paths of their own."""
    wanted = [request.at["component"]] if "component" in request.at else [OPERATOR_POLICY, LIMITS]
    return [
        parameter_row(broker, *each)
        for broker in site.visible_brokers(request.account, request.at.get("vhost"))
        for each in parameters(broker, *wanted)
    ]


def show_parameter(site: Site, request: Request) -> Any:
    """GET /api/parameters/component/vhost/name."""
    broker, value = _existing(site, request, request.at["component"])
    return parameter_row(broker, request.at["component"], request.at["name"], value)


def put_parameter(site: Site, request: Request) -> Any:
    """PUT of the same path."""
    _, (value,) = request.fields("value")
    if request.at["component"] not in COMPONENTS:
        raise bad_request(
            f"Validation failed\n\ncomponent {request.at['component']} not found: this server has no plugins, so no shovels and no "
            "federation; have a program move the messages (docs/moving.md)\n"
        )
    return _set(site, request, request.at["component"], value)


def delete_parameter(site: Site, request: Request) -> None:
    """DELETE of the same path."""
    _deleter(request.at["component"])(site, request)


# -- limits


def list_limits(site: Site, request: Request) -> Any:
    """GET /api/vhost-limits and /api/vhost-limits/vhost."""
    return [
        {"vhost": broker.inside.vhost.name, "value": value}
        for broker in site.visible_brokers(request.account, request.at.get("vhost"))
        for _, _, value in parameters(broker, LIMITS)
        if value
    ]


def set_limit(site: Site, request: Request) -> None:
    """PUT /api/vhost-limits/vhost/limit."""
    _, (value,) = request.fields("value")
    _change_limits(site, request, {request.at["limit"]: value if value == -1 else whole(value, "value")})


def clear_limit(site: Site, request: Request) -> None:
    """DELETE /api/vhost-limits/vhost/limit."""
    _change_limits(site, request, {request.at["limit"]: None})


def _change_limits(site: Site, request: Request, changes: dict[str, Any]) -> None:
    broker = site.broker(request.at["vhost"])
    limits = broker.inside.vhost.definitions.parameters.get((LIMITS, LIMITS_NAME), {}) | changes
    kept = {name: value for name, value in limits.items() if value is not None}
    broker.inside.client.calls.call_named(VHOST_PROCESS, SetParameter(LIMITS, LIMITS_NAME, kept))


def _of_policies(path: str, component: str, tag: str) -> tuple[Route, ...]:
    one = f"{path}/{{vhost}}/{{name}}"
    return (
        Route("GET", path, _lister(component)),
        Route("GET", f"{path}/{{vhost}}", _lister(component)),
        Route("GET", one, _shower(component)),
        Route("PUT", one, _setter(component), tag),
        Route("DELETE", one, _deleter(component), tag),
    )


_PARAMETER = "parameters/{component}/{vhost}/{name}"

ROUTES = (
    *_of_policies("policies", POLICY, "policymaker"),
    *_of_policies("operator-policies", OPERATOR_POLICY, "administrator"),
    Route("GET", "parameters", list_parameters, "policymaker"),
    Route("GET", "parameters/{component}", list_parameters, "policymaker"),
    Route("GET", "parameters/{component}/{vhost}", list_parameters, "policymaker"),
    Route("GET", _PARAMETER, show_parameter, "policymaker"),
    Route("PUT", _PARAMETER, put_parameter, "administrator"),
    Route("DELETE", _PARAMETER, delete_parameter, "administrator"),
    Route("GET", "vhost-limits", list_limits),
    Route("GET", "vhost-limits/{vhost}", list_limits),
    Route("PUT", "vhost-limits/{vhost}/{limit}", set_limit, "administrator"),
    Route("DELETE", "vhost-limits/{vhost}/{limit}", clear_limit, "administrator"),
)
