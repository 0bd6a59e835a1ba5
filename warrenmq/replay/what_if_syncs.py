"""How often an actor would have synced with another sync interval, and how long confirms would have waited.

A queue process syncs its index, a store its current file, when confirms wait and

    the mailbox is empty      in the trace: as often as somebody waited
    the interval is over      in the trace: later than that, by as much as the actor was busy or the machine slow
    a file is full, ...       whatever the interval

So the recorded rows are walked again: what waits comes when it came, the syncs of the first and third kind are made when they
were made (the first only if somebody waits then), and the interval is counted anew, with the lateness that it had at
that place of the trace.  With the interval that the trace was recorded with, this gives the recorded syncs, every one.

What this cannot know: publishers who wait for a confirm before they publish again would have published at other times; and a
mailbox that was empty while nobody waited left no row, so a longer interval would have been cut short more often.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from warrenmq.replay.measures import delay_class
from warrenmq.trace.events import Trigger

NEVER = 1 << 62


@dataclass(slots=True)
class SyncRows:
    """One actor's rows, as far as syncs go; times in ns."""

    waits: list[int] = field(default_factory=list)
    """When something came that waits for a sync, rising."""
    counts: list[int] = field(default_factory=list)
    """How many messages that was."""
    syncs: list[tuple[int, int]] = field(default_factory=list)
    """(t, Trigger), rising."""

    def wait(self, t: int, count: int) -> None:
        self.waits.append(t)
        self.counts.append(count)


@dataclass(slots=True)
class Syncs:
    """What a walk came to."""

    count: int = 0
    by_timer: int = 0
    delays: Counter[int] = field(default_factory=Counter)
    """Classes of delays (measures.py) from the coming to the sync, messages."""

    def add(self, other: Syncs) -> None:
        self.count += other.count
        self.by_timer += other.by_timer
        self.delays.update(other.delays)


def with_interval(rows: SyncRows, was: int, now: int) -> Syncs:
    """The syncs as they would have been with an interval of `now` ns where it was `was`.

    A sync by the timer is due, after the first message that waits came at `begin`,

        begin + now + lateness          lateness = recorded end of the wait - its beginning - was

    where the record stands for the wait that ended next in it; if something else ended that, its lateness is not below 0,
    so the timer is due then at the earliest.

    | recorded at t                      | what happens at t now                                       |
    | ---------------------------------- | ----------------------------------------------------------- |
    | a timer's sync, somebody waited    | a sync, if one is due now                                   |
    | an empty mailbox, somebody waited  | a sync, if somebody waits now                               |
    | any other, or nobody waited        | a sync                                                      |
    """
    walk = _Walk(now - was)
    at = 0
    for t, trigger in rows.syncs:
        begin = at
        while at < len(rows.waits) and rows.waits[at] < t:
            lateness = t - rows.waits[begin] - was
            walk.come(rows.waits[at], rows.counts[at], was + (lateness if trigger == Trigger.TIMER else max(lateness, 0)))
            at += 1
        needed = at > begin
        if needed and trigger == Trigger.TIMER:
            walk.until(t)
        else:
            walk.until(t - 1)
            if walk.waiting or not (needed and trigger == Trigger.MAILBOX_EMPTY):
                walk.sync(t)
    if at == len(rows.waits):  # else the actor died, and what came last was never synced
        walk.until(NEVER)
    return walk.found


class _Walk:
    """What waits, and until when."""

    def __init__(self, longer: int) -> None:
        self.found = Syncs()
        self.waiting: list[tuple[int, int]] = []
        """(t, how many)"""
        self._longer = longer
        self._due = NEVER

    def come(self, t: int, count: int, wait: int) -> None:
        """Something that waits; the recorded timer would have taken `wait` ns."""
        self.until(t - 1)
        if not self.waiting:
            self._due = max(t + wait + self._longer, t)
        self.waiting.append((t, count))

    def until(self, t: int) -> None:
        """The timer's sync, if it is due by then."""
        if self.waiting and self._due <= t:
            self.found.by_timer += 1
            self.sync(self._due)

    def sync(self, t: int) -> None:
        """Now; what waited is told."""
        self.found.count += 1
        for came, count in self.waiting:
            self.found.delays[delay_class(t - came)] += count
        self.waiting.clear()
        self._due = NEVER
