"""Messages and states of durable actors as bytes: msgpack or JSON of plain values, and dataclasses by their names.

    value                                   stored as
    None, bool, int, float, str             itself
    bytes                                   itself; JSON has none
    list, tuple, set, frozenset             a list
    dict with str keys                      a map; other keys in msgpack only, and only plain ones
    dataclass                               a map of its fields
    Enum                                    its value
    datetime, date, Decimal, UUID           text

A dataclass is read back by the types of its fields, and by its class's name, which travels in the property `type`, among the
classes that the reader knows: bytes of a stranger never choose what is made.  A field that is missing takes its default.
Of a union the first type that fits is made; a value that another of its types would take, or that does not fit the type of its
field, is refused when it is written.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgpack  # type: ignore[import-untyped]

from warrenmq.checks import shown
from warrenmq.errors import ArgumentTypeError, ArgumentValueError

_PLAIN = (bool, int, float, str)
_LISTS = (list, tuple, set, frozenset)
_TEXTS: dict[type, Callable[[str], Any]] = {
    datetime: datetime.fromisoformat, date: date.fromisoformat, Decimal: Decimal, UUID: UUID,
}  # fmt: skip


_hints = lru_cache(maxsize=256)(get_type_hints)
"""The types of a dataclass's fields: 12 us a time, for each dataclass in a state."""


def _json_bytes(value: object) -> bytes:
    _check_text_keys(value)
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


_CODECS: dict[str, tuple[str, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "msgpack": (
        "application/msgpack",
        msgpack.packb,
        lambda data: msgpack.unpackb(data, strict_map_key=False),
    ),
    "json": ("application/json", _json_bytes, json.loads),
}


class Codec:
    """The encoding of one actor's messages and state.

    content_type   of what it writes
    """

    def __init__(self, name: str, classes: Iterable[type] = ()) -> None:
        """`name` is "msgpack" or "json"; `classes` are the dataclasses that are known by their names."""
        if name not in _CODECS:
            raise ArgumentValueError(f"there is no codec {shown(name)}; use {', '.join(_CODECS)}")
        self.content_type, self._write, self._read = _CODECS[name]
        self._classes: dict[str, type] = {}
        for each in classes:
            if not (isinstance(each, type) and dataclasses.is_dataclass(each)):
                what = each.__name__ if isinstance(each, type) else f"a value {shown(each)}"
                raise ArgumentTypeError(
                    f"{what} is not a dataclass; messages lists the dataclasses of an actor"
                )
            if self._classes.setdefault(each.__name__, each) is not each:
                raise ArgumentValueError(f"two messages are called {each.__name__}; rename one")

    def encode(self, value: Any) -> tuple[bytes, str | None]:
        """Encode a value; returns the bytes and its dataclass's name, if it is one.  ArgumentTypeError for
        values that the types of its fields do not take.
        """
        name = None
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            name = type(value).__name__
            if self._classes.get(name) is not type(value):
                known = ", ".join(self._classes) or "none"
                raise ArgumentTypeError(f"{name} is not among the messages of this actor, which are: {known}")
        try:
            plain = _plain(value)
            if name is not None:
                _check_unions(type(value), value, name)
                read(type(value), plain)
            return self._write(plain), name
        except (TypeError, ValueError, OverflowError, RecursionError) as why:
            raise ArgumentTypeError(f"{type(value).__name__} cannot be written: {why}") from why

    def state_bytes(self, state: Any, kind: Any) -> bytes:
        """Encode a state, which must decode equal; `kind` is the type that it is decoded as.  ArgumentTypeError."""
        try:
            plain = _plain(state)
            if kind is Any:
                _check_comes_back(state)
            else:
                _check_same(state, read(kind, plain), "the state")
            return self._write(plain)
        except (TypeError, ValueError, OverflowError, RecursionError) as why:
            raise ArgumentTypeError(f"the state cannot be written: {why}") from why

    def decode(self, data: bytes, name: str | None) -> Any:
        """Decode a value; ArgumentValueError for unknown bytes or dataclass names."""
        try:
            value = self._read(data)
        except Exception as why:
            reason = str(why) or type(why).__name__  # msgpack's errors have no words
            raise ArgumentValueError(f"the message is not {self.content_type}: {reason}") from why
        if name is None:
            return value
        if (known := self._classes.get(name)) is None:
            raise ArgumentValueError(
                f"there is no message {shown(name)} here, only {', '.join(self._classes) or 'plain data'}"
            )
        try:
            return read(known, value)
        except ArgumentValueError:
            raise
        except Exception as why:
            raise ArgumentValueError(f"the message is not {name}: {why}") from why


def _check_text_keys(value: Any) -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise TypeError(
                    f"JSON has text as keys, not {type(key).__name__}; make it text, or take the codec msgpack"
                )
            _check_text_keys(each)
    elif isinstance(value, list):
        for each in value:
            _check_text_keys(each)


def _check_comes_back(value: Any) -> None:
    if type(value) is dict:
        for key, each in value.items():
            _check_comes_back(key)
            _check_comes_back(each)
    elif type(value) is list:
        for each in value:
            _check_comes_back(each)
    elif value is not None and type(value) not in (*_PLAIN, bytes):
        raise TypeError(
            f"{type(value).__name__} in it comes back as another type; say what it is with state_type"
        )


def _check_same(value: Any, back: Any, place: str) -> None:
    """Raise TypeError for an object that comes back as something else; one kind of list for another will do."""
    kind, found = type(value), type(back)
    is_equal = isinstance(value, _PLAIN) and back == value
    if found is not kind and not is_equal and not (kind in _LISTS and found in _LISTS):
        raise TypeError(
            f"a {kind.__name__} in {place} would come back as a {found.__name__}; give it a type that tells it apart"
        )
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            in_field = f"{kind.__name__}.{field.name}"
            before, after = getattr(value, field.name, None), getattr(back, field.name, None)
            if field.init:
                _check_same(before, after, in_field)
            elif field.compare and before != after:
                raise TypeError(
                    f"{in_field} is not written, as it is no argument of {kind.__name__}; make it one, or give it compare=False"
                )
    elif isinstance(value, dict):
        _check_same([*value.keys(), *value.values()], [*back.keys(), *back.values()], place)
    elif isinstance(value, list | tuple):
        for one, each in zip(value, back, strict=True):
            _check_same(one, each, place)


def _check_unions(kind: Any, value: Any, place: str) -> None:
    """Raise TypeError for a value in a union that would be read as another of its types."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        back = read(kind, _plain(value))
        if type(back) is not type(value) and not isinstance(value, _LISTS) and back != value:
            raise TypeError(
                f"a {type(value).__name__} in {place} would come back as a {type(back).__name__}; "
                "the types of a union need fields, or an order, that tell them apart"
            )
        for each in inner:
            if (get_origin(each) or each) is type(value):
                _check_unions(each, value, place)
    elif dataclasses.is_dataclass(value) and isinstance(kind, type):
        hints = _hints(kind)
        for field in dataclasses.fields(value):
            if field.init and field.name in hints:
                _check_unions(hints[field.name], getattr(value, field.name), f"{kind.__name__}.{field.name}")
    elif isinstance(value, _LISTS) and inner:
        kinds = inner if origin is tuple and inner[-1] is not Ellipsis else [inner[0]] * len(value)
        for one, each in zip(kinds, value, strict=False):
            _check_unions(one, each, place)
    elif isinstance(value, dict) and inner:
        for key, each in value.items():
            _check_unions(inner[0], key, place)
            _check_unions(inner[1], each, place)


def _plain(value: Any) -> Any:
    if value is None or type(value) in _PLAIN or type(value) is bytes:
        return value
    if isinstance(value, Enum):
        return _plain(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value) if each.init
        }
    if isinstance(value, _LISTS):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, _PLAIN):  # of a subclass
        return next(kind(value) for kind in _PLAIN if isinstance(value, kind))
    raise TypeError(
        f"there is no way to write {type(value).__name__}; use plain data, dataclasses, enums, dates, Decimal or UUID"
    )


def read(kind: Any, value: Any) -> Any:
    """Convert a plain value to this type; ArgumentValueError if it does not fit."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or isinstance(kind, str):
        return value
    if origin in (Union, types.UnionType):
        return _of_union(inner, value)
    if kind is None or kind is type(None):
        return _expect(value, value is None, "nothing")
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _dataclass(kind, _expect(value, isinstance(value, dict), kind.__name__))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _made(lambda given: _member(kind, given), value, kind.__name__)
    if kind in _TEXTS:
        return _made(_TEXTS[kind], _expect(value, isinstance(value, str), kind.__name__), kind.__name__)
    container = origin or kind
    if container in _LISTS:
        return _sequence(container, inner, _expect(value, isinstance(value, list), "a list"))
    if container is dict:
        _expect(value, isinstance(value, dict), "a map")
        keys, values = inner or (Any, Any)
        return {read(keys, key): read(values, each) for key, each in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    if kind in (*_PLAIN, bytes):
        return _expect(value, type(value) is kind, kind.__name__)
    return value


def _member(kind: type[Enum], plain: Any) -> Enum:
    """The member of an enum whose value was written as this."""
    found = [each for each in kind if _plain(each) == plain]
    return found[0] if found else kind(plain)


def _of_union(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in kinds:
        try:
            return read(kind, value)
        except ArgumentValueError:
            continue
    raise ArgumentValueError(
        f"{shown(value)} is none of {', '.join(getattr(kind, '__name__', str(kind)) for kind in kinds)}"
    )


def _sequence(container: Any, inner: tuple[Any, ...], value: list[Any]) -> Any:
    if container is tuple and inner and inner[-1] is not Ellipsis:
        _expect(value, len(value) == len(inner), f"a tuple of {len(inner)}")
        return tuple(read(kind, each) for kind, each in zip(inner, value, strict=True))
    kind = inner[0] if inner else Any
    return container(read(kind, each) for each in value)


def _dataclass(kind: type, value: dict[str, Any]) -> Any:
    hints = _hints(kind)
    fields = {each.name: each for each in dataclasses.fields(kind) if each.init}
    if unknown := sorted(map(str, value.keys() - fields.keys())):
        raise ArgumentValueError(f"{kind.__name__} has no field {unknown[0]!r}")
    return _made(
        lambda given: kind(**given),
        {name: _read_field(kind, name, hints[name], each) for name, each in value.items()},
        kind.__name__,
    )


def _read_field(of: type, name: str, kind: Any, value: Any) -> Any:
    try:
        return read(kind, value)
    except ArgumentValueError as why:
        raise ArgumentValueError(f"{of.__name__}.{name}: {why}") from why


def _expect(value: Any, holds: bool, what: str) -> Any:
    if not holds:
        raise ArgumentValueError(f"{shown(value)} is not {what}")
    return value


def _made(make: Callable[[Any], Any], value: Any, what: str) -> Any:
    try:
        return make(value)
    except Exception as why:  # of the class's own __post_init__, or the enum's _missing_
        raise ArgumentValueError(f"{shown(value)} is not {what}: {why}") from why
