"""The tables of `measures` from columns: what the rows of a unit add to them, and the rows that must meet
those of other units.

Tallies, levels and rare rows are the unit's own.  Delays pair rows of one queue by sequence id, and bodies
those of one message in a store, so these rows go to where the others of their chunk of ids or messages are.
Rows of store files are folded run by run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from warrenmq.replay.drive.columns import Ints, Rows, Unit, expand, group_starts, np
from warrenmq.replay.drive.levels import FALLS, RISES, Kind, LevelKey
from warrenmq.replay.explain.evidence import Placed
from warrenmq.replay.report.measures import (
    BODIES,
    CONFIRM_DELAY,
    CONSUMER_DELAY,
    RARE,
    SUMMED,
    TIMED,
    WAIT_DELAY,
    Tally,
    TallyKey,
    delays,
)
from warrenmq.replay.report.store_files import OF_FILES
from warrenmq.trace.events import CONFIRM_NACK, REDELIVERED, Decision, Ev, Publish, QiSync
from warrenmq.trace.schema import EVENTS, Row

TALLIES = (*TallyKey._fields, *(each.name for each in fields(Tally)))
LEVELS = (*LevelKey._fields, "rises", "falls", "ns")
CHUNK_BITS = 16
_NEVER = (1 << 63) - 1
_TALLIED = frozenset(SUMMED)


class TimedRows(NamedTuple):
    """Rows of TIMED of one queue, in their order, whose sequence ids are in one chunk or more."""

    event: Ints
    flag: Ints
    t: Ints
    first_seq_id: Ints
    messages: Ints


class BodyTimes(NamedTuple):
    """Messages of one store, each with what its rows say of it (measures.Body)."""

    msg: Ints
    size: Ints
    """-1 = nothing."""
    came: Ints
    went: Ints
    """-1 = not yet."""


@dataclass(slots=True)
class UnitMeasures:
    """The share of a unit in the measures; see the module."""

    rare: list[Placed]
    tallies: Ints
    """A row for each, with the columns of TALLIES."""
    levels: Ints
    """A row for each, with the columns of LEVELS."""
    timed: list[tuple[int, int, int, TimedRows]]
    """(queue, chunk, seq of the first row, rows)"""
    bodies: list[tuple[int, int, BodyTimes]]
    """(store, chunk of message ids, messages)"""
    of_files: list[Row]


def measure_unit(unit: Unit, slice_ns: int) -> UnitMeasures:
    """The measures of one unit."""
    return UnitMeasures(
        [Placed(unit.run, row) for row in unit.of(RARE).tuples()],
        _tallies(unit, slice_ns),
        _levels(unit, slice_ns),
        list(_timed(unit)),
        list(_bodies(unit)),
        unit.of(OF_FILES).tuples(),
    )


def summed(tables: Sequence[Ints], keys: int) -> Ints:
    """One table of these: rows whose first columns are equal, so many of them, as one with the sums of the others."""
    columns = list(np.concatenate(tables).T)
    return np.stack(_summed(columns[:keys], columns[keys:]), axis=1)


def _column(rows: Rows, event: int, name: str) -> Ints:
    (found,) = EVENTS[event].getter(name)(rows)
    return found


def _summed(keys: Sequence[Ints], values: Sequence[Ints]) -> list[Ints]:
    """Each combination of keys, with the sums of its values: as columns."""
    if not len(keys[0]):
        return [*keys, *values]
    order = np.lexsort(keys[::-1])
    ordered = [key.take(order) for key in keys]
    new = np.zeros(len(order), np.bool_)
    for key in ordered:
        new[1:] |= key[1:] != key[:-1]
    new[0] = True
    starts = np.flatnonzero(new)
    totals = [np.add.reduceat(value.take(order), starts) for value in values]
    return [*(key.take(starts) for key in ordered), *totals]


def _tuples(columns: Sequence[Ints]) -> Iterator[tuple[int, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _tallies(unit: Unit, slice_ns: int) -> Ints:
    rows = unit.of(_TALLIED)
    bits, count, size = (np.zeros(len(rows), np.int64) for _ in range(3))
    events = rows.event
    for event, its in SUMMED.items():
        at = np.flatnonzero(events == event)
        if len(at):
            chosen = rows.at(at)
            for place, name in its:
                (count if place == 1 else size)[at] += _column(chosen, event, name)
            if event == Ev.QI_SYNC:
                bits[at] = np.frexp(np.maximum(QiSync.of(chosen).records, 0).astype(np.float64))[1]
    who, *rest = _summed([rows.who, bits, rows.t // slice_ns], [np.ones(len(rows), np.int64), count, size])
    runs = np.full(len(who), unit.run, np.int64)
    return np.stack((runs, who >> 16, who >> 8 & 0xFF, who & 0xFF, *rest), axis=1)


def _levels(unit: Unit, slice_ns: int) -> Ints:
    """Fold columns as `levels.step` folds rows."""
    parts: list[tuple[Ints, ...]] = []
    for table, sign in ((RISES, 1), (FALLS, -1)):
        for event, kind in table.items():
            rows = unit.of(frozenset({int(event)}))
            if not len(rows):
                continue
            actor, by = rows.actor, np.full(len(rows), sign, np.int64)
            peer, counts = np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
            if event == Ev.SEND:
                actor = _column(rows, event, "receiver")
                counts = actor != 0
            elif kind is Kind.MAIL:
                counts = _column(rows, event, "send") != 0
                if event == Ev.PUBLISH:
                    by = -np.maximum(_column(rows, event, "sends"), 1)
            elif kind is Kind.CREDIT:
                peer = _column(rows, event, "granter")
            parts.append(
                tuple(each[counts] for each in (np.full(len(rows), int(kind)), actor, peer, rows.t, by))
            )
    if not parts:
        return np.zeros((0, len(LEVELS)), np.int64)
    kinds, actors, peers, t, by = (np.concatenate(each) for each in zip(*parts, strict=True))
    slices = t // slice_ns
    values = [np.maximum(by, 0), np.maximum(-by, 0), by * ((slices + 1) * slice_ns - t)]
    kinds, *rest = _summed([kinds, actors, peers, slices], values)
    return np.stack((kinds, np.full(len(kinds), unit.run, np.int64), *rest), axis=1)


def _timed(unit: Unit) -> Iterator[tuple[int, int, int, TimedRows]]:
    rows = unit.of(TIMED)
    count = Publish.of(rows).count
    rows, count = rows.where(count > 0), count[count > 0]
    first = Publish.of(rows).first_seq_id
    begin, end = first >> CHUNK_BITS, (first + count - 1) >> CHUNK_BITS
    which, chunk = expand(begin, end - begin + 1)
    order = np.lexsort((which, chunk, rows.actor[which]))
    which, chunk = which[order], chunk[order]
    actor = rows.actor[which]
    new = np.flatnonzero((np.diff(actor) != 0) | (np.diff(chunk) != 0)) + 1
    if not len(which):
        return
    columns = [rows.event.astype(np.int64), rows.flag, rows.t, first, count]
    for its in np.split(np.arange(len(which)), new):
        at = which[its]
        yield (
            int(actor[its[0]]),
            int(chunk[its[0]]),
            int(rows.seq[at[0]]),
            TimedRows(*(column[at] for column in columns)),
        )


def chunk_delays(
    run: int, chunk: int, timed: TimedRows, slice_ns: int
) -> dict[tuple[str, int, int], Counter[int]]:
    """`measures.delays` of all rows of a queue's chunk of ids, in their order."""
    lowest, highest = chunk << CHUNK_BITS, (chunk + 1) << CHUNK_BITS
    first = np.maximum(timed.first_seq_id, lowest)
    count = np.minimum(timed.first_seq_id + timed.messages, highest) - first
    published = timed.event == Ev.PUBLISH
    delivered = (timed.event == Ev.DELIVER) & (timed.flag & REDELIVERED == 0)
    if not all(_rise(first[each], count[each]) for each in (published, delivered)):
        rows = zip(*(column.tolist() for column in timed), strict=True)
        return delays(run, rows, lowest, highest, slice_ns)
    found: dict[tuple[str, int, int], Counter[int]] = defaultdict(Counter)
    confirmed = (timed.event == Ev.CONFIRM) & (timed.flag != CONFIRM_NACK)
    for what, begun, ended in (
        (CONFIRM_DELAY, published, confirmed),
        (WAIT_DELAY, published, delivered),
        (CONSUMER_DELAY, delivered, timed.event == Ev.ACK),
    ):
        ids, begins = _of_ids(first, count, begun)
        wanted, ends = _of_ids(first, count, ended)
        if not len(ids) or not len(wanted):
            continue
        at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        known = (ids[at] == wanted) & (begins[at] < ends)
        begins, ends = begins[at][known], ends[known]
        classes = _classes(timed.t[ends] - timed.t[begins])
        counted = _summed([timed.t[ends] // slice_ns, classes], [np.ones(len(ends), np.int64)])
        for slice_, cls, n in _tuples(counted):
            found[what, run, slice_][cls] = n
    return found


def _rise(first: Ints, count: Ints) -> bool:
    """True if these ranges follow each other."""
    return bool(np.all(first[1:] >= (first + count)[:-1]))


def _of_ids(first: Ints, count: Ints, chosen: Any) -> tuple[Ints, Ints]:
    """Each id of the chosen rows, and the place of its row."""
    places = np.flatnonzero(chosen)
    which, ids = expand(first[places], count[places])
    return ids, places[which]


def _classes(delay: Ints) -> Ints:
    """The class of each delay, as `latency.delay_class` has it."""
    positive = np.maximum(delay, 0)
    bits = np.frexp(positive.astype(np.float64))[1].astype(np.int64)
    bits -= (positive >> np.maximum(bits - 1, 0)) == 0  # rounded up to the next power of two
    shifted = (bits - 4) * 16 + (positive >> np.maximum(bits - 5, 0) & 15)
    return np.where(bits <= 4, delay, shifted)


def _bodies(unit: Unit) -> Iterator[tuple[int, int, BodyTimes]]:
    rows = unit.of(BODIES)
    if not len(rows):
        return
    size, came, went = np.full(len(rows), -1), np.full(len(rows), _NEVER), np.full(len(rows), -1)
    for event in sorted(map(int, BODIES)):
        at = np.flatnonzero(rows.event == event)
        of_event = rows.at(at)
        if event in (Ev.APPEND, Ev.REF_RECOVERED):
            size[at] = _column(of_event, event, "size")
            came[at] = of_event.t
        else:
            gone = _column(of_event, event, "references") == 0
            if event == Ev.STORE_REMOVE:
                gone &= of_event.flag == int(Decision.REMOVE)
            went[at] = np.where(gone, of_event.t, -1)
    chunk = rows.msg >> CHUNK_BITS
    order = np.lexsort((chunk, rows.actor))
    new = np.flatnonzero((np.diff(rows.actor[order]) != 0) | (np.diff(chunk[order]) != 0)) + 1
    for its in np.split(order, new):
        store, number = int(rows.actor[its[0]]), int(chunk[its[0]])
        yield store, number, merged(BodyTimes(rows.msg[its], size[its], came[its], went[its]))


def merged(bodies: BodyTimes) -> BodyTimes:
    """Join rows of the same message into one."""
    order = np.argsort(bodies.msg, kind="stable")
    msg = bodies.msg[order]
    starts = group_starts(msg)
    return BodyTimes(
        msg[starts],
        np.maximum.reduceat(bodies.size[order], starts),
        np.minimum.reduceat(bodies.came[order], starts),
        np.maximum.reduceat(bodies.went[order], starts),
    )


def bytes_gained(bodies: BodyTimes, slice_ns: int) -> dict[int, int]:
    """Bytes by slice; of each message all rows are here."""
    whole = merged(bodies)
    known, gone = whole.size >= 0, (whole.size >= 0) & (whole.went >= 0)
    slices = np.concatenate([whole.came[known], whole.went[gone]]) // slice_ns
    gained = np.concatenate([whole.size[known], -whole.size[gone]])
    in_slices, totals = _summed([slices], [gained])
    return dict(zip(in_slices.tolist(), totals.tolist(), strict=True))
