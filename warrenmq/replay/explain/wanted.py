"""Which rows somebody asks for, and which pieces of a trace can hold any of them.

A frame's head names its run, its one actor, and the first and last t and seq in it, so a piece is passed over without being
unpacked:

    condition on       passes a piece over when
    run, actor, kind   the piece is another's
    t, seq             the piece ends before, or begins after
    ev                 never: the head does not say which events; rows of other events are dropped after unpacking

Several conditions must all hold.  What cannot be used is ignored: whoever asks looks at the rows again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from warrenmq.trace.catalog import FOREVER, NEVER, Chunk

_RANGES = ("t", "seq")
_SETS = ("run", "actor", "kind", "ev")


@dataclass(frozen=True)
class Wanted:
    """The conditions, put together; goes to the workers by value."""

    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Column -> smallest and largest value."""
    sets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Column -> the values."""

    def narrowed(self, column: str, operator: str, values: Iterable[object]) -> Wanted:
        """One condition more: operator is "=" (one of the values), "<", "<=", ">" or ">=" (of one value)."""
        if column in _SETS and operator == "=":
            found = frozenset(value for value in values if isinstance(value, str))
            return replace(self, sets={**self.sets, column: self.sets.get(column, found) & found})
        numbers = [value for value in values if isinstance(value, int)]
        if column not in _RANGES or not numbers:
            return self
        low, high = self.ranges.get(column, (NEVER, FOREVER))
        match operator:
            case "=":
                low, high = max(low, min(numbers)), min(high, max(numbers))
            case "<" | "<=":
                high = min(high, numbers[0] - (operator == "<"))
            case ">" | ">=":
                low = max(low, numbers[0] + (operator == ">"))
        return replace(self, ranges={**self.ranges, column: (low, high)})

    def may_be_in(self, chunk: Chunk, run: str, actor: str | None, kind: str | None) -> bool:
        """True if a piece can hold a row that is wanted."""
        for column, value in (("run", run), ("actor", actor), ("kind", kind)):
            if column in self.sets and value not in self.sets[column]:
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
    def events(self) -> frozenset[str] | None:
        """Names of the events, None = all."""
        return self.sets.get("ev")
