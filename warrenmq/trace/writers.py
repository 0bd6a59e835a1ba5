"""The functions that write rows, one for each event.

    _confirm = writer(Confirm)
    seq = _confirm(trace, CONFIRM_DURABLE, message, first_seq_id, count)        # or by name; a type checker knows both

`trace` is the ActorTrace of the actor that speaks.  The row is safe when the function returns; the result is the row's seq.

The functions are made from one text, as the standard library makes those of dataclasses and named tuples.  A row costs about as much as
a few calls of Python functions, and every message leads to five or more of them: a loop over the columns, star arguments or a call of
what the writers have in common would each cost a third of the row again.  So each event has a function with its own columns as
parameters and as names in its text, and its number in it.  Nothing comes into the text but the names and numbers in events.py.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec

from warrenmq.trace.block import ROW
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.row_check import CHECK_MASK, mix
from warrenmq.trace.schema import FLAG, STORED, Column, Event

P = ParamSpec("P")
Write = Callable[..., int]

_TEXT = """\
def {name}(trace, {parameters}):
    {combined}
    _clock = trace.clock
    _t = _clock()
    if _t <= trace.last_t:
        _t = trace.last_t + 1
    trace.last_t = _t
    trace.seq = _seq = trace.seq + 1
    _at = trace.at
    _me = trace.id
    try:
        pack_into(trace.slab, _at, {row}, mix(({row})) & {check_mask})
    except error:
        trace.write_unsigned(_at, pack_into, ({row}))
    trace.at = _at = _at + {row_bytes}
    if _at == trace.end:
        trace.full()
    return _seq
"""
"""A writer; clock.py explains its times, row_check.py its check.  Its own names begin with an underscore, those of columns do not.

The clock is looked up before it is called, as a call of `trace.clock()` takes Python 0.02 us more to look for a method of that name.
"""

_made: dict[int, Write] = {}
"""The writers by the numbers of their events: several modules ask for the same ones."""


def writer(event: Callable[P, object]) -> Callable[Concatenate[ActorTrace, P], int]:
    """The function that writes rows of an event (a class of events.py); its arguments are the event's columns."""
    assert isinstance(event, type)
    assert issubclass(event, Event)
    if event.number not in _made:
        _made[event.number] = _compiled(event)
    return _made[event.number]


def _compiled(event: type[Event[Any]]) -> Write:
    text, file = text_of(event), f"<writer of {event.name}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # for tracebacks
    names: dict[str, Any] = {"pack_into": _packing(event).pack_into, "mix": mix, "error": struct.error}
    exec(compile(text, file, "exec"), names)  # noqa: S102 - only names and numbers of events.py are filled in
    made: Write = names[event.name.lower()]
    return made


def text_of(event: type[Event[Any]]) -> str:
    """The text of an event's writer."""
    by_place: dict[str, list[Column]] = {place: [] for place in event.places}
    for column in event.columns:
        by_place[column.place].append(column)
    shared = {
        place: columns for place, columns in by_place.items() if len(columns) > 1 or not columns[0].is_whole
    }
    values = (f"_{place}" if place in shared else by_place[place][0].name for place in event.places)
    return _TEXT.format(
        name=event.name.lower(),
        parameters=", ".join(map(_parameter, event.columns)),
        combined="; ".join(f"_{place} = {_combined(columns)}" for place, columns in shared.items()),
        row=", ".join(("_t", "_seq", *values, str(event.number), "_me")),
        check_mask=CHECK_MASK,
        row_bytes=ROW.size,
    )


def _parameter(column: Column) -> str:
    return column.name if column.default is None else f"{column.name}={column.default}"


def _combined(columns: Iterable[Column]) -> str:
    """The values that share a stored column, each in its bits."""
    return " | ".join(map(_in_its_bits, columns))


def _in_its_bits(column: Column) -> str:
    shift = f" << {column.shift}" if column.shift else ""
    return column.name if column.mask == -1 else f"({column.name} & {column.mask}){shift}"


def _packing(event: type[Event[Any]]) -> struct.Struct:
    """A row of the event: t, seq, the columns that it uses, event, actor and check.

    Columns that it does not use are bytes that `pack_into` fills with zeros.
    """
    form = "".join("q" if place in event.places else "8x" for place in STORED)
    return struct.Struct(f"<qq{form}{'B' if FLAG in event.places else 'x'}BIH")
