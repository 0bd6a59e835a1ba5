"""Validate values of requests, with RabbitMQ's errors (rabbit_mgmt_util)."""

from __future__ import annotations

from typing import Any

from warrenmq.amqp.access.permissions import AuthenticatedUser
from warrenmq.amqp.channel.access import DEFAULT_EXCHANGE
from warrenmq.errors import AccessRefused
from warrenmq.management.errors import bad_request
from warrenmq.management.http import Request


def require(permission: bool, kind: str, name: str, request: Request) -> None:
    """Raise AccessRefused, in RabbitMQ's words, unless the user has the permission."""
    if not permission:
        vhost, user = request.at["vhost"], request.account.name
        text = f"access to {kind} '{name}' in vhost '{vhost}' refused for user '{user}'"
        raise AccessRefused(text, reply_text=text)


def require_other(
    body: dict[str, Any], argument: str, kind: str, name: str, request: Request, user: AuthenticatedUser
) -> None:
    """Raise it unless the user may use the alternate or dead-letter exchange that a declaration names (rabbit_channel)."""
    if isinstance(other := arguments_of(body).get(argument), str):
        require(user.may_read(name), kind, name, request)
        require(user.may_write(other or DEFAULT_EXCHANGE), "exchange", other or DEFAULT_EXCHANGE, request)


def require_topic(permission: bool, key: str, exchange: str, request: Request) -> None:
    """Raise it unless the user has the permission of a routing key."""
    require(permission, f"topic '{key}' in exchange", exchange, request)


def arguments_of(body: dict[str, Any]) -> dict[str, Any]:
    """Read the arguments of a declaration."""
    arguments = body.get("arguments", {})
    if arguments in ([], None, ""):
        return {}
    if type(arguments) is not dict:
        raise bad_request("arguments must be an object")
    return arguments


def flag(body: dict[str, Any], name: str, default: bool) -> bool:
    """Read a boolean, also as the text that rabbitmqadmin sends."""
    value = body.get(name, default)
    if value in (True, "true"):
        return True
    if value in (False, "false", None, ""):
        return False
    raise bad_request(f"{name} is {value}; use true or false")


def whole(value: Any, name: str) -> int:
    """Read a non-negative integer, also as the text that rabbitmqadmin sends."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if type(value) is not int or value < 0:
        raise bad_request(f"{name} is {value}; give a whole number that is not negative")
    return value


def texts(body: dict[str, Any], *names: str) -> tuple[str, ...]:
    """Read values of the body that must be strings."""
    for name in names:
        if type(body[name]) is not str:
            raise bad_request(f"{name} must be a text")
    return tuple(body[name] for name in names)
