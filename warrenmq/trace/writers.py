"""The functions that write rows, one for each event, made from the registry.

    _confirm = writer(Confirm)
    seq = _confirm(trace, CONFIRM_DURABLE, message, first_seq_id, count)        # or by name; a type checker knows both

`trace` is the ActorTrace of the actor that speaks; the row is safe when the function returns, which gives the row's seq.

Why made, and not one function for all events: a row costs about as much as the call around it, and a function of one event has no
arguments, and no work, for the columns that its event leaves empty.  It is compiled when it is first asked for, as namedtuple
compiles its constructors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.row_check import CHECK_MASK, SLAB_ROW, mix
from warrenmq.trace.schema import COLUMNS, FLAG, Column, Event

P = ParamSpec("P")

_STORED = COLUMNS[2:-1]
"""msg, peer, pseq, a, b, c."""

# The clock's rules (clock.py) and the row's check (row_check.py) are written out: a call would cost as much again.
_TEMPLATE = """
def {name}(trace{parameters}):
    t = trace._now()
    if t <= trace.last_t:
        t = trace.last_t + 1
    trace.last_t = t
    trace._seq = seq = trace._seq + 1
    at = trace._at
    me = trace.id{composed}
    try:
        check = mix((t, seq, {all}, {number}, me)) & {mask}
        pack_into(trace._slab, at, t, seq, {used}{flag}, {number}, me, check)
    except error:
        # Unsigned 64-bit numbers are taken, too, as the same bits.
        trace.write_at(at, t, seq, {all}, {number})
    trace._at = at = at + {bytes}
    if at == trace._end:
        trace._full()
    return seq
"""


def writer(event: Callable[P, object]) -> Callable[Concatenate[ActorTrace, P], int]:
    """The function that writes rows of an event (a class of events.py); its arguments are the event's columns."""
    assert isinstance(event, type)
    assert issubclass(event, Event)
    made: Callable[Concatenate[ActorTrace, P], int] = _compiled(event)
    return made


def _compiled(event: type[Event[Any]]) -> Any:
    parameters = "".join(
        f", {each.name}" + ("" if each.default is None else f"={each.default}") for each in event.columns
    )
    stored = {
        place: _expression([each for each in event.columns if each.place == place])
        for place in (*_STORED, FLAG)
    }
    composed = ""
    for place, expression in stored.items():
        if not expression.isidentifier() and expression != "0":
            composed += f"\n    _{place} = {expression}"
            stored[place] = f"_{place}"
    used = "".join(f"{stored[place]}, " for place in _STORED if stored[place] != "0")
    # Columns that are not used are bytes that `pack_into` fills with zeros.
    form = "".join("8x" if stored[place] == "0" else "q" for place in _STORED)
    source = _TEMPLATE.format(
        name=event.name.lower(),
        parameters=parameters,
        composed=composed,
        all=", ".join(stored[place] for place in (*_STORED, FLAG)),
        used=used,
        flag=stored[FLAG],
        number=event.number,
        mask=CHECK_MASK,
        bytes=SLAB_ROW.size,
    )
    names: dict[str, Any] = {
        "mix": mix,
        "pack_into": struct.Struct(f"<qq{form}BBIH").pack_into,
        "error": struct.error,
    }
    exec(source, names)  # noqa: S102 - made of the registry alone
    return names[event.name.lower()]


def _expression(columns: list[Column]) -> str:
    """The values that share a stored column, as the one number that is stored."""
    terms = []
    for column in columns:
        if column.is_whole:
            terms.append(column.name)
        else:
            cut = f"{column.name} & {column.mask}"
            terms.append(f"({cut}) << {column.shift}" if column.shift else f"({cut})")
    if len(terms) > 1:
        return f"({' | '.join(terms)})"
    return terms[0] if terms else "0"
