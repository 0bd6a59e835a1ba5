"""A unit: rows that stand close together in a trace, as columns of 64-bit integers, and what is asked of columns.

A unit has rows of one run, actor by actor, each actor's in the order of its pieces.  Pieces of one actor that follow
each other without a gap are joined, so that what is paid for a piece is paid for ten thousand rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from warrenmq.trace.block import Stored, decode_into
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.index import rows_of
from warrenmq.trace.schema import COLUMNS, Row

try:
    import numpy as np
except ImportError:  # the array forms of machines stay unused, and engine.py runs the machines themselves
    np = None  # type: ignore[assignment]
if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]
    Places = npt.NDArray[np.intp]
    Bytes = npt.NDArray[np.uint8]
else:
    Ints = Bools = Places = Bytes = Any
__all__ = [
    "UNIT_ROWS", "Bools", "Bytes", "Ints", "Places", "Rows", "Unit", "codes", "doubles", "expand", "group_starts", "groups", "look_up",
    "make_unit", "np", "parts_of", "touches", "units_of",
]  # fmt: skip

UNIT_ROWS = 1 << 19
"""Rows after which a unit is closed: enough for most messages to be sent, received, confirmed and acked within one."""
_MAJOR_BITS, _MINOR_BITS = 19, 44
_FEW = 4
"""Events up to which comparing bytes with each of them is quicker than a table."""


class Rows:
    """Rows as columns, which have the names that trace/events/ gives them.

    A choice of rows makes a column when it is asked for: most readers need a few of the nine.
    """

    __slots__ = ("_made", "_places", "_whole")

    def __init__(self, whole: dict[str, Any], places: Places | None = None) -> None:
        self._whole = whole
        self._places = places
        """The places of these rows in `whole`; None = all."""
        self._made: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Ints:
        """A column: t, seq, msg, peer, pseq, a, b, c, who."""
        if name not in self._whole:
            raise AttributeError(name)
        found: Ints = self._column(name)
        return found

    @property
    def event(self) -> Bytes:
        """The event of each row, as a byte; made once of all rows, as it is asked for more often than any column."""
        if "event" not in self._whole:
            self._whole["event"] = (self._whole["who"] >> 8).astype(np.uint8)
        found: Bytes = self._column("event")
        return found

    def _column(self, name: str) -> Any:
        if self._places is None:
            return self._whole[name]
        if name not in self._made:
            self._made[name] = self._whole[name].take(self._places)
        return self._made[name]

    def __getitem__(self, index: int) -> Ints:
        """A stored column by its place: a view of an event (trace/schema.py) reads it by name."""
        found: Ints = self._column(COLUMNS[index])
        return found

    def are(self, events: Collection[int]) -> Bools:
        """True for each row of one of these events."""
        if len(events) <= _FEW:
            found = np.zeros(len(self), np.bool_)
            for event in events:
                found |= self.event == event
            return found
        wanted = np.zeros(256, np.bool_)
        wanted[list(events)] = True
        return wanted.take(self.event)

    def where(self, chosen: Bools) -> Rows:
        """The rows chosen by a mask."""
        return self.at(np.flatnonzero(chosen))

    def at(self, places: Places) -> Rows:
        """The rows at these indices."""
        return Rows(self._whole, places if self._places is None else self._places.take(places))

    def between(self, first: int, end: int) -> Rows:
        """The rows of a range of indices."""
        if self._places is not None:
            return Rows(self._whole, self._places[first:end])
        return Rows({name: column[first:end] for name, column in self._whole.items()})

    def by_actors(self, least: int) -> Iterator[Rows]:
        """Parts of at least so many rows, but for the last, each with all rows of its actors: rows come actor by actor."""
        first = 0
        for end in [*group_starts(self.actor)[1:].tolist(), len(self)]:
            if end - first >= least or first < end == len(self):
                yield self.between(first, end)
                first = end

    def tuples(self) -> list[Row]:
        """The rows as Row tuples, the form that machines take."""
        return rows_of([self._column(name) for name in COLUMNS])

    def table(self) -> Ints:
        """The rows as an array of nine columns."""
        return np.stack([self._column(name) for name in COLUMNS], axis=1)

    @property
    def actor(self) -> Ints:
        return self.who >> 16

    @property
    def flag(self) -> Ints:
        return self.who & 0xFF

    def __len__(self) -> int:
        return len(self._whole["who"]) if self._places is None else len(self._places)


@dataclass(frozen=True, slots=True)
class Unit:
    """The rows of a part of a run, as columns; see the module."""

    run: int
    pieces: list[Chunk]
    """Joined ones, of which only run, actor, seq_first, rows, t_first, t_last and who mean anything."""
    rows: Rows

    def of(self, events: frozenset[int]) -> Rows:
        """The rows of these events; of all, if none is named."""
        return self.rows.where(self.chosen(events)) if events else self.rows

    def chosen(self, events: frozenset[int]) -> Bools:
        """True for each row of one of these events."""
        return self.rows.are(events)

    def of_each_piece(self, events: frozenset[int]) -> Iterator[tuple[Chunk, Rows]]:
        """The rows of these events, of all if none is named, of each piece that has any."""
        chosen = np.flatnonzero(self.chosen(events)) if events else np.arange(len(self.rows))
        return self.at_each_piece(chosen)

    def at_each_piece(self, places: Places) -> Iterator[tuple[Chunk, Rows]]:
        """The rows at these rising places, of each piece that has any."""
        ends = np.searchsorted(places, np.cumsum([piece.rows for piece in self.pieces])).tolist()
        first = 0
        for piece, end in zip(self.pieces, ends, strict=True):
            if end > first:
                yield piece, self.rows.at(places[first:end])
            first = end

    def parts(self) -> Iterator[tuple[Chunk, int]]:
        """The pieces, and where each begins."""
        first = 0
        for piece in self.pieces:
            yield piece, first
            first += piece.rows

    def is_sound(self) -> bool:
        """True if each piece numbers its rows without a gap, their t rises, and no actor has a row twice."""
        inside = np.ones(max(len(self.rows) - 1, 0), np.bool_)
        ends = np.cumsum([piece.rows for piece in self.pieces])[:-1]
        inside[ends - 1] = False
        return bool(
            np.all(np.diff(self.rows.seq)[inside] == 1)
            and np.all(np.diff(self.rows.t)[inside] > 0)
            and all(
                self.rows.seq[first] == piece.seq_first
                and np.all(self.rows.who[first : first + piece.rows] >> 16 == piece.actor)
                for piece, first in self.parts()
            )
            and all(
                one.actor < two.actor or (one.seq_end <= two.seq_first and one.t_last < two.t_first)
                for one, two in pairwise(self.pieces)
            )
        )


def units_of(pieces: Iterator[tuple[Chunk, Stored]]) -> Iterator[Unit]:
    """Pieces in the order of their place in a file -> units."""
    pending: list[tuple[Chunk, Stored]] = []
    rows = 0
    for piece in pieces:
        if pending and (rows >= UNIT_ROWS or pending[0][0].run != piece[0].run):
            yield make_unit(pending)
            pending, rows = [], 0
        pending.append(piece)
        rows += piece[0].rows
    if pending:
        yield make_unit(pending)


def make_unit(pieces: Sequence[tuple[Chunk, Stored]]) -> Unit:
    """Pieces (at least one) of one run as one unit."""
    ordered = sorted(pieces, key=lambda each: each[0].order)
    chunks = [piece for piece, _ in ordered]
    ends = np.cumsum([piece.rows for piece in chunks]).tolist()
    table = np.empty((len(COLUMNS), ends[-1]), "<i8")
    for (piece, stored), end in zip(ordered, ends, strict=True):
        decode_into(table[:, end - piece.rows : end], stored)
    rows = Rows(dict(zip(COLUMNS, table, strict=True)))
    return Unit(chunks[0].run, _joined(chunks), rows)


def _joined(pieces: list[Chunk]) -> list[Chunk]:
    joined = [pieces[0]]
    for piece in pieces[1:]:
        last = joined[-1]
        if (last.actor, last.seq_end) == (piece.actor, piece.seq_first) and last.t_last < piece.t_first:
            joined[-1] = last._replace(rows=last.rows + piece.rows, t_last=piece.t_last, who=piece.who)
        else:
            joined.append(piece)
    return joined


# -- questions


def codes(majors: Sequence[Ints], minors: Sequence[Ints]) -> list[Ints]:
    """Several lists of pairs -> for each list a number a pair: equal for equal pairs, in the order of the pairs."""
    major, minor = np.concatenate(majors), np.concatenate(minors)
    if not len(major):
        return [np.zeros(0, np.int64) for _ in majors]
    fits = (
        major.min() >= 0
        and major.max() < 1 << _MAJOR_BITS - 1
        and minor.min() >= 0
        and minor.max() < 1 << _MINOR_BITS
    )
    if fits:
        both = major << _MINOR_BITS | minor
    else:
        order = np.lexsort((minor, major))
        rises = np.ones(len(order), np.int64)
        rises[0] = 0
        rises[1:] = (np.diff(major[order]) != 0) | (np.diff(minor[order]) != 0)
        both = np.empty(len(order), np.int64)
        both[order] = np.cumsum(rises)
    return np.split(both, np.cumsum([len(each) for each in majors])[:-1])


def doubles(ordered: Ints) -> Bools:
    """True for each of these rising numbers that occurs more than once."""
    same = ordered[1:] == ordered[:-1]
    found = np.zeros(len(ordered), np.bool_)
    found[1:] |= same
    found[:-1] |= same
    return found


def look_up(ordered: Ints, wanted: Ints) -> tuple[Places, Bools]:
    """The place of each wanted number in rising ones, and True where it is there."""
    if not len(ordered):
        return np.zeros(len(wanted), np.intp), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return at, ordered[at] == wanted


def touches(firsts: Ints, lasts: Ints, wanted: Ints) -> Bools:
    """True for each range that holds one of these rising numbers."""
    found: Bools = np.searchsorted(wanted, firsts) < np.searchsorted(wanted, lasts, side="right")
    return found


def expand(firsts: Ints, counts: Ints) -> tuple[Places, Ints]:
    """Ranges -> each of their numbers: (which range it is from, the number)."""
    counts = np.maximum(counts, 0)
    which = np.repeat(np.arange(len(firsts)), counts)
    before = np.cumsum(counts) - counts
    return which, firsts[which] + np.arange(len(which)) - before[which]


def group_starts(ordered: Ints) -> Places:
    """The places at which groups of equal neighbours begin."""
    if not len(ordered):
        return np.zeros(0, np.intp)
    return np.concatenate(([0], np.flatnonzero(np.diff(ordered)) + 1))


def groups(ordered: Ints) -> Iterator[tuple[int, slice]]:
    """Each group of equal neighbours: the number, and where they are."""
    starts = group_starts(ordered)
    ends = np.append(starts, len(ordered))[1:]
    for value, first, end in zip(ordered[starts].tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield value, slice(first, end)


def parts_of(*tables: tuple[Ints, Ints]) -> Iterator[tuple[int, tuple[Ints, ...]]]:
    """Tables, with a number for each of their rows: each number with its rows of every table, flat and in their order."""
    parts: list[dict[int, Ints]] = []
    for numbers, rows in tables:
        order = np.argsort(numbers, kind="stable")
        parts.append({number: rows[order[its]].reshape(-1) for number, its in groups(numbers[order])})
    nothing = np.zeros(0, np.int64)
    for number in sorted(set().union(*parts)):
        yield number, tuple(part.get(number, nothing) for part in parts)
