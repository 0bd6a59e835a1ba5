"""Headers exchanges: a binding's arguments against a message's headers (rabbit_exchange_type_headers of 3.10).

    x-match            the binding matches if                                keys that begin with x-
    all, or missing    each of its headers is in the message and equal       do not count
    any                one of them is                                        do not count
    all-with-x         as all                                                count
    any-with-x         as any                                                count

x-match itself never counts.  With no header left to compare `all` matches everything and `any` nothing.  A header of the
binding without a value (void) equals any value, as long as there is one.

Values are equal as Erlang's `==` has it, whatever their types in the table: 1 equals 1.0 (until 3.12), a time equals its
number of seconds, text equals the same bytes, but true is not 1 and "1" is not 1.  A value in an array or in a table has its
type with it, so there 1 is not 1.0, and a table's order counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

X_MATCH = "x-match"
MODES = ("all", "any", "all-with-x", "any-with-x")
_NOTHING = object()


class HeadersMatch:
    """The arguments of one headers binding, parsed once."""

    __slots__ = ("_any", "_wanted")

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        mode = arguments.get(X_MATCH, "all")
        with_x = mode in ("all-with-x", "any-with-x")
        self._any = mode in ("any", "any-with-x")
        self._wanted = tuple(
            (name, _comparable(value))
            for name, value in arguments.items()
            if name != X_MATCH and (with_x or not name.startswith("x-"))
        )

    def __call__(self, headers: Mapping[str, Any]) -> bool:
        """True if a message with these headers, as `comparable` gives them, is wanted."""
        for name, wanted in self._wanted:
            value = headers.get(name, _NOTHING)
            equal = value is not _NOTHING and (wanted is None or wanted == value)
            if equal is self._any:
                return equal
        return not self._any


def comparable(headers: Mapping[str, Any]) -> dict[str, Any]:
    """A message's headers, to be compared with those of many bindings."""
    return {name: _comparable(value) for name, value in headers.items()}


def _comparable(value: Any) -> Any:
    """The value to compare by Erlang's `==`: numbers stay numbers, every other value carries its type."""
    match value:
        case bool():
            return "boolean", value
        case str():
            return "binary", value.encode(errors="surrogatepass")
        case bytes() | bytearray():
            return "binary", bytes(value)
        case datetime():
            return int(value.timestamp())
        case Decimal():
            return "decimal", value.as_tuple()
        case dict():
            return [(name, _type(each), _comparable(each)) for name, each in value.items()]
        case list() | tuple():
            return [(_type(each), _comparable(each)) for each in value]
        case _:
            return value


def _type(value: Any) -> type:
    """A key that distinguishes equal values of different types in an array or a table; the widths of integers
    are not known here.
    """
    return dict if isinstance(value, dict) else type(value)
