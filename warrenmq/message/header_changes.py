"""A stored message with some of its headers changed; the others keep their types, and all else stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from warrenmq.erlang.amqp_table import properties_of_bytes
from warrenmq.erlang.amqp_table_writer import bytes_of_properties
from warrenmq.message.plain_properties import dict_of_plain
from warrenmq.message.properties import Properties
from warrenmq.message.stored import StoredMessage, encode, encode_head, encode_raw_head
from warrenmq.message.typed_headers import TypedHeaders

_LONG = 1 << 31


def with_headers(
    message: StoredMessage, changes: Mapping[str, int | None]
) -> tuple[Properties | bytes, Mapping[str, Any]]:
    """The properties, as they are stored, and the headers of a message with these headers set, or taken off where None."""
    if isinstance(message.stored_properties, bytes):
        plain = properties_of_bytes(message.stored_properties)
        plain["headers"] = _changed(plain.get("headers", []), changes)
        return bytes_of_properties(plain), dict_of_plain(plain["headers"])
    headers = message.properties.headers or {}
    if isinstance(headers, TypedHeaders):
        headers = TypedHeaders(_changed(headers.typed, changes))
    else:
        kept = {name: value for name, value in headers.items() if name not in changes}
        headers = kept | {name: value for name, value in changes.items() if value is not None}
    return replace(message.properties, headers=headers), headers


def encoded_with_headers(message: StoredMessage, changes: Mapping[str, int | None]) -> bytes:
    """The message as it is stored (version 1), with these headers."""
    properties, _ = with_headers(message, changes)
    if isinstance(properties, bytes):
        head = encode_raw_head(message.exchange, message.routing_keys, properties)
    else:
        head = encode_head(message.exchange, message.routing_keys, properties)
    return encode(head, message.body)


def _changed(typed: list[Any], changes: Mapping[str, int | None]) -> list[Any]:
    """Headers with their types, [[name, letter, value], ...]."""
    kept = [each for each in typed if each[0] not in changes]
    added = [
        [name, "I" if -_LONG <= value < _LONG else "l", value]
        for name, value in changes.items()
        if value is not None
    ]
    return [*kept, *added]
