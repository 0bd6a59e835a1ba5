"""Basic properties, from RabbitMQ's messages to ours and back.

The plain form is the one that RabbitMQ's messages are decoded to (warrenmq/erlang): a dict of the properties that
are set, headers as [name, letter, value], bytes as {"b64": ...}, the timestamp in seconds.  Our own form is
`Properties`, whose headers keep these types (message/typed_headers.py), so that the way there and back loses nothing:

    properties_as_plain(properties_of_plain(plain).properties) == plain

but for what our properties cannot hold, which is reported: a short string that is not UTF-8.
Headers of Python's publishers have no types; they are given those that a Python client would send.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import fields
from datetime import UTC, datetime
from struct import Struct
from typing import Any, NamedTuple

from warrenmq.message.properties import Properties
from warrenmq.message.typed_headers import TypedHeaders, time_of

_NAMES = tuple(each.name for each in fields(Properties))
_INT, _LONG = 1 << 31, 1 << 63
_NUMBER = {"f": Struct(">f"), "d": Struct(">d")}


class Converted(NamedTuple):
    """RabbitMQ's properties in our form."""

    properties: Properties | None
    """None when none is set."""
    altered: list[str]
    """The values that had to be changed, a sentence each."""


def properties_of_plain(plain: dict[str, Any]) -> Converted:
    """Ours, of the plain form."""
    values: dict[str, Any] = {}
    altered: list[str] = []
    for name, value in plain.items():
        match name, value:
            case "headers", list():
                values[name] = dict_of_plain(value)
            case "timestamp", int():
                values[name] = time_of(value) or value
            case _, {"b64": coded}:
                values[name] = b64decode(coded).decode(errors="backslashreplace")
                altered.append(f"its {name} is not UTF-8; the invalid bytes are written as \\xNN")
            case _:
                values[name] = value
    return Converted(Properties(**values) if values else None, altered)


def name_of_rabbit(name: str) -> tuple[str, bool]:
    """An exchange or routing key that can be stored, and whether it had to be changed (bytes that are no UTF-8)."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode(errors="surrogateescape").decode(errors="backslashreplace"), True
    return name, False


def dict_of_plain(table: list[Any]) -> TypedHeaders:
    """Headers or arguments of the plain form; ValueError."""
    return TypedHeaders(_table_of_plain(table))


def properties_as_plain(properties: Properties) -> dict[str, Any]:
    """The plain form of ours."""
    plain: dict[str, Any] = {}
    for name in _NAMES:
        value = getattr(properties, name)
        if isinstance(value, dict):
            plain[name] = table_of_dict(value)
        elif isinstance(value, datetime):
            plain[name] = _seconds(value)
        elif value is not None:
            plain[name] = value
    return plain


# -- typed headers: what is stored has bytes where the plain form has {"b64": ...}


def _table_of_plain(table: list[Any]) -> list[Any]:
    return [[_bytes(name), letter, _value_of_plain(letter, value)] for name, letter, value in table]


def _value_of_plain(letter: str, value: Any) -> Any:
    if letter == "F" and isinstance(value, list):
        return _table_of_plain(value)
    if letter == "A" and isinstance(value, list):
        return [[each, _value_of_plain(each, inner)] for each, inner in value]
    if letter in _NUMBER and isinstance(value, dict):  # infinite, or not a number
        return _NUMBER[letter].unpack(_bytes(value))[0]
    return _bytes(value)


def _bytes(value: Any) -> Any:
    return b64decode(value["b64"]) if isinstance(value, dict) else value


def _table_as_plain(table: list[Any]) -> list[Any]:
    return [[_plain(name), letter, _value_as_plain(letter, value)] for name, letter, value in table]


def _value_as_plain(letter: str, value: Any) -> Any:
    if letter == "F" and isinstance(value, list):
        return _table_as_plain(value)
    if letter == "A" and isinstance(value, list):
        return [[each, _value_as_plain(each, inner)] for each, inner in value]
    if letter in _NUMBER and value - value != 0:  # JSON has no such numbers
        return _plain(_NUMBER[letter].pack(value))
    return _plain(value)


def _plain(value: Any) -> Any:
    return {"b64": b64encode(value).decode()} if isinstance(value, bytes) else value


# -- headers without types


def table_of_dict(headers: dict[str, Any]) -> list[Any]:
    """The plain form of headers or arguments, with the types that they came with where they are known."""
    if isinstance(headers, TypedHeaders) and isinstance(stored := headers.to_store(), list):
        return _table_as_plain(stored)
    return [[name, *_typed(value)] for name, value in headers.items()]


def _typed(value: Any) -> list[Any]:
    """[letter, value] of a value of Python.

    | Python   | letter                          |
    | -------- | ------------------------------- |
    | bool     | t                               |
    | int      | I, l or L: the first that fits  |
    | float    | d                               |
    | str      | S                               |
    | bytes    | x                               |
    | datetime | T                               |
    | None     | V                               |
    | list     | A                               |
    | dict     | F                               |
    """
    match value:
        case bool():
            return ["t", value]
        case int():
            return ["I" if -_INT <= value < _INT else "l" if value < _LONG else "L", value]
        case float():
            return ["d", _value_as_plain("d", value)]
        case bytes():
            return ["x", _plain(value)]
        case datetime():
            return ["T", _seconds(value)]
        case None:
            return ["V", None]
        case list() | tuple():
            return ["A", [_typed(each) for each in value]]
        case dict():
            return ["F", table_of_dict(value)]
    return ["S", str(value)]


def _seconds(time: datetime) -> int:
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
