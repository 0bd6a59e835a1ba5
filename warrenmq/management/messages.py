"""Messages of the HTTP API: properties as JSON, and publishing (rabbit_mgmt_wm_exchange_publish)."""

from __future__ import annotations

import base64
import binascii
from dataclasses import fields
from datetime import datetime
from typing import Any

from warrenmq.amqp.channel.access import is_topic
from warrenmq.checks import short_text
from warrenmq.errors import Nacked, Returned
from warrenmq.management.errors import bad_request
from warrenmq.management.http import Request, Route
from warrenmq.management.inputs import require, require_topic
from warrenmq.management.site import Site
from warrenmq.message.properties import Properties
from warrenmq.routing.message_options import header_routes

CONFIRM_TIMEOUT = 30.0
"""Seconds to wait for the confirm of a message that is published."""
BLOCKED_TIMEOUT = 1.0
"""Seconds to wait while an alarm blocks publishers; then the answer is 503, so that health checks find a thread free."""
_NUMBERS = ("delivery_mode", "priority", "timestamp")
_NAMES = tuple(field.name for field in fields(Properties))


def json_of_properties(properties: Properties | None) -> Any:
    """Encode message properties as RabbitMQ's API does: those that are set; an empty list when none is."""
    found = {} if properties is None else {
        name: value for name in _NAMES if (value := getattr(properties, name)) is not None
    }  # fmt: skip
    if isinstance(found.get("timestamp"), datetime):
        found["timestamp"] = int(found["timestamp"].timestamp())
    return found or []


def properties_of_json(value: Any) -> Properties:
    """Decode message properties; unknown ones are ignored, as in RabbitMQ.  HttpError 400 if they are malformed."""
    if value in ([], None, ""):
        value = {}
    if type(value) is not dict:
        raise bad_request("properties must be an object")
    found: dict[str, Any] = {}
    for name, each in value.items():
        if name not in _NAMES or each is None:
            continue
        if name in _NUMBERS:
            if isinstance(each, str) and each.isascii() and each.isdigit() and len(each) < 16:
                each = int(each)  # noqa: PLW2901  # rabbitmqadmin sends texts
            if type(each) is not int or each < 0:
                raise bad_request(f"property {name} is {each}; give a number")
        elif name == "headers":
            if type(each) is not dict:
                raise bad_request("headers must be an object")
        elif type(each) is not str:
            raise bad_request(f"property {name} is {each}; give a text")
        else:
            short_text(f"property {name}", each)
        found[name] = each
    return Properties(**found)


def publish(site: Site, request: Request) -> Any:
    """POST /api/exchanges/vhost/name/publish: {"routed": true} if it reached a queue."""
    vhost, name = request.at["vhost"], request.at["name"]
    exchange = "" if name == "amq.default" else name
    user = site.at_work(request.account, vhost)
    broker = site.broker(vhost)
    body, (payload, encoding) = request.fields("payload", "payload_encoding")
    key = body.get("routing_key", "")
    if type(payload) is not str or type(key) is not str:
        raise bad_request("payload and routing_key must be texts")
    short_text("routing_key", key)
    if encoding == "base64":
        try:
            data = base64.b64decode(payload, validate=True)
        except binascii.Error:
            raise bad_request("the payload is no base64") from None
    elif encoding == "string":
        data = payload.encode()
    else:
        raise bad_request(f"unsupported_encoding {encoding}")
    properties = properties_of_json(body.get("properties", {}))
    require(user.may_write(name or "amq.default"), "exchange", name, request)
    if is_topic(broker.inside.vhost, exchange):
        more = header_routes(properties.headers)
        for each in (key, *more.cc, *more.bcc):
            require_topic(user.may_write_topic(exchange, each), each, exchange, request)
    if properties.user_id is not None and properties.user_id != user.name:
        raise bad_request(
            f"user_id property set to '{properties.user_id}' but authenticated user was '{user.name}'"
        )
    if exchange and exchange not in broker.inside.vhost.router.exchanges:
        raise bad_request(f"404 NOT_FOUND - no exchange '{name}' in vhost '{vhost}'")
    confirm = broker.publish(
        exchange, key, data, properties=properties, persistent=properties.delivery_mode == 2, mandatory=True,
        timeout=BLOCKED_TIMEOUT,
    )  # fmt: skip
    try:
        confirm.result(timeout=CONFIRM_TIMEOUT)
    except Returned:
        return {"routed": False}
    except Nacked as why:
        raise bad_request(f"the message was refused: {why}") from why
    return {"routed": True}


ROUTES = (Route("POST", "exchanges/{vhost}/{name}/publish", publish),)
