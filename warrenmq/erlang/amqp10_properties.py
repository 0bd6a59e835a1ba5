"""Converts the sections of AMQP 1.0 to AMQP 0-9-1 as RabbitMQ does (mc_amqpl:convert_from).

    message annotations     x-basic-type, x-basic-priority, x-basic-expiration, x-basic-delivery-mode: those properties
                            x-cc: header CC;  x-opt-rabbitmq-received-time: header timestamp_in_ms
                            other x-: headers, but for those that only say how it was published
    properties              message_id, correlation_id (as header x-message-id, x-correlation-id if they are bytes, or
                            longer than 255), user_id, reply_to, content_type, content_encoding, creation_time as
                            timestamp, group_id as app_id
    application properties  headers

Fields without a counterpart are left out: `to`, `subject`, characters, decimals, arrays.
"""

from __future__ import annotations

from math import isfinite
from struct import pack
from typing import Any
from uuid import UUID

from warrenmq.erlang.amqp10 import Value
from warrenmq.erlang.amqp_table import blob, text

SHORT = 255
"""Bytes of a short string."""

_PROPERTIES = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
    "absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id",
)  # fmt: skip
_BASIC = {
    b"x-basic-type": "type",
    b"x-basic-priority": "priority",
    b"x-basic-expiration": "expiration",
    b"x-basic-delivery-mode": "delivery_mode",
}
_HOW_IT_WAS_PUBLISHED = (b"x-basic-", b"x-routing-key", b"x-exchange", b"x-death", b"x-opt-deaths")
_LETTER = {
    "utf8": "S", "symbol": "S", "binary": "x", "long": "l", "ulong": "l", "byte": "b", "ubyte": "B", "short": "s",
    "ushort": "u", "int": "I", "uint": "i", "float": "f", "double": "d", "timestamp": "T", "boolean": "t",
    "null": "V", "list": "A", "map": "F",
}  # fmt: skip


def legacy_properties(
    annotations: list[tuple[Value, Value]], properties: Value | None, application: Value | None
) -> dict[str, Any]:
    """AMQP 0-9-1's properties, in amqp_table's notation."""
    found: dict[str, Any] = {}
    headers: list[Any] = []
    for (_, key), value in annotations:
        if key in _BASIC:
            found[_BASIC[key]] = _plain(value)
        elif (header := _annotation(key, value)) is not None:
            headers.append(header)
    if properties is not None:
        _put_properties(found, headers, dict(zip(_PROPERTIES, properties[1], strict=False)))
    for (kind, key), value in application[1] if application is not None else ():
        if kind == "utf8" and len(key) <= SHORT:
            headers += _header(key, value)
    if headers:
        found["headers"] = headers
    return {name: value for name, value in found.items() if value is not None}


def _annotation(key: Any, value: Value) -> list[Any] | None:
    if not isinstance(key, bytes) or not key.startswith(b"x-") or len(key) > SHORT:
        return None
    if key == b"x-cc":
        key = b"CC"
    elif key == b"x-opt-rabbitmq-received-time":
        return ["timestamp_in_ms", "l", value[1]]
    elif key.startswith(_HOW_IT_WAS_PUBLISHED):
        return None
    return next(iter(_header(key, value)), None)


def _header(key: bytes, value: Value) -> list[list[Any]]:
    """[[name, letter, value]], or nothing where AMQP 0-9-1 has no such type."""
    typed = _typed(value)
    return [[text(key), *typed]] if typed is not None else []


def _typed(value: Value) -> list[Any] | None:
    kind, inside = value
    letter = _LETTER.get(kind)
    match letter:
        case None:
            return None
        case "S":
            return [letter, text(inside)]
        case "x":
            return [letter, blob(inside)]
        case "f" | "d" if not isfinite(inside):
            return [letter, blob(pack(">" + letter, inside))]
        case "T":
            return [letter, inside // 1000]
        case "A":
            return [letter, [typed for each in inside if (typed := _typed(each)) is not None]]
        case "F":
            return [
                letter,
                [each for key, item in inside if isinstance(key[1], bytes) for each in _header(key[1], item)],
            ]
    return [letter, inside]


def _put_properties(found: dict[str, Any], headers: list[Any], values: dict[str, Value]) -> None:
    for name in ("message_id", "correlation_id"):
        _put_id(found, headers, name, values.get(name, ("null", None)))
    for name, source, kinds in (
        ("user_id", "user_id", ("binary",)),
        ("reply_to", "reply_to", ("utf8",)),
        ("app_id", "group_id", ("utf8",)),
        ("content_type", "content_type", ("symbol",)),
        ("content_encoding", "content_encoding", ("symbol",)),
    ):
        kind, value = values.get(source, ("null", None))
        if kind in kinds and len(value) <= SHORT:
            found[name] = text(value)
    kind, value = values.get("creation_time", ("null", None))
    if kind == "timestamp":
        found["timestamp"] = value // 1000


def _put_id(found: dict[str, Any], headers: list[Any], name: str, value: Value) -> None:
    kind, inside = value
    if kind == "uuid":
        found[name] = f"urn:uuid:{UUID(bytes=inside)}"
    elif kind == "ulong":
        found[name] = str(inside)
    elif kind == "utf8" and len(inside) <= SHORT:
        found[name] = text(inside)
    elif kind in {"binary", "utf8"}:
        headers.insert(0, ["x-" + name.replace("_", "-"), *(_typed(value) or ())])


def _plain(value: Value) -> Any:
    return text(value[1]) if isinstance(value[1], bytes) else value[1]
