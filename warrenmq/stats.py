"""What `Broker.stats` returns: plain dataclasses, a snapshot of each part taken one after the other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue."""

    name: str
    durable: bool
    ready: int
    """Messages that could be delivered now."""
    unacked: int
    consumers: int
    in_memory: int
    """Ready messages that are in memory; the others are on disk only."""


@dataclass(frozen=True, slots=True)
class FileStats:
    """One message file, as the store's file summary has it."""

    file: int
    file_size: int
    valid_total_size: int
    """Bytes of live records; the rest is garbage."""
    locked: bool
    readers: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """One message store."""

    name: str
    messages: int
    """Records with at least one reference."""
    references: int
    current_file: int
    files: tuple[FileStats, ...]


@dataclass(frozen=True, slots=True)
class ActorStats:
    """One actor."""

    name: str
    kind: str
    mailbox: int
    """Messages that wait."""
    restarts: int
    """Times that an actor of this name was started again since the broker was opened."""


@dataclass(frozen=True, slots=True)
class Stats:
    """A broker."""

    queues: tuple[QueueStats, ...]
    stores: tuple[StoreStats, ...]
    actors: tuple[ActorStats, ...]
