"""The queue index: the position of each message of one queue, and small messages themselves, on disk.

    publish, ack --> journal.jif (every action, appended)        a sync makes them safe
                 '-> memory: what the segment files lack         read() merges it with the files
                          |
                          v  flush: a piece of a segment a step
                     k.idx  (segment k)                          deleted when nothing in it is unacked

Rules for maintainers
1. A segment file is synced before the journal forgets what it holds; a deleted one's folder is synced first too.
2. Entries that a flush writes to a segment file stay in the journal until the flush ends; a crash may leave it in both, and
   the merge rules (queue_index/v1/merge.py) resolve it.
3. publish and ack never raise for a full disk: what could not be written stays in the buffer, and sync() says so, if a
   flush finds no room either.
4. A message that is acked before it is written is written no more, and its sequence id may be given again after a crash.
5. Per message there is one bytes object and one dict entry here, nothing that the cyclic collector tracks.

Source: rabbit_queue_index of RabbitMQ 3.10, docs/reference/classic-queue.md#index-version-1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from warrenmq.directory.damage_log import DamageLog
from warrenmq.directory.quarantine import set_aside_lost
from warrenmq.directory.recovery_terms import Terms
from warrenmq.directory.torn import Damage
from warrenmq.queue_index.live_segments import LiveSegments
from warrenmq.queue_index.protocol import Opening, Synced, Walked
from warrenmq.queue_index.record import HEADER_BYTES, all_whole, message_number, record_problem
from warrenmq.queue_index.v1.journal import FILE_NAME, WRITE_BUFFER, Journal
from warrenmq.queue_index.v1.recovery import Found, Recovery
from warrenmq.queue_index.v1.segment import EXTENSION, Segment, next_boundary, split
from warrenmq.queue_index.v1.segment_files import NO_LIMIT, SegmentFiles
from warrenmq.seams.disk import Disk, File
from warrenmq.seams.disk_errors import is_full
from warrenmq.settings import Settings
from warrenmq.trace.events import QiFlush, QiSync, QiWrite, Trigger
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_written, _write_synced, _write_flushed = writer(QiWrite), writer(QiSync), writer(QiFlush)

FLUSH_BYTES = 1 << 20
"""Bytes that one step of a journal flush appends and syncs, in one to two milliseconds."""
MOST_AT_ONCE = 2_048
"""Messages that one read of a segment file should bring at most."""


@dataclass(slots=True)
class _Flush:
    """A journal flush in progress."""

    mark: int
    """The journal's bytes below this will be in segment files when the flush is done."""
    actions: int
    """The number of those actions."""
    next_seq_id: int
    """The index's, when the flush began."""
    waiting: list[Segment]
    """Segments that are still to be appended to, or deleted if nothing in them is unacked; the next one last."""
    positions: list[int] = field(default_factory=list)
    """Positions of that segment that are still to be appended; empty = not begun."""


class QueueIndex(LiveSegments[Segment]):
    """One queue's index (the record `qistate`).  Not thread-safe: it belongs to its queue process.

    _segments      number -> Segment: those with a file, or with something in memory
    _journal       the file and its write buffer
    dirty_count    actions in the journal: publish, deliver and ack count one each
    next_seq_id    above every sequence id ever published here
    """

    def __init__(
        self, disk: Disk, directory: str, settings: Settings, quarantine: str, damage: DamageLog,
        trace: ActorTrace | None,
    ) -> None:  # fmt: skip
        """Use `recover`, which makes the directory and reads its files."""
        super().__init__(disk, settings.queue_index_segment_entry_count)
        self._directory = directory
        self._quarantine = quarantine
        self._damage = damage
        self._max_journal_entries = settings.queue_index_max_journal_entries
        self._trace = trace
        self._journal = Journal(disk, directory)
        self._files = SegmentFiles(disk, directory, self.segment_entry_count, trace)
        self.dirty_count = 0
        self._unsynced_bytes = self._unsynced_actions = 0
        self._flush: _Flush | None = None
        self._write_failed = False
        self._never_written = False
        """Messages were acked before they were written since the last sync, or are safe in segment files: the
        next sync covers them.
        """

    @classmethod
    def recover(cls, opening: Opening, walked: Walked) -> tuple[QueueIndex, Found]:
        """Open a queue's directory, or begin one."""
        disk, directory, settings = opening.disk, opening.directory, opening.settings
        disk.mkdir(directory)
        entry_count, terms = settings.queue_index_segment_entry_count, opening.terms
        recovery = Recovery(
            disk, directory, entry_count, opening.contains, opening.quarantine, walked.version_1
        )
        found = recovery.found
        index = cls(disk, directory, settings, opening.quarantine, opening.damage, opening.trace)
        if terms is None and recovery.segments_without_journal:
            recovery.tell_gone(
                FILE_NAME, "it is gone, and there are messages in the segments that it belongs to"
            )
        index._segments = recovery.segments
        index.dirty_count = recovery.journal_actions
        found.next_seq_id = recovery.high if terms is None else max(terms.next_seq_id, recovery.next_seq_id)
        if not found.count:
            found.low = found.next_seq_id
        index.next_seq_id = found.next_seq_id
        is_whole = recovery.journal_whole and not (found.dropped or found.damage)
        if terms is None or not is_whole:
            try:
                index.flush()
            except OSError as error:
                if not is_full(error) or not is_whole:
                    raise  # else: what consumers ack makes room for the flush to go on
            index._journal.have_name()
            index._journal.file.datasync()  # else a power cut may bring the old journal back, without its last acks
        return index, found

    # -- actions

    def publish_many(self, first_seq_id: int, records: list[bytes], persistent: bool) -> None:
        """Add messages with consecutive sequence ids that were not used yet."""
        count = len(records)
        journal = self._journal
        journal.publish_many(first_seq_id, records, persistent=persistent)
        end, entry_count = first_seq_id + count, self.segment_entry_count
        self.next_seq_id = max(self.next_seq_id, end)
        self.dirty_count += 2 * count
        left = iter(records)
        for number in range(first_seq_id // entry_count, -(-end // entry_count)):
            segment = self._segments.get(number)
            if segment is None:
                segment = self._segments[number] = Segment(number)
            base = number * entry_count
            positions = range(max(first_seq_id - base, 0), min(end - base, entry_count))
            segment.published.update(zip(positions, left))  # noqa: B905  # the rest is for the next segment
            if not persistent:
                segment.transient.update(positions)
            segment.unacked += len(positions)
        if journal.buffered >= WRITE_BUFFER:
            self._write_full_buffer()

    def ack(self, seq_ids: list[int]) -> None:
        """Ack messages; each was published and not acked before."""
        self._journal.ack(seq_ids)
        self._acked(len(seq_ids))
        entry_count, segments = self.segment_entry_count, self._segments
        for seq_id in seq_ids:
            number, relative = divmod(seq_id, entry_count)
            segment = segments[number]
            if segment.published.pop(relative, None) is None:
                segment.acked.add(relative)
            elif segment.transient:
                segment.transient.discard(relative)
            segment.unacked -= 1

    def ack_range(self, first_seq_id: int, count: int) -> None:
        """`ack` of consecutive sequence ids."""
        self._journal.ack_range(first_seq_id, count)
        self._acked(count)
        for number, relative, room in split(first_seq_id, count, self.segment_entry_count):
            segment = self._segments[number]
            positions = range(relative, relative + room)
            if segment.published:
                pop = segment.published.pop
                segment.acked.update([each for each in positions if pop(each, None) is None])
            else:
                segment.acked.update(positions)
            if segment.transient:
                segment.transient.difference_update(positions)
            segment.unacked -= room

    def _acked(self, count: int) -> None:
        """Count acks that were added to the journal."""
        self.dirty_count += count
        if forgotten := self._journal.forget_acked():
            self.dirty_count -= 3 * forgotten
            self._never_written = True
        elif self._journal.buffered >= WRITE_BUFFER:
            self._write_full_buffer()

    # -- reading

    def read(self, start: int, end: int) -> list[tuple[int, bytes, bool]]:
        """The messages in [start, end) that are not acked: (sequence id, record, persistent), ascending."""
        found: list[tuple[int, bytes, bool]] = []
        first, last = start // self.segment_entry_count, -(-end // self.segment_entry_count)
        for number in self._live(first, last):
            base = number * self.segment_entry_count
            segment = self._segments[number]
            records, transient = self._files.live(segment)
            near = range(max(start - base, 0), min(end - base, self.segment_entry_count))
            if segment.on_disk:
                from_file = [each for each in near if each in records and each not in segment.published]
                for seq_id in self._lose_damaged(number, {base + each: records[each] for each in from_file}):
                    del records[seq_id - base]
            found += [(base + each, records[each], each not in transient) for each in near if each in records]
        return found

    def read_headers(self, start: int, end: int) -> list[tuple[int, bytes, bool]]:
        """Read entries whose bodies are not needed; the same as `read`, since a segment is one file read as a whole."""
        return self.read(start, end)

    def _lose_damaged(self, number: int, read: dict[int, bytes]) -> list[int]:
        """Set aside and ack the damaged ones of these records of a segment's file; returns their sequence ids."""
        if all_whole([*read.values()], [*read]):
            return []
        problems = {
            seq_id: problem
            for seq_id, record in read.items()
            if (problem := record_problem(record, seq_id)) is not None
        }
        lost = [*problems]
        if lost:
            name, data = f"{number}{EXTENSION}", self._files.read(number)
            pieces = [
                (name, Damage(data.find(read[seq_id]), len(read[seq_id]), problem))
                for seq_id, problem in problems.items()
            ]
            set_aside_lost(self._disk, self._quarantine, self._directory, pieces, self._damage)
            self._lost += lost
            self.ack(lost)
        return lost

    def tune_read(self, start: int, end: int) -> int:
        """The best end of a read from `start`: that of the segment, as its file is parsed whole."""
        segment = self._segments.get(start // self.segment_entry_count)
        whole = start + MOST_AT_ONCE if segment is not None and segment.on_disk else end
        return min(whole, next_boundary(start, self.segment_entry_count))

    def live_messages(self) -> Iterator[tuple[int, int]]:
        """See Index; reads every segment."""
        for number in sorted(self._segments):
            base = number * self.segment_entry_count
            for relative, record in sorted(self._files.live(self._segments[number])[0].items()):
                yield base + relative, message_number(record)

    # -- to disk

    @property
    def needs_sync(self) -> bool:
        """True if some action is not safe yet."""
        return self._journal.buffered > 0 or self._unsynced_bytes > 0

    def flush_buffer(self, trigger: Trigger) -> None:
        """Hand the buffered actions to the operating system; after an error they are still buffered."""
        journal = self._journal
        size, published, acked = journal.buffered, journal.buffered_publishes, journal.buffered_acks
        if not size:
            return
        offset, lowest, actions = journal.size, journal.lowest, 2 * published + acked
        self._write_failed = True
        journal.write()
        self._write_failed = False
        self._unsynced_bytes += size
        self._unsynced_actions += actions
        if self._trace is not None:
            first = lowest + self.base if actions else 0
            _write_written(self._trace, trigger, size, actions, offset, first, published, acked)

    def _write_full_buffer(self) -> None:
        """Write in passing.  A disk that is full is sync()'s to report; until one succeeds nothing is tried here."""
        if not self._write_failed:
            with suppress(OSError):
                self.flush_buffer(Trigger.BUFFER_FULL)

    def to_sync(self, trigger: Trigger) -> Sequence[File]:
        """See Index."""
        self.flush_buffer(trigger)
        self._journal.have_name()
        return (self._journal.file,) if self._unsynced_bytes else ()

    def sync(self, trigger: Trigger, *, alone: bool = True) -> Synced:
        """See Index."""
        try:
            self.flush_buffer(trigger)
        except OSError as error:
            if not is_full(error):
                raise
            self._flush_without_buffer(error)
        self._journal.have_name()
        if self._unsynced_bytes:
            self._journal.file.datasync()
        elif not self._never_written:
            return None
        self._never_written = False
        size, actions = self._unsynced_bytes, self._unsynced_actions
        self._unsynced_bytes = self._unsynced_actions = 0
        if alone and self._trace is not None:
            _write_synced(self._trace, trigger, size, actions)
        return size, actions

    # -- the journal flush

    @property
    def dirty_bytes(self) -> int:
        """See Index: the journal, and segments as if each entry stood alone in its file."""
        on_disk = sum(each.on_disk for each in self._segments.values())
        entries = on_disk * self.segment_entry_count * HEADER_BYTES
        return self._journal.size + entries if self.dirty_count else 0

    @property
    def flushing(self) -> bool:
        """True if flush_step() has something to do: the journal holds more actions than it may."""
        due = self.dirty_count > self._max_journal_entries
        return due or self._flush is not None or self._journal.retired is not None

    def flush_step(self) -> bool:
        """Move some entries from the journal to a segment file; True while there is more to do.

        New actions may come between the steps.  After an error the step can be tried again.
        """
        if self.flushing:
            try:
                self._flush_step()
            except OSError as error:
                if not is_full(error):
                    raise
                self._flush_without_buffer(error)
        return self.flushing

    def _flush_step(self) -> None:
        if self._flush is None and self._journal.retired is not None:
            self._journal.reclaim()
            return
        self.begin_flush()
        assert self._flush is not None
        # the further behind, the larger the steps: a queue that is never idle must not outrun them
        most = FLUSH_BYTES * max(1, self.dirty_count // self._max_journal_entries)
        if self._flush.waiting:
            self._flush_some(self._flush, most)
        if not self._flush.waiting and self._journal.copy_rest(self._flush.mark, most):
            self._finish_flush(self._flush)
            self._flush = None

    def begin_flush(self) -> None:
        """Start a flush of the whole journal, however short it is, for flush_step() to go on with."""
        self.flush_buffer(Trigger.JOURNAL_FLUSH)
        if self._flush is None:
            self._flush = self._begin_flush()

    def flush(self) -> None:
        """Flush the whole journal at once."""
        while self._flush is not None:  # one that runs leaves the actions that came after its beginning
            self.flush_step()
        self.begin_flush()
        while self._flush is not None:
            self.flush_step()

    def _flush_without_buffer(self, full: OSError) -> None:
        """Flush everything at once and begin the journal anew, as it has no room for its buffer; raises the
        error if it would not help.

        On a full disk this is how acks are written: the files that they empty are deleted, and the segment
        files take less room than the journal had.
        """
        self._flush = None
        self._journal.make_room()
        flush = self._begin_flush()
        # those that are deleted make room for the others
        flush.waiting.sort(key=lambda each: not each.unacked)
        while flush.waiting and not flush.waiting[-1].unacked:
            self._flush_some(flush, NO_LIMIT)
        size = sum(len(record) for segment in flush.waiting for record in segment.published.values())
        if size > self._disk.free_space(self._directory):
            raise full
        while flush.waiting:
            self._flush_some(flush, NO_LIMIT)
        self._files.sync_folder()
        self._journal.begin_anew(self._last_seq_id_to_keep(flush))
        self.dirty_count = self._unsynced_bytes = self._unsynced_actions = 0
        self._never_written = True
        if self._trace is not None:
            _write_flushed(self._trace, restarted=True)

    def _begin_flush(self) -> _Flush:
        """Forget segments that never reached a file, and see which others have entries to append or are done with."""
        for segment in [each for each in self._segments.values() if not each.unacked and not each.on_disk]:
            self._delete(segment)
        descending = [self._segments[number] for number in sorted(self._segments, reverse=True)]
        waiting = [segment for segment in descending if segment.dirty() or not segment.unacked]
        return _Flush(self._journal.size, self.dirty_count, self.next_seq_id, waiting)

    def _flush_some(self, flush: _Flush, most: int) -> None:
        """Go on with the next segment: delete its file, or append `most` bytes to it."""
        segment = flush.waiting[-1]
        if not segment.unacked:
            self._delete(segment)
            flush.positions = []
        else:
            # positions are listed once, so that a segment which is still being published to comes to an end
            flush.positions = flush.positions or segment.to_append()
            if flush.positions:
                self._files.append(segment, flush.positions, most)
        if not flush.positions:
            flush.waiting.pop()

    def _delete(self, segment: Segment) -> None:
        self._files.delete(segment)
        self._segments.pop(segment.number, None)

    def _finish_flush(self, flush: _Flush) -> None:
        """Truncate the journal: everything below the mark is in segment files."""
        self._files.sync_folder()
        self._journal.restart(flush.mark, self._last_seq_id_to_keep(flush))
        self.dirty_count -= flush.actions
        if self._trace is not None:
            _write_flushed(self._trace, restarted=True)

    def _last_seq_id_to_keep(self, flush: _Flush) -> int | None:
        """The last sequence id, if a recovery would find it neither in a segment file nor in the journal's rest."""
        if not self.next_seq_id or self.next_seq_id != flush.next_seq_id:
            return None
        newest = max((number for number, segment in self._segments.items() if segment.on_disk), default=-1)
        last = self.next_seq_id - 1
        return None if newest >= last // self.segment_entry_count else last

    def close_files(self) -> None:
        """See Index: a segment's file is open only while something is appended to it; the journal stays open."""

    # -- the end

    def terminate(self, *, next_seq_id: int, next_deliver_seq_id: int) -> Terms:
        """Close after a clean stop: everything is synced; the terms are for the next start."""
        self.sync(Trigger.CLOSE)
        self._journal.have_name()
        self._journal.file.datasync()  # a flush may have begun it anew since
        self._journal.close()
        return self.terms(next_seq_id=next_seq_id, next_deliver_seq_id=next_deliver_seq_id)

    def terms(self, *, next_seq_id: int, next_deliver_seq_id: int) -> Terms:
        """The terms of a clean stop at this moment, when everything is synced."""
        return Terms(max(next_seq_id, self.next_seq_id), next_deliver_seq_id)

    def delete(self) -> None:
        """Remove the queue's directory."""
        self._journal.close()
        self._disk.rmtree(self._directory)
