"""AMQP 0-9-1's basic properties and field tables as bytes: what `amqp_table` reads, from the same plain values.

    properties_of_bytes(bytes_of_properties(plain)) == plain
    table_of_bytes(bytes_of_table(plain)) == plain

ValueError for what does not fit: a short string of more than 255 bytes, a number of more bits than its letter has.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from typing import Any

from warrenmq.erlang.amqp_table import FIXED, PROPERTIES


def bytes_of_properties(plain: dict[str, Any]) -> bytes:
    """Flags and values of class 60."""
    flags, parts = 0, []
    try:
        for place, (name, kind) in enumerate(PROPERTIES):
            if (value := plain.get(name)) is not None:
                flags |= 0x8000 >> place
                parts.append(bytes_of_name(value) if kind == "s" else bytes_of_value(kind, value))
    except (struct.error, TypeError) as why:
        raise ValueError(f"property {name} cannot be {value!r:.80}: {why}") from why
    return flags.to_bytes(2, "big") + b"".join(parts)


def bytes_of_table(plain: list[Any]) -> bytes:
    """A table without its size."""
    try:
        return _table(plain)
    except (struct.error, TypeError) as why:
        raise ValueError(f"a table cannot have a value like this: {why}") from why


def _table(plain: list[Any]) -> bytes:
    return b"".join(
        bytes_of_name(name) + letter.encode() + bytes_of_value(letter, value) for name, letter, value in plain
    )


def bytes_of_value(letter: str, value: Any) -> bytes:
    """A value of this type, without its letter."""
    if letter in FIXED:
        return _data(value) if isinstance(value, dict) else FIXED[letter].pack(value)
    match letter:
        case "S" | "x":
            return _long(_data(value))
        case "F" | "A" if isinstance(value, dict):  # nested so deep that it was not read
            return _long(_data(value))
        case "F":
            return _long(_table(value))
        case "A":
            return _long(b"".join(kind.encode() + bytes_of_value(kind, each) for kind, each in value))
        case "t":
            return b"\1" if value else b"\0"
        case "D":
            return struct.pack(">BI", *value)
        case "V":
            return b""
    raise ValueError(f"AMQP has no type {letter!r}")


def _data(value: str | dict[str, str]) -> bytes:
    return b64decode(value["b64"]) if isinstance(value, dict) else value.encode()


def bytes_of_name(value: str | dict[str, str]) -> bytes:
    """Encode a name as a short string."""
    data = _data(value)
    return struct.pack(">B", len(data)) + data


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
