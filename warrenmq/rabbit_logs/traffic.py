"""Rates, delays and depths of queues, from the records of a log and the lives in it.

Everything is counted as it is read: a histogram of delays (classes 6 % wide, as in latency.py) and a time line of at most
SLICES slices for each queue, whose slices double when the log is longer.

Waiting messages are those that were published within the log and not delivered yet.  A log does not say what
expired, was dropped, purged or dead-lettered, nor what was there before it began: those stay among the
waiting, and are never among them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from warrenmq.latency import delay_class, percentile
from warrenmq.rabbit_logs.lifecycles import Lifecycle, Matcher, Step, sights
from warrenmq.rabbit_logs.order import OrderCheck
from warrenmq.rabbit_logs.record import Record

SLICES = 600
SECOND = 1_000_000

PUBLISHED, DELIVERED, REDELIVERED, ARRIVED = range(4)
"""Columns of a slice; ARRIVED: first deliveries of what was published within the log."""


@dataclass(slots=True)
class TimeLine:
    """Counts by slices of time."""

    width: int = SECOND
    slices: dict[int, list[int]] = field(default_factory=dict)

    def count(self, t: int, column: int) -> None:
        if len(self.slices) >= SLICES and t // self.width not in self.slices:
            self._coarsen()
        self.slices.setdefault(t // self.width, [0, 0, 0, 0])[column] += 1

    def _coarsen(self) -> None:
        before, self.slices = self.slices, {}
        self.width *= 2
        for number, counts in before.items():
            merged = self.slices.setdefault(number // 2, [0, 0, 0, 0])
            for column, n in enumerate(counts):
                merged[column] += n

    def depths(self) -> list[tuple[int, int]]:
        """(end of a slice, messages that wait then)."""
        waiting, found = 0, []
        for number, counts in sorted(self.slices.items()):
            waiting += counts[PUBLISHED] - counts[ARRIVED]
            found.append(((number + 1) * self.width, waiting))
        return found


@dataclass(slots=True)
class QueueTraffic:
    """One queue."""

    published: int = 0
    delivered: int = 0
    """Messages, not deliveries."""
    redelivered: int = 0
    unpublished: int = 0
    """Delivered messages whose publish is not in the log."""
    dead_lettered: int = 0
    """Published messages that came from another queue."""
    bytes: int = 0
    waiting: int = 0
    most_waiting: int = 0
    longest: int = 0
    """Microseconds from publish to delivery."""
    delays: Counter[int] = field(default_factory=Counter)
    line: TimeLine = field(default_factory=TimeLine)

    def take(self, step: Step, life: Lifecycle, t: int) -> None:
        """Count one step of a message of this queue."""
        if step in {Step.PUBLISHED, Step.EXPLAINED}:
            self.published += 1
            self.bytes += life.size
            self._wait(1)
            self.line.count(t, PUBLISHED)
        if step in {Step.DELIVERED, Step.SURFACED}:
            self.delivered += 1
            self.line.count(t, DELIVERED)
        if step in {Step.DELIVERED, Step.EXPLAINED}:
            self._wait(-1)
            self.line.count(t, ARRIVED)
            delay = life.delay or 0
            self.delays[delay_class(delay * 1_000)] += 1
            self.longest = max(self.longest, delay)
        if step is Step.REDELIVERED:
            self.redelivered += 1
            self.line.count(t, REDELIVERED)
        if step is Step.SURFACED:
            self.unpublished += 1
            self.dead_lettered += life.dead_lettered
        if step is Step.EXPLAINED:
            self.unpublished -= 1

    def _wait(self, change: int) -> None:
        self.waiting += change
        self.most_waiting = max(self.most_waiting, self.waiting)

    def percentile(self, percent: float) -> float | None:
        """Milliseconds from publish to first delivery, 6 % sharp; None = there are none."""
        return min(percentile(self.delays, percent) / 1e6, self.longest / 1e3) if self.delays else None


class Traffic:
    """A log, counted: feed it the records, then `finish`."""

    def __init__(self, *, several: bool = False) -> None:
        self.records = self.unrouted = 0
        self.first_t = self.last_t = 0
        self.queues: dict[tuple[str, str], QueueTraffic] = {}
        self.order = OrderCheck()
        self._matcher = Matcher(self.order.over, several=several)

    @property
    def seconds(self) -> float:
        """The time from the first record to the last, in seconds."""
        return (self.last_t - self.first_t) / SECOND

    @property
    def forgotten(self) -> int:
        """Messages that were let go to save memory; later lines about them are counted as unpublished."""
        return self._matcher.forgotten

    def take(self, record: Record) -> None:
        """Count the next record."""
        self.records += 1
        self.first_t = min(self.first_t or record.t, record.t)
        self.last_t = max(self.last_t, record.t)
        for seen in sights(record):
            step, life = self._matcher.take(seen)
            if life.queue is None:
                self.unrouted += 1
                continue
            self.queues.setdefault((life.vhost, life.queue), QueueTraffic()).take(step, life, record.t)
            self.order.take(step, life, (seen.connection, seen.channel))

    def finish(self) -> None:
        """End the traffic: no more messages follow."""
        self._matcher.finish()
