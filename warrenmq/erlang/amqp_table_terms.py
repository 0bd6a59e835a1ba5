"""AMQP 0-9-1's basic properties and field tables as Erlang terms, in the notation of amqp_table.py.

    P_basic record     a field for each property, `undefined` where it is not set
    table              [{Name, Type, Value}]
    array              [{Type, Value}]

Source: rabbit_framing, rabbit_binary_parser.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from warrenmq.erlang.amqp_table import CONTAINERS, MAX_DEPTH, PROPERTIES, BadTable, blob, text
from warrenmq.erlang.amqp_table_writer import bytes_of_name, bytes_of_value
from warrenmq.erlang.values import Atom, shown

_SHORT_STRING = 255
_LETTER = {
    "byte": "b", "unsignedbyte": "B", "short": "s", "unsignedshort": "u", "signedint": "I", "unsignedint": "i",
    "long": "l", "float": "f", "double": "d", "decimal": "D", "timestamp": "T", "bool": "t", "void": "V",
    "longstr": "S", "binary": "x", "table": "F", "array": "A",
}  # fmt: skip


def properties_of_record(record: tuple[Any, ...]) -> dict[str, Any]:
    """Decode a `P_basic` record; `undefined` fields are not set."""
    if len(record) != 1 + len(PROPERTIES) or record[0] != "P_basic":
        raise BadTable(0, "it is not a P_basic record of 14 properties")
    found: dict[str, Any] = {}
    for (name, kind), value in zip(PROPERTIES, record[1:], strict=True):
        if value != "undefined" or not isinstance(value, Atom):
            found[name] = _record_value(name, kind, value)
    return found


def table_of_term(entries: Any, depth: int = 0) -> list[Any]:
    """[{Name, Type, Value}] in the notation above."""
    return [[text(name), *_typed(kind, value, depth)] for name, kind, value in _entries("F", entries)]


def _record_value(name: str, kind: str, value: Any) -> Any:
    if kind == "F":
        return table_of_term(value)
    if kind == "s" and isinstance(value, bytes):
        return text(value)
    if kind != "s" and isinstance(value, int):
        return value
    raise BadTable(0, f"property {name} has a value of another type")


def _array_of_term(entries: Any, depth: int) -> list[Any]:
    return [list(_typed(kind, value, depth)) for kind, value in _entries("A", entries)]


def _typed(type: Any, value: Any, depth: int) -> tuple[str, Any]:
    """(letter, value) of an Erlang type and value."""
    letter = _letter(type)
    if letter in CONTAINERS and depth + 1 >= MAX_DEPTH:
        return letter, blob(_contents(letter, value))
    if letter == "F":
        return letter, table_of_term(value, depth + 1)
    if letter == "A":
        return letter, _array_of_term(value, depth + 1)
    return letter, _scalar(letter, type, value)


def _letter(type: Any) -> str:
    letter = _LETTER.get(type) if isinstance(type, Atom) else None
    if letter is None:
        raise BadTable(0, f"AMQP has no type {shown(type)!r}")
    return letter


def _scalar(letter: str, type: Atom, value: Any) -> Any:
    for kind, convert in _OF_TERM[letter]:
        if isinstance(value, kind):
            return convert(value)
    raise BadTable(0, f"a value of type {type} is something else")


def _entries(letter: str, term: Any) -> list[Any]:
    """The entries of a table or an array, each of the right length."""
    if letter == "F":
        if not isinstance(term, list) or not all(
            isinstance(each, tuple) and len(each) == 3 and isinstance(each[0], bytes) for each in term
        ):
            raise BadTable(0, "a table is not a list of name, type and value")
    elif not isinstance(term, list) or not all(isinstance(each, tuple) and len(each) == 2 for each in term):
        raise BadTable(0, "an array is not a list of type and value")
    return term


def _name(name: bytes) -> bytes:
    if len(name) > _SHORT_STRING:
        raise BadTable(0, f"a name of {len(name)} bytes is too long")
    return bytes_of_name(text(name))


def _contents(letter: str, term: Any) -> bytes:
    """The AMQP bytes of a table's or an array's contents, of any depth, on no stack.

    They are written from the end, since a size stands in front of what it counts.
    """
    pieces: list[bytes] = []
    written = 0
    open_: list[tuple[Iterator[Any], bytes, int]] = [(reversed(_entries(letter, term)), b"", 0)]
    while open_:
        entries, head, before = open_[-1]
        entry = next(entries, None)
        if entry is None:
            open_.pop()
            piece = head + struct.pack(">I", written - before) if open_ else b""
        else:
            letter = _letter(entry[-2])
            head = (_name(entry[0]) if len(entry) == 3 else b"") + letter.encode()
            if letter in CONTAINERS:
                open_.append((reversed(_entries(letter, entry[-1])), head, written))
                continue
            try:
                piece = head + bytes_of_value(letter, _scalar(letter, entry[-2], entry[-1]))
            except (struct.error, TypeError) as why:
                raise BadTable(0, f"a value of type {entry[-2]} is out of range: {why}") from why
        pieces.append(piece)
        written += len(piece)
    return b"".join(reversed(pieces))


def _boolean(value: Atom) -> bool:
    if value not in {"true", "false"}:
        raise BadTable(0, f"a bool is {str(value)[:40]!r}")
    return value == "true"


def _scaled(value: tuple[Any, ...]) -> list[int]:
    if len(value) != 2 or not all(isinstance(each, int) for each in value):
        raise BadTable(0, "a decimal is not a scale and a number")
    return list(value)


def _nothing(value: Atom) -> None:
    if value != "undefined":
        raise BadTable(0, f"a void has the value {str(value)[:40]!r}")


_OF_TERM: dict[str, list[tuple[type, Callable[[Any], Any]]]] = {
    **{letter: [(int, int)] for letter in "bBsuIilT"},
    "f": [(float, float), (int, float)],
    "d": [(float, float), (int, float)],
    "D": [(tuple, _scaled)],
    "t": [(Atom, _boolean)],
    "V": [(Atom, _nothing)],
    "S": [(bytes, text)],
    "x": [(bytes, blob)],
}
