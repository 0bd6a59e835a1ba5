"""Methods, content headers and properties, between bytes and Python, by pamqp's tables of AMQP 0-9-1.

pamqp knows every method's fields and encodes values.  Its own loops over the fields are not used, because they take
less than RabbitMQ does (names only of certain letters), check no depth, and copy the rest of a payload at each field:

| what          | pamqp                                    | here, as in RabbitMQ                                   |
| ------------- | ---------------------------------------- | ------------------------------------------------------ |
| table         | a dict; which integer is forgotten       | TypedHeaders: a dict that knows; bytes below depth 100 |
| long string   | str, or bytes where it is not UTF-8      | bytes                                                  |
| long long     | signed                                   | unsigned: delivery tags                                |
| short string  | UnicodeDecodeError                       | 501 Malformed UTF-8 in shortstr                        |
| names         | ValueError for letters that are unusual  | any                                                    |
| too short/long| ValueError / ignored                     | 501 cannot decode                                      |
| a bad table   | ValueError                               | 502 (RabbitMQ drops the connection without a word)     |
| no method     | UnmarshalingException                    | 503 (the same)                                         |

Decoded values are cached where publishers repeat themselves (basic.publish, properties): treat them as frozen.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, error
from typing import Any, TypeVar

from pamqp import commands, encode
from pamqp.base import Frame as Method

from warrenmq.amqp.channel import access_methods
from warrenmq.amqp.wire.errors import COMMAND_INVALID, FRAME_ERROR, SYNTAX_ERROR, UNEXPECTED_FRAME, AmqpError
from warrenmq.amqp.wire.frames import BODY, HEADER, METHOD, OVERHEAD, frame
from warrenmq.erlang.amqp_table import CLASS_BASIC, BadTable, properties_of_bytes, table_of_bytes
from warrenmq.erlang.amqp_table_writer import bytes_of_properties, bytes_of_table
from warrenmq.message.plain_properties import (
    dict_of_plain,
    properties_as_plain,
    properties_of_plain,
    table_of_dict,
)
from warrenmq.message.properties import Properties

M = TypeVar("M", bound=Method)

PUBLISH = (60, 40)
_REMEMBERED = 1024
_WORTH_REMEMBERING = 512
"""Bytes of properties: larger ones hold what differs from message to message."""
_SHOWN = 255
"""Bytes of an undecodable value that an error shows."""

_u8, _u16, _u32, _u64 = Struct(">B"), Struct(">H"), Struct(">I"), Struct(">Q")
_INTEGERS = {"octet": _u8, "short": _u16, "long": _u32, "longlong": _u64}
_HEADER = Struct(">HHQ")
_METHODS: dict[int, type[Method]] = commands.INDEX_MAPPING | access_methods.METHODS
_FIELDS = {kind: tuple((name, kind.amqp_type(name)) for name in kind.__slots__) for kind in _METHODS.values()}


def ids(method: Method | type[Method]) -> tuple[int, int]:
    """(class id, method id), for errors."""
    return method.index >> 16, method.index & 0xFFFF


# -- methods


def start_of(kind: type[Method]) -> bytes:
    """The first bytes of a method's payload: its class and method ids."""
    return _u32.pack(kind.index)


PUBLISH_START = start_of(commands.Basic.Publish)


def decode_method(payload: bytes) -> Method:
    """Decode the payload of a METHOD frame.  Raises AmqpError for an unknown or malformed method."""
    return _decode_publish(payload) if payload.startswith(PUBLISH_START) else _decode_method(payload)


def _decode_method(payload: bytes) -> Method:
    kind = _METHODS.get(_u32.unpack_from(payload)[0]) if len(payload) >= _u32.size else None
    if kind is None:
        raise AmqpError(COMMAND_INVALID, f"unimplemented method {_method_id(payload)}")
    method = kind.__new__(kind)
    try:
        end = _decode_fields(method, payload)
    except (error, IndexError):
        end = -1
    except (BadTable, ValueError) as why:
        raise AmqpError(SYNTAX_ERROR, f"{_name(kind)} has a table that cannot be read", *ids(kind)) from why
    if end != len(payload):
        fields = ",".join(map(str, payload[_u32.size :][:_SHOWN]))
        raise AmqpError(FRAME_ERROR, f"cannot decode <<{fields}>>", *ids(kind))
    return method


_decode_publish = lru_cache(_REMEMBERED)(_decode_method)  # its fields are short strings: some 500 bytes


def _decode_fields(method: Method, payload: bytes) -> int:
    """Set all fields of a method from its bytes; returns the offset behind the last one."""
    at, bit = _u32.size, 0
    for name, kind in _FIELDS[type(method)]:
        value: Any
        if kind == "bit":
            if bit == 0:
                at += 1
            value = bool(payload[at - 1] >> bit & 1)
            bit = (bit + 1) % 8
            setattr(method, name, value)
            continue
        bit = 0
        if kind == "shortstr":
            size = payload[at]
            value, at = _short_string(_slice(payload, at + 1, size)), at + 1 + size
        elif kind in _INTEGERS:
            layout = _INTEGERS[kind]
            (value,) = layout.unpack_from(payload, at)
            at += layout.size
        else:
            (size,) = _u32.unpack_from(payload, at)
            value = _slice(payload, at + _u32.size, size)
            at += _u32.size + size
            if kind == "table":
                value = decode_table(value)
        setattr(method, name, value)
    return at


def _slice(payload: bytes, at: int, size: int) -> bytes:
    if at + size > len(payload):
        raise IndexError(size)
    return payload[at : at + size]


def _short_string(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise AmqpError(FRAME_ERROR, "Malformed UTF-8 in shortstr") from None


def decode_table(data: bytes) -> dict[str, Any]:
    """A field table without its size; BadTable."""
    return dict_of_plain(table_of_bytes(data))


def encode_table(table: dict[str, Any]) -> bytes:
    """A field table without its size."""
    return bytes_of_table(table_of_dict(table))


def make(kind: type[M], **values: Any) -> M:
    """Make a method; fields that are not given are empty.

    pamqp's constructors are not called: they refuse names that RabbitMQ accepts.
    """
    method = kind.__new__(kind)
    for name, field in _FIELDS[kind]:
        value = values.pop(name, None)
        setattr(method, name, _EMPTY[field] if value is None else value)
    assert not values, values
    return method


_EMPTY: dict[str, Any] = {"bit": False, "shortstr": "", "longstr": b"", "table": {}} | dict.fromkeys(
    _INTEGERS, 0
)


def encode_method(channel: int, method: Method) -> bytes:
    """The frame of a method; ValueError or TypeError when a value does not fit its field."""
    parts = [_u32.pack(method.index)]
    bits = count = 0
    for name, kind in _FIELDS[type(method)]:
        value = getattr(method, name)
        if kind == "bit":
            bits |= bool(value) << count
            count += 1
            continue
        if count:
            parts.append(_u8.pack(bits))
            bits = count = 0
        if kind == "table":
            table = encode_table(value or {})
            parts.append(_u32.pack(len(table)) + table)
        elif kind == "longstr":
            data = value.encode() if isinstance(value, str) else value or b""
            parts.append(_u32.pack(len(data)) + data)
        elif kind == "longlong":
            parts.append(_u64.pack(value))
        else:
            parts.append(encode.by_type(value, kind))
    if count:
        parts.append(_u8.pack(bits))
    return frame(METHOD, channel, b"".join(parts))


def _name(kind: type[Method]) -> str:
    """Connection.StartOk -> connection.start-ok, as the specification writes it."""
    upper, _, name = kind.name.partition(".")
    return (
        upper.lower()
        + "."
        + "".join("-" + char.lower() if char.isupper() else char for char in name).lstrip("-")
    )


def _method_id(payload: bytes) -> str:
    if len(payload) < _u32.size:
        return "of less than four bytes"
    (index,) = _u32.unpack_from(payload)
    return f"{index & 0xFFFF} of class {index >> 16}"


# -- content


def decode_header(payload: bytes) -> tuple[int, bytes]:
    """(size of the body, properties as they came) of a frame of type HEADER; AmqpError.

    The properties are not checked: decode_properties does that.
    """
    if len(payload) < _HEADER.size:
        raise AmqpError(SYNTAX_ERROR, "a content header ends too early", *PUBLISH)
    class_id, weight, size = _HEADER.unpack_from(payload)
    if class_id != CLASS_BASIC:
        why = f"expected content header for class {CLASS_BASIC}, got one for class {class_id} instead"
        raise AmqpError(UNEXPECTED_FRAME, why, *PUBLISH)
    if weight:
        why = f"expected content header for class {CLASS_BASIC}, got non content header frame instead"
        raise AmqpError(UNEXPECTED_FRAME, why, *PUBLISH)
    return size, payload[_HEADER.size :]


def decode_properties(raw: bytes) -> Properties:
    """Decode the property flags and values of a content header.  Raises AmqpError when they cannot be decoded."""
    return _remembered_properties(raw) if len(raw) <= _WORTH_REMEMBERING else _decode_properties(raw)


def _decode_properties(raw: bytes) -> Properties:
    try:
        return properties_of_plain(properties_of_bytes(raw)).properties or Properties()
    except (BadTable, ValueError) as why:
        reason = why.reason if isinstance(why, BadTable) else why
        raise AmqpError(
            SYNTAX_ERROR, f"the properties of a message cannot be read: {reason}", *PUBLISH
        ) from why


_remembered_properties = lru_cache(_REMEMBERED)(_decode_properties)


def raw_properties(properties: Properties | None) -> bytes:
    """The property flags and values of a content header."""
    return bytes_of_properties(properties_as_plain(properties) if properties is not None else {})


def encode_header(channel: int, raw_properties: bytes, size: int) -> bytes:
    """The frame of a content header, of a body of so many bytes."""
    return frame(HEADER, channel, _HEADER.pack(CLASS_BASIC, 0, size) + raw_properties)


def encode_content(
    channel: int, method_frame: bytes, raw_properties: bytes, body: bytes, frame_max: int
) -> list[bytes]:
    """The frames of a method with content: the method's, the header's, and as many body frames as the body needs.

    `method_frame` is what `encode_method` or a DeliverTemplate made; `frame_max` 0 means no limit.
    """
    frames = [method_frame, encode_header(channel, raw_properties, len(body))]
    size = frame_max - OVERHEAD
    if frame_max == 0 or len(body) <= size:
        if body:
            frames.append(frame(BODY, channel, body))
        return frames
    frames.extend(frame(BODY, channel, body[at : at + size]) for at in range(0, len(body), size))
    return frames


class DeliverTemplate:
    """basic.deliver to one consumer, encoded once; delivery tag and redelivered are patched for each message."""

    __slots__ = ("_head", "_tail")

    def __init__(self, channel: int, consumer_tag: str, exchange: str, routing_key: str) -> None:
        values = {"consumer_tag": consumer_tag, "exchange": exchange, "routing_key": routing_key}
        whole = encode_method(channel, make(commands.Basic.Deliver, delivery_tag=0, **values))
        at = 7 + _u32.size + 1 + len(consumer_tag.encode())
        self._head, self._tail = whole[:at], whole[at + _u64.size + 1 :]

    def frame(self, delivery_tag: int, redelivered: bool) -> bytes:
        return b"%b%b%b%b" % (
            self._head,
            _u64.pack(delivery_tag),
            b"\1" if redelivered else b"\0",
            self._tail,
        )
