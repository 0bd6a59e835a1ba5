"""The queue index of version 2: index entries in .qi files, small bodies in .qs files beside them.

    publish ──► write buffer ──┬─ bodies ──► k.qs          a flush writes bodies before entries;
                    ▲          └─ entries ─► k.qi          a sync makes both safe
    ack ────────────┴─► 32 zero bytes over the entry, or nothing when the message is still in the buffer

A flush comes with a sync, or when the buffer holds as many messages as a segment, or as many bytes as
`classic_queue_store_v2_max_cache_size`; what it wrote is the cache until the next one.  When half a segment of acks
waits, flush_step() writes the acks alone.  A segment is deleted, both its files, when nothing in it is unacked.

Rules for maintainers
1. A message is in the write buffer, or on disk; an ack waits only for one on disk.  Reading looks in the buffer, then
   at the acks, then in the cache, then on disk.
2. publish and ack never raise for a full disk: what could not be written stays in the buffer, and sync() says so.
3. The segment that the next message goes to is kept when it is empty, or a queue whose messages come and go one by one
   would make and remove two files for each; it goes when the queue moves on, and with begin_flush when nobody has used it for
   long.  A clean stop and a start keep it, too.  (RabbitMQ deletes it at once.)
4. ack changes nothing on disk, it only sets `flushing`: the trace has the rows of an ack before its effect is on disk.

Source: rabbit_classic_queue_index_v2 and rabbit_classic_queue_store_v2,
docs/reference/classic-queue.md#index-operations and #store-files.  There a
body gets its place in the .qs file when it is published; here when it is written, so acks in time leave no garbage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from warrenmq.directory.damage_log import DamageLog
from warrenmq.directory.quarantine import set_aside_lost
from warrenmq.directory.recovery_terms import Terms
from warrenmq.directory.torn import Damage
from warrenmq.queue_index.live_segments import LiveSegments
from warrenmq.queue_index.protocol import Opening, Synced, Walked
from warrenmq.queue_index.record import message_number
from warrenmq.queue_index.v1.recovery import Found
from warrenmq.queue_index.v1.segment import split, tune_read
from warrenmq.queue_index.v2 import qi
from warrenmq.queue_index.v2.pack import SegmentV2, by_segment, leave_out_oldest
from warrenmq.queue_index.v2.recovery import RecoveryV2
from warrenmq.queue_index.v2.segment_files import SegmentFiles
from warrenmq.seams.disk import Disk, File
from warrenmq.settings import Settings
from warrenmq.trace.events import QiSync, QiWrite, SegmentDelete, Trigger
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_written, _write_synced, _write_deleted = writer(QiWrite), writer(QiSync), writer(SegmentDelete)


class QueueIndexV2(LiveSegments[SegmentV2]):
    """One queue's index and small bodies.  Not thread-safe: it belongs to its queue process.

    _segments      number -> SegmentV2: those with a file, or with a message in the buffer
    _buffer        sequence id -> record: published, not yet written
    _acks          messages on disk whose acks are not yet written
    _cache         sequence id -> record: written by the last flush, not acked
    next_seq_id    above every sequence id ever published here
    dirty_bytes    see Index: what was written since there was no file
    """

    def __init__(
        self, disk: Disk, directory: str, settings: Settings, quarantine: str, damage: DamageLog, entry_count: int,
        trace: ActorTrace | None,
    ) -> None:  # fmt: skip
        """Use `recover`, which makes the directory and reads its files."""
        super().__init__(disk, entry_count)
        self._directory = directory
        self._quarantine = quarantine
        self._damage = damage
        self._trace = trace
        self._max_cache = settings.classic_queue_store_v2_max_cache_size
        check_crc = settings.classic_queue_store_v2_check_crc32
        self._files = SegmentFiles(disk, directory, entry_count, check_crc=check_crc)
        self._buffer: dict[int, bytes] = {}
        self._never_written = False
        """Entries were acked before they reached a file: the next sync has nothing to do for them, and says so."""
        self._buffered = 0
        self._transient: set[int] = set()
        """Messages in buffer and cache that are not persistent."""
        self._acks: set[int] = set()
        self._cache: dict[int, bytes] = {}
        self._done: dict[int, None] = {}
        """Segments to delete, unless something is published to them before."""
        self._unsynced_bytes = self._unsynced_records = 0
        self._write_failed = False
        self.dirty_bytes = 0

    @classmethod
    def recover(cls, opening: Opening, walked: Walked) -> tuple[QueueIndexV2, Found]:
        """Open a queue's directory, or begin one."""
        disk, directory, settings = opening.disk, opening.directory, opening.settings
        disk.mkdir(directory)
        recovery = RecoveryV2(opening, walked.version_2)
        found = recovery.found
        index = cls(
            disk, directory, settings, opening.quarantine, opening.damage, recovery.entry_count, opening.trace
        )
        index._segments = {
            number: SegmentV2(number, unacked, on_disk=True) for number, unacked in recovery.segments.items()
        }
        index.dirty_bytes = len(index._segments) * recovery.entry_count * qi.ENTRY_BYTES
        index.next_seq_id = found.next_seq_id
        return index, found

    # -- actions

    def publish_many(self, first_seq_id: int, records: list[bytes], persistent: bool) -> None:
        """Add messages with consecutive sequence ids that were not used yet."""
        count = len(records)
        seq_ids = range(first_seq_id, first_seq_id + count)
        self._buffer.update(zip(seq_ids, records, strict=True))
        self._buffered += sum(map(len, records))
        if not persistent:
            self._transient.update(seq_ids)
        segments, entry_count, end = self._segments, self.segment_entry_count, first_seq_id + count
        for number in range(first_seq_id // entry_count, -(-end // entry_count)):
            if (segment := segments.get(number)) is None:
                segment = segments[number] = SegmentV2(number)
            base = number * entry_count
            segment.unacked += min(end, base + entry_count) - max(first_seq_id, base)
        before = self.next_seq_id // entry_count
        self.next_seq_id = max(self.next_seq_id, end)
        if self.next_seq_id // entry_count > before:
            self._note_done([before])
        if self._buffered >= self._max_cache or len(self._buffer) >= entry_count:
            self._write_in_passing()

    def ack(self, seq_ids: list[int]) -> None:
        """Ack messages; each was published and not acked before."""
        entry_count, segments = self.segment_entry_count, self._segments
        touched: dict[int, None] = {}
        for seq_id in seq_ids:
            number = seq_id // entry_count
            segments[number].unacked -= 1
            touched[number] = None
        self._forget(seq_ids)
        self._note_done(touched)

    def ack_range(self, first_seq_id: int, count: int) -> None:
        """`ack` of consecutive sequence ids."""
        touched: dict[int, None] = {}
        for number, _, room in split(first_seq_id, count, self.segment_entry_count):
            self._segments[number].unacked -= room
            touched[number] = None
        self._forget(range(first_seq_id, first_seq_id + count))
        self._note_done(touched)

    def _forget(self, seq_ids: Sequence[int]) -> None:
        """Take acked messages from the buffer, or have their entries on disk overwritten."""
        if self._transient:
            self._transient.difference_update(seq_ids)
        if self._buffer.keys().isdisjoint(seq_ids) and self._cache.keys().isdisjoint(seq_ids):
            self._acks.update(seq_ids)
            return
        buffered = len(self._buffer)
        from_buffer, from_cache, ack = self._buffer.pop, self._cache.pop, self._acks.add
        for seq_id in seq_ids:
            if (record := from_buffer(seq_id, None)) is not None:
                self._buffered -= len(record)
            else:
                ack(seq_id)
                from_cache(seq_id, None)
        if len(self._buffer) < buffered:
            self._never_written = True

    def _note_done(self, numbers: Iterable[int]) -> None:
        """Note the segments among these that flush_step() is to delete."""
        newest, segments = self.next_seq_id // self.segment_entry_count, self._segments
        for number in numbers:
            if number != newest and (segment := segments.get(number)) is not None and not segment.unacked:
                self._done[number] = None

    # -- reading

    def read(self, start: int, end: int) -> list[tuple[int, bytes, bool]]:
        """The messages in [start, end) that are not acked: (sequence id, record, persistent), ascending."""
        return self._read(start, end, bodies=True)

    def read_headers(self, start: int, end: int) -> list[tuple[int, bytes, bool]]:
        """Read entries whose bodies are not needed; records on disk are headers only, so no .qs file is opened."""
        return self._read(start, end, bodies=False)

    def read_alike(self, start: int, end: int, *, bodies: bool = True) -> list[bytes]:
        """See Index: what is on the disk only."""
        number = start // self.segment_entry_count
        segment = self._segments.get(number)
        if segment is None or not segment.on_disk:
            return []
        end = min(end, (number + 1) * self.segment_entry_count)
        seq_ids = range(start, end)
        for known in (self._buffer.keys(), self._cache.keys(), self._acks):
            if known and not known.isdisjoint(seq_ids):
                return []
        return self._files.read_alike(number, start, end, bodies=bodies)

    def _read(self, start: int, end: int, *, bodies: bool) -> list[tuple[int, bytes, bool]]:
        found: list[tuple[int, bytes, bool]] = []
        first, last = start // self.segment_entry_count, -(-end // self.segment_entry_count)
        for number in self._live(first, last):
            base = number * self.segment_entry_count
            stop = min(end, base + self.segment_entry_count)
            found += self._read_segment(number, max(start, base), stop, bodies=bodies)
        return found

    def _read_segment(
        self, number: int, start: int, end: int, *, bodies: bool
    ) -> list[tuple[int, bytes, bool]]:
        transient = self._transient
        found = {
            seq_id: (seq_id, known[seq_id], seq_id not in transient)
            for known in (self._buffer, self._cache)
            for seq_id in range(start, end)
            if seq_id in known
        }
        if self._segments[number].on_disk:
            skip = {seq_id for seq_id in range(start, end) if seq_id in self._acks or seq_id in self._cache}
            messages, lost = self._files.read(number, start, end, skip, bodies=bodies)
            found = messages | found
            if lost:
                self._lose(number, lost)
        return [found[seq_id] for seq_id in sorted(found)]

    def _lose(self, number: int, lost: dict[int, tuple[str, Damage]]) -> None:
        """Set aside and ack damaged messages of a segment.

        It is unknown whether an entry that makes no sense was acked before, so what is left in the segment is counted anew.
        """
        set_aside_lost(self._disk, self._quarantine, self._directory, lost.values(), self._damage)
        self._lost += lost
        self._forget([*lost])
        base = number * self.segment_entry_count
        segment = range(base, base + self.segment_entry_count)
        left = {seq_id for seq_id in self._files.not_acked(number) if seq_id not in self._acks}
        self._segments[number].unacked = len(left.union(filter(self._buffer.__contains__, segment)))
        self._note_done([number])

    def tune_read(self, start: int, end: int) -> int:
        """The best end of a read from `start` to `end`."""
        return tune_read(start, end, self.segment_entry_count)

    def live_messages(self) -> Iterator[tuple[int, int]]:
        """See Index; reads every index file."""
        found: dict[int, int] = {}
        for number, segment in self._segments.items():
            if segment.on_disk:
                found.update(self._files.live(number))
        found.update((seq_id, message_number(record)) for seq_id, record in self._buffer.items())
        return ((seq_id, found[seq_id]) for seq_id in sorted(found.keys() - self._acks))

    # -- to disk

    @property
    def needs_sync(self) -> bool:
        """True if some action is not safe yet."""
        written = bool(self._unsynced_bytes or self._files.folder_changed)
        return written or bool(self._buffer or self._acks)

    def flush_buffer(self, trigger: Trigger) -> None:
        """Hand everything in the buffer to the operating system; after an error it is still buffered."""
        if self._done or self._files.bodies_left:
            self._delete_done()
        if not self._buffer and not self._acks:
            return
        size = self._buffered
        written = self._write(trigger, self._buffer)
        self._cache = (
            written if size <= self._max_cache else leave_out_oldest(written, size - self._max_cache)
        )
        if self._transient:
            self._transient.intersection_update([*self._cache, *self._buffer])

    def _write(self, trigger: Trigger, buffer: dict[int, bytes]) -> dict[int, bytes]:
        """Write these messages and all acks that wait, a segment at a time; returns the messages.

        After an error the segments that were not written are still waiting.
        """
        self._write_failed = True
        written: dict[int, bytes] = {}
        for number, published, acked in by_segment(
            sorted(buffer), sorted(self._acks), self.segment_entry_count
        ):
            whole = bool(published) and published == [*buffer]  # the usual case, which costs a third
            records = [*buffer.values()] if whole else list(map(buffer.__getitem__, published))
            flags = [qi.PERSISTENT] * len(published)
            if self._transient:
                flags = [0 if seq_id in self._transient else qi.PERSISTENT for seq_id in published]
            size, stored = self._files.write(self._segments[number], published, records, flags, acked)
            self._acks.difference_update(acked)
            if whole:
                written.update(buffer)
                buffer.clear()
                self._buffered = 0
            else:
                written.update(zip(published, records, strict=True))
                for seq_id in published:
                    del buffer[seq_id]
                self._buffered -= sum(map(len, records))
            self._unsynced_bytes += size
            self.dirty_bytes += size
            self._unsynced_records += len(published) + len(acked)
            if self._trace is not None:
                records_written = len(published) + len(acked)
                first = self.base + min(published[:1] + acked[:1])
                _write_written(
                    self._trace, trigger, size, records_written, stored, first, len(published), len(acked)
                )
        self._write_failed = False
        return written

    def _write_in_passing(self) -> None:
        """Write without a sync.  A full disk is reported by sync(); until one succeeds nothing is tried here."""
        if not self._write_failed:
            with suppress(OSError):
                self.flush_buffer(Trigger.BUFFER_FULL)

    def to_sync(self, trigger: Trigger) -> Sequence[File]:
        """See Index."""
        self.flush_buffer(trigger)
        return self._files.to_sync()

    def sync(self, trigger: Trigger, *, alone: bool = True) -> Synced:
        """See Index."""
        self.flush_buffer(trigger)
        if self._unsynced_bytes or self._files.folder_changed:
            self._files.sync()
        elif not self._never_written:
            return None
        self._never_written = False
        size, records = self._unsynced_bytes, self._unsynced_records
        self._unsynced_bytes = self._unsynced_records = 0
        if alone and self._trace is not None:
            _write_synced(self._trace, trigger, size, records)
        return size, records

    # -- tidying up

    @property
    def flushing(self) -> bool:
        """True if flush_step() has something to do: segments to delete, or acks enough to write them."""
        return bool(self._done or self._files.bodies_left) or len(self._acks) >= self.segment_entry_count / 2

    def flush_step(self) -> bool:
        """Delete segments and write acks; after an error it can be tried again."""
        self._delete_done()
        if self.flushing:
            self._write(Trigger.BUFFER_FULL, {})
        return False

    def begin_flush(self) -> None:
        """Delete all empty segments, the newest one too (rule 3)."""
        self._done |= {number: None for number, segment in self._segments.items() if not segment.unacked}
        self._delete_done()

    def _delete_done(self) -> None:
        segments = self._segments
        empty = [number for number in self._done if number in segments and not segments[number].unacked]
        for number in empty:
            if segments[number].on_disk:
                self._files.delete(segments[number])
                if self._trace is not None:
                    _write_deleted(self._trace, number)
            base = number * self.segment_entry_count
            self._acks.difference_update(range(base, base + self.segment_entry_count))
            del segments[number]
        self._done.clear()
        self._files.delete_bodies()
        if not segments:
            self.dirty_bytes = 0

    def close_files(self) -> None:
        """See Index."""
        self._files.close()

    # -- the end

    def terminate(self, *, next_seq_id: int, next_deliver_seq_id: int) -> Terms:
        """Close after a clean stop: everything is synced; the terms are for the next start."""
        self.sync(Trigger.CLOSE)
        self._files.close()
        return self.terms(next_seq_id=next_seq_id, next_deliver_seq_id=next_deliver_seq_id)

    def terms(self, *, next_seq_id: int, next_deliver_seq_id: int) -> Terms:
        """The terms of a clean stop at this moment, when everything is synced."""
        counts = tuple((number, segment.unacked) for number, segment in sorted(self._segments.items()))
        return Terms(max(next_seq_id, self.next_seq_id), next_deliver_seq_id, counts)

    def delete(self) -> None:
        """Remove the queue's directory."""
        self._files.close()
        self._disk.rmtree(self._directory)
