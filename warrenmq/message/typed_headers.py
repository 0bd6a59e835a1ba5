"""Headers that came with AMQP's types: a dict for the application, and the originals for those who send them on.

A field table has what a dict has not: eight widths of integer, names that come twice, an order, texts that are not UTF-8.
A message that RabbitMQ stored keeps all that; its headers are stored as a list, where those of Python's
publishers are a map:

    [[name, letter, value], ...]        values of F are such lists, of A lists of [letter, value]

A name is a str, or bytes where it is not UTF-8 (in the dict these have backslashes).

| letter                  | type                          | stored value     | in the dict                            |
| ----------------------- | ----------------------------- | ---------------- | -------------------------------------- |
| b B s u I i l L         | integers                      | int              | int                                    |
| f d                     | floating point                | float            | float                                  |
| D                       | decimal                       | [scale, digits]  | Decimal                                |
| T                       | time, in seconds since 1970   | int              | datetime; int beyond the year 9999     |
| t                       | boolean                       | bool             | bool                                   |
| V                       | void                          | nil              | None                                   |
| S                       | text                          | str, or bytes    | str; bytes where it is not UTF-8       |
| x                       | bytes                         | bytes            | bytes                                  |
| A                       | array                         | [[letter, value]]| list                                   |
| F                       | table                         | as above         | dict                                   |
| A F                     | where it is 100 levels deep   | its AMQP bytes   | bytes                                  |

Of a name that comes twice the dict has the last value.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

INTEGERS = ("b", "B", "s", "u", "I", "i", "l", "L")
_TYPE_NAMES = {
    "b": "byte", "B": "unsignedbyte", "s": "short", "u": "unsignedshort", "I": "signedint", "i": "unsignedint", "l": "long",
    "L": "long", "f": "float", "d": "double", "D": "decimal", "T": "timestamp", "t": "bool", "V": "void", "S": "longstr",
    "x": "binary", "A": "array", "F": "table",
}  # fmt: skip
_MAX_DEPTH = 128
_MAX_SCALE = 255
_PAIR, _TRIPLE = 2, 3


class TypedHeaders(dict[str, Any]):
    """A dict that remembers the list it was made of; ValueError if the list is invalid."""

    __slots__ = ("typed",)

    def __init__(self, typed: list[Any]) -> None:
        super().__init__(_table(typed, 0))
        self.typed = typed

    def to_store(self) -> dict[str, Any] | list[Any]:
        """The list, or the dict alone once that was changed."""
        return self.typed if _table(self.typed, 0) == self else dict(self)

    def type_name(self, name: str) -> str | None:
        """RabbitMQ's name for the type that a field came with; None where that is not known any more."""
        letters = (letter for each, letter, _ in reversed(self.typed) if each == name)
        return _TYPE_NAMES.get(next(letters, ""))


def _table(typed: Any, depth: int) -> dict[str, Any]:
    if not isinstance(typed, list) or depth > _MAX_DEPTH:
        raise ValueError("typed headers are no list, or nested too deeply")
    table = {}
    for each in typed:
        if not (isinstance(each, list) and len(each) == _TRIPLE and isinstance(each[0], str | bytes)):
            raise ValueError("a typed header is not a name, a letter and a value")
        name = each[0] if isinstance(each[0], str) else each[0].decode(errors="backslashreplace")
        table[name] = _value(each[1], each[2], depth)
    return table


def _value(letter: Any, value: Any, depth: int) -> Any:
    match letter, value:
        case "t", bool():
            return value
        case "S", str() | bytes():
            return value
        case "x", bytes():
            return value
        case "V", None:
            return None
        case "f" | "d", float():
            return value
        case "T", int():
            return time_of(value) or value
        case "D", [int() as scale, int() as digits] if 0 <= scale <= _MAX_SCALE:
            return Decimal(digits).scaleb(-scale)
        case "A", list():
            return [_element(each, depth + 1) for each in value]
        case "F", list():
            return _table(value, depth + 1)
        case "A" | "F", bytes():
            return value
    if letter in INTEGERS and isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"a typed header of type {letter!r} cannot be {type(value).__name__}")


def _element(each: Any, depth: int) -> Any:
    if not (isinstance(each, list) and len(each) == _PAIR) or depth > _MAX_DEPTH:
        raise ValueError("an element of an array is not a letter and a value, or nested too deeply")
    return _value(each[0], each[1], depth)


def time_of(seconds: int) -> datetime | None:
    """A time of AMQP; None when Python has none so late."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
