"""The interface of a queue index, which both versions have.

A record is 16 bytes of message id, expiry, size, embedded size and the embedded stored message
(queue_index/record.py).  Version 1 keeps it as it is; version 2 cuts it into an index entry and a body and
puts it together again, and a body's message id is on no disk: a record that was read back from a .qs file has
sixteen zeros there.  The id of a message that is not in a store is not needed; traces name it by its queue
and sequence id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from warrenmq.directory.damage_log import DamageLog
from warrenmq.directory.recovery_terms import Terms
from warrenmq.queue_index.v1.walk import WalkedV1
from warrenmq.queue_index.v2.walk import WalkedV2
from warrenmq.seams.disk import Disk, File
from warrenmq.settings import Settings
from warrenmq.trace.events import Trigger
from warrenmq.trace.recorder import ActorTrace

Synced = tuple[int, int] | None
"""Bytes and records that a sync made safe; None = it wrote nothing."""


class Walked(NamedTuple):
    """The contents of a queue's folder, read before its index is opened (queue_index_walker)."""

    versions: frozenset[int]
    """The versions of which there are files."""
    store_messages: dict[int, bytes]
    """Sequence id -> message id, in their order, of the messages that a store must keep for this queue; it
    may hold an id twice.
    """
    version_1: WalkedV1
    version_2: WalkedV2

    @property
    def store_message_ids(self) -> list[bytes]:
        """Their ids alone."""
        return [*self.store_messages.values()]


@dataclass(frozen=True, slots=True)
class Opening:
    """The arguments of opening an index of either version."""

    disk: Disk
    directory: str
    settings: Settings
    contains: Callable[[bytes], bool]
    """True if the store has a message's body."""
    quarantine: str
    walked: Walked | None = None
    """The folder's contents, read since its files were made safe; None = still to be read."""
    terms: Terms | None = None
    """The terms of a clean stop, if there was one."""
    trace: ActorTrace | None = None
    damage: DamageLog = field(default_factory=DamageLog)
    """Collects the damage that reads find."""


class QueueFiles(Protocol):
    """The files of a queue's index, or of all its indexes if it has priorities: the part of them that the
    queue process uses.
    """

    @property
    def share(self) -> int:
        """Bytes that each message of a segment may take in a file, if all are to have room in it."""

    def look_at_limit(self) -> None:
        """Look how long a file may be, for `share`."""

    def live_messages(self) -> Iterator[tuple[int, int]]:
        """Sequence id, ascending, and the low 64 bits of the message id of each message that is not acked; 0
        = the files do not say, as those of version 2 do not of a body that they hold.
        """

    def live_runs(self) -> Iterator[tuple[int, int]]:
        """(first, count) of each run of consecutive sequence ids that are not acked."""

    @property
    def dirty_bytes(self) -> int:
        """Bytes of files, or a little more, that `begin_flush` would free in an empty queue; 0 = none."""

    @property
    def needs_sync(self) -> bool:
        """True if some action is not safe yet."""

    def to_sync(self, trigger: Trigger) -> Sequence[File]:
        """Hand what is buffered to the operating system; returns the files that a sync comes to, none if they
        are not all open.
        """

    def sync(self, trigger: Trigger) -> Synced:
        """Return when every action up to here is safe."""

    @property
    def flushing(self) -> bool:
        """True if flush_step() has something to do."""

    def flush_step(self) -> bool:
        """Do some of the work that is left; True while there is more.  After an error it can be tried again."""

    def begin_flush(self) -> None:
        """Tidy up, at once or by flush_step()."""

    def close_files(self) -> None:
        """Close what can be opened anew when it is needed."""

    def delete(self) -> None:
        """The queue is gone: remove its directory."""


class Index(QueueFiles, Protocol):
    """One queue's index; not thread-safe: it belongs to its queue process.

    publish_many, ack and ack_range never raise for a full disk: what could not be written stays in memory, and sync()
    raises.
    """

    next_seq_id: int
    """Above every sequence id ever published here."""
    segment_entry_count: int
    """Messages a segment."""
    base: int
    """Added to sequence ids in the trace: of a queue with priorities each index counts its own from 0."""

    def publish_many(self, first_seq_id: int, records: list[bytes], persistent: bool) -> None:
        """Add messages with consecutive sequence ids that were not used yet; transient ones may come late, when they
        are paged out.
        """

    def ack(self, seq_ids: list[int]) -> None:
        """Ack messages; each was published and not acked before."""

    def ack_range(self, first_seq_id: int, count: int) -> None:
        """`ack` of consecutive sequence ids."""

    def read(self, start: int, end: int) -> list[tuple[int, bytes, bool]]:
        """The messages in [start, end) that are not acked: (sequence id, record, persistent), ascending.

        One whose bytes turn out to be damaged is left out, acked, and listed by `take_lost`.
        """

    def read_headers(self, start: int, end: int) -> list[tuple[int, bytes, bool]]:
        """Read entries whose bodies are not needed: records may end behind their header."""

    def read_alike(self, start: int, end: int, *, bodies: bool = True) -> list[bytes]:
        """Records of the persistent messages from `start` on, with consecutive sequence ids below `end`, as
        far as they are alike and can be read together; `read` has the rest, which may be all.  Without
        `bodies` they are as `read_headers` has them.
        """

    def tune_read(self, start: int, end: int) -> int:
        """The best end of a read from `start` to `end`, given the segments; it may lie beyond `end`."""

    def take_lost(self) -> list[int]:
        """Sequence ids of messages that reads found damaged, since the last time."""

    def next_live(self, seq_id: int) -> int:
        """`seq_id`, or where the next segment with a live message begins; `next_seq_id` if no later one has any."""

    def bounds(self) -> tuple[int, int]:
        """(low, high): every message that is not acked lies in [low, high); multiples of a segment's size."""

    @property
    def unacked(self) -> int:
        """Messages that are published and not acked."""

    def flush_buffer(self, trigger: Trigger) -> None:
        """Hand what is buffered to the operating system; after an error it is still buffered."""

    def sync(self, trigger: Trigger, *, alone: bool = True) -> Synced:
        """See QueueFiles; the QI_SYNC row is the caller's if this is not the queue's `alone`."""

    def terminate(self, *, next_seq_id: int, next_deliver_seq_id: int) -> Terms:
        """Close after a clean stop: everything is synced; the terms are for the next start."""

    def terms(self, *, next_seq_id: int, next_deliver_seq_id: int) -> Terms:
        """The terms of a clean stop at this moment, when everything is synced."""
