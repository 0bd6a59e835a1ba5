"""The states of machines as bytes, for a checkpoint (live_store.py): msgpack, so that reading them runs no code.

Lists, dicts, strings, bytes and numbers are as msgpack has them.  All else is an extension: tuples, sets,
arrays, counters, larger integers, bytearrays that are fields, and the objects of this package that have named
fields, by the class and in the order of its fields.  Objects that two fields share are two objects when they
are read.
"""

from __future__ import annotations

import dataclasses
import zlib
from array import array
from collections import Counter
from enum import IntEnum
from functools import lru_cache
from importlib import import_module
from typing import Any

import msgpack  # type: ignore[import-untyped]

from warrenmq.errors import CallerError


class _Ext(IntEnum):
    """The code of an extension."""

    TUPLE = 0
    SET = 1
    FROZENSET = 2
    ARRAY = 3
    COUNTER = 4
    INT = 5
    BYTEARRAY = 6
    OBJECT = 7


_PLAIN: dict[type[Any], _Ext] = {tuple: _Ext.TUPLE, set: _Ext.SET, frozenset: _Ext.FROZENSET}
_MAKE = {code: kind for kind, code in _PLAIN.items()}


def pack(value: Any) -> bytes:
    """The bytes of a state; TypeError for an object of a kind that is not named above."""
    return zlib.compress(_packed(value), 1)


def unpack(packed: bytes) -> Any:
    """The state of these bytes; CallerError when they were not written by `pack` of this version."""
    try:
        return _unpacked(zlib.decompress(packed))
    except (zlib.error, ValueError, TypeError, LookupError, AttributeError, ImportError) as error:
        raise CallerError(
            f"a state of the checkpoint cannot be read: {error}. Begin with a new checkpoint directory."
        ) from error


def _packed(value: Any) -> bytes:
    packed: bytes = msgpack.packb(
        value, default=_extension, strict_types=True, unicode_errors="surrogatepass"
    )
    return packed


def _unpacked(packed: bytes) -> Any:
    return msgpack.unpackb(packed, ext_hook=_value, strict_map_key=False, unicode_errors="surrogatepass")


def _extension(value: Any) -> Any:
    kind = type(value)
    if (code := _PLAIN.get(kind)) is not None:
        return msgpack.ExtType(code, _packed(list(value)))
    if kind is int:
        return msgpack.ExtType(_Ext.INT, str(value).encode())
    if kind is array:
        return msgpack.ExtType(_Ext.ARRAY, value.typecode.encode() + value.tobytes())
    if kind is Counter:
        return msgpack.ExtType(_Ext.COUNTER, _packed(dict(value)))
    name = f"{kind.__module__}:{kind.__qualname__}"
    return msgpack.ExtType(_Ext.OBJECT, _packed([name, *(_field(value, each) for each in _fields(name))]))


def _field(of: Any, name: str) -> Any:
    value = getattr(of, name)
    return msgpack.ExtType(_Ext.BYTEARRAY, bytes(value)) if type(value) is bytearray else value


def _value(code: int, data: bytes) -> Any:
    if code in _MAKE:
        return _MAKE[_Ext(code)](_unpacked(data))
    if code == _Ext.INT:
        return int(data)
    if code == _Ext.ARRAY:
        return array(data[:1].decode(), data[1:])
    if code == _Ext.COUNTER:
        return Counter(_unpacked(data))
    if code == _Ext.BYTEARRAY:
        return bytearray(data)
    name, *values = _unpacked(data)
    kind, fields = _class(name), _fields(name)
    if issubclass(kind, tuple):
        return kind._make(values)  # type: ignore[attr-defined]  # a named tuple: `_fields` has seen to that
    made = object.__new__(kind)
    for field, value in zip(fields, values, strict=True):
        object.__setattr__(made, field, value)
    return made


@lru_cache(maxsize=256)
def _class(name: str) -> type[Any]:
    """A class of this package by name; a checkpoint can name no other."""
    module, _, qualified = name.partition(":")
    found = getattr(import_module(module), qualified) if module.startswith("warrenmq.") else None
    if not isinstance(found, type):
        raise TypeError(f"a state can be no {name!r}: it is no class of warrenmq")
    return found


@lru_cache(maxsize=256)
def _fields(name: str) -> tuple[str, ...]:
    kind = _class(name)
    if dataclasses.is_dataclass(kind):
        return tuple(each.name for each in dataclasses.fields(kind))
    fields: tuple[str, ...] | None = getattr(
        kind, "_fields" if issubclass(kind, tuple) else "__slots__", None
    )
    if fields is None:
        raise TypeError(f"a state can be no {name}: it is no dataclass or named tuple, and has no __slots__")
    return fields
