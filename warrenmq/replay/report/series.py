"""Turn the tables of `measures` into the series and bars of a `Picture`: flows, depth, delays, flushes, decisions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from warrenmq.latency import class_middle, percentile
from warrenmq.replay.drive.levels import round_up
from warrenmq.replay.explain.evidence import Placed
from warrenmq.replay.report.measures import (
    CONFIRM_DELAY,
    CONSUMER_DELAY,
    WAIT_DELAY,
    Measures,
    Tally,
    TallyKey,
)
from warrenmq.replay.report.picture import Delays, Flushes, Picture
from warrenmq.trace.catalog import Run
from warrenmq.trace.events import NO_ACK, Decision, Ev, QueueRecovered, Trigger

POINTS = 150
"""Points of a series: enough to see a restart, few enough to see a line."""

TOP_QUEUES = 8
PERCENTILES = (50.0, 90.0, 99.0, 99.9)

FLOWS = {"published": Ev.PUBLISH, "confirmed": Ev.CONFIRM, "delivered": Ev.DELIVER, "acked": Ev.ACK}
_FLUSHES = {
    Ev.QI_WRITE: ("queue index", "writes"),
    Ev.QI_SYNC: ("queue index", "syncs"),
    Ev.FILE_WRITE: ("message store", "writes"),
    Ev.FILE_SYNC: ("message store", "syncs"),
}
_DECIDED = {Ev.STORE_WRITE: "write", Ev.STORE_REMOVE: "remove"}


class Axis:
    """Time of all runs on one axis, cut into points.

    A run counts time in its own clock; the wall and monotonic time in the head of its files bring the runs
    of a directory together.
    """

    def __init__(self, measures: Measures, runs: Sequence[Run]) -> None:
        self._slice_ns = measures.slice_ns
        self._offsets = [run.wall_ns - run.mono_ns for run in runs]
        marks = [self._wall(key.run, key.slice * self._slice_ns) for key in measures.tallies]
        marks += [self._wall(run, row.t) for run, row in measures.rare]
        marks += [self._wall(level.run, level.slice * self._slice_ns) for level in measures.levels]
        self._zero = min(marks, default=0)
        length = max(marks, default=0) + self._slice_ns - self._zero
        self._width = round_up(length / POINTS)
        self.points = length // self._width + 1
        self.width = self._width / 1e9
        self.seconds = [round(point * self.width, 6) for point in range(self.points)]

    def _wall(self, run: int, t: int) -> int:
        return t + self._offsets[run]

    def second(self, run: int, t: int) -> float:
        return (self._wall(run, t) - self._zero) / 1e9

    def point(self, run: int, slice_: int) -> int:
        at = self._wall(run, slice_ * self._slice_ns) - self._zero
        return min(max(0, at // self._width), self.points - 1)

    def point_at(self, run: int, t: int) -> int:
        return self.point(run, t // self._slice_ns)

    def shares(self, run: int, first: int, end: int) -> Iterator[tuple[int, float]]:
        """The points that the slices from `first` to before `end` fall in, each with its share of them."""
        at = first
        while at < end:
            point = self.point(run, at)
            edge = -(-(self._zero + (point + 1) * self._width - self._offsets[run]) // self._slice_ns)
            next_ = min(edge, end) if point < self.points - 1 else end
            yield point, (next_ - at) / (end - first)
            at = next_


def flows(picture: Picture, measures: Measures, axis: Axis) -> None:
    for name, event in FLOWS.items():
        counts = [0] * axis.points
        for key, tally in measures.tallies.items():
            if key.event == event:
                counts[axis.point(key.run, key.slice)] += tally.count
        picture.flows[name] = [n / axis.width for n in counts]
        picture.totals[name] = sum(counts)


def _change(key: TallyKey, count: int) -> int:
    """The number of messages by which the rows of a tally change the depth of their queue."""
    if key.event == Ev.PUBLISH:
        return count
    if key.event in {Ev.ACK, Ev.DROP} or (key.event == Ev.DELIVER and key.flag & NO_ACK):
        return -count
    return 0


def depth(
    picture: Picture, measures: Measures, rare: Iterable[Placed], runs: Sequence[Run], axis: Axis
) -> None:
    """Messages in each queue, unacked ones included; each incarnation starts from what it recovered."""
    changes: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for key, tally in measures.tallies.items():
        if change := _change(key, tally.count):
            changes[key.run, key.actor][axis.point(key.run, key.slice)] += change
    recovered = {(run, row.actor): row for run, row in rare if row.event == Ev.QUEUE_RECOVERED}
    births = {
        who: axis.point_at(who[0], recovered[who].t) if who in recovered else min(changes[who])
        for who in changes.keys() | recovered.keys()
    }
    lines: dict[str, list[int | None]] = {}
    busy: Counter[str] = Counter()
    for who in sorted(births, key=lambda who: (births[who], who)):
        name = runs[who[0]].actor_name(who[1])
        line = lines.setdefault(name, [None] * axis.points)
        messages = QueueRecovered.of(recovered[who]).messages if who in recovered else 0
        for point in range(births[who], axis.points):
            messages += changes[who][point]
            line[point] = messages
        busy[name] += sum(abs(change) for change in changes[who].values())
    names = [name for name, _ in sorted(busy.items(), key=lambda item: (-item[1], item[0]))]
    picture.depth = {name: lines[name] for name in names[:TOP_QUEUES]}
    if rest := names[TOP_QUEUES:]:
        picture.depth[f"{len(rest)} more"] = [
            sum(lines[name][point] or 0 for name in rest) for point in range(axis.points)
        ]


def delays(picture: Picture, measures: Measures, axis: Axis) -> None:
    for wanted in (CONFIRM_DELAY, WAIT_DELAY, CONSUMER_DELAY):
        total: Counter[int] = Counter()
        by_point: dict[int, Counter[int]] = defaultdict(Counter)
        for (which, run, slice_), histogram in measures.delays.items():
            if which == wanted:
                total.update(histogram)
                by_point[axis.point(run, slice_)].update(histogram)
        if total:
            overall = {percent: percentile(total, percent) / 1e9 for percent in PERCENTILES}
            overall[100.0] = class_middle(max(total)) / 1e9
            median, p99 = (
                [
                    percentile(by_point[at], percent) / 1e9 if at in by_point else None
                    for at in range(axis.points)
                ]
                for percent in (50, 99)
            )
            picture.delays[wanted] = Delays(total.total(), overall, median, p99)


def flushes(picture: Picture, measures: Measures) -> None:
    sums: defaultdict[tuple[int, int], Tally] = defaultdict(Tally)
    for key, tally in sorted(measures.tallies.items(), key=itemgetter(0)):
        if key.event not in _FLUSHES:
            continue
        sums[key.event, key.flag] += tally
        if key.event == Ev.QI_SYNC:
            sizes = picture.sync_sizes.setdefault(trigger_name(key.flag), [0] * 64)
            sizes[key.bits] += tally.rows
    for (event, flag), tally in sums.items():
        what, kind = _FLUSHES[Ev(event)]
        entries = picture.writes if kind == "writes" else picture.syncs
        entries.append(Flushes(what, trigger_name(flag), tally.rows, tally.count, tally.size))


def decisions(picture: Picture, measures: Measures) -> None:
    known = {int(decision): decision.name for decision in Decision}
    for key, tally in sorted(measures.tallies.items(), key=itemgetter(0)):
        if key.event in _DECIDED:
            of = picture.decisions.setdefault(_DECIDED[Ev(key.event)], {})
            name = known.get(key.flag, f"?{key.flag}")
            of[name] = of.get(name, 0) + tally.rows


def trigger_name(flag: int) -> str:
    return Trigger(flag).name if flag in Trigger._value2member_map_ else f"?{flag}"
