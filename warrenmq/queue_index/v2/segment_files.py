"""The two files of each segment of a version 2 index, written and read together.

    write    bodies to k.qs, then their entries and the acks to k.qi
    read     entries, then their bodies; what does not fit together is reported as lost
    sync     both files of every segment that was written, and the folder when files came or went

A file whose sync failed cannot be trusted, though it can be read: UNSYNCED names it for the next recovery, which writes it
anew.

Source: rabbit_classic_queue_index_v2 and rabbit_classic_queue_store_v2,
docs/reference/classic-queue.md#index-operations and #store-files.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from warrenmq.directory.torn import Damage
from warrenmq.queue_index.record import HEADER, HEADER_BYTES, ID_BYTES, message_problem
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.qi_files import QiFiles
from warrenmq.queue_index.v2.qi_writer import SegmentV2, adjacent, pack_entries
from warrenmq.queue_index.v2.recovery import UNSYNCED
from warrenmq.queue_index.v2.store import QueueStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warrenmq.seams.disk import Disk

NO_ID = bytes(ID_BYTES)
"""What a record that was read from a .qs file has for its message id."""
_IN_QS = int(qi.Location.QUEUE_STORE)


class OnDisk(NamedTuple):
    """What was read of a segment."""

    messages: dict[int, tuple[int, bytes, bool]]
    """Sequence id -> (sequence id, record, persistent)."""
    lost: dict[int, tuple[str, Damage]]
    """Sequence id -> name of the file, and where and why it cannot be read there."""


class SegmentFiles:
    """The .qi and .qs files of one directory."""

    def __init__(self, disk: Disk, directory: str, entry_count: int, *, check_crc: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._entry_count = entry_count
        self._entries = QiFiles(disk, directory)
        self._bodies = QueueStore(disk, directory, check_crc=check_crc)
        self.folder_changed = False
        """Files were made or deleted, and the folder was not synced since."""

    def entries_path(self, number: int) -> str:
        """Of a segment's .qi file."""
        return self._entries.path(number)

    def write(
        self,
        segment: SegmentV2,
        published: list[int],
        records: list[bytes],
        flags: list[int],
        acked: list[int],
    ) -> tuple[int, int]:
        """Write messages (sequence ids, ascending, with their records and flags) and acks of one segment.

        Returns the bytes written, and how many of them were bodies.  After an error both files are as they were.
        """
        number = segment.number
        base = number * self._entry_count
        span = base, base + self._entry_count
        bodies = [record[HEADER_BYTES:] for record in records if len(record) > HEADER_BYTES]
        offsets: list[int] = []
        stored = 0
        if bodies:
            offsets, stored = self._bodies.append(number, qi.pack_header(qs.MAGIC, *span), bodies)
            self.folder_changed |= offsets[0] == qi.HEADER_BYTES
        try:
            if not segment.on_disk:
                self.folder_changed = True
                self._entries.create(number, qi.pack_header(qi.MAGIC, *span))
                segment.on_disk = True
            self._entries.write(
                number, adjacent(base, published, pack_entries(records, flags, offsets), acked)
            )
        except OSError:
            self._bodies.take_back(number, stored)
            raise
        return stored + qi.ENTRY_BYTES * (len(published) + len(acked)), stored

    def read(self, number: int, start: int, end: int, known: Mapping[int, bytes | None]) -> OnDisk:
        """The messages of a segment in [start, end), but for those that are `known` already."""
        base = number * self._entry_count
        first = start - base
        entries, damage = qi.parse_entries(self._entries.read(number, first, end - start), first)
        lost: dict[int, tuple[str, Damage]] = {}
        for each in damage:
            seq_id = base + (each.offset - qi.HEADER_BYTES) // qi.ENTRY_BYTES
            if seq_id not in known:
                lost[seq_id] = f"{number}{qi.EXTENSION}", each
        pack = HEADER.pack
        messages: dict[int, tuple[int, bytes, bool]] = {}
        wanted: list[tuple[int, qi.Entry]] = []
        for seq_id, entry in [(base + relative, entry) for relative, entry in entries]:
            if seq_id in known:
                continue
            if entry.location == _IN_QS:
                wanted.append((seq_id, entry))
            else:
                messages[seq_id] = seq_id, pack(entry.msg_id, entry.expiry, entry.size, 0), entry.persistent
        bodies = self._bodies.read_many(number, [(entry.offset, entry.stored_size) for _, entry in wanted])
        for (seq_id, entry), body in zip(wanted, bodies, strict=True):
            problem = body if isinstance(body, str) else message_problem(body, seq_id, entry.size)
            if problem is not None:
                damaged = Damage(entry.offset, qs.ENTRY_HEADER_BYTES + entry.stored_size, problem)
                lost[seq_id] = f"{number}{qs.EXTENSION}", damaged
            elif isinstance(body, bytes):
                record = pack(NO_ID, entry.expiry, entry.size, len(body)) + body
                messages[seq_id] = seq_id, record, entry.persistent
        return OnDisk(messages, lost)

    def seq_ids(self, number: int) -> list[int]:
        """Of all live entries of a segment."""
        base = number * self._entry_count
        entries = qi.parse(self._disk.read(self._entries.path(number))).entries
        return [base + relative for relative, _ in entries]

    def delete(self, number: int) -> None:
        """Remove both files of a segment."""
        self._entries.delete(number)
        self._bodies.delete(number)
        self.folder_changed = True

    def sync(self) -> None:
        """Return when everything that was written, made and removed is safe."""
        try:
            if self._bodies.unsynced:
                self._entries.begin_sync()  # its pages travel with the bodies': a confirm takes a seventh less time
                self._bodies.datasync()
            self._entries.datasync()
        except OSError:
            self._distrust_unsynced()
            raise
        if self.folder_changed:
            self._disk.sync_dir(self._directory)
            self.folder_changed = False

    def _distrust_unsynced(self) -> None:
        """The note needs no sync: after a power cut what can be read is what is on the disk."""
        names = [f"{number}{qs.EXTENSION}" for number in self._bodies.unsynced]
        names += [f"{number}{qi.EXTENSION}" for number in self._entries.unsynced]
        with suppress(OSError):
            file = self._disk.open(f"{self._directory}/{UNSYNCED}", create=True)
            file.append("".join(f"{name}\n" for name in names).encode())
            file.close()

    def close(self) -> None:
        """Close all."""
        self._entries.close()
        self._bodies.close()
