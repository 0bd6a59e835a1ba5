"""An ActorTrace whose rows a test looks at, and rows of any event by their stored columns."""

from __future__ import annotations

from itertools import count
from typing import Any

from warrenmq.trace.block import ROW, raw_columns
from warrenmq.trace.index import rows_of
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.row_check import SLAB_ROW
from warrenmq.trace.schema import EVENTS, Event, Row
from warrenmq.trace.slab import EMPTY_ROW

_ROWS = 4096


class KeptRows(ActorTrace):
    """A trace of one actor, in memory, with a clock that only counts."""

    def __init__(self, actor: int = 1, tick: count[int] | None = None) -> None:
        self.tick = tick or count(1)
        super().__init__(self, actor, memoryview(bytearray(EMPTY_ROW * _ROWS)))
        self._taken = 0
        self.closed = False

    def now(self) -> int:
        """For ActorTrace: this is its recorder, too."""
        return next(self.tick)

    def close(self) -> None:
        """ACTOR_STOP was the last row."""
        self.closed = True

    def rows(self) -> list[Row]:
        """All that were written."""
        raw = bytearray(self.slab[: self.at])
        for end in range(ROW.size, len(raw) + 1, ROW.size):
            raw[end - 2 : end] = bytes(2)  # the check
        return rows_of(raw_columns(bytes(raw)))

    def said(self) -> list[tuple[type[Event[Any]], dict[str, int]]]:
        """The rows by the names of their columns, those that are not 0."""
        found = []
        for row in self.rows():
            event = EVENTS[row.event]
            values = {column.name: value for column, value in event.of(row).items() if value}
            found.append((event, values))
        return found

    def take(self) -> list[tuple[type[Event[Any]], dict[str, int]]]:
        """The same, of the rows since the last time."""
        self._taken, since = len(said := self.said()), self._taken
        return said[since:]

    def of(self, event: type[Event[Any]]) -> list[dict[str, int]]:
        """The columns of the rows of one event."""
        return [values for its, values in self.said() if its is event]


def emit(
    trace: ActorTrace,
    event: int,
    flag: int = 0,
    msg: int = 0,
    peer: int = 0,
    pseq: int = 0,
    a: int = 0,
    b: int = 0,
    c: int = 0,
) -> int:
    """Write a row by its stored columns, of any event, as a writer does."""
    trace.last_t = t = max(trace.now(), trace.last_t + 1)
    trace.seq += 1
    row = (t, trace.seq, msg, peer, pseq, a, b, c, flag, int(event), trace.id)
    trace.write_unsigned(trace.at, SLAB_ROW.pack_into, row)
    trace.at += SLAB_ROW.size
    if trace.at == trace.end:
        trace.full()
    return trace.seq
