"""Checks of what requests bring, and the errors of what they may not (rabbit_mgmt_util)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warrenmq.errors import AccessRefused
from warrenmq.management.errors import bad_request

if TYPE_CHECKING:
    from warrenmq.management.http import Request


def refused(kind: str, name: str, vhost: str, request: Request) -> AccessRefused:
    """The error of a missing permission."""
    text = f"access to {kind} '{name}' in vhost '{vhost}' refused for user '{request.account.name}'"
    return AccessRefused(text, reply_text=text)


def arguments_of(body: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a declaration."""
    arguments = body.get("arguments", {})
    if arguments in ([], None, ""):
        return {}
    if type(arguments) is not dict:
        raise bad_request("arguments must be an object")
    return arguments


def flag(body: dict[str, Any], name: str, default: bool) -> bool:
    """A switch, or its text, as rabbitmqadmin sends it."""
    value = body.get(name, default)
    if value in (True, "true"):
        return True
    if value in (False, "false", None, ""):
        return False
    raise bad_request(f"{name} is {value}; use true or false")


def whole(value: Any, name: str) -> int:
    """A number that is not negative, or its text, as rabbitmqadmin sends it."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if type(value) is not int or value < 0:
        raise bad_request(f"{name} is {value}; give a whole number that is not negative")
    return value


def texts(body: dict[str, Any], *names: str) -> tuple[str, ...]:
    """Values of the body that must be texts."""
    for name in names:
        if type(body[name]) is not str:
            raise bad_request(f"{name} must be a text")
    return tuple(body[name] for name in names)
