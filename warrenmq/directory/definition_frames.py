"""Frames of the definitions' log, and which values they can hold.

    | length of the rest (u32) | crc32 of the rest (u32) | msgpack [version, kind, fields...] |

A decimal is an extension of type 1, its digits as text.  Zeros at the end of a log are a tail that a power cut left behind.
definitions.py says what is in the frames.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from decimal import Decimal
from struct import Struct
from typing import Any

import msgpack  # type: ignore[import-untyped]

from warrenmq.errors import PreconditionFailed

VERSION = 2
_DECIMAL = 1
_FRAME = Struct(">II")


def frame(kind: str, *fields: Any) -> bytes:
    """One change."""
    payload = pack((VERSION, kind, *fields))
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def pack(value: Any) -> bytes:
    """A value as it is stored; TypeError, ValueError or OverflowError when it cannot be."""
    packed: bytes = msgpack.packb(value, datetime=True, default=_pack_decimal)
    return packed


def _pack_decimal(value: Any) -> msgpack.ExtType:
    if isinstance(value, Decimal):
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    raise TypeError(f"{value!r} is of type {type(value).__name__}")


def unpack(payload: bytes) -> Any:
    """Decode bytes of `pack`.  Raises ValueError and its like for other bytes."""
    return msgpack.unpackb(payload, timestamp=3, ext_hook=_unpack_decimal)


def _unpack_decimal(code: int, data: bytes) -> Decimal:
    if code != _DECIMAL:
        raise ValueError(f"there is no value of type {code}")
    return Decimal(data.decode())


def frames(data: bytes) -> Iterator[tuple[int, int, bytes | None]]:
    """(offset, length, payload) of each frame; payload None for invalid bytes between frames."""
    end = len(data.rstrip(b"\x00"))
    offset = lost_from = 0
    while offset < end:
        payload = _payload(data, offset)
        if payload is None:
            offset += 1
            continue
        if lost_from < offset:
            yield lost_from, offset - lost_from, None
        yield offset, _FRAME.size + len(payload), payload
        offset = lost_from = offset + _FRAME.size + len(payload)
    if lost_from < end:
        yield lost_from, len(data) - lost_from, None


def is_torn(data: bytes, offset: int) -> bool:
    """True if the log may end in an incomplete frame that begins here; no caller was answered for it."""
    arrived = len(data.rstrip(b"\x00")) - offset
    return arrived < _FRAME.size or arrived < _FRAME.size + _FRAME.unpack_from(data, offset)[0]


def _payload(data: bytes, offset: int) -> bytes | None:
    """The payload of a whole frame at `offset`."""
    if offset + _FRAME.size > len(data):
        return None
    length, crc = _FRAME.unpack_from(data, offset)
    start = offset + _FRAME.size
    if not length or start + length > len(data):
        return None
    payload = data[start : start + length]
    return payload if zlib.crc32(payload) == crc else None


def check_storable(what: str, arguments: dict[str, Any], *names: str) -> None:
    """PreconditionFailed for names and arguments that no file, and no field table of AMQP, can hold."""
    try:
        pack([names, arguments])
    except (TypeError, ValueError, OverflowError, RecursionError) as why:
        msg = f"{what} cannot be declared with a name or an argument that AMQP has no type for: {why}"
        raise PreconditionFailed(msg) from None
    if not _has_text_keys(arguments):
        raise PreconditionFailed(f"{what} cannot be declared with arguments whose names are no text")


def _has_text_keys(value: Any) -> bool:
    match value:
        case dict():
            return all(isinstance(name, str) and _has_text_keys(each) for name, each in value.items())
        case list() | tuple():
            return all(map(_has_text_keys, value))
    return True
