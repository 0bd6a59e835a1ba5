"""Selects rows of a trace and gives them in the order of their times.

Times of one run are one hybrid logical clock, so their order respects causes: a receive comes after its send.  Runs
come one after the other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from warrenmq.errors import CallerError
from warrenmq.trace.catalog import FOREVER, Chunk, Run
from warrenmq.trace.events import Ev, message_ids_of, seq_ids_of
from warrenmq.trace.index import rows_of
from warrenmq.trace.reader import Trace
from warrenmq.trace.schema import Row


@dataclass(frozen=True)
class Selection:
    """Conditions on rows; a row is selected when it meets all of them."""

    actors: frozenset[str] = frozenset()
    """Names; empty = all."""
    begin_ns: int = 0
    """The beginning of the selection, in ns since the first row of a run."""
    end_ns: int | None = None
    message: int | None = None
    """One message, by the number that traces know it by: its rows in all actors."""


def select_rows(trace: Trace, wanted: Selection) -> Iterator[tuple[int, Row]]:
    """(index of the run, row), run by run, in the order of t; CallerError for a message that no row names."""
    choice = Choice(trace, wanted)
    return ((run, row) for run, row in rows_in_order(trace, choice) if choice.has(run, row))


class Pieces(Protocol):
    """Protocol that selects pieces of a trace."""

    def may_have(self, chunk: Chunk, /) -> bool:
        """False if no row of a piece is wanted."""


class Choice:
    """A selection from a trace; CallerError for a message or an actor that no row names."""

    def __init__(self, trace: Trace, wanted: Selection) -> None:
        self._runs = trace.catalog.runs
        self._actors = wanted.actors
        if unknown := wanted.actors - {entry.name for run in self._runs for entry in run.actors.values()}:
            raise CallerError(
                f"no actor of this trace is called {min(unknown)!r}; `warrenmq replay` lists the queues."
            )
        self._life = None if wanted.message is None else _Life.of(trace, wanted.message)
        self._spans: dict[int, tuple[int, int]] = {}
        for number, its in groupby(trace.catalog.chunks, key=attrgetter("run")):
            origin = min(chunk.t_first for chunk in its)
            end = FOREVER if wanted.end_ns is None else origin + wanted.end_ns
            self._spans[number] = origin + wanted.begin_ns, end

    def may_have(self, chunk: Chunk) -> bool:
        """False if no row of a piece is wanted."""
        first, last = self._spans[chunk.run]
        name = self._runs[chunk.run].actor_name(chunk.actor)
        return (not self._actors or name in self._actors) and chunk.t_last >= first and chunk.t_first <= last

    def has(self, number: int, row: Row) -> bool:
        """True if a row of a run is wanted."""
        first, last = self._spans[number]
        run = self._runs[number]
        return (
            first <= row.t <= last
            and (not self._actors or run.actor_name(row.actor) in self._actors)
            and (self._life is None or self._life.has(run, row))
        )


def rows_in_order(
    trace: Trace, choice: Pieces | None = None, *, since: tuple[int, int] = (0, 0)
) -> Iterator[tuple[int, Row]]:
    """(index of the run, row), run by run, in the order of t; of the pieces alone that a choice may want, and
    none before `since` = (run, t).

    A piece is decoded when its first row is next, and let go behind its last: what is in memory is a piece of
    each actor at most.
    """
    for number, its in groupby(trace.catalog.chunks, key=attrgetter("run")):
        begun: list[tuple[Row, int, Iterator[Row]]] = []
        begin = since[1] if number == since[0] else 0
        wanted = [
            chunk
            for chunk in its
            if number >= since[0] and chunk.t_last >= begin and (choice is None or choice.may_have(chunk))
        ]
        for order, chunk in enumerate(sorted(wanted, key=attrgetter("t_first"))):
            yield from ((number, row) for row in _until(begun, chunk.t_first))
            columns = trace.columns(chunk)
            if chunk.t_first < begin:
                first = bisect_left(columns[0], begin)
                columns = [column[first:] for column in columns]
            rows = iter(rows_of(columns))
            heappush(begun, (next(rows), order, rows))
        yield from ((number, row) for row in _until(begun, FOREVER))


def _until(begun: list[tuple[Row, int, Iterator[Row]]], t: int) -> Iterator[Row]:
    """The rows before a time, of pieces that are sorted by the row that each comes to next."""
    while begun and begun[0][0].t < t:
        row, order, rows = begun[0]
        yield row
        following = next(rows, None)
        if following is None:
            heappop(begun)
        else:
            heapreplace(begun, (following, order, rows))


@dataclass(frozen=True)
class _Life:
    """The rows of one message: those that name it, and in its queues those that name its sequence id."""

    message: int
    places: frozenset[tuple[str, int]]
    """(queue process, sequence id)."""

    @classmethod
    def of(cls, trace: Trace, message: int) -> _Life:
        places, named = set(), False
        for chunk in trace.catalog.chunks:
            for row in trace.rows(chunk):
                if message in (its := message_ids_of(row)):
                    named = True
                    if row.event == Ev.PUBLISH:
                        name = trace.catalog.runs[chunk.run].actor_name(chunk.actor)
                        places.add((name, seq_ids_of(row)[message - its[0]]))
        if not named:
            raise CallerError(f"no row of this trace speaks of message {message}.")
        return cls(message, frozenset(places))

    def has(self, run: Run, row: Row) -> bool:
        if self.message in message_ids_of(row):
            return True
        its = () if row.msg else seq_ids_of(row)
        return any(seq_id in its and run.actor_name(row.actor) == queue for queue, seq_id in self.places)
