"""Properties of a message that affect its routing and its life: CC, BCC and expiration (rabbit_basic).

For Python's publishers and for AMQP clients alike; the refusals carry RabbitMQ's words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from warrenmq.errors import PreconditionFailed

_LONGEST = 315_360_000_000
"""Milliseconds: ten years (MAX_EXPIRY_TIMER)."""
_INTEGER = re.compile(r"([+-]?[0-9]+)(.*)", re.DOTALL)


def parse_expiration(expiration: str | None) -> int | None:
    """Milliseconds that a message may wait in a queue (rabbit_basic:parse_expiration).

    | expiration          | means               |
    | ------------------- | ------------------- |
    | None                | None, no limit      |
    | "0"                 | 0                   |
    | "60000"             | 60000               |
    | "-1"                | refused: negative   |
    | more than ten years | refused: too large  |
    | "1.5"               | refused: leftover   |
    | "soon"              | refused: no integer |
    """
    if expiration is None:
        return None
    found = _INTEGER.fullmatch(expiration)
    if found is None:
        why = "no_integer"
    elif found[2]:
        why = f'{{leftover_string,"{found[2]}"}}'
    elif (milliseconds := int(found[1])) < 0:
        why = f"{{value_negative,{milliseconds}}}"
    elif milliseconds > _LONGEST:
        why = f"{{value_too_large,{milliseconds}}}"
    else:
        return milliseconds
    msg = f"expiration {expiration!r} is no number of milliseconds; give digits only, as in '60000'"
    raise PreconditionFailed(msg, reply_text=f"invalid expiration '{expiration}': {why}")


class HeaderRoutes(NamedTuple):
    """Routing keys in a message's headers."""

    cc: tuple[str, ...]
    bcc: tuple[str, ...]


def header_routes(headers: Mapping[str, Any] | None) -> HeaderRoutes:
    """The keys in CC and BCC, which are routed to as well (rabbit_basic:header_routes); lists of strings."""
    if not headers:
        return HeaderRoutes((), ())
    return HeaderRoutes(_keys(headers, "CC"), _keys(headers, "BCC"))


def _keys(headers: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = headers.get(name, ())
    if not isinstance(value, list | tuple):
        msg = f"header {name} is {type(value).__name__}; give a list of routing keys"
        text = f'invalid message: {{unacceptable_type_in_header,"{name}",{_erlang_type(value)}}}'
        raise PreconditionFailed(msg, reply_text=text)
    return tuple(each for each in value if isinstance(each, str))


def _erlang_type(value: object) -> str:
    match value:
        case bool():
            return "bool"
        case int():
            return "signedint"
        case float():
            return "double"
        case dict():
            return "table"
        case None:
            return "void"
    return "longstr"
