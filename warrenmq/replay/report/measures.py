"""Six small tables that the plots are drawn from, which any engine can fill and merge.

    tallies  how many rows, of how many messages and bytes, for each actor, event, flag and slice of time
    rare     rows of events that are rare, whole (starts, stops, restarts, recoveries)
    files    store files and collections, run by run (store_files.py)
    delays   histograms of publish to confirm, publish to first delivery, first delivery to ack
    bodies   bytes of live records gained and lost, for each store and slice of time
    levels   mail in mailboxes, and senders that wait for credit or an alarm: rises and falls by slice of time (levels.py)

Time is cut into slices, counted in the clock of the run: of 10 ms, and of more in a long trace, so that no trace has
more than 750; `series` makes them coarser.  Delays are counted in
classes 6 % wide, so that histograms of millions of messages merge in a few hundred numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warrenmq.latency import delay_class
from warrenmq.replay.drive.levels import CHANGING, SLICE_NS, LevelKey, Levels, slice_of, step
from warrenmq.replay.explain.evidence import Placed
from warrenmq.replay.report.store_files import OF_FILES, StoreFiles, fold
from warrenmq.trace.events import (
    CONFIRM_NACK,
    REDELIVERED,
    Append,
    Decision,
    Ev,
    Publish,
    QiSync,
    RefDropped,
    RefRecovered,
    StoreRemove,
)
from warrenmq.trace.reader import Trace
from warrenmq.trace.schema import EVENTS, Event, Row

TALLIED = frozenset({
    Ev.PUBLISH, Ev.CONFIRM, Ev.DELIVER, Ev.ACK, Ev.DROP, Ev.REQUEUE, Ev.QI_WRITE, Ev.QI_SYNC, Ev.STORE_WRITE,
    Ev.STORE_REMOVE, Ev.FILE_WRITE, Ev.FILE_SYNC, Ev.READ, Ev.DEFER, Ev.QI_FLUSH, Ev.GC_MOVE, Ev.COMPACT_MOVE, Ev.PAGE_OUT,
    Ev.PAGE_IN, Ev.ROLL, Ev.FILE_DELETE, Ev.GC_DONE, Ev.COMPACT_DONE, Ev.TRUNCATE,
})  # fmt: skip
RARE = frozenset({
    Ev.ACTOR_START, Ev.ACTOR_STOP, Ev.CHILD_EXIT, Ev.RESTART, Ev.ESCALATE, Ev.QUEUE_RECOVERED, Ev.STORE_RECOVERED,
    Ev.RUN_START, Ev.RUN_END,
})  # fmt: skip
TIMED = frozenset({Ev.PUBLISH, Ev.CONFIRM, Ev.DELIVER, Ev.ACK})
BODIES = frozenset({Ev.APPEND, Ev.REF_RECOVERED, Ev.STORE_REMOVE, Ev.REF_DROPPED})

CONFIRM_DELAY, WAIT_DELAY = "publish to confirm", "publish to first delivery"
CONSUMER_DELAY = "first delivery to ack"


_SUMS = (("count", "records"), ("size", "reclaimed"))
"""The columns that are summed, by their names in the events: how many messages or records, and how many bytes."""


def _summed(event: type[Event[Any]]) -> tuple[tuple[int, str], ...]:
    return tuple((place, name) for place, names in enumerate(_SUMS, 1) for name in names if event.has(name))


SUMMED = {number: _summed(EVENTS[number]) for number in sorted(map(int, TALLIED))}
"""Event -> the columns that a tally sums: (place in a Tally, name of the column)."""
_SUMMED = {
    number: [(place, EVENTS[number].getter(name)) for place, name in its] for number, its in SUMMED.items()
}
_span = Publish.getter("first_seq_id", "count")
"""The span of any event of TIMED, which have both its ends in the same columns."""

Timed = tuple[int, int, int, int, int]
"""event, flag, t, first sequence id, how many."""


class TallyKey(NamedTuple):
    """The key of a tally."""

    run: int
    actor: int
    event: int
    flag: int
    bits: int  # bit length of the number of records of an index sync, else 0
    slice: int


@dataclass(slots=True)
class Tally:
    """Totals of the rows of one key: rows, messages or index records, and bytes."""

    rows: int = 0
    count: int = 0
    size: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.rows + other.rows, self.count + other.count, self.size + other.size)


@dataclass(slots=True)
class Measures:
    """The six tables.  `add` is associative and commutative."""

    tallies: dict[TallyKey, Tally] = field(default_factory=dict)
    rare: list[Placed] = field(default_factory=list)
    files: dict[int, StoreFiles] = field(default_factory=dict)  # by run
    # (which, run, slice) -> classes
    delays: dict[tuple[str, int, int], Counter[int]] = field(default_factory=dict)
    bodies: dict[tuple[int, int, int], int] = field(default_factory=dict)  # (run, store, slice) -> bytes
    levels: Levels = field(default_factory=dict)
    slice_ns: int = SLICE_NS
    """The length of a slice of time, in ns."""

    def add(self, other: Measures) -> None:
        for key, new in other.tallies.items():
            self.tallies[key] = self.tallies.get(key, Tally()) + new
        self.rare += other.rare
        self.files |= other.files
        for which, histogram in other.delays.items():
            self.delays.setdefault(which, Counter()).update(histogram)
        for place, gained in other.bodies.items():
            self.bodies[place] = self.bodies.get(place, 0) + gained
        for level, change in other.levels.items():
            before = self.levels.get(level, (0, 0, 0))
            self.levels[level] = (before[0] + change[0], before[1] + change[1], before[2] + change[2])


def measure_trace(trace: Trace) -> Measures:
    """Fill all six tables from a trace, in this process."""
    tallies: dict[tuple[int, int, int, int], list[int]] = {}
    timed: dict[tuple[int, int], list[Timed]] = defaultdict(list)
    bodies: dict[tuple[int, int, int], Body] = defaultdict(Body)
    of_files: dict[int, list[Row]] = defaultdict(list)
    levels: dict[tuple[int, int, int, int, int], list[int]] = {}
    slice_ns = slice_of(trace.catalog)
    measures = Measures(slice_ns=slice_ns)
    for piece in trace.catalog.chunks:
        run, actor = piece.run, piece.actor
        for row in trace.rows(piece):
            t, event = row.t, row.event
            if (summed := _SUMMED.get(event)) is not None:
                bits = QiSync.of(row).records.bit_length() if event == Ev.QI_SYNC else 0
                key = (run, row.who, bits, t // slice_ns)
                tally = tallies.get(key)
                if tally is None:
                    tally = tallies[key] = [0, 0, 0]
                tally[0] += 1
                for place, get in summed:
                    (value,) = get(row)
                    tally[place] += value
                if event in TIMED:
                    first, count = _span(row)
                    timed[run, actor].append((event, row.flag, t, first, count))
            if event in CHANGING and (change := step(event, row)) is not None:
                kind, whose, towards, by = change
                slice_ = t // slice_ns
                level = (kind, run, whose, towards, slice_)
                sums = levels.get(level)
                if sums is None:
                    sums = levels[level] = [0, 0, 0]
                if by > 0:
                    sums[0] += by
                else:
                    sums[1] -= by
                sums[2] += by * ((slice_ + 1) * slice_ns - t)
            if event in BODIES:
                bodies[run, actor, row.msg].see(event, row)
            elif event in RARE:
                measures.rare.append(Placed(run, row))
            if event in OF_FILES:
                of_files[run].append(row)
    for (run, who, bits, slice_), found in tallies.items():
        tally_key = TallyKey(run, who >> 16, who >> 8 & 0xFF, who & 0xFF, bits, slice_)
        measures.tallies[tally_key] = Tally(*found)
    for (run, _), rows in timed.items():
        measures.add(Measures(delays=delays(run, rows, slice_ns=slice_ns)))
    for (run, store, _), body in bodies.items():
        for slice_, gained in body.changes(slice_ns):
            measures.bodies[run, store, slice_] = measures.bodies.get((run, store, slice_), 0) + gained
    for run, its in of_files.items():
        by_time = sorted(its, key=lambda row: (row.t, row.actor, row.seq))
        measures.files[run] = fold(trace.catalog.runs[run], by_time, slice_ns)
    measures.levels = {LevelKey(*place): (rises, falls, ns) for place, (rises, falls, ns) in levels.items()}
    return measures


_RECORD = {int(each.number): each.getter("size") for each in (Append, RefRecovered)}
_REFERENCES = {int(each.number): each.getter("references") for each in (StoreRemove, RefDropped)}


@dataclass(slots=True)
class Body:
    """One message in one incarnation of a store: the size of its record, when it was added and removed."""

    size: int = 0
    came: int = 0
    went: int = 0

    def see(self, event: int, row: Row) -> None:
        """Take in a row of BODIES."""
        if event in _RECORD:
            (self.size,) = _RECORD[event](row)
            self.came = min(self.came, row.t) if self.came else row.t
        elif _REFERENCES[event](row) == (0,) and (event == Ev.REF_DROPPED or row.flag == Decision.REMOVE):
            self.went = max(self.went, row.t)

    def changes(self, slice_ns: int = SLICE_NS) -> list[tuple[int, int]]:
        """Bytes gained, by slice."""
        if not self.came:
            return []
        gain = [(self.came // slice_ns, self.size)]
        return [*gain, (self.went // slice_ns, -self.size)] if self.went else gain


class Spans:
    """Runs of sequence ids with a time each, rising: what was published, or delivered for the first time."""

    __slots__ = ("ends", "firsts", "times")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.ends: list[int] = []
        self.times: list[int] = []

    def add(self, first: int, n: int, t: int) -> None:
        # ids that fall back are redeliveries, or violations that the rules report
        if not self.ends or first >= self.ends[-1]:
            self.firsts.append(first)
            self.ends.append(first + n)
            self.times.append(t)

    def count(self, histograms: dict[int, Counter[int]], first: int, n: int, t: int, slice_ns: int) -> None:
        """Count the delay until `t` of each known id in first..first+n."""
        end = first + n
        index = max(bisect_right(self.firsts, first) - 1, 0)
        histogram = histograms[t // slice_ns]
        while index < len(self.firsts) and self.firsts[index] < end:
            known = min(self.ends[index], end) - max(self.firsts[index], first)
            if known > 0:
                histogram[delay_class(t - self.times[index])] += known
            index += 1


def delays(
    run: int, rows: Iterable[Timed], lowest: int = 0, highest: int = 1 << 62, slice_ns: int = SLICE_NS
) -> dict[tuple[str, int, int], Counter[int]]:
    """The delay histograms of one queue's rows (in its order), for sequence ids from `lowest` below `highest`."""
    published, delivered = Spans(), Spans()
    found: dict[str, dict[int, Counter[int]]] = {
        CONFIRM_DELAY: defaultdict(Counter),
        WAIT_DELAY: defaultdict(Counter),
        CONSUMER_DELAY: defaultdict(Counter),
    }
    for event, flag, t, first_seq_id, count in rows:
        first = max(first_seq_id, lowest)
        n = min(first_seq_id + count, highest) - first
        if n <= 0:
            continue
        if event == Ev.PUBLISH:
            published.add(first, n, t)
        elif event == Ev.CONFIRM and flag != CONFIRM_NACK:
            published.count(found[CONFIRM_DELAY], first, n, t, slice_ns)
        elif event == Ev.DELIVER and not flag & REDELIVERED:
            delivered.add(first, n, t)
            published.count(found[WAIT_DELAY], first, n, t, slice_ns)
        elif event == Ev.ACK:
            delivered.count(found[CONSUMER_DELAY], first, n, t, slice_ns)
    return {
        (which, run, slice_): histogram
        for which, by_slice in found.items()
        for slice_, histogram in by_slice.items()
        if histogram
    }
