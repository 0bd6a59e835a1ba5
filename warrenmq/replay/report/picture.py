"""The contents of the report: series over one time axis, percentiles, bars and actors' lives."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple


class Delays(NamedTuple):
    """One kind of delay, in seconds: percentiles over the whole trace (100 = the longest), and two of them over time."""

    messages: int
    overall: dict[float, float]
    median: list[float | None]
    p99: list[float | None]


class Flushes(NamedTuple):
    """All writes, or all syncs, of one kind of file that one trigger caused."""

    what: str
    trigger: str
    times: int
    records: int
    bytes: int


class FileBar(NamedTuple):
    """The last known state of one store file, one of the largest."""

    store: str
    file: int
    valid: int
    size: int


class Combine(NamedTuple):
    """One run of a store's garbage collector."""

    start: float
    seconds: float
    destination: int
    source: int
    reclaimed: int


class Cut(NamedTuple):
    """A file that had been compacted in place was cut."""

    at: float
    file: int
    reclaimed: int


class Mailbox(NamedTuple):
    """Depth of one actor's mailbox and waiting times in it, of mail from traced senders."""

    taken: int
    wait: float
    """Seconds, on average."""
    most: int
    """The deepest that it was, looked at every 10 ms."""
    depth: list[int | None]
    """The deepest within each point."""
    in_and_out: list[tuple[int, int]]
    """Messages that were put in and taken, for each point."""


class Held(NamedTuple):
    """A time in which one sender waited for another actor's credit, or for an alarm to clear."""

    sender: str
    towards: str
    seconds: float
    times: int


class Life(NamedTuple):
    """One incarnation of an actor; `how` it ended."""

    name: str
    kind: str
    start: float
    end: float
    how: str


class Restart(NamedTuple):
    """A supervisor started a child again, or gave up."""

    at: float
    supervisor: str
    child: str
    times: int
    intensity: int
    gave_up: bool


@dataclass(slots=True)
class Picture:
    """The data of the report's charts.  Series have one value for each of `seconds`."""

    width: float
    """Seconds from one point to the next."""
    seconds: list[float]
    flows: dict[str, list[float]] = field(default_factory=dict)
    """published, confirmed, delivered, acked: messages a second."""
    totals: dict[str, int] = field(default_factory=dict)
    depth: dict[str, list[int | None]] = field(default_factory=dict)
    delays: dict[str, Delays] = field(default_factory=dict)
    writes: list[Flushes] = field(default_factory=list)
    syncs: list[Flushes] = field(default_factory=list)
    sync_sizes: dict[str, list[int]] = field(default_factory=dict)
    """Trigger -> index syncs by the bit length of their number of records."""
    decisions: dict[str, dict[str, int]] = field(default_factory=dict)
    """write, remove -> what the store did with it -> how often."""
    on_disk: dict[str, list[int]] = field(default_factory=dict)
    """Store -> bytes in its files."""
    live: dict[str, list[int]] = field(default_factory=dict)
    """Store -> bytes of records that are still referenced."""
    mailboxes: dict[str, Mailbox] = field(default_factory=dict)
    waiting: dict[str, list[float]] = field(default_factory=dict)
    """Peer without credit, or an alarm -> senders that wait for it, on average over each point."""
    held: list[Held] = field(default_factory=list)
    files: list[FileBar] = field(default_factory=list)
    reclaimed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """combine, compaction -> how many there were, and how many bytes they gave back."""
    combines: list[Combine] = field(default_factory=list)
    """The combines that gave back most."""
    cuts: list[Cut] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    runs: list[tuple[float, float]] = field(default_factory=list)
    """First and last second of each run."""
    unconfirmed: dict[str, int] = field(default_factory=dict)
    """Queue -> messages that its processes owed a confirm when they were killed, crashed, or went with the broker."""

    def outages(self) -> list[tuple[float, float]]:
        """The times in which no run lived, as (begin, end) in seconds, of those that are longer than a point."""
        found: list[tuple[float, float]] = []
        end = math.inf
        for first, last in sorted(self.runs):
            if first - end > self.width:
                found.append((end, first))
            end = last if end == math.inf else max(end, last)
        return found

    def is_down(self) -> list[bool]:
        """Flags by point: True if no run lived in all of it."""
        outages = self.outages()
        return [any(begin <= at and at + self.width <= end for begin, end in outages) for at in self.seconds]
