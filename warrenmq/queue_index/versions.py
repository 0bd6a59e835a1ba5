"""The version of a directory's queue index, and its conversion to the other one.

    version 1    journal.jif, k.idx
    version 2    k.qi, k.qs

A queue is opened with the version that the settings say.  When its directory holds files of the other one, every message
is moved, in order and in runs:

    1  published in the new version, and synced
    2  acked in the old version, and synced; old segments go as they become empty
    3  when nothing is left, the old version's files are removed

A crash between 1 and 2 leaves messages in both versions; the next opening sees that they have the same
sequence ids.  It may go either way, but when files of both are there, everything goes to version 2 first: its
entries can be written again, while a message that a version 1 segment has as acked would stay so.  Messages
keep their order, sequence ids, and whether they are persistent; message ids are kept for bodies in a store,
as a .qs file has no place for others.

Source: rabbit_variable_queue:convert_from_v1_to_v2 and back,
docs/reference/classic-queue.md#recovery-of-version-2 and #where-a-body-goes.  A remnant of version 1 is
recognised by k.idx or journal.jif; RabbitMQ looked only for the first until 3.12, and lost messages that were
in the journal alone (744e66e42a).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from warrenmq.queue_index.protocol import Index, Opening, Walked
from warrenmq.queue_index.record import ID_BYTES
from warrenmq.queue_index.v1.index import QueueIndex
from warrenmq.queue_index.v1.journal import FILE_NAME
from warrenmq.queue_index.v1.recovery import Found
from warrenmq.queue_index.v1.segment import EXTENSION
from warrenmq.queue_index.v1.walk import walk as walk_version_1
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.index import QueueIndexV2
from warrenmq.queue_index.v2.segment_files import NO_ID
from warrenmq.queue_index.v2.walk import walk as walk_version_2
from warrenmq.seams.disk import Disk
from warrenmq.settings import Settings
from warrenmq.trace.events import Trigger

MOVED_TOGETHER = 2_048
"""Sequence ids that are moved between two syncs."""
_FROM_QS = b"from .qs"
"""The first half of the message id of a body that had none; the other half is made of the sequence id."""

_VERSIONS: dict[int, type[QueueIndex | QueueIndexV2]] = {1: QueueIndex, 2: QueueIndexV2}


def files_of(names: Iterable[str], version: int) -> list[str]:
    """Filter the files of a folder that belong to an index version."""
    if version == 1:
        return [name for name in names if name.endswith(EXTENSION) or name.startswith(FILE_NAME)]
    return [name for name in names if name.endswith((qi.EXTENSION, qs.EXTENSION))]


def to_make_safe(directory: str, names: Iterable[str]) -> list[str]:
    """The paths to sync before anything is read that a crash left.

    A message whose ack can be read is not claimed any more, so the store may overwrite it; a power cut must not bring
    its entry back then.  And what is found once must be found again.
    """
    return [*(f"{directory}/{name}" for version in (1, 2) for name in files_of(names, version)), directory]


def walk(disk: Disk, directory: str, names: list[str], settings: Settings) -> Walked:
    """Read what a folder holds, whichever version its files are of.  Writes nothing."""
    versions = frozenset(version for version in (1, 2) if files_of(names, version))
    version_1 = walk_version_1(disk, directory, names, settings.queue_index_segment_entry_count)
    version_2 = walk_version_2(disk, directory, names, settings)
    ids = {**dict(version_1.in_store), **dict(version_2.store_message_ids())}
    return Walked(versions, dict(sorted(ids.items())), version_1, version_2)


def recover(opening: Opening) -> tuple[Index, Found]:
    """Open a queue's directory, or begin one, with the version of the settings."""
    disk, directory, version = opening.disk, opening.directory, opening.settings.queue_version
    if opening.walked is None and opening.terms is None:
        names = disk.listdir(directory)
        if names:
            disk.sync_many(to_make_safe(directory, names))
    before = Found()
    walked = opening.walked or _walked(opening)
    if version == 1 and walked.versions == {1, 2}:
        index, before = _open(2, replace(opening, trace=None), walked)
        opening = replace(
            opening, terms=index.terminate(next_seq_id=before.next_seq_id, next_deliver_seq_id=0)
        )
        walked = _walked(opening)
    index, found = _open(version, opening, walked)
    found.expires |= before.expires
    found.dropped += before.dropped
    found.lost += before.lost
    found.damage += before.damage
    return index, found


def _walked(opening: Opening) -> Walked:
    disk, directory = opening.disk, opening.directory
    return walk(disk, directory, disk.listdir(directory), opening.settings)


def _open(version: int, opening: Opening, walked: Walked) -> tuple[Index, Found]:
    """Open with a version, and move over the messages of the other one."""
    disk, directory, old = opening.disk, opening.directory, 3 - version
    if old not in walked.versions:
        return _VERSIONS[version].recover(opening, walked)
    source, there = _VERSIONS[old].recover(replace(opening, trace=None), walked)
    # without the terms: a journal that is begun anew keeps the last sequence id as an ack, and that message may yet be moved
    index, found = _VERSIONS[version].recover(replace(opening, terms=None), walked)
    _move(source, index, found)
    source.terminate(next_seq_id=0, next_deliver_seq_id=0)
    for name in files_of(disk.listdir(directory), old):
        disk.unlink(f"{directory}/{name}")
    disk.sync_dir(directory)
    index.next_seq_id = found.next_seq_id = max(index.next_seq_id, there.next_seq_id)
    found.low = next((first for first, _ in index.live_runs()), found.next_seq_id)
    found.expires |= there.expires
    found.dropped += there.dropped
    found.lost += there.lost
    found.damage += there.damage
    return index, found


def _move(source: Index, target: Index, found: Found) -> None:
    """Move all messages of `source`; afterwards none of them is on disk there."""
    interrupted = target.unacked > 0
    start = source.next_live(0)
    while start < source.next_seq_id:
        end = start + MOVED_TOGETHER
        there = {seq_id for seq_id, _, _ in target.read(start, end)} if interrupted else set[int]()
        here = source.read(start, end)
        lost, torn = source.take_lost(), target.take_lost()
        found.count -= len(torn)
        # entries without bodies, as a power cut leaves them, of messages that were not moved: these are moved now
        still = {seq_id for seq_id, _, _ in here}
        lost += [seq_id for seq_id in torn if seq_id not in still]
        found.dropped += len(lost)
        found.lost += lost
        for first, records, persistent in _batches([each for each in here if each[0] not in there]):
            target.publish_many(first, records, persistent)
            found.count += len(records)
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
    """The record with a message id: without one a journal would take it for the zeros that a power cut leaves."""
    if record.startswith(NO_ID):
        return _FROM_QS + (seq_id + 1).to_bytes(8, "big") + record[ID_BYTES:]
    return record
