"""Estimates the number of an actor's syncs, and the delays of confirms, under another sync interval.

A queue process syncs its index, a store its current file, when confirms wait and

    the mailbox is empty      in the trace: whenever a confirm waited
    the interval is over      in the trace: later than that, by as much as the actor was busy or the machine slow
    a file is full, ...       whatever the interval

So the recorded rows are walked again: what waits comes when it came, the syncs of the first and third kind are made when they
were made (the first only if a confirm waits then), and the interval is counted anew, with the lateness that it had at
that place of the trace.  With the interval that the trace was recorded with, this gives the recorded syncs, every one.

Limits of the answer: publishers who wait for a confirm before they publish again would have published at other times; and a
mailbox that was empty while no confirm waited left no row, so a longer interval would have been cut short more often.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from warrenmq.latency import delay_class
from warrenmq.trace.events import Trigger

NEVER = 1 << 62


@dataclass(slots=True)
class SyncRows:
    """One actor's rows, as far as syncs go; times in ns."""

    waits: list[int] = field(default_factory=list)
    """Times at which something began to wait for a sync, rising."""
    counts: list[int] = field(default_factory=list)
    """Messages, for each of `waits`."""
    syncs: list[tuple[int, int, int]] = field(default_factory=list)
    """(t, Trigger, t of the write that it began with), rising."""
    _writing: tuple[int, int] | None = None
    """(Trigger, t) of the first write since the last sync that was made for one."""

    def write(self, t: int, trigger: int) -> None:
        """Buffered data was written."""
        if self._writing is None or self._writing[0] != trigger:
            self._writing = trigger, t

    def sync(self, t: int, trigger: int) -> None:
        """A sync ended."""
        begin = self._writing[1] if self._writing is not None and self._writing[0] == trigger else t
        self.syncs.append((t, trigger, begin))
        self._writing = None

    def wait(self, t: int, count: int) -> None:
        self.waits.append(t)
        self.counts.append(count)


@dataclass(slots=True)
class Syncs:
    """The result of a walk."""

    count: int = 0
    by_timer: int = 0
    delays: Counter[int] = field(default_factory=Counter)
    """Class of delay (latency.py) from arrival to sync -> messages."""

    def add(self, other: Syncs) -> None:
        self.count += other.count
        self.by_timer += other.by_timer
        self.delays.update(other.delays)


def with_interval(rows: SyncRows, was: int, now: int) -> Syncs:
    """The syncs as they would have been with an interval of `now` ns where it was `was`.

    How long the timer takes, after the first message that waits came, follows from the wait that ended next in the record:

    | that was ended by                       | after                           | the timer takes                           |
    | --------------------------------------- | ------------------------------- | ----------------------------------------- |
    | the timer                               | `was` and some lateness         | `now` and the same lateness               |
    | the timer, which had been set before    | a share of `was`                | that share of `now`                       |
    | something else                          |                                 | `now` and the actor's median lateness, or |
    |                                         |                                 | so much that it comes too late as before  |

    | recorded at t                      | what happens at t now                                       |
    | ---------------------------------- | ----------------------------------------------------------- |
    | a timer's sync, a confirm waited    | a sync, if one is due now                                   |
    | an empty mailbox, a confirm waited  | a sync, if a confirm waits now                               |
    | any other, or none waited        | a sync                                                      |
    """
    walk = _Walk()
    usual = _usual_lateness(rows, was)
    at = 0
    for t, trigger, writing in rows.syncs:
        begin = at
        while at < len(rows.waits) and rows.waits[at] < t:
            span = t - rows.waits[begin]
            if trigger != Trigger.TIMER:
                span = max(span, was + usual)
            timer = span + now - was if span >= was else span * now // was
            walk.come(rows.waits[at], rows.counts[at], timer)
            at += 1
        needed = at > begin
        if needed and trigger == Trigger.TIMER:
            walk.until(t)
        else:
            walk.until(writing - 1)  # syncs that become due while one is under way come too late
            if walk.waiting or not (needed and trigger == Trigger.MAILBOX_EMPTY):
                walk.sync(t)
    if at == len(rows.waits):  # else the actor died, and what came last was never synced
        walk.until(NEVER)
    return walk.found


def _usual_lateness(rows: SyncRows, was: int) -> int:
    found, at = [], 0
    for t, trigger, _ in rows.syncs:
        begin, at = at, bisect_left(rows.waits, t, at)
        if at > begin and trigger == Trigger.TIMER:
            found.append(t - rows.waits[begin] - was)
    return max(int(median(found)), 0) if found else 0


class _Walk:
    """The state of a walk: the waiting messages and the timer."""

    def __init__(self) -> None:
        self.found = Syncs()
        self.waiting: list[tuple[int, int]] = []
        """(t, how many)"""
        self._due = NEVER

    def come(self, t: int, count: int, timer: int) -> None:
        """Messages begin to wait; a timer started now runs `timer` ns."""
        self.until(t - 1)
        if not self.waiting:
            self._due = t + timer
        self.waiting.append((t, count))

    def until(self, t: int) -> None:
        """Make the timer's sync if it is due by `t`."""
        if self.waiting and self._due <= t:
            self.found.by_timer += 1
            self.sync(self._due)

    def sync(self, t: int) -> None:
        """Sync at `t`: all that waited is safe."""
        self.found.count += 1
        for came, count in self.waiting:
            self.found.delays[delay_class(t - came)] += count
        self.waiting.clear()
        self._due = NEVER
