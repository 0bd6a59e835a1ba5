"""Terms taken off the front of bytes: one small function for each tag (term.py lists them).

A container is opened, its elements are read, and then it is closed; those still open wait on a list and not on
Python's stack, so that nesting costs nothing but memory and its limit is a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from struct import Struct
from typing import Any, NamedTuple

from warrenmq.erlang.values import Atom, BitString, ImproperList, Opaque

MAX_ELEMENTS = 1_000_000
"""Elements of all tuples, lists and maps of one term: memory is bounded where every byte of a file is a list."""
MAX_INTEGER = 1024
"""Bytes of an integer.  RabbitMQ stores 8; Python refuses to print more than 1785."""

_MAX_KEY = 512
"""Bytes of a key that is a container: hashing takes a stack as deep as it is nested."""
_MAX_ATOM = 255
_FLOAT_TEXT = 31
_FLOAT = re.compile(rb"\s*[+-]?\d{1,9}\.\d{1,25}(e[+-]?\d{1,3})?\Z", re.ASCII)
_SMALL_INTEGER = 0x61
_u16, _u32, _i32, _f64 = Struct(">H"), Struct(">I"), Struct(">i"), Struct(">d")


class NotATerm(Exception):
    """The bytes are not a term: the place, and the reason."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(at, reason)
        self.at = at
        self.reason = reason


class _Open(NamedTuple):
    """A container whose elements are still being read."""

    close: Callable[[Reader, _Open], Any]
    wanted: int
    items: list[Any]
    marks: list[int]
    """The offset of the first element, then the end of each element."""


class Reader:
    """A position in the bytes, and the budget that a term may still use."""

    __slots__ = ("at", "data", "elements", "max_depth")

    def __init__(self, data: bytes, max_depth: int) -> None:
        self.data = data
        self.at = 0
        self.max_depth = max_depth
        self.elements = MAX_ELEMENTS

    def term(self) -> Any:
        waiting: list[_Open] = []
        while True:
            at = self.at
            tag = self.byte()
            read = _READ.get(tag)
            if read is None:
                raise NotATerm(at, f"{tag} is no tag of a term")
            value = read(self)
            if isinstance(value, _Open):
                if len(waiting) == self.max_depth:
                    raise NotATerm(at, "terms are nested too deeply")
                if value.wanted:
                    waiting.append(value)
                    continue
                value = value.close(self, value)
            while waiting:
                outer = waiting[-1]
                outer.items.append(value)
                outer.marks.append(self.at)
                if len(outer.items) < outer.wanted:
                    break
                waiting.pop()
                value = outer.close(self, outer)
            else:
                return value

    def byte(self) -> int:
        at = self.at
        if at >= len(self.data):
            raise NotATerm(at, "the term ends too early")
        self.at = at + 1
        return self.data[at]

    def number(self, layout: Struct) -> Any:
        at = self.at
        if at + layout.size > len(self.data):
            raise NotATerm(at, "the term ends too early")
        self.at = at + layout.size
        return layout.unpack_from(self.data, at)[0]

    def take(self, size: int) -> bytes:
        at = self.at
        if at + size > len(self.data):
            raise NotATerm(at, f"{size} bytes are claimed, {len(self.data) - at} follow")
        self.at = at + size
        return self.data[at : at + size]

    def spend(self, count: int) -> None:
        self.elements -= count
        if self.elements < 0:
            raise NotATerm(self.at, f"there are more than {MAX_ELEMENTS} elements")

    def open(self, count: int, close: Callable[[Reader, _Open], Any]) -> _Open:
        """A container of `count` terms, each of which takes a byte at least."""
        if count > len(self.data) - self.at:
            raise NotATerm(self.at, f"{count} elements are claimed, {len(self.data) - self.at} bytes follow")
        self.spend(count)
        return _Open(close, count, [], [self.at])


def _float(reader: Reader) -> float:
    at = reader.at
    value: float = reader.number(_f64)
    if not isfinite(value):
        raise NotATerm(at, "Erlang has no such floating point number")
    return value


def _float_text(reader: Reader) -> float:
    at = reader.at
    text = reader.take(_FLOAT_TEXT).rstrip(b"\0")
    if not _FLOAT.match(text) or not isfinite(float(text)):
        raise NotATerm(at, "a floating point number is not written as one")
    return float(text)


def _big(reader: Reader, size: int) -> int:
    at = reader.at
    if size > MAX_INTEGER:
        raise NotATerm(at, f"an integer claims {size} bytes, {MAX_INTEGER} are allowed")
    negative = reader.byte()
    if negative > 1:
        raise NotATerm(at, f"an integer's sign is {negative}, not 0 or 1")
    value = int.from_bytes(reader.take(size), "little")
    return -value if negative else value


def _atom(reader: Reader, size: int, encoding: str) -> Atom:
    at = reader.at
    try:
        atom = Atom(reader.take(size), encoding)
    except UnicodeDecodeError:
        raise NotATerm(at, "an atom is not UTF-8") from None
    if len(atom) > _MAX_ATOM:
        raise NotATerm(at, f"an atom has {len(atom)} characters, Erlang allows {_MAX_ATOM}")
    return atom


def _string(reader: Reader) -> list[int]:
    """A list of small integers in one byte each."""
    found = reader.take(reader.number(_u16))
    reader.spend(len(found))
    return list(found)


def _tuple(reader: Reader, opened: _Open) -> tuple[Any, ...]:  # noqa: ARG001 - what closes a container looks alike
    return tuple(opened.items)


def _list(reader: Reader, opened: _Open) -> Any:  # noqa: ARG001
    items, tail = opened.items, opened.items.pop()
    if isinstance(tail, list):
        items += tail
        return items
    return ImproperList(items, tail)


def _map(reader: Reader, opened: _Open) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    items, marks = opened.items, opened.marks
    for i in range(0, len(items), 2):
        key = items[i]
        if isinstance(key, tuple | list | dict) and marks[i + 1] - marks[i] > _MAX_KEY:
            raise NotATerm(marks[i], f"a map has a key of more than {_MAX_KEY} bytes")
        try:
            hash(key)
        except TypeError:  # a list or a map, or something with one inside
            key = Opaque("key", reader.data[marks[i] : marks[i + 1]])
        if key in found:
            raise NotATerm(marks[i], "a map has a key twice")
        found[key] = items[i + 1]
    return found


def _bits(reader: Reader) -> BitString:
    size = reader.number(_u32)
    at = reader.at
    bits = reader.byte()
    if not (size and 1 <= bits <= 8):
        raise NotATerm(at, f"a bit string of {size} bytes has {bits} bits in the last one")
    return BitString(reader.take(size), bits)


def _named(kind: str, width: int) -> Callable[[Reader], Opaque]:
    """A node's name, then so many bytes."""

    def read(reader: Reader) -> Opaque:
        begin = reader.at - 1
        _name(reader)
        reader.take(width)
        return Opaque(kind, reader.data[begin : reader.at])

    return read


def _reference(creation: int) -> Callable[[Reader], Opaque]:
    """A count, the node's name, the creation, then so many numbers."""

    def read(reader: Reader) -> Opaque:
        begin = reader.at - 1
        numbers = reader.number(_u16)
        _name(reader)
        reader.take(creation + 4 * numbers)
        return Opaque("reference", reader.data[begin : reader.at])

    return read


def _fun(reader: Reader) -> Opaque:
    """Skip a NEW_FUN_EXT, whose size (which counts itself) comes first."""
    begin = reader.at - 1
    size = reader.number(_u32)
    if size < _u32.size:
        raise NotATerm(begin, f"a fun of {size} bytes cannot be")
    reader.take(size - _u32.size)
    return Opaque("fun", reader.data[begin : reader.at])


def _export(reader: Reader) -> Opaque:
    """A term of `fun module:function/arity`."""
    begin = reader.at - 1
    _name(reader)
    _name(reader)
    at = reader.at
    if reader.byte() != _SMALL_INTEGER:
        raise NotATerm(at, "a fun's arity is not a small integer")
    reader.byte()
    return Opaque("fun", reader.data[begin : reader.at])


def _name(reader: Reader) -> None:
    at = reader.at
    read = _ATOMS.get(reader.byte())
    if read is None:
        raise NotATerm(at, "a name is not an atom")
    read(reader)


_ATOMS: dict[int, Callable[[Reader], Atom]] = {
    0x64: lambda reader: _atom(reader, reader.number(_u16), "latin-1"),
    0x73: lambda reader: _atom(reader, reader.byte(), "latin-1"),
    0x76: lambda reader: _atom(reader, reader.number(_u16), "utf-8"),
    0x77: lambda reader: _atom(reader, reader.byte(), "utf-8"),
}

_READ: dict[int, Callable[[Reader], Any]] = {
    **_ATOMS,
    0x46: _float,
    0x4D: _bits,
    0x58: _named("pid", 12),
    0x59: _named("port", 8),
    0x5A: _reference(4),
    _SMALL_INTEGER: Reader.byte,
    0x62: lambda reader: reader.number(_i32),
    0x63: _float_text,
    0x65: _named("reference", 5),
    0x66: _named("port", 5),
    0x67: _named("pid", 9),
    0x68: lambda reader: reader.open(reader.byte(), _tuple),
    0x69: lambda reader: reader.open(reader.number(_u32), _tuple),
    0x6A: lambda reader: [],  # noqa: ARG005 - it has no contents
    0x6B: _string,
    0x6C: lambda reader: reader.open(reader.number(_u32) + 1, _list),
    0x6D: lambda reader: reader.take(reader.number(_u32)),
    0x6E: lambda reader: _big(reader, reader.byte()),
    0x6F: lambda reader: _big(reader, reader.number(_u32)),
    0x70: _fun,
    0x71: _export,
    0x72: _reference(1),
    0x74: lambda reader: reader.open(2 * reader.number(_u32), _map),
    0x78: _named("port", 12),
}
