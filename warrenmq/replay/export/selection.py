"""Which rows of a trace are wanted, and those rows in the order of their times.

Times of one run are one hybrid logical clock, so their order respects causes: a receive comes after its send.  Runs
come one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import attrgetter

from warrenmq.errors import CallerError
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.events import COVERS_SEQ_IDS, Ev
from warrenmq.trace.index import Row
from warrenmq.trace.reader import Trace

_IN_QUEUE = frozenset({Ev.PUBLISH, Ev.RECOVERED})


@dataclass(frozen=True)
class Selection:
    """What is wanted; all of it has to hold."""

    actors: frozenset[str] = frozenset()
    """Names; empty = all."""
    begin_ns: int = 0
    """Since the first row of a run."""
    end_ns: int | None = None
    message: int | None = None
    """One message, by the number that traces know it by: its rows in all actors."""


def select_rows(trace: Trace, wanted: Selection) -> Iterator[tuple[int, Row]]:
    """(index of the run, row), run by run, in the order of t; CallerError for a message that no row names."""
    catalog = trace.catalog
    life = None if wanted.message is None else _Life.of(trace, wanted.message)
    if unknown := wanted.actors - {entry.name for run in catalog.runs for entry in run.actors.values()}:
        raise CallerError(
            f"no actor of this trace is called {min(unknown)!r}; `warrenmq replay` lists the queues."
        )
    for number, its in groupby(catalog.chunks, key=attrgetter("run")):
        chunks = list(its)
        run = catalog.runs[number]
        origin = min(chunk.t_first for chunk in chunks)
        first = origin + wanted.begin_ns
        last = None if wanted.end_ns is None else origin + wanted.end_ns
        of_actors: dict[int, list[Chunk]] = {}
        for chunk in chunks:
            if (not wanted.actors or run.actor_name(chunk.actor) in wanted.actors) and (
                chunk.t_last >= first and (last is None or chunk.t_first <= last)
            ):
                of_actors.setdefault(chunk.actor, []).append(chunk)
        for row in merge(*(_rows(trace, each) for each in of_actors.values())):
            if last is not None and row[0] > last:
                break
            if row[0] >= first and (life is None or life.has(run, row)):
                yield number, row


def _rows(trace: Trace, chunks: list[Chunk]) -> Iterator[Row]:
    for chunk in sorted(chunks, key=attrgetter("order")):
        yield from trace.rows(chunk)


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
                named = named or row[2] == message
                if row[8] >> 8 & 0xFF in _IN_QUEUE and row[2] and row[2] <= message < row[2] + row[6]:
                    named = True
                    name = trace.catalog.runs[chunk.run].actor_name(chunk.actor)
                    places.add((name, row[5] + message - row[2]))
        if not named:
            raise CallerError(f"no row of this trace speaks of message {message}.")
        return cls(message, frozenset(places))

    def has(self, run: Run, row: Row) -> bool:
        event = row[8] >> 8 & 0xFF
        if event in COVERS_SEQ_IDS and not row[2]:
            name = run.actor_name(row[8] >> 16)
            return any(name == queue and row[5] <= seq < row[5] + row[6] for queue, seq in self.places)
        count = row[6] if event in COVERS_SEQ_IDS or event == Ev.SEND else 1
        return bool(row[2]) and row[2] <= self.message < row[2] + max(count, 1)
