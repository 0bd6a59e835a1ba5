"""Arguments that no call was made for: wrong types, odd and huge values, and subclasses that raise whatever they are asked.

`odd_values` has what makes them, since some can be used only once.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn

from warrenmq.message.properties import Properties


class Boom(Exception):
    """Raised by the application's own objects."""


def _boom(*_args: object, **_kwargs: object) -> NoReturn:
    raise Boom("an object of the application failed")


_ASKED = (
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__len__", "__bool__", "__str__", "__repr__", "__format__",
    "__iter__", "__getitem__", "__contains__", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__index__", "__int__",
    "__float__", "__bytes__", "__fspath__", "__call__", "__enter__", "__neg__", "__abs__", "__reduce__",
    "encode", "decode", "startswith", "isascii", "items", "keys", "values", "get", "copy", "timestamp", "utcoffset", "astimezone",
)  # fmt: skip


def _hostile(kind: type) -> Any:
    """A subclass whose every method raises."""
    return type(f"Hostile{kind.__name__.title()}", (kind,), dict.fromkeys(_ASKED, _boom))


HostileStr, HostileInt, HostileFloat, HostileBytes = map(_hostile, (str, int, float, bytes))
HostileBytearray, HostileDict, HostileList, HostileObject = map(_hostile, (bytearray, dict, list, object))
HostileDatetime, HostileDecimal = map(_hostile, (datetime, Decimal))


class Disguised:
    """Has a class that must not be asked for."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return _boom()


class HostileZone(tzinfo):
    """A time zone that fails."""

    utcoffset = dst = tzname = _boom  # type: ignore[assignment]


def raising() -> Iterator[bytes]:
    """A generator that fails half way."""
    yield b"first"
    _boom()


def _released() -> memoryview:
    view = memoryview(b"gone")
    view.release()
    return view


def _circular_list() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def _circular_dict() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["me"] = made
    return made


def nested(depth: int) -> list[Any]:
    """Lists in lists."""
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


def _bomb() -> list[Any]:
    """Few lists, of 2 ** 60 values."""
    made: list[Any] = ["x"]
    for _ in range(60):
        made = [made, made]
    return made


_IN_TABLES: dict[str, Callable[[], Any]] = {
    "circular list": _circular_list, "1000 deep": lambda: nested(1000), "100000 deep": lambda: nested(100_000),
    "the first time": lambda: datetime.min.replace(tzinfo=UTC),
    "before the first": lambda: datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
    "after the last": lambda: datetime.max.replace(tzinfo=timezone(-timedelta(hours=5))),
    "a naive time": lambda: datetime(2020, 1, 1), "before 1970": lambda: datetime(1960, 1, 1, tzinfo=UTC),  # noqa: DTZ001
    "a hostile zone": lambda: datetime(2020, 1, 1, tzinfo=HostileZone()), "a hostile time": lambda: HostileDatetime(2020, 1, 1, tzinfo=UTC),
    "sNaN": lambda: Decimal("sNaN"), "huge decimal": lambda: Decimal("1e999999"), "a hostile decimal": lambda: HostileDecimal("1.5"),
    "a set": lambda: {1}, "key of a number": lambda: {5: 1}, "long key": lambda: {"k" * 256: 1}, "surrogate key": lambda: {"\ud800": 1},
    "hostile key": lambda: {HostileKey("k"): 1},
}  # fmt: skip


class HostileKey(str):
    """Fails once it is in a dict."""

    __str__ = __repr__ = __len__ = encode = _boom  # type: ignore[assignment]
    __slots__ = ()


_PLAIN: dict[str, Callable[[], Any]] = {
    "None": lambda: None, "True": lambda: True, "0": lambda: 0, "5": lambda: 5, "-1": lambda: -1, "2**31": lambda: 2**31,
    "2**63": lambda: 2**63, "2**64": lambda: 2**64, "10**400": lambda: 10**400, "-10**400": lambda: -(10**400),
    "10**5000": lambda: 10**5000, "1.5": lambda: 1.5, "nan": lambda: float("nan"), "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"), "1e300": lambda: 1e300, "complex": lambda: 1j, "fraction": lambda: Fraction(1, 3),
    "empty": lambda: "", "word": lambda: "x", "255": lambda: "x" * 255, "256": lambda: "x" * 256, "256 in 128": lambda: "é" * 128,
    "NUL": lambda: "a\0b", "surrogate": lambda: "\ud800", "lines": lambda: "a\nb", "megabyte": lambda: "x" * (1 << 20),
    "bytes": lambda: b"x", "no bytes": lambda: b"", "bytearray": lambda: bytearray(b"x"), "view": lambda: memoryview(b"x"),
    "every other": lambda: memoryview(b"abcdef")[::2], "view of integers": lambda: memoryview(array.array("i", [1, 2])),
    "released": _released, "array": lambda: array.array("i", [1, 2]), "list": list, "tuple": tuple, "dict": dict, "object": object,
    "class": lambda: int, "function": lambda: _boom, "raising": raising, "circular dict": _circular_dict,
    "hostile str": lambda: HostileStr("hostile"), "hostile int": lambda: HostileInt(7), "hostile float": lambda: HostileFloat(0.01),
    "hostile bytes": lambda: HostileBytes(b"hostile"), "hostile bytearray": lambda: HostileBytearray(b"hostile"),
    "hostile dict": lambda: HostileDict(x=1), "hostile list": lambda: HostileList([b"x"]), "hostile": HostileObject, "disguised": Disguised,
    "list of ints": lambda: [1], "list of str": lambda: ["x"], "properties": Properties,
}  # fmt: skip


HUGE_TABLES: dict[str, Callable[[], Any]] = {
    "a bomb": lambda: {"x-odd": _bomb()}, "100000 values": lambda: {"x-odd": ["x"] * 100_000},
    "200000 values": lambda: dict.fromkeys(map(str, range(200_000))),
}  # fmt: skip
"""Of which each call takes its time."""


def odd_values(parameter: str) -> dict[str, Callable[[], Any]]:
    """By name, what makes an odd value of a parameter."""
    if parameter == "properties":
        return _PLAIN | {f"{field}={name}": make for field, name, make in _odd_properties()}
    if parameter in ("arguments", "bodies", "items"):
        return _PLAIN | _IN_TABLES | _tables()
    return _PLAIN


def _tables() -> dict[str, Callable[[], Any]]:
    return {
        f"{{{name}}}": lambda make=make: {"x-odd": make()} for name, make in (_PLAIN | _IN_TABLES).items()
    }  # type: ignore[misc]


def _odd_properties() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    for field in fields(Properties):
        for name, make in (_PLAIN | _tables() if field.name == "headers" else _PLAIN).items():
            yield field.name, name, lambda field=field, make=make: Properties(**{field.name: make()})  # type: ignore[misc]
