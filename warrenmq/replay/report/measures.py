"""Five small tables that the plots are drawn from, which any engine can fill and merge.

    tallies  how many rows, and the sums of their columns, for each actor, event, flag and slice of time
    rare     the rows of which there are few, as they are (starts, stops, restarts, recoveries, files, GC)
    delays   histograms of publish to confirm, publish to first delivery, first delivery to ack
    bodies   bytes of live records gained and lost, for each store and slice of time
    levels   mail in mailboxes, and who waits for credit or an alarm: rises and falls by slice of time (levels.py)

Time is cut into slices, counted in the clock of the run: of 10 ms, and of more in a long trace, so that there are about 2,000 of
them in any trace; `series` makes them coarser.  Delays are counted in
classes 6 % wide, so that histograms of millions of messages merge in a few hundred numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from warrenmq.latency import delay_class
from warrenmq.replay.drive.levels import CHANGING, SLICE_NS, LevelKey, Levels, slice_of, step
from warrenmq.trace.events import CONFIRM_NACK, REDELIVERED, Decision, Ev
from warrenmq.trace.reader import Trace

TALLIED = frozenset({
    Ev.PUBLISH, Ev.CONFIRM, Ev.DELIVER, Ev.ACK, Ev.DROP, Ev.REQUEUE, Ev.QI_WRITE, Ev.QI_SYNC, Ev.STORE_WRITE,
    Ev.STORE_REMOVE, Ev.FILE_WRITE, Ev.FILE_SYNC, Ev.READ, Ev.DEFER, Ev.QI_FLUSH, Ev.GC_MOVE, Ev.COMPACT_MOVE, Ev.PAGE_OUT,
    Ev.PAGE_IN,
})  # fmt: skip
RARE = frozenset({
    Ev.ACTOR_START, Ev.ACTOR_STOP, Ev.CHILD_EXIT, Ev.RESTART, Ev.ESCALATE, Ev.QUEUE_RECOVERED, Ev.STORE_RECOVERED,
    Ev.FILE_STATE, Ev.FILE_DELETE, Ev.ROLL, Ev.GC_START, Ev.GC_DONE, Ev.COMPACT_DONE, Ev.TRUNCATE, Ev.RUN_START, Ev.RUN_END,
})  # fmt: skip
TIMED = frozenset({Ev.PUBLISH, Ev.CONFIRM, Ev.DELIVER, Ev.ACK})
BODIES = frozenset({Ev.APPEND, Ev.REF_RECOVERED, Ev.STORE_REMOVE, Ev.REF_DROPPED})

CONFIRM_DELAY, WAIT_DELAY, CONSUMER_DELAY = "publish to confirm", "publish to delivery", "delivery to ack"


class Row(NamedTuple):
    """A row of the trace with its run, taken apart."""

    run: int
    actor: int
    event: int
    flag: int
    t: int
    seq: int
    msg: int
    peer: int
    pseq: int
    a: int
    b: int
    c: int


Timed = tuple[int, int, int, int, int]
"""event, flag, t, first sequence id, how many."""


class TallyKey(NamedTuple):
    """The key of a tally."""

    run: int
    actor: int
    event: int
    flag: int
    size: int  # bit length of the number of records of an index sync, else 0
    slice: int


@dataclass(slots=True)
class Measures:
    """The five tables.  `add` is associative and commutative."""

    tallies: dict[TallyKey, tuple[int, int, int, int]] = field(default_factory=dict)  # rows, sums of a, b, c
    rare: list[Row] = field(default_factory=list)
    delays: dict[tuple[str, int, int], Counter[int]] = field(
        default_factory=dict
    )  # (which, run, slice) -> classes
    bodies: dict[tuple[int, int, int], int] = field(default_factory=dict)  # (run, store, slice) -> bytes
    levels: Levels = field(default_factory=dict)
    slice_ns: int = SLICE_NS
    """How long a slice of time is."""

    def add(self, other: Measures) -> None:
        for key, new in other.tallies.items():
            old = self.tallies.get(key, (0, 0, 0, 0))
            self.tallies[key] = (old[0] + new[0], old[1] + new[1], old[2] + new[2], old[3] + new[3])
        self.rare += other.rare
        for which, histogram in other.delays.items():
            self.delays.setdefault(which, Counter()).update(histogram)
        for place, gained in other.bodies.items():
            self.bodies[place] = self.bodies.get(place, 0) + gained
        for level, change in other.levels.items():
            before = self.levels.get(level, (0, 0, 0))
            self.levels[level] = (before[0] + change[0], before[1] + change[1], before[2] + change[2])


def sync_size(event: int, records: int) -> int:
    """The `size` of a tally key."""
    return records.bit_length() if event == Ev.QI_SYNC else 0


def measure_trace(trace: Trace) -> Measures:
    """Fill all five tables from a trace, in this process."""
    tallies: dict[tuple[int, int, int, int], list[int]] = {}
    timed: dict[tuple[int, int], list[Timed]] = defaultdict(list)
    bodies: dict[tuple[int, int, int], Body] = defaultdict(Body)
    levels: dict[tuple[int, int, int, int, int], list[int]] = {}
    slice_ns = slice_of(trace.catalog)
    measures = Measures(slice_ns=slice_ns)
    for piece in trace.catalog.chunks:
        run, actor = piece.run, piece.actor
        for row in trace.rows(piece):
            t, seq, msg, peer, pseq, a, b, c, who = row
            event, flag = who >> 8 & 0xFF, who & 0xFF
            if event in TALLIED:
                key = (run, who, sync_size(event, b), t // slice_ns)
                tally = tallies.get(key)
                if tally is None:
                    tally = tallies[key] = [0, 0, 0, 0]
                tally[0] += 1
                tally[1] += a
                tally[2] += b
                tally[3] += c
                if event in TIMED:
                    timed[run, actor].append((event, flag, t, a, b))
            if event in CHANGING and (change := step(event, actor, peer, pseq, c)) is not None:
                kind, whose, towards, by = change
                slice_ = t // slice_ns
                place = (kind, run, whose, towards, slice_)
                sums = levels.get(place)
                if sums is None:
                    sums = levels[place] = [0, 0, 0]
                if by > 0:
                    sums[0] += by
                else:
                    sums[1] -= by
                sums[2] += by * ((slice_ + 1) * slice_ns - t)
            if event in BODIES:
                bodies[run, actor, msg].see(event, flag, t, b, c)
            elif event in RARE:
                measures.rare.append(Row(run, actor, event, flag, t, seq, msg, peer, pseq, a, b, c))
    for (run, who, size, slice_), (n, a, b, c) in tallies.items():
        tally_key = TallyKey(run, who >> 16, who >> 8 & 0xFF, who & 0xFF, size, slice_)
        measures.tallies[tally_key] = (n, a, b, c)
    for (run, _), rows in timed.items():
        measures.add(Measures(delays=delays(run, rows, slice_ns=slice_ns)))
    for (run, store, _), body in bodies.items():
        for slice_, gained in body.changes(slice_ns):
            measures.bodies[run, store, slice_] = measures.bodies.get((run, store, slice_), 0) + gained
    measures.levels = {LevelKey(*place): (rises, falls, ns) for place, (rises, falls, ns) in levels.items()}
    return measures


@dataclass(slots=True)
class Body:
    """One message in one incarnation of a store: the size of its record, when it was added and removed."""

    size: int = 0
    came: int = 0
    went: int = 0

    def see(self, event: int, flag: int, t: int, references: int, size: int) -> None:
        if event in {Ev.APPEND, Ev.REF_RECOVERED}:
            self.size, self.came = size, min(self.came, t) if self.came else t
        elif references == 0 and (event == Ev.REF_DROPPED or flag == Decision.REMOVE):
            self.went = max(self.went, t)

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
        if (
            not self.ends or first >= self.ends[-1]
        ):  # what falls back is a redelivery, or for the rules to report
            self.firsts.append(first)
            self.ends.append(first + n)
            self.times.append(t)

    def count(self, histograms: dict[int, Counter[int]], first: int, n: int, t: int, slice_ns: int) -> None:
        """For each of the ids first..first+n that is known, count the delay until `t`."""
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
    for event, flag, t, a, b in rows:
        first = max(a, lowest)
        n = min(a + b, highest) - first
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
