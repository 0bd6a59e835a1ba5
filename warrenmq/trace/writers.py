"""The functions that write rows, one for each event.

    _confirm = writer(Confirm)
    seq = _confirm(trace, CONFIRM_DURABLE, message, first_seq_id, count)        # or by name; a type checker knows both

`trace` is the ActorTrace of the actor that speaks.  The row is safe when the function returns; the result is the row's seq.

All of them do the same: they make room if there is none, take a time above the last one (clock.py), and pack
the row with its check (row_check.py); they differ in the columns.  The handler of a signal may raise, or write rows of
the same trace, anywhere: the row is there, and counted, or it is not.  Each message has rows of its own, and a row costs no
more than a few calls of Python functions: so a function that takes any event's columns, and loops over them,
would cost twice as much, one with `*columns` 0.15 us more than the 0.5 of a function with names for them, a
partial of one for so many columns 0.05.  Instead each event's function is made from one template, with its
own columns as parameters, as the standard library makes the methods of its dataclasses; that takes 0.1 ms an
event.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Concatenate, ParamSpec

from warrenmq.trace.block import ROW
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.row_check import CHECK_MASK, mix
from warrenmq.trace.schema import EVENTS, FLAG, STORED, Event

P = ParamSpec("P")
Write = Callable[..., int]

_TEMPLATE = """
def write(trace, {parameters}):
    {joined}
    clock = trace.clock  # looked up before it is called: `trace.clock()` takes Python 0.02 us more, to look for a method of that name
    while True:
        at, last = trace.at, trace.seq
        if at == trace.end:
            trace.full()
            continue
        t = clock()
        if t <= trace.last_t:
            t = trace.last_t + 1
        seq, me = last + 1, trace.id
        check = mix((t, seq, {stored} {event}, me)) & {CHECK_MASK}
        if last == trace.seq:  # no handler of a signal has written rows since
            break
    # one step, behind which handlers are called
    trace.last_t, trace.seq, trace.at = t, seq, at + {row_size}
    try:
        pack(trace.slab, at, t, seq, {stored} {event}, me, check)
    except struct_error:  # for a number above 63 bits
        trace.write_unsigned(at, pack, (t, seq, {stored} {event}, me))
    return seq
"""


def writer(event: Callable[P, object]) -> Callable[Concatenate[ActorTrace, P], int]:
    """The function that writes rows of an event (a class of events/); its arguments are the event's columns."""
    assert isinstance(event, type)
    assert issubclass(event, Event)
    return _made(event.number)


@cache
def _made(number: int) -> Write:
    event = EVENTS[number]
    stored, joined = [], []
    for place in event.places:
        columns = [column for column in event.columns if column.place == place]
        if len(columns) == 1 and columns[0].is_whole:
            stored.append(columns[0].name)
        else:
            bits = [f"({column.name} & {column.mask}) << {column.shift}" for column in columns]
            joined.append(f"{place} = {' | '.join(bits)}")
            stored.append(place)
    source = _TEMPLATE.format(
        parameters=", ".join(
            column.name if column.default is None else f"{column.name}={column.default}"
            for column in event.columns
        ),
        joined="; ".join(joined),
        stored="".join(f"{name}, " for name in stored),
        event=number,
        CHECK_MASK=CHECK_MASK,
        row_size=ROW.size,
    )
    made: dict[str, Any] = {"mix": mix, "pack": _packing(event), "struct_error": struct.error}
    exec(compile(source, f"<writer of {event.name}>", "exec"), made)  # noqa: S102 - from the declarations in events/ alone
    write: Write = made["write"]
    return write


def _packing(event: type[Event[Any]]) -> Callable[..., None]:
    """Pack a row of the event: t, seq, the columns that it uses, event, actor and check.

    Columns that it does not use are bytes that `pack_into` fills with zeros.
    """
    form = "".join("q" if place in event.places else "8x" for place in STORED)
    return struct.Struct(f"<qq{form}{'B' if FLAG in event.places else 'x'}BIH").pack_into
