"""Checks of what an application passes to the face: types, ranges and lengths, each refused in one sentence.

All calls check their arguments here, before anything is sent to an actor: what goes on from here is made of Python's own
types (an instance of a subclass becomes a plain str, int or dict, whatever it overrides), so that nothing of the
application runs in an actor's thread.  A wrong type is an ArgumentTypeError, a wrong value an ArgumentValueError; where
RabbitMQ or AMQP 0-9-1 has a rule, it is that rule:

    names, keys of bindings          str of at most 255 bytes of UTF-8 (AMQP's short string)
    routing key, text properties     str that UTF-8 can hold; a client of AMQP gets what fits into a short string
    body                             bytes, bytearray or memoryview up to max_message_size; copied unless it is bytes
    tables (arguments, headers)      names are short strings; values those of the table in `_value`; at most 100 deep
    priority, delivery_mode          0 to 255; 1 or 2
    timestamp                        datetime with a time zone or whole seconds, not before 1970
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from warrenmq.checks import (
    flag,
    is_a,
    mapping,
    of_this_process,
    seconds,
    short_text,
    shown,
    text,
    whole,
    wrong_type,
)
from warrenmq.errors import ArgumentTypeError, ArgumentValueError, PreconditionFailed
from warrenmq.message.properties import TRANSIENT, Properties
from warrenmq.message.typed_headers import TypedHeaders
from warrenmq.seams.memory import LARGE, check_room

MAX_DEPTH = 100
"""Nesting of a table: far from the limits of the recursive functions that read it."""
MAX_VALUES = 1 << 17
"""Values of one table: a method has to fit into a frame, whose default limit is as many bytes."""
_INTEGERS = range(-(1 << 63), 1 << 64)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_SCALE = 255
_BYTES = (bytes, bytearray, memoryview)


class Named:
    """A handle of a queue or an exchange: it may be passed wherever a name is expected."""

    name: str
    __reduce__ = of_this_process


def name(what: str, value: Any) -> str:
    """The name of a queue or an exchange, of which the handle will do."""
    if is_a(value, Named):
        value = value.name
    elif not is_a(value, str):
        raise wrong_type(what, value, "a name as a str, or what its declaration returned")
    return short_text(what, value)


# -- bodies


def body(value: Any, largest: int) -> bytes:
    """A message's body, as bytes that the application cannot change any more."""
    if not is_a(value, _BYTES):
        advice = (
            "encode it, as in text.encode()" if is_a(value, str) else "give bytes, bytearray or memoryview"
        )
        kind = type(value).__name__
        raise ArgumentTypeError(f"a message's body is bytes, not {kind}; {advice}")
    found: bytes
    if is_a(value, bytes):
        found = value if type(value) is bytes else bytes.__getitem__(value, slice(None))
    elif is_a(value, bytearray):
        found = bytes(bytearray.__getitem__(value, slice(None)))
    else:
        try:
            found = value.tobytes()
        except ValueError as why:
            raise ArgumentValueError(f"a message's body cannot be read: {why}") from why
    if len(found) > largest:
        raise PreconditionFailed(
            f"a message's body has {len(found)} bytes and max_message_size is {largest}; split it, or raise the setting",
            reply_text=f"message size {len(found)} is larger than configured max size {largest}",
        )
    if len(found) > LARGE:
        check_room(len(found))
    return found


def bodies(values: Iterable[Any], largest: int) -> list[bytes]:
    """The bodies of several messages; what the iterable raises is raised."""
    check_bodies(values)
    found: list[Any] = list(values)
    if found and (set(map(type, found)) != {bytes} or max(map(len, found)) > largest):
        found = [body(each, largest) for each in found]
    if (size := sum(map(len, found))) > LARGE:
        check_room(size)
    return found


def check_bodies(values: object) -> None:
    """Refuse what is one body, or no iterable."""
    if is_a(values, (*_BYTES, str)):
        raise ArgumentTypeError(f"bodies is one {type(values).__name__}; give a list of bodies, as in [body]")
    if not is_a(values, Iterable):
        raise wrong_type("bodies", values, "an iterable of bytes")


# -- tables


def table(what: str, value: Any) -> dict[str, Any]:
    """A field table of AMQP, in plain dicts and lists of its own; None is an empty one."""
    return _Table(what, decimals=True).table(mapping(what, value), 0)


class _Table:
    """One table on its way from the application's objects to plain ones."""

    def __init__(self, what: str, *, decimals: bool) -> None:
        """`decimals`: whether it is stored where decimals can be; a message's headers are not."""
        self._what = what
        self._decimals = decimals
        self._left = MAX_VALUES

    def table(self, items: list[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        found = {}
        for key, inner in items:
            plain = short_text(f"a name in {self._what}", key)
            found[plain] = self._value(plain, inner, depth)
        return found

    def _value(self, key: str, value: Any, depth: int) -> Any:
        """Check one value, and make it plain.

        | Python                        | AMQP                                            |
        | ----------------------------- | ----------------------------------------------- |
        | None, bool, float             | void, boolean, double                           |
        | int                           | the first integer that fits, up to 64 bits      |
        | str                           | text, of any length                             |
        | bytes, bytearray, memoryview  | bytes                                           |
        | Decimal, in arguments only    | decimal: finite, at most 255 digits after the point |
        | datetime                      | timestamp: with a time zone, not before 1970    |
        | list, tuple                   | array                                           |
        | dict, any Mapping             | table                                           |
        """
        self._left -= 1
        what = f"{self._what}[{shown(key)}]"
        if self._left < 0:
            raise ArgumentValueError(f"{self._what} has too many values; give at most {MAX_VALUES}")
        if depth >= MAX_DEPTH:
            raise ArgumentValueError(
                f"{self._what} is nested too deeply, or contains itself; nest at most {MAX_DEPTH} deep"
            )
        if value is None or value is True or value is False:
            return value
        if is_a(value, str):
            return text(what, value)
        if is_a(value, int):
            return whole(what, int.__int__(value), _INTEGERS[0], _INTEGERS[-1])
        if is_a(value, float):
            return float.__float__(value)
        if is_a(value, _BYTES):
            return body(value, _INTEGERS[-1])
        if is_a(value, Decimal) and self._decimals:
            return _decimal(what, value)
        if is_a(value, datetime):
            return time(what, value)
        if is_a(value, (list, tuple)):
            kind: Any = list if is_a(value, list) else tuple
            return [self._value(key, each, depth + 1) for each in kind.__getitem__(value, slice(None))]
        if is_a(value, Mapping):
            return self.table(mapping(what, value), depth + 1)
        raise wrong_type(
            what,
            value,
            "a value that AMQP has a type for, as str, int, float, bool, bytes, datetime, list or dict",
        )


def _decimal(what: str, value: Decimal) -> Decimal:
    found = Decimal(Decimal.__str__(value))
    exponent = found.as_tuple().exponent
    if not isinstance(exponent, int) or not -_MAX_SCALE <= exponent <= _MAX_SCALE:
        raise ArgumentValueError(
            f"{what} is a decimal that AMQP cannot hold; give a finite one with at most {_MAX_SCALE} digits"
        )
    return found


def time(what: str, value: datetime) -> datetime:
    """A point in time that AMQP's timestamp can hold."""
    try:
        since: timedelta = datetime.__sub__(value, _EPOCH)
        plain = _EPOCH + since
    except Exception as why:
        raise ArgumentValueError(
            f"{what} is a datetime without a usable time zone; give one with tzinfo, as datetime.now(UTC)"
        ) from why
    if since < timedelta(0):
        raise ArgumentValueError(f"{what} is a datetime before 1970; give a later one")
    return plain


# -- properties


def properties(value: Any) -> Properties | None:
    """The basic properties of a publish; None when there are none."""
    if value is None:
        return None
    if type(value) is not Properties:
        raise wrong_type(
            "properties", value, "a warrenmq.Properties, as in Properties(headers={...}), or None"
        )
    changed = {}
    for each, check in _PROPERTIES:
        given = getattr(value, each)
        if given is not None and (plain := check(each, given)) is not given:
            changed[each] = plain
    return replace(value, **changed) if changed else value


def publish_arguments(exchange: object, routing_key: object, given: object, persistent: object = True, mandatory: object = False,
                      timeout: object = None) -> tuple[str, str, Properties | None, bool, bool, float | None]:  # fmt: skip
    """The arguments of a publish besides its bodies: exchange, routing key, properties, persistent, mandatory, timeout."""
    plain = properties(given)
    is_persistent = flag("persistent", persistent)
    if not is_persistent:  # a copy in a dead-letter queue must not become persistent
        plain = replace(plain or Properties(), delivery_mode=TRANSIENT)
    return (
        name("exchange", exchange), text("routing_key", routing_key), plain,
        is_persistent, flag("mandatory", mandatory), seconds("timeout", timeout),
    )  # fmt: skip


def _expiration(what: str, value: Any) -> str:
    if is_a(value, str):
        return short_text(what, value)
    raise wrong_type(what, value, "milliseconds as text in digits, as in '60000'")


def _headers(what: str, value: Any) -> dict[str, Any]:
    if type(value) is TypedHeaders:  # checked when it was made
        return value
    return _Table(what, decimals=False).table(mapping(what, value), 0)


def _timestamp(what: str, value: Any) -> datetime | int:
    if is_a(value, datetime):
        return time(what, value)
    return whole(what, value, 0, _INTEGERS[-1])


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "headers": _headers,
    "delivery_mode": lambda what, value: whole(what, value, 1, 2),
    "priority": lambda what, value: whole(what, value, 0, 255),
    "expiration": _expiration,
    "timestamp": _timestamp,
}
_PROPERTIES: tuple[tuple[str, Callable[[str, Any], Any]], ...] = tuple(
    (each.name, _CHECKS.get(each.name, text)) for each in fields(Properties)
)
