"""Chooses the rows of a trace to read, so that pieces without any are passed over.

    {"actor": "queue:jobs", "ev": ["PUBLISH", "ACK"], "t": [0, 5_000_000_000]}

| condition on     | is                                   | passes a piece over when its head says                          |
| ---------------- | ------------------------------------ | --------------------------------------------------------------- |
| run, actor, kind | a name, or some                      | that it is another's                                            |
| t, seq           | the first and the last that is read  | that it ends before, or begins after                            |
| ev               | the name of an event, or some        | (it does not say: other events are left out after unpacking)    |

All conditions must hold.  Only rows that fulfil them are read.

Why not filters that Spark pushes down: in Spark 4.3 all queries of one DataFrame share what a Python data
source was last told, so the two sides of a join would both read with the filters of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

from warrenmq.errors import CallerError
from warrenmq.trace.catalog import FOREVER, NEVER, Chunk
from warrenmq.trace.schema import event_named

Conditions = Mapping[str, str | Sequence[str] | Sequence[int]]
_RANGES = ("t", "seq")
_NAMES = ("run", "actor", "kind", "ev")


@dataclass(frozen=True)
class Only:
    """The conditions, checked; goes to the workers by value."""

    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Column -> smallest and largest value."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """Column -> its values."""

    @classmethod
    def of(cls, conditions: Conditions) -> Only:
        """CallerError if a condition makes no sense."""
        only = cls()
        for column, value in conditions.items():
            try:
                values: list[Any] = [value] if isinstance(value, str) else list(value)
                if column in _NAMES and all(isinstance(each, str) for each in values):
                    only.names[column] = [_event(each) for each in values] if column == "ev" else values
                    continue
                if column in _RANGES:
                    first, last = map(index, values)
                    only.ranges[column] = (_as_long(first), _as_long(last))
                    continue
            except (TypeError, ValueError):
                pass
            raise CallerError(
                f"only={{{column!r}: {value!r}}}: {', '.join(_NAMES)} take a name or several, {' and '.join(_RANGES)} "
                "the first and the last number."
            )
        return only

    def of_events(self, names: Iterable[str]) -> Only:
        """Narrow the conditions to these events."""
        chosen = [name for name in names if name in self.names.get("ev", [name])]
        return Only(self.ranges, {**self.names, "ev": chosen})

    def as_option(self) -> str:
        """The conditions as text, for option("only", ...)."""
        return json.dumps({**self.ranges, **self.names})

    @classmethod
    def from_option(cls, text: str) -> Only:
        """The inverse; CallerError if the text is no object of JSON, too."""
        try:
            conditions = json.loads(text)
        except ValueError:
            conditions = None
        if not isinstance(conditions, dict):
            raise CallerError(
                f'option("only", ...) is an object of JSON such as {{"seq": [1, 100]}}, not {text!r}.'
            )
        return cls.of(conditions)

    def may_be_in(self, chunk: Chunk, run: str, actor: str | None, kind: str | None) -> bool:
        """True if a piece can hold a row that is read."""
        for column, value in (("run", run), ("actor", actor), ("kind", kind)):
            if column in self.names and value not in self.names[column]:
                return False
        low, high = self.ranges.get("t", (NEVER, FOREVER))
        first, last = self.ranges.get("seq", (NEVER, FOREVER))
        return (
            chunk.t_last >= low
            and chunk.t_first <= high
            and chunk.seq_end > first
            and chunk.seq_first <= last
        )

    @property
    def of_rows(self) -> list[str]:
        """The columns that rows of a piece are chosen by."""
        return [*self.ranges, *(column for column in ("ev",) if column in self.names)]


def _as_long(number: int) -> int:
    """The nearest number that a column can hold."""
    return max(NEVER, min(FOREVER, number))


def _event(name: str) -> str:
    """The name of an event as rows have it; one of a later version is "?" and its number."""
    return name if name.startswith("?") else event_named(name).name


EVERYTHING = Only()
"""No conditions."""
