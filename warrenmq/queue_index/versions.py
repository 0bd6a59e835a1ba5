"""Which version of the queue index a directory has, and how it becomes the other one.

    version 1    journal.jif, k.idx
    version 2    k.qi, k.qs

A queue is opened with the version that the settings say.  When its directory holds files of the other one, every message
is moved, in order and in runs:

    1  published in the new version, and synced
    2  acked in the old version, and synced; old segments go as they become empty
    3  when nothing is left, the old version's files are removed

A crash between 1 and 2 leaves messages in both versions; the next opening sees that they have the same sequence ids.  It
may go either way, but when files of both are there, everything goes to version 2 first: its entries can be written
again, while a message that a version 1 segment has as acked would stay so.  Messages keep their order, sequence ids, and whether they are
persistent; message ids are kept for bodies in a store, as a .qs file has no place for others.

Source: rabbit_variable_queue:convert_from_v1_to_v2 and back, docs/reference/classic-queue.md#recovery-of-version-2
and #where-a-body-goes.  A remnant of
version 1 is recognised by k.idx or journal.jif; RabbitMQ looked only for the first until 3.12, and lost messages that were in the
journal alone (744e66e42a).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from warrenmq.queue_index.record import ID_BYTES, body_size, embedded
from warrenmq.queue_index.v1.index import QueueIndex
from warrenmq.queue_index.v1.journal import FILE_NAME
from warrenmq.queue_index.v1.recovery import Found, messages
from warrenmq.queue_index.v1.segment import EXTENSION
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2 import recovery as index_v2_recovery
from warrenmq.queue_index.v2.index import QueueIndexV2
from warrenmq.queue_index.v2.segment_files import NO_ID
from warrenmq.trace.events import Trigger

if TYPE_CHECKING:
    from warrenmq.queue_index.protocol import Index, Opening
    from warrenmq.seams.disk import Disk
    from warrenmq.settings import Settings

MOVED_TOGETHER = 2_048
"""Sequence ids that are moved between two syncs."""
_FROM_QS = b"from .qs"
"""The first half of the message id of a body that had none; the other half is made of the sequence id."""

_VERSIONS: dict[int, type[QueueIndex | QueueIndexV2]] = {1: QueueIndex, 2: QueueIndexV2}


def files_of(disk: Disk, directory: str, version: int) -> list[str]:
    """The names of a version's files in a directory."""
    names = disk.listdir(directory)
    if version == 1:
        return [name for name in names if name.endswith(EXTENSION) or name.startswith(FILE_NAME)]
    return [name for name in names if name.endswith((qi.EXTENSION, qs.EXTENSION))]


def make_acks_safe(disk: Disk, directory: str) -> None:
    """Sync what can be read; after a crash, before the store learns what the queue holds.

    A message whose ack can be read is not claimed any more, so the store may overwrite it; a power cut must not bring
    its entry back then.
    """
    names = [
        name
        for version in (1, 2)
        for name in files_of(disk, directory, version)
        if not name.endswith(qs.EXTENSION)
    ]
    for name in names:
        file = disk.open(f"{directory}/{name}")
        try:
            file.datasync()
        finally:
            file.close()
    if names:
        disk.sync_dir(directory)


def store_message_ids(disk: Disk, directory: str, settings: Settings) -> list[bytes]:
    """Ids of the messages that a store must keep for this queue, whichever version its files are of.

    In order of the sequence ids; an id that the queue holds twice comes twice.
    """
    ids: dict[int, bytes] = {}
    if files_of(disk, directory, 1):
        ids = {
            seq_id: record[:ID_BYTES]
            for seq_id, record, persistent in messages(
                disk, directory, settings.queue_index_segment_entry_count
            )
            if persistent and not embedded(record)
        }
    if files_of(disk, directory, 2):
        ids |= index_v2_recovery.store_message_ids(disk, directory, settings)
    return [ids[seq_id] for seq_id in sorted(ids)]


def recover(opening: Opening) -> tuple[Index, Found]:
    """Open a queue's directory, or begin one, with the version of the settings."""
    disk, directory, version = opening.disk, opening.directory, opening.settings.queue_version
    before = Found()
    if version == 1 and files_of(disk, directory, 1) and files_of(disk, directory, 2):
        index, before = _open(2, replace(opening, trace=None))
        opening = replace(
            opening, terms=index.terminate(next_seq_id=before.next_seq_id, next_deliver_seq_id=0)
        )
    index, found = _open(version, opening)
    found.dropped += before.dropped
    found.lost += before.lost
    found.damage += before.damage
    return index, found


def _open(version: int, opening: Opening) -> tuple[Index, Found]:
    """Open with a version, and take in what the other one has."""
    disk, directory, old = opening.disk, opening.directory, 3 - version
    if not files_of(disk, directory, old):
        return _VERSIONS[version].recover(opening)
    source, there = _VERSIONS[old].recover(replace(opening, trace=None))
    index, found = _VERSIONS[version].recover(opening)
    _move(source, index, found)
    source.terminate(next_seq_id=0, next_deliver_seq_id=0)
    for name in files_of(disk, directory, old):
        disk.unlink(f"{directory}/{name}")
    disk.sync_dir(directory)
    index.next_seq_id = found.next_seq_id = max(index.next_seq_id, there.next_seq_id)
    found.low = next((first for first, _ in index.live_runs()), found.next_seq_id)
    found.dropped += there.dropped
    found.lost += there.lost
    found.damage += there.damage
    return index, found


def _move(source: Index, target: Index, found: Found) -> None:
    """Move what is in `source`; afterwards nothing of it is on disk there."""
    interrupted = target.unacked > 0
    start = source.next_live(0)
    while start < source.next_seq_id:
        end = start + MOVED_TOGETHER
        there = {seq_id for seq_id, _, _ in target.read(start, end)} if interrupted else set[int]()
        here = source.read(start, end)
        lost = source.take_lost()
        found.dropped += len(lost)
        found.lost += lost
        for first, records, persistent in _batches([each for each in here if each[0] not in there]):
            target.publish_many(first, records, persistent)
            found.count += len(records)
            found.bytes += sum(map(body_size, records))
        target.sync(Trigger.CLOSE)
        while target.flush_step():
            pass
        source.ack([seq_id for seq_id, _, _ in here])
        source.sync(Trigger.CLOSE)
        while source.flush_step():
            pass
        start = source.next_live(end)
    source.begin_flush()
    while source.flush_step():
        pass
    source.sync(Trigger.CLOSE)


def _batches(messages: list[tuple[int, bytes, bool]]) -> Iterator[tuple[int, list[bytes], bool]]:
    """Runs of consecutive sequence ids that are alike: (first, records, persistent)."""
    first, records, kind = 0, list[bytes](), True
    for seq_id, record, persistent in messages:
        if records and (seq_id != first + len(records) or persistent is not kind):
            yield first, records, kind
            records = []
        if not records:
            first, kind = seq_id, persistent
        records.append(_with_id(seq_id, record))
    if records:
        yield first, records, kind


def _with_id(seq_id: int, record: bytes) -> bytes:
    """A journal needs a message id: without one it takes a record for what a power cut left."""
    if record.startswith(NO_ID):
        return _FROM_QS + (seq_id + 1).to_bytes(8, "big") + record[ID_BYTES:]
    return record
