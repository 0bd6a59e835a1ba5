"""The dataclasses of `Broker.stats`: a snapshot of each part, taken one after the other."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Self

from warrenmq.backing_queue.parts import QueueMemory
from warrenmq.directory.damage_log import DamageLog
from warrenmq.message_store.effects import StoreStatistics
from warrenmq.node.alarms import BlockedPublisher, Source
from warrenmq.node.resources import Measured, Resources
from warrenmq.queue.messages import QueueInfo


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
    memory: QueueMemory
    damaged: int
    """Messages that were found damaged since the queue was opened, and set aside in `quarantine/`."""

    @classmethod
    def of(cls, name: str, info: QueueInfo, *, durable: bool) -> QueueStats:
        """Make the statistics of a queue from its process's answer."""
        in_memory = info.memory.in_memory
        return cls(
            name, durable, info.ready, info.unacked, info.consumers, in_memory, info.memory, info.damaged
        )


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
    damaged: int
    """Messages and other pieces of files that were found damaged since the store was opened, and set aside in
    `quarantine/`."""

    @classmethod
    def of(cls, name: str, info: StoreStatistics) -> StoreStats:
        """Make the statistics of a store from its process's answer."""
        files = tuple(FileStats(*row) for row in info.files)
        return cls(name, info.messages, info.references, info.current_file, files, info.damaged)


@dataclass(frozen=True, slots=True)
class ActorStats:
    """One actor."""

    name: str
    kind: str
    mailbox: int
    """Messages that wait."""
    restarts: int
    """Times that it was started again since the broker was opened, or, of a queue, since it was declared."""


@dataclass(frozen=True, slots=True)
class AlarmStats:
    """One alarm, set or not."""

    source: Source
    is_set: bool
    measured: int | None
    """Bytes of memory in use, or free on the disk, at the monitor's last look; None when that is not known."""
    limit: int | None
    """More memory in use than this, or less room, sets the alarm."""
    since_ns: int | None
    """Wall clock when it was set; None while it is not."""


def alarm_stats(resources: Resources) -> tuple[AlarmStats, ...]:
    """Statistics of the alarms, that of the memory first."""
    last: dict[Source, Measured] = {"memory": resources.memory_use, "disk": resources.disk_space}
    stats = []
    for source, (measured, limit) in last.items():
        alarm = resources.alarms.find(source)
        stats.append(
            AlarmStats(source, alarm is not None, measured, limit, None if alarm is None else alarm.since_ns)
        )
    return tuple(stats)


@dataclass(frozen=True, slots=True)
class DamageStats:
    """A place at which a start, or a read, since the broker was opened found damage, or something that it
    does not understand.
    """

    file: str
    """Relative to the data directory."""
    offset: int
    reason: str


def damage_stats(damage: DamageLog, path: str) -> tuple[DamageStats, ...]:
    """The damage found below the data directory `path`."""
    return tuple(
        DamageStats(os.path.relpath(each.path, path), each.offset, each.reason) for each in damage.places
    )


@dataclass(frozen=True, slots=True)
class DelayStats:
    """Messages that wait for their time."""

    exchange: str | None
    """The delayed exchange that they were published to; None for those published with `delay` or `at`."""
    waiting: int
    arriving: int
    """Delayed messages whose time has come, and that not all their queues have confirmed yet."""


@dataclass(frozen=True, slots=True)
class Stats:
    """A broker."""

    queues: tuple[QueueStats, ...]
    stores: tuple[StoreStats, ...]
    actors: tuple[ActorStats, ...]
    alarms: tuple[AlarmStats, ...]
    """Memory, then disk."""
    blocked_publishers: tuple[BlockedPublisher, ...]
    """Publishers that wait because an alarm is set, the longest wait first."""
    damage: tuple[DamageStats, ...]
    """Damage found by starts and reads since the broker was opened; the first thousand places."""
    stuck: tuple[str, ...]
    """Actors that have held up a thread of a pool for longer than a second; always empty under threads."""
    delayed: tuple[DelayStats, ...] = ()
    """Messages that wait for their time, those of `delay` and `at` first."""
    syncs: int = 0
    """Files and folders that the process of the broker has made durable (fdatasync), since it was started,
    for all its brokers.
    """

    def as_dict(self) -> dict[str, Any]:
        """Convert to dicts, lists, numbers and strings, for JSON; a number without a limit (target_ram_count) is None."""
        found: dict[str, Any] = _plain(asdict(self))
        return found

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Make the statistics again from the result of `as_dict`."""
        queues = [
            QueueStats(**{**each, "memory": queue_memory_of(each["memory"])}) for each in plain["queues"]
        ]
        stores = [
            StoreStats(**{**each, "files": _rows(FileStats, each["files"])}) for each in plain["stores"]
        ]
        return cls(
            tuple(queues), tuple(stores), _rows(ActorStats, plain["actors"]), _rows(AlarmStats, plain["alarms"]),
            _rows(BlockedPublisher, plain["blocked_publishers"]), _rows(DamageStats, plain["damage"]), tuple(plain["stuck"]),
            _rows(DelayStats, plain["delayed"]), plain["syncs"],
        )  # fmt: skip


def queue_memory_of(plain: dict[str, Any]) -> QueueMemory:
    """Make a QueueMemory from its fields, with None for an infinite target."""
    target = plain["target_ram_count"]
    return QueueMemory(**{**plain, "target_ram_count": math.inf if target is None else target})


def _rows(kind: Any, rows: Iterable[dict[str, Any]]) -> tuple[Any, ...]:
    return tuple(kind(**row) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if value == math.inf else value
