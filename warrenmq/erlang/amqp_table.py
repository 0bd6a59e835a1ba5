"""AMQP 0-9-1's basic properties and field tables, and their bytes; their Erlang terms are read by amqp_table_terms.py.

RabbitMQ stores them as the publisher sent them (AMQP 0-9-1, section 4.2.5.5 and class 60):

    flags:16 | the values whose flags are set, in the order of PROPERTIES
    table    size:32 | (name: short string | letter | value)*
    array    size:32 | (letter | value)*

or, where the broker changed them, as Erlang terms: a `P_basic` record with `{Name, Type, Value}` for a table's entries and
`{Type, Value}` for an array's (rabbit_framing, rabbit_binary_parser).

Both become the same plain values: properties are a dict of those that are set; a table is a list of [name, letter, value],
because names may be empty or occur twice, and an array a list of [letter, value].

    letter  Erlang                          value
    b B     byte, unsignedbyte              int
    s u     short, unsignedshort            int
    I i     signedint, unsignedint          int
    l L     long                            int; RabbitMQ reads `L` as signed, it is unsigned in the bytes
    f d     float, double                   float; {"b64": its bytes} if it is no finite number
    D       decimal                         [scale, unsigned int]
    T       timestamp                       seconds, int
    t       bool                            bool
    V       void                            None
    S       longstr                         str; {"b64": ...} if it is not UTF-8
    x       binary                          {"b64": ...}
    F A     table, array                    list; {"b64": its contents} where it is nested MAX_DEPTH deep

RabbitMQ sets no limit to nesting.  A value that is nested deeper than any reader looks is checked here, and
kept as the bytes that it came in, so that no reader, printer or comparison behind this needs a stack as deep
as a client likes.

Wrong bytes and terms are BadTable, never another exception.
"""

from __future__ import annotations

from base64 import b64encode
from math import isfinite
from struct import Struct
from typing import Any

from warrenmq.errors import CorruptFile

MAX_DEPTH = 100
"""Tables and arrays in each other that are read."""

PROPERTIES = (
    ("content_type", "s"),
    ("content_encoding", "s"),
    ("headers", "F"),
    ("delivery_mode", "B"),
    ("priority", "B"),
    ("correlation_id", "s"),
    ("reply_to", "s"),
    ("expiration", "s"),
    ("message_id", "s"),
    ("timestamp", "T"),
    ("type", "s"),
    ("user_id", "s"),
    ("app_id", "s"),
    ("cluster_id", "s"),
)
"""The properties of class 60, in order; the first has the highest flag.  `s` is a short string."""

CLASS_BASIC = 60

CONTAINERS = ("F", "A")

FIXED = {
    letter: Struct(">" + layout)
    for letter, layout in zip("bBsuIilLfdT", "bBhHiIqQfdQ", strict=True)
}  # fmt: skip
_u16, _decimal, _u32, _f64 = Struct(">H"), Struct(">BI"), Struct(">I"), Struct(">d")


class BadTable(CorruptFile):
    """Raised for bytes that are not valid AMQP properties or field tables."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__("a message's properties", offset, reason)


def text(data: bytes) -> str | dict[str, str]:
    """Decode UTF-8 to a str, anything else to a dict from which the bytes can be had back."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return blob(data)


def blob(data: bytes) -> dict[str, str]:
    return {"b64": b64encode(data).decode()}


def properties_of_bytes(data: bytes) -> dict[str, Any]:
    """Decode `properties_bin` of class basic."""
    if len(data) < _u16.size:
        raise BadTable(0, "the flags are missing")
    (flags,) = _u16.unpack_from(data)
    found: dict[str, Any] = {}
    reader = _Bytes(data, _u16.size, len(data))
    for place, (name, kind) in enumerate(PROPERTIES):
        if flags & (0x8000 >> place):
            found[name] = text(reader.take(reader.take(1)[0])) if kind == "s" else reader.value(kind, 0)
    if reader.at != len(data):
        raise BadTable(reader.at, f"{len(data) - reader.at} bytes follow the last property")
    return found


def table_of_bytes(data: bytes) -> list[Any]:
    """Decode a field table that comes without its size."""
    return _Bytes(data, 0, len(data)).table(0)


class _Bytes:
    """Takes values off the front of data[at:end]."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    def take(self, size: int) -> bytes:
        at = self.at
        if at + size > self.end:
            raise BadTable(at, f"{size} bytes are claimed, {self.end - at} follow")
        self.at = at + size
        return self.data[at : at + size]

    def long(self) -> bytes:
        return self.take(_u32.unpack(self.take(_u32.size))[0])

    def inner(self) -> _Bytes:
        """The contents of a table or an array; this reader goes on behind them."""
        (size,) = _u32.unpack(self.take(_u32.size))
        at = self.at
        if at + size > self.end:
            raise BadTable(at, f"{size} bytes are claimed, {self.end - at} follow")
        self.at = at + size
        return _Bytes(self.data, at, self.at)

    def value(self, letter: str, depth: int) -> Any:
        if letter in CONTAINERS and depth >= MAX_DEPTH:
            inner = self.inner()
            contents = self.data[inner.at : inner.end]
            inner.check(letter)
            return blob(contents)
        if letter in FIXED:
            layout = FIXED[letter]
            raw = self.take(layout.size)
            (value,) = layout.unpack(raw)
            return value if letter not in "fd" or isfinite(value) else blob(raw)
        if letter == "S":
            return text(self.long())
        if letter == "F":
            return self.inner().table(depth)
        if letter == "A":
            return self.inner().array(depth)
        if letter == "t":
            return self.take(1) != b"\0"
        if letter == "x":
            return blob(self.long())
        if letter == "D":
            return list(_decimal.unpack(self.take(_decimal.size)))
        if letter == "V":
            return None
        raise BadTable(self.at - 1, f"AMQP has no type {letter!r}")

    def check(self, letter: str) -> None:
        """Raise BadTable unless all that is left are the contents of a table or an array; of any depth, on no stack."""
        open_ = [(self.end, letter)]
        while open_:
            self.end, kind = open_[-1]
            if self.at == self.end:
                open_.pop()
                continue
            if kind == "F":
                self.take(self.take(1)[0])
            letter = self.take(1).decode("latin-1")
            if letter in CONTAINERS:
                inner = self.inner()
                open_.append((inner.end, letter))
                self.at = inner.at
            else:
                self.value(letter, 0)

    def table(self, depth: int) -> list[Any]:
        found = []
        while self.at < self.end:
            name = text(self.take(self.take(1)[0]))
            letter = self.take(1).decode("latin-1")
            found.append([name, letter, self.value(letter, depth + 1)])
        return found

    def array(self, depth: int) -> list[Any]:
        found = []
        while self.at < self.end:
            letter = self.take(1).decode("latin-1")
            found.append([letter, self.value(letter, depth + 1)])
        return found
