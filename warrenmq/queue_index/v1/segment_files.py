"""The segment files of a version 1 index: read, appended to, deleted, and their folder synced.

    append    entries, and a sync of the file; `segment` forgets them only then
    delete    a file in which nothing is unacked
    sync      the folder, if files came or went, before the journal forgets what it has of them
    live      a segment's messages: those of its file and those in memory together

A file is open only while it is used: a flush appends to each of them once.

Source: rabbit_queue_index, docs/reference/classic-queue.md#segment-files.
"""

from __future__ import annotations

import sys

from warrenmq.queue_index.v1.reader import read_segment
from warrenmq.queue_index.v1.segment import Segment
from warrenmq.queue_index.v1.walk import segment_path
from warrenmq.seams.disk import Disk
from warrenmq.trace.events import QiFlush, SegmentDelete
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_flushed, _write_deleted = writer(QiFlush), writer(SegmentDelete)

NO_LIMIT = sys.maxsize


class SegmentFiles:
    """The files of all segments of one queue."""

    def __init__(self, disk: Disk, directory: str, entry_count: int, trace: ActorTrace | None) -> None:
        self._disk = disk
        self._directory = directory
        self._entry_count = entry_count
        self._trace = trace
        self._folder_changed = True
        """Files were made or deleted, by us or by a process before us, and the folder was not synced since."""

    def read(self, number: int) -> bytes:
        """The bytes of a file."""
        return self._disk.read(segment_path(self._directory, number))

    def live(self, segment: Segment) -> tuple[dict[int, bytes], set[int]]:
        """A segment's records that are not acked, and which of them are transient: the file and memory together."""
        if not segment.on_disk:
            return segment.published, segment.transient
        facts, _ = read_segment(self.read(segment.number), self._entry_count)
        records = facts.published
        for relative in facts.acked:
            del records[relative]
        for relative in segment.acked:
            records.pop(relative, None)
        records.update(segment.published)
        return records, facts.transient | segment.transient

    def append(self, segment: Segment, positions: list[int], most: int) -> None:
        """Append `most` bytes of entries to a segment's file, and sync it; takes what was appended off `positions`.

        After an error everything is as before, but for bytes that say nothing new.  With NO_LIMIT, which is for
        entries that no journal has, a new file is there whole or not at all.
        """
        path, rest = segment_path(self._directory, segment.number), list(positions)
        if most == NO_LIMIT and not segment.on_disk:
            # one that a kill left empty would look as if it had lost what it had
            data, taken = segment.entries(rest, most)
            self._disk.replace(path, data)
            segment.on_disk = True
        else:
            self._folder_changed = self._folder_changed or not segment.on_disk
            file = self._disk.open(path, create=True)
            try:
                segment.on_disk = True
                data, taken = segment.entries(rest, most, file.size())
                file.append(data)
                file.datasync()
            finally:
                file.close()
        segment.flushed(taken)
        positions[:] = rest
        if self._trace is not None:
            _write_flushed(self._trace, segments=1, size=len(data))

    def delete(self, segment: Segment) -> None:
        """Delete a segment's file, if it has one."""
        if segment.on_disk:
            self._disk.unlink(segment_path(self._directory, segment.number))
            self._folder_changed = True
            if self._trace is not None:
                _write_deleted(self._trace, segment.number)

    def sync_folder(self) -> None:
        """Make it safe which files there are."""
        if self._folder_changed:
            self._disk.sync_dir(self._directory)
            self._folder_changed = False
