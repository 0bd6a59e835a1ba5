"""What the plots need of a trace: four small tables that any engine can fill and merge.

    tallies  how many rows, and the sums of their columns, for each actor, event, flag and slice of time
    rare     the rows of which there are few, as they are (starts, stops, restarts, recoveries, files, GC)
    delays   histograms of publish to confirm, publish to first delivery, first delivery to ack
    bodies   bytes of live records gained and lost, for each store and slice of time

Time is cut into slices of 10 ms, counted in the clock of the run; `summary` makes them coarser.  Delays are counted in
classes 6 % wide, so that histograms of millions of messages merge in a few hundred numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from warrenmq.trace.events import (
    CONFIRM_NACK,
    REDELIVERED,
    Decision,
    Ev,
)

SLICE_NS = 10_000_000

TALLIED = frozenset({
    Ev.PUBLISH, Ev.CONFIRM, Ev.DELIVER, Ev.ACK, Ev.DROP, Ev.REQUEUE, Ev.QI_WRITE, Ev.QI_SYNC, Ev.STORE_WRITE,
    Ev.STORE_REMOVE, Ev.FILE_WRITE, Ev.FILE_SYNC, Ev.READ, Ev.DEFER,
})  # fmt: skip
RARE = frozenset({
    Ev.ACTOR_START, Ev.ACTOR_STOP, Ev.CHILD_EXIT, Ev.RESTART, Ev.ESCALATE, Ev.QUEUE_RECOVERED, Ev.STORE_RECOVERED,
    Ev.FILE_STATE, Ev.FILE_DELETE, Ev.ROLL, Ev.GC_START, Ev.GC_DONE, Ev.RUN_START, Ev.RUN_END,
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


class TallyKey(NamedTuple):
    """What is counted together."""

    run: int
    actor: int
    event: int
    flag: int
    size: int  # bit length of the work behind a sync (records of an index sync, bytes of a file sync), else 0
    slice: int


@dataclass(slots=True)
class Measures:
    """The four tables.  `add` is associative and commutative."""

    tallies: dict[TallyKey, tuple[int, int, int, int]] = field(default_factory=dict)  # rows, sums of a, b, c
    rare: list[Row] = field(default_factory=list)
    delays: dict[tuple[str, int, int], Counter[int]] = field(
        default_factory=dict
    )  # (which, run, slice) -> classes
    bodies: dict[tuple[int, int, int], int] = field(default_factory=dict)  # (run, store, slice) -> bytes

    def add(self, other: Measures) -> None:
        for key, new in other.tallies.items():
            old = self.tallies.get(key, (0, 0, 0, 0))
            self.tallies[key] = (old[0] + new[0], old[1] + new[1], old[2] + new[2], old[3] + new[3])
        self.rare += other.rare
        for which, histogram in other.delays.items():
            self.delays.setdefault(which, Counter()).update(histogram)
        for place, gained in other.bodies.items():
            self.bodies[place] = self.bodies.get(place, 0) + gained


def sync_size(event: int, b: int, c: int) -> int:
    """The `size` of a tally key."""
    if event == Ev.QI_SYNC:
        return b.bit_length()
    return c.bit_length() if event == Ev.FILE_SYNC else 0


def delay_class(ns: int) -> int:
    """16 classes to a doubling: 6 % wide, exact below 32."""
    bits = max(ns, 0).bit_length()
    return ns if bits <= 4 else (bits - 4) * 16 + ((ns >> (bits - 5)) & 15)


def class_middle(cls: int) -> float:
    """The delay in ns that stands for a class; the inverse of `delay_class` but for its width."""
    if cls < 16:
        return float(cls)
    shift = cls // 16 - 1
    return ((16 + cls % 16) + 0.5) * (1 << shift)


def measure(rows: Iterable[Row]) -> Measures:
    """All four tables of rows that are in the order of each actor."""
    measures = Measures()
    tallies: dict[TallyKey, list[int]] = {}
    timed: dict[tuple[int, int], list[Row]] = defaultdict(list)
    bodies: dict[tuple[int, int, int], Body] = defaultdict(Body)
    for row in rows:
        event = row.event
        if event in TALLIED:
            key = TallyKey(
                row.run, row.actor, event, row.flag, sync_size(event, row.b, row.c), row.t // SLICE_NS
            )
            tally = tallies.setdefault(key, [0, 0, 0, 0])
            tally[0] += 1
            tally[1] += row.a
            tally[2] += row.b
            tally[3] += row.c
            if event in TIMED:
                timed[row.run, row.actor].append(row)
        if event in BODIES:
            bodies[row.run, row.actor, row.msg].see(row)
        elif event in RARE:
            measures.rare.append(row)
    measures.tallies = {key: (n, a, b, c) for key, (n, a, b, c) in tallies.items()}
    for of_queue in timed.values():
        measures.add(Measures(delays=delays(of_queue)))
    for (run, store, _), body in bodies.items():
        measures.add(Measures(bodies=body.changes(run, store)))
    return measures


@dataclass(slots=True)
class Body:
    """One message in one incarnation of a store: how big its record is, when it came and when it went."""

    size: int = 0
    came: int | None = None
    went: int | None = None

    def see(self, row: Row) -> None:
        if row.event in (Ev.APPEND, Ev.REF_RECOVERED):
            self.size, self.came = row.c, row.t if self.came is None else min(self.came, row.t)
        elif row.b == 0 and (row.event == Ev.REF_DROPPED or row.flag == Decision.REMOVE):
            self.went = row.t if self.went is None else max(self.went, row.t)

    def changes(self, run: int, store: int) -> dict[tuple[int, int, int], int]:
        if self.came is None:
            return {}
        found: dict[tuple[int, int, int], int] = Counter({(run, store, self.came // SLICE_NS): self.size})
        if self.went is not None:
            found[run, store, self.went // SLICE_NS] -= self.size
        return found


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

    def count(self, histograms: dict[int, Counter[int]], first: int, n: int, t: int) -> None:
        """For each of the ids first..first+n that is known, count the delay until `t`."""
        end = first + n
        index = max(bisect_right(self.firsts, first) - 1, 0)
        histogram = histograms[t // SLICE_NS]
        while index < len(self.firsts) and self.firsts[index] < end:
            known = min(self.ends[index], end) - max(self.firsts[index], first)
            if known > 0:
                histogram[delay_class(t - self.times[index])] += known
            index += 1


def delays(
    rows: Iterable[Row], lowest: int = 0, highest: int = 1 << 62
) -> dict[tuple[str, int, int], Counter[int]]:
    """The delay histograms of one queue's rows (in its order), for sequence ids from `lowest` below `highest`."""
    published, delivered = Spans(), Spans()
    found: dict[str, dict[int, Counter[int]]] = {
        CONFIRM_DELAY: defaultdict(Counter),
        WAIT_DELAY: defaultdict(Counter),
        CONSUMER_DELAY: defaultdict(Counter),
    }
    run = 0
    for row in rows:
        run = row.run
        first = max(row.a, lowest)
        n = min(row.a + row.b, highest) - first
        if n <= 0:
            continue
        if row.event == Ev.PUBLISH:
            published.add(first, n, row.t)
        elif row.event == Ev.CONFIRM and row.flag != CONFIRM_NACK:
            published.count(found[CONFIRM_DELAY], first, n, row.t)
        elif row.event == Ev.DELIVER and not row.flag & REDELIVERED:
            delivered.add(first, n, row.t)
            published.count(found[WAIT_DELAY], first, n, row.t)
        elif row.event == Ev.ACK:
            delivered.count(found[CONSUMER_DELAY], first, n, row.t)
    return {
        (which, run, slice_): histogram
        for which, by_slice in found.items()
        for slice_, histogram in by_slice.items()
        if histogram
    }
