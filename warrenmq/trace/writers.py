"""The functions that write rows, one for each event.

    _confirm = writer(Confirm)
    seq = _confirm(trace, CONFIRM_DURABLE, message, first_seq_id, count)        # or by name; a type checker knows both

`trace` is the ActorTrace of the actor that speaks.  The row is safe when the function returns; the result is the row's seq.

A row costs about as much as a few calls of Python functions, and every message leads to six or more of them.  So events that are
written for each message have a function without loops and star arguments: one of those below whose names begin with an underscore,
by how many columns the event has.  All others share `_general`, which takes twice as long and defines what a writer does; a test
holds them equal.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import FunctionType
from typing import Any, Concatenate, ParamSpec

from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.row_check import CHECK_MASK, mix
from warrenmq.trace.schema import FLAG, STORED, Event

P = ParamSpec("P")
Write = Callable[..., int]
PackInto = Callable[..., None]

_error = struct.error
_ROW_BYTES = 72


def writer(event: Callable[P, object]) -> Callable[Concatenate[ActorTrace, P], int]:
    """The function that writes rows of an event (a class of events.py); its arguments are the event's columns."""
    assert isinstance(event, type)
    assert issubclass(event, Event)
    made: Callable[Concatenate[ActorTrace, P], int] = _writer(event)
    return made


def _writer(event: type[Event[Any]]) -> Write:
    columns = event.columns
    places = [column.place for column in columns]
    ordered = [place for place in (FLAG, *STORED) if place in places]
    if all(column.is_whole for column in columns):
        straight = _STRAIGHT.get((FLAG in places, len(columns)))
        if straight is not None and places == ordered:
            return _renamed(straight(_packing(event), event.number), event)
    elif places == [*ordered, ordered[-1]] and all(each.is_whole for each in columns[:-2]):
        high, low = columns[-2:]
        if len(columns) == _ACK_COLUMNS and low.shift == 0:
            return _renamed(
                _two_in_one(_packing(event), event.number, high.shift, high.mask, low.mask), event
            )
    elif places == [*ordered, ordered[-1], ordered[-1]] and all(each.is_whole for each in columns[:-3]):
        high, middle, low = columns[-3:]
        if len(columns) == _PUBLISH_COLUMNS and low.shift == 0:
            return _renamed(_three_in_one(_packing(event), event.number, high.shift, middle.shift), event)
    return _general(event)


def _packing(event: type[Event[Any]]) -> PackInto:
    """The `pack_into` of a row of the event: t, seq, the columns that it uses, event, actor and check.

    Columns that it does not use are bytes that `pack_into` fills with zeros.
    """
    form = "".join("q" if place in event.places else "8x" for place in STORED)
    return struct.Struct(f"<qq{form}{'B' if FLAG in event.places else 'x'}BIH").pack_into


def _renamed(write: Write, event: type[Event[Any]]) -> Write:
    """Copy a function with the names and defaults of the event's columns as its parameters after `trace`."""
    assert isinstance(write, FunctionType)
    name, old = event.name.lower(), write.__code__
    names = ("trace", *(column.name for column in event.columns))
    code = old.replace(co_name=name, co_varnames=names + old.co_varnames[len(names) :])
    defaults = tuple(column.default for column in event.columns if column.default is not None)
    return FunctionType(code, write.__globals__, name, defaults, write.__closure__)


def _general(event: type[Event[Any]]) -> Write:
    """A writer of any event: columns in any order, several in one place, or none."""
    columns, number, pack_into = event.columns, event.number, _packing(event)
    parts = [(event.places.index(column.place), column.shift, column.mask) for column in columns]
    width, width_stored = len(columns), len(event.places)

    def complete(values: tuple[int, ...], named: dict[str, int]) -> list[int]:
        rest = columns[len(values) :]
        missing = [each.name for each in rest if each.default is None and each.name not in named]
        if missing or len(values) > width or named.keys() - {each.name for each in rest}:
            raise TypeError(f"{event.name} takes {', '.join(each.name for each in columns)}")
        return [*values, *(named.get(each.name, each.default or 0) for each in rest)]

    def write(trace: ActorTrace, /, *values: int, **named: int) -> int:
        given = complete(values, named) if named or len(values) != width else values
        stored = [0] * width_stored
        for value, (at, shift, mask) in zip(given, parts, strict=True):
            stored[at] |= value if mask == -1 else (value & mask) << shift
        t = trace.clock()
        if t <= trace.last_t:
            t = trace.last_t + 1
        trace.last_t = t
        trace.seq = seq = trace.seq + 1
        at, me = trace.at, trace.id
        try:
            check = mix((t, seq, *stored, number, me)) & CHECK_MASK
            pack_into(trace.slab, at, t, seq, *stored, number, me, check)
        except _error:
            trace.write_unsigned(at, pack_into, (t, seq, *stored, number, me))
        trace.at = at = at + _ROW_BYTES
        if at == trace.end:
            trace.full()
        return seq

    return write


# Writers without a loop: `flag` and so many other columns, each a stored column of its own, in the order in which they are stored.  What the
# functions have in common stands in each of them, since a call would cost as much again; clock.py and row_check.py explain it.


def _flag_and_one(pack_into: PackInto, number: int) -> Write:
    def write(trace: ActorTrace, flag: int, c1: int) -> int:
        t = trace.clock()
        if t <= trace.last_t:
            t = trace.last_t + 1
        trace.last_t = t
        trace.seq = seq = trace.seq + 1
        at, me = trace.at, trace.id
        try:
            check = mix((t, seq, c1, flag, number, me)) & CHECK_MASK
            pack_into(trace.slab, at, t, seq, c1, flag, number, me, check)
        except _error:
            trace.write_unsigned(at, pack_into, (t, seq, c1, flag, number, me))
        trace.at = at = at + _ROW_BYTES
        if at == trace.end:
            trace.full()
        return seq

    return write


def _flag_and_two(pack_into: PackInto, number: int) -> Write:
    def write(trace: ActorTrace, flag: int, c1: int, c2: int) -> int:
        t = trace.clock()
        if t <= trace.last_t:
            t = trace.last_t + 1
        trace.last_t = t
        trace.seq = seq = trace.seq + 1
        at, me = trace.at, trace.id
        try:
            check = mix((t, seq, c1, c2, flag, number, me)) & CHECK_MASK
            pack_into(trace.slab, at, t, seq, c1, c2, flag, number, me, check)
        except _error:
            trace.write_unsigned(at, pack_into, (t, seq, c1, c2, flag, number, me))
        trace.at = at = at + _ROW_BYTES
        if at == trace.end:
            trace.full()
        return seq

    return write


def _flag_and_three(pack_into: PackInto, number: int) -> Write:
    def write(trace: ActorTrace, flag: int, c1: int, c2: int, c3: int) -> int:
        t = trace.clock()
        if t <= trace.last_t:
            t = trace.last_t + 1
        trace.last_t = t
        trace.seq = seq = trace.seq + 1
        at, me = trace.at, trace.id
        try:
            check = mix((t, seq, c1, c2, c3, flag, number, me)) & CHECK_MASK
            pack_into(trace.slab, at, t, seq, c1, c2, c3, flag, number, me, check)
        except _error:
            trace.write_unsigned(at, pack_into, (t, seq, c1, c2, c3, flag, number, me))
        trace.at = at = at + _ROW_BYTES
        if at == trace.end:
            trace.full()
        return seq

    return write


def _flag_and_four(pack_into: PackInto, number: int) -> Write:
    def write(trace: ActorTrace, flag: int, c1: int, c2: int, c3: int, c4: int) -> int:
        t = trace.clock()
        if t <= trace.last_t:
            t = trace.last_t + 1
        trace.last_t = t
        trace.seq = seq = trace.seq + 1
        at, me = trace.at, trace.id
        try:
            check = mix((t, seq, c1, c2, c3, c4, flag, number, me)) & CHECK_MASK
            pack_into(trace.slab, at, t, seq, c1, c2, c3, c4, flag, number, me, check)
        except _error:
            trace.write_unsigned(at, pack_into, (t, seq, c1, c2, c3, c4, flag, number, me))
        trace.at = at = at + _ROW_BYTES
        if at == trace.end:
            trace.full()
        return seq

    return write


def _flag_and_five(pack_into: PackInto, number: int) -> Write:
    def write(trace: ActorTrace, flag: int, c1: int, c2: int, c3: int, c4: int, c5: int) -> int:
        t = trace.clock()
        if t <= trace.last_t:
            t = trace.last_t + 1
        trace.last_t = t
        trace.seq = seq = trace.seq + 1
        at, me = trace.at, trace.id
        try:
            check = mix((t, seq, c1, c2, c3, c4, c5, flag, number, me)) & CHECK_MASK
            pack_into(trace.slab, at, t, seq, c1, c2, c3, c4, c5, flag, number, me, check)
        except _error:
            trace.write_unsigned(at, pack_into, (t, seq, c1, c2, c3, c4, c5, flag, number, me))
        trace.at = at = at + _ROW_BYTES
        if at == trace.end:
            trace.full()
        return seq

    return write


def _flag_and_six(pack_into: PackInto, number: int) -> Write:
    def write(trace: ActorTrace, flag: int, c1: int, c2: int, c3: int, c4: int, c5: int, c6: int) -> int:
        t = trace.clock()
        if t <= trace.last_t:
            t = trace.last_t + 1
        trace.last_t = t
        trace.seq = seq = trace.seq + 1
        at, me = trace.at, trace.id
        try:
            check = mix((t, seq, c1, c2, c3, c4, c5, c6, flag, number, me)) & CHECK_MASK
            pack_into(trace.slab, at, t, seq, c1, c2, c3, c4, c5, c6, flag, number, me, check)
        except _error:
            trace.write_unsigned(at, pack_into, (t, seq, c1, c2, c3, c4, c5, c6, flag, number, me))
        trace.at = at = at + _ROW_BYTES
        if at == trace.end:
            trace.full()
        return seq

    return write


def _five(pack_into: PackInto, number: int) -> Write:
    def write(trace: ActorTrace, c1: int, c2: int, c3: int, c4: int, c5: int) -> int:
        t = trace.clock()
        if t <= trace.last_t:
            t = trace.last_t + 1
        trace.last_t = t
        trace.seq = seq = trace.seq + 1
        at, me = trace.at, trace.id
        try:
            check = mix((t, seq, c1, c2, c3, c4, c5, number, me)) & CHECK_MASK
            pack_into(trace.slab, at, t, seq, c1, c2, c3, c4, c5, number, me, check)
        except _error:
            trace.write_unsigned(at, pack_into, (t, seq, c1, c2, c3, c4, c5, number, me))
        trace.at = at = at + _ROW_BYTES
        if at == trace.end:
            trace.full()
        return seq

    return write


def _two_in_one(pack_into: PackInto, number: int, shift: int, high_mask: int, low_mask: int) -> Write:
    """Make the writer of ACK: a flag, four columns, and two that share the last one."""

    def write(trace: ActorTrace, flag: int, c1: int, c2: int, c3: int, c4: int, high: int, low: int) -> int:
        c5 = (high & high_mask) << shift | low & low_mask
        t = trace.clock()
        if t <= trace.last_t:
            t = trace.last_t + 1
        trace.last_t = t
        trace.seq = seq = trace.seq + 1
        at, me = trace.at, trace.id
        try:
            check = mix((t, seq, c1, c2, c3, c4, c5, flag, number, me)) & CHECK_MASK
            pack_into(trace.slab, at, t, seq, c1, c2, c3, c4, c5, flag, number, me, check)
        except _error:
            trace.write_unsigned(at, pack_into, (t, seq, c1, c2, c3, c4, c5, flag, number, me))
        trace.at = at = at + _ROW_BYTES
        if at == trace.end:
            trace.full()
        return seq

    return write


def _three_in_one(pack_into: PackInto, number: int, high_shift: int, middle_shift: int) -> Write:
    """Make the writer of PUBLISH: a flag, five columns, and three that share the last one, which have to fit into their bits."""

    def write(
        trace: ActorTrace,
        flag: int,
        c1: int,
        c2: int,
        c3: int,
        c4: int,
        c5: int,
        high: int,
        middle: int,
        low: int,
    ) -> int:
        c6 = high << high_shift | middle << middle_shift | low
        t = trace.clock()
        if t <= trace.last_t:
            t = trace.last_t + 1
        trace.last_t = t
        trace.seq = seq = trace.seq + 1
        at, me = trace.at, trace.id
        try:
            check = mix((t, seq, c1, c2, c3, c4, c5, c6, flag, number, me)) & CHECK_MASK
            pack_into(trace.slab, at, t, seq, c1, c2, c3, c4, c5, c6, flag, number, me, check)
        except _error:
            trace.write_unsigned(at, pack_into, (t, seq, c1, c2, c3, c4, c5, c6, flag, number, me))
        trace.at = at = at + _ROW_BYTES
        if at == trace.end:
            trace.full()
        return seq

    return write


_ACK_COLUMNS, _PUBLISH_COLUMNS = 7, 9
_STRAIGHT: dict[tuple[bool, int], Callable[[PackInto, int], Write]] = {
    (True, 2): _flag_and_one,
    (True, 3): _flag_and_two,
    (True, 4): _flag_and_three,
    (True, 5): _flag_and_four,
    (True, 6): _flag_and_five,
    (True, 7): _flag_and_six,
    (False, 5): _five,
}
"""(True if there is a flag, columns of the event with the flag) -> who makes its writer."""
