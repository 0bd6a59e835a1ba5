"""Conditions on rows of a trace: they decide which answer to a question is right.

    APPEND = 1                          one row of this event
    STORE_WRITE decision=IGNORE > 0     rows of it whose column has this value
    READ source=DIRECT actor=queue:orders = 2
    sum RECOVERED count = 3             the sum of a column instead of the number of rows

A value is a number, or the name of a member of the column's type (trace/words.py has them).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from warrenmq.errors import CallerError
from warrenmq.trace.events import Ev
from warrenmq.trace.schema import EVENTS, Column, Row

_FORM = re.compile(
    r"(?P<what>[A-Z_]+|sum [A-Z_]+ \w+)(?P<where>(?: \w+=[^\s=]+)*) (?P<sign>=|<|>|<=|>=) (?P<number>\d+)"
)
_SIGNS: dict[str, Callable[[int, int], bool]] = {
    "=": operator.eq, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Count:
    """A comparison of a number of rows, or of a sum, with a number."""

    event: int
    summed: Column | None
    where: tuple[tuple[Column, int], ...]
    actor: str
    sign: str
    number: int

    def holds(self, rows: Iterable[tuple[str, Row]]) -> bool:
        """True if the comparison holds for these rows, given with the names of their actors."""
        total = 0
        for actor, row in rows:
            if row.event == self.event and (not self.actor or actor == self.actor):
                view = EVENTS[self.event].of(row)
                if all(getattr(view, column.name) == value for column, value in self.where):
                    total += 1 if self.summed is None else getattr(view, self.summed.name)
        return _SIGNS[self.sign](total, self.number)


def condition(text: str) -> Count:
    """Parse a condition; CallerError, in one sentence, if it is malformed."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise CallerError(
            f"{text!r} is no condition; write it as APPEND = 1 or STORE_WRITE decision=IGNORE > 0."
        )
    words = found["what"].removeprefix("sum ").split()
    if words[0] not in Ev.__members__:
        raise CallerError(f"{text!r}: there is no event {words[0]}.")
    event = EVENTS[Ev[words[0]]]
    columns = {column.name: column for column in event.columns}
    actor, where = "", []
    for pair in found["where"].split():
        name, _, value = pair.partition("=")
        if name == "actor":
            actor = value
        else:
            where.append((_column(columns, name, text), _value(columns[name], value, text)))
    summed = _column(columns, words[1], text) if len(words) > 1 else None
    return Count(event.number, summed, tuple(where), actor, found["sign"], int(found["number"]))


def _column(columns: dict[str, Column], name: str, text: str) -> Column:
    if name not in columns:
        raise CallerError(f"{text!r}: there is no column {name}; there are: {', '.join(columns)}.")
    return columns[name]


def _value(column: Column, value: str, text: str) -> int:
    if value.isdecimal():
        return int(value)
    type_ = column.type
    if isinstance(type_, type) and issubclass(type_, (IntEnum, IntFlag)) and value in type_.__members__:
        return int(type_[value])
    raise CallerError(f"{text!r}: {column.name} has no value {value}.")
