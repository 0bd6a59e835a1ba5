"""Checks of plain values that an application passes: types and ranges, each refused in one sentence.

A wrong type is an ArgumentTypeError, a wrong value an ArgumentValueError.  The result is of one of Python's own types:
an instance of a subclass becomes a plain str, int or float, whatever it overrides, so that none of the application's code
runs in an actor's thread.  warrenmq/broker/arguments.py has the checks of messages and tables.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from operator import index
from typing import Any, NoReturn, TypeVar

from warrenmq.errors import ArgumentTypeError, ArgumentValueError

SHORT_STRING = 255
"""Bytes of UTF-8 that AMQP's short string holds."""
SURELY_SHORT = SHORT_STRING // 4
"""Characters that are never more bytes than that."""
LONGEST_WAIT = 1e9
"""Seconds, 31 years: a longer timeout means this one, as the system's own waits take no more than 292 years."""
_NUMBERS = frozenset({int, float})
_SHOWN = 60
T = TypeVar("T")


def is_a(value: Any, kind: type | tuple[type, ...]) -> bool:
    """Check a value's real type, ignoring the `__class__` that isinstance would ask."""
    return issubclass(type(value), kind)


def shown(value: Any) -> str:
    """A value in an error's text: cut, and of other types than Python's plain ones only the type."""
    if type(value) in (str, bytes):
        text = repr(value[: _SHOWN + 1])
    elif value is None or type(value) in (bool, float):
        text = repr(value)
    elif type(value) is int:
        text = repr(value) if value.bit_length() < 8 * _SHOWN else f"an integer of {value.bit_length()} bits"
    elif type(value) is tuple and tuple not in map(type, value):
        text = f"({', '.join(map(shown, value[:_SHOWN]))})"
    elif type(value) is _Strange:
        return repr(value)
    else:
        return f"of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def of_this_process(handle: object) -> NoReturn:
    """`__reduce__` of what belongs to a broker of this process: ArgumentTypeError, as neither pickle nor copy
    can make another.
    """
    raise ArgumentTypeError(
        f"a {type(handle).__name__} belongs to the process that made it and cannot be pickled or copied; pass names and bodies, "
        "and have every process open the directory with shared=True"
    )


def wrong_type(what: str, value: Any, wanted: str) -> ArgumentTypeError:
    return ArgumentTypeError(f"{what} is {shown(value)}; give {wanted}")


def wrong_value(what: str, value: Any, wanted: str) -> ArgumentValueError:
    return ArgumentValueError(f"{what} is {shown(value)}; give {wanted}")


def text(what: str, value: Any) -> str:
    """A str that UTF-8 can hold."""
    if not is_a(value, str):
        raise wrong_type(what, value, "a str")
    plain = str.__str__(value)
    if not plain.isascii():
        try:
            plain.encode()
        except UnicodeEncodeError:
            raise wrong_value(what, plain, "text without lone surrogates, which UTF-8 cannot hold") from None
    return plain


def short_text(what: str, value: Any) -> str:
    """A str that fits into AMQP's short string."""
    plain = text(what, value)
    if len(plain) > SURELY_SHORT and len(plain.encode()) > SHORT_STRING:
        raise wrong_value(
            what, plain, f"at most {SHORT_STRING} bytes of UTF-8, which is what AMQP has room for"
        )
    return plain


def flag(what: str, value: Any) -> bool:
    """True or False; 1 and 0 will do."""
    if value is True or value is False:
        return value
    if type(value) is int and value in (0, 1):
        return value == 1
    raise wrong_type(what, value, "True or False")


def whole(what: str, value: Any, low: int, high: int) -> int:
    """An integer within bounds; numpy's are welcome, bool is not."""
    number = converted(index, value)
    if number is None or is_a(value, bool):
        raise wrong_type(what, value, f"a whole number from {low} to {high}")
    number = int.__int__(number)  # an exact int, whatever __index__ returned
    if not low <= number <= high:
        raise wrong_value(what, number, f"a whole number from {low} to {high}")
    return number


def seconds(what: str, value: Any) -> float | None:
    """Check a timeout in seconds: None = no limit, less than 0 counts as 0."""
    if type(value) in _NUMBERS and 0 <= value <= LONGEST_WAIT:  # so it mostly is, once for each confirm
        return value  # type: ignore[no-any-return]
    number = number_of_seconds(what, value)
    return None if number is None else max(0.0, min(number, LONGEST_WAIT))


def number_of_seconds(what: str, value: Any) -> float | None:
    """A timeout as large or small as it was given."""
    if value is None:
        return None
    number = None if is_a(value, (bool, str, bytes, bytearray)) else converted(float, value)
    if number is None and is_a(value, int) and not is_a(value, bool):  # too large for a float
        number = math.inf if int.__gt__(value, 0) else -math.inf
    if number is None:
        raise wrong_type(what, value, "seconds, or None")
    if math.isnan(number):
        raise wrong_value(what, number, "seconds, or None")
    return number


def exact(value: Any) -> object:
    """A value of one of Python's own plain types, unchanged; a value of any other type is refused where it is compared."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if is_a(value, str):
        return str.__str__(value)
    if is_a(value, int):
        return int.__int__(value)
    if is_a(value, float):
        return float.__float__(value)
    if type(value) in (tuple, list):
        return tuple(_Strange(each) if type(each) in (tuple, list) else exact(each) for each in value)
    return _Strange(value)


class _Strange:
    """Stands for an object of a type that is not plain; equal to nothing else."""

    def __init__(self, value: Any) -> None:
        self._kind = type(value).__name__

    def __repr__(self) -> str:
        return f"of type {self._kind}"


def path_of(what: str, value: Any) -> str:
    """A path of the file system."""
    found: Any = converted(os.fspath, value)
    if not is_a(found, (str, bytes)):
        raise wrong_type(what, value, "a path as a str or an os.PathLike")
    plain = str.__str__(found) if is_a(found, str) else os.fsdecode(bytes.__getitem__(found, slice(None)))
    if not plain or "\0" in plain or converted(os.fsencode, plain) is None:
        raise wrong_value(
            what, plain, "a path, which is not empty, has no NUL in it and can be encoded for the file system"
        )
    return plain


def place_of(what: str, value: Any) -> str:
    """A path that stays where it is when the program changes its working folder, or somebody a symbolic link on the way."""
    return os.path.realpath(path_of(what, value))


def mapping(what: str, value: Any) -> list[tuple[Any, Any]]:
    """The items of a dict or another Mapping; None has none."""
    if value is None:
        return []
    items = converted(_items, value) if is_a(value, Mapping) else None
    if items is None:
        raise wrong_type(what, value, "a dict, or None")
    return items


def _items(value: Any) -> list[tuple[Any, Any]]:
    return [(key, inner) for key, inner in (dict.items(value) if is_a(value, dict) else value.items())]


def converted(convert: Callable[[Any], T], value: Any) -> T | None:
    """Convert a value; None if the conversion, which may run the application's code, raises."""
    try:
        return convert(value)
    except Exception:  # noqa: BLE001 - __index__, __float__ and __fspath__ may raise anything
        return None
