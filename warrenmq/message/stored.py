"""The bytes of a message wherever it is stored: in a message file, a journal or a segment.

One msgpack array with the body last, so that a reader who knows the body's size (index records do) takes
it off the end without decoding anything:

    version 2    95 | D7 02 checksum (u32) size (u32) | exchange | routing keys | properties | body
    version 1    95 | 01                              | exchange | routing keys | properties | body
                 ^    ^                                 str        array of str   array,       bin, the last
                 |    version; that of 2 is an          (the same in both)        bin or nil   `size` bytes
                 |    extension of msgpack, type 2
                 array of 5: never 131, which begins an Erlang term, so RabbitMQ's own messages are recognised by one byte

checksum  the CRC-32 of everything behind it, XOR the low 32 bits of what the message is found by: its sequence id where
          the body lies in a queue's own files, the CRC-32 of its message id in a message store.  So a good body under
          another message's entry does not have its checksum either.
size      bytes of the body, to compare the index record's with

Version 2 is written.  Version 1, which has no checksum, is what directories of earlier releases hold.

Properties are an array in AMQP's order, cut after the last one that is set; headers are a map, or a list when their
AMQP types are known (typed_headers.py).  Those of an AMQP client are its own bytes (bin; flags and values, RabbitMQ's
`properties_bin`), which go out as they came in.  Everything before the body is the head; it is the same for all
messages published alike, so publishers keep it, as version 1 has it.

RabbitMQ stores `#basic_message{}` as an Erlang term here (docs/reference/classic-queue.md#what-is-stored).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cached_property
from struct import Struct
from typing import Any
from zlib import crc32

import msgpack  # type: ignore[import-untyped]

from warrenmq.erlang.amqp_table import properties_of_bytes
from warrenmq.errors import CorruptFile, PreconditionFailed
from warrenmq.message.plain_properties import properties_of_plain
from warrenmq.message.properties import Properties
from warrenmq.message.typed_headers import TypedHeaders
from warrenmq.seams.salvage import UNREADABLE

VERSION = 1
"""The version of a message without a checksum, which `encode` writes."""
SEALED = b"\x95\xd7\x02"
"""The first bytes of a message with a checksum (version 2)."""
FRONT = Struct(">3sII")
"""The fields before the exchange in version 2: SEALED, checksum, size of the body."""
UNSEALED = b"\x95\x01"
"""The first bytes of a message without a checksum (version 1)."""
ERLANG_TERM = 131
"""First byte of a message stored by RabbitMQ."""
MASK = 0xFFFFFFFF
CHECKSUMS = 0xFFFF
"""Checksums in traces are numbers from 1 to this."""

_PARTS = 5
_ARRAY_OF_5 = b"\x95"
CHECKED_FROM = FRONT.size - 4
"""The offset at which the bytes under the checksum begin."""
_SIZE = Struct(">I")
_MAX_BIN8 = 0xFF
_MAX_BIN16 = 0xFFFF
_pack_bin8, _pack_bin16, _pack_bin32 = Struct(">BB").pack, Struct(">BH").pack, Struct(">BI").pack


_NAMES = tuple(each.name for each in fields(Properties))
_HEADERS = _NAMES.index("headers")
_KINDS = {"headers": dict, "delivery_mode": int, "priority": int, "timestamp": datetime}
_TYPES = tuple(_KINDS.get(name, str) for name in _NAMES)


def encode_raw_head(exchange: str, routing_keys: list[str], raw_properties: bytes) -> bytes:
    """Encode the part before the body, with properties as an AMQP client sent them; the caller has checked these."""
    array: bytes = msgpack.packb((VERSION, exchange, routing_keys, raw_properties))
    return _ARRAY_OF_5 + array[1:]


def encode_head(exchange: str, routing_keys: list[str], properties: Properties | None) -> bytes:
    """Encode the part before the body; PreconditionFailed for property values that could not be decoded."""
    values = [getattr(properties, name) for name in _NAMES] if properties is not None else []
    while values and values[-1] is None:
        values.pop()
    if problem := _problem(values):
        raise PreconditionFailed(f"{problem}; nothing was published.")
    if len(values) > _HEADERS and isinstance(values[_HEADERS], TypedHeaders):
        values[_HEADERS] = values[_HEADERS].to_store()
    try:
        # an array of 4 becomes one of 5: the body follows
        array: bytes = msgpack.packb((VERSION, exchange, routing_keys, values or None), datetime=True)
        head = _ARRAY_OF_5 + array[1:]
        if properties is not None and properties.headers is not None:
            _unpack(encode(head, b""))  # a key that is no string can be packed, but not unpacked
    except (TypeError, ValueError, OverflowError) as why:
        msg = f"the message's properties cannot be stored ({why}); nothing was published."
        raise PreconditionFailed(msg) from why
    return head


def bin_header(size: int) -> bytes:
    """The bytes between the head and a body of `size` bytes."""
    if size <= _MAX_BIN8:
        return _pack_bin8(0xC4, size)
    if size <= _MAX_BIN16:
        return _pack_bin16(0xC5, size)
    return _pack_bin32(0xC6, size)


def encode(head: bytes, body: bytes) -> bytes:
    """The stored message without a checksum (version 1)."""
    return b"".join((head, bin_header(len(body)), body))


def sealed_head(head: bytes, size: int) -> tuple[bytes, int]:
    """Seal a head for bodies of `size` bytes: returns the bytes between FRONT and body, and the checksum so far.

    The checksum continues over the body: `crc32(body, so_far)`, XOR what binds the message to its place.
    """
    rest = head[len(UNSEALED) :] + bin_header(size)
    return rest, crc32(rest, crc32(_SIZE.pack(size)))


def seal(head: bytes, body: bytes, bound: int) -> bytes:
    """The stored message with its checksum (version 2); `bound` is a sequence id, or `bound_to` of a message id."""
    rest, so_far = sealed_head(head, len(body))
    return b"".join((FRONT.pack(SEALED, (crc32(body, so_far) ^ bound) & MASK, len(body)), rest, body))


def bound_to(msg_id: bytes) -> int:
    """The bytes that bind the checksum of a message in a message store to its id."""
    return crc32(msg_id)


def checksum_of(stored: bytes, at: int = 0) -> int:
    """The checksum for a trace (APPEND in trace/events/) of a stored message that begins at `at`; 0 if it has none."""
    if len(stored) < at + FRONT.size:
        return 0
    seal, crc, _ = FRONT.unpack_from(stored, at)
    return crc % CHECKSUMS + 1 if seal == SEALED else 0


def problem_of(stored: bytes, bound: int, size: int | None = None) -> str | None:
    """The reason for which these bytes are not the stored message; None if they are, as far as that can be checked.

    | begins with | is checked                                                        |
    | ----------- | ----------------------------------------------------------------- |
    | SEALED      | all of it, that it is `bound` to its place, and the body's `size` |
    | UNSEALED    | whether all of it could be read: it has no checksum               |
    | 131         | the same: it is RabbitMQ's                                        |
    | else        | it is no stored message                                           |

    One changed byte makes no kind another: neither version 1 nor a term goes on as SEALED does.  `size` is that of the
    index record, if there is one at hand.
    """
    if stored.startswith(SEALED) and len(stored) >= FRONT.size:
        _, checksum, of_body = FRONT.unpack_from(stored)
        if (crc32(memoryview(stored)[CHECKED_FROM:]) ^ checksum ^ bound) & MASK:
            return "a message does not have its checksum"
        if size is not None and size != of_body:
            return f"a message's body has {of_body} bytes, its index record says {size}"
        return None
    if UNREADABLE in stored:
        return "a part of it could not be read"
    if stored.startswith(UNSEALED) and stored[2:3] != SEALED[2:3]:
        return None
    if stored[:1] == bytes([ERLANG_TERM]) and stored[1:3] != SEALED[1:3]:
        return None
    return "it is no stored message"


def head_of(before_body: bytes) -> bytes:
    """The head, as version 1 has it, of a message of either version; given all of it before the header of its body."""
    return UNSEALED + before_body[FRONT.size :] if before_body.startswith(SEALED) else before_body


def was_sent_by_name(stored: bytes, queue: str) -> bool:
    """True if a message with a checksum was published to this queue alone: through the default exchange, without CC and BCC.

    The first bytes are enough.
    """
    names: bytes = msgpack.packb(("", [queue]))
    return stored.startswith(names[1:], FRONT.size)


def body_size(stored: bytes, index_says: int) -> int:
    """Bytes of the body: the message's own word, which has a checksum, or else the index record's."""
    return (
        int.from_bytes(stored[CHECKED_FROM : FRONT.size], "big") if stored.startswith(SEALED) else index_says
    )


def body_of(stored: bytes, size: int) -> bytes:
    """The body, without decoding; `size` is the index record's."""
    return stored[len(stored) - size :]


@dataclass
class StoredMessage:
    """A decoded message."""

    exchange: str
    routing_keys: list[str]
    stored_properties: list[Any] | bytes
    """The values of Properties, or the bytes of an AMQP client."""
    body: bytes

    @cached_property
    def properties(self) -> Properties:
        """Made at the first use: most consumers only look at the body."""
        if isinstance(self.stored_properties, bytes):
            return properties_of_plain(properties_of_bytes(self.stored_properties)).properties or Properties()
        return Properties(*self.stored_properties)


def decode(stored: bytes, path: str = "a stored message", offset: int = 0) -> StoredMessage:
    """The message, or CorruptFile, which names `path` and `offset`, for bytes that `encode` did not make."""
    if stored[:1] == bytes([ERLANG_TERM]):
        raise CorruptFile(path, offset, "it is an Erlang term, stored by RabbitMQ, not by warrenmq")
    try:
        parts = _unpack(stored)
    except (TypeError, ValueError, OverflowError) as why:
        raise CorruptFile(path, offset, f"it is not msgpack ({why})") from why
    if problem := _shape_problem(parts) or (parts[3] and _properties_problem(parts[3])):
        raise CorruptFile(path, offset, problem)
    _, exchange, routing_keys, values, body = parts
    return StoredMessage(exchange, routing_keys, values or [], body)


def _properties_problem(stored: list[Any] | bytes) -> str | None:
    if isinstance(stored, list):
        return _take_headers(stored) or _problem(stored)
    try:
        properties_of_bytes(stored)
    except CorruptFile as why:
        return f"its properties make no sense: {why.reason}"
    return None


def _take_headers(values: list[Any]) -> str | None:
    """Replace typed headers among these values by a dict; returns the reason if that is not possible."""
    if len(values) > _HEADERS and type(values[_HEADERS]) is list:
        try:
            values[_HEADERS] = TypedHeaders(values[_HEADERS])
        except ValueError as why:
            return str(why)
    return None


def _unpack(stored: bytes) -> Any:
    return msgpack.unpackb(stored, timestamp=3)


def _shape_problem(parts: Any) -> str | None:
    if isinstance(parts, list) and parts and parts[0] != VERSION and not _is_seal(parts[0]):
        return f"its version is {parts[0]!r}, only {VERSION} and {VERSION + 1} are known"
    if not (
        isinstance(parts, list)
        and len(parts) == _PARTS
        and isinstance(parts[1], str)
        and isinstance(parts[2], list)
        and all(isinstance(key, str) for key in parts[2])
        and (parts[3] is None or isinstance(parts[3], list | bytes))
        and isinstance(parts[4], bytes)
    ):
        return "it is not an array of version, exchange, routing keys, properties and body"
    return None


def _is_seal(version: Any) -> bool:
    return (
        isinstance(version, msgpack.ExtType)
        and version.code == VERSION + 1
        and len(version.data) == FRONT.size - 3
    )


def _problem(values: Sequence[Any]) -> str | None:
    """The reason for which these cannot be the values of Properties; None if they can."""
    if len(values) > len(_NAMES):
        return f"there are {len(values)} properties, AMQP has {len(_NAMES)}"
    for name, kind, value in zip(_NAMES, _TYPES, values, strict=False):
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            if name == "timestamp" and type(value) is int:
                continue
            return f"property {name} is {type(value).__name__}, not {kind.__name__}"
    return None
