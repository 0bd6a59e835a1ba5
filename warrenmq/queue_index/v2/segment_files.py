"""The two files of each segment of a version 2 index: opened, written, read, synced and deleted together.

    write    bodies to k.qs, then their entries and the acks to k.qi
    read     entries, then their bodies; what does not fit together is reported as lost
    sync     the files of every segment that was written, and the folder when files came or went

A body is appended once, when its index entry is about to be written, so one that is acked before costs nothing.

Reads and acks are at the old end of a queue, writes at the new one, so of more than four segments the files in the middle
are closed first.  A file whose sync failed cannot be trusted, though it can be read: UNSYNCED names it for the next
recovery, which writes it anew.

Source: rabbit_classic_queue_index_v2 (get_fd, reduce_fd_usage) and rabbit_classic_queue_store_v2,
docs/reference/classic-queue.md#index-operations and #store-files.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from typing import NamedTuple

from warrenmq.directory.torn import Damage
from warrenmq.queue_index.record import HEADER, ID_BYTES, embedded, message_number, message_problem
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.pack import SegmentV2, adjacent, pack
from warrenmq.queue_index.v2.recovery import UNSYNCED
from warrenmq.queue_index.v2.unpack import records_of_run, run_of
from warrenmq.seams.disk import Disk, File, Write

NO_ID = bytes(ID_BYTES)
"""The message id in a record that was read from a .qs file."""
MOST_OPEN = 4
"""Segments whose files are open."""
_IN_QS = int(qi.Location.QUEUE_STORE)


class OnDisk(NamedTuple):
    """The messages that were read of a segment, and those that were lost."""

    messages: dict[int, tuple[int, bytes, bool]]
    """Sequence id -> (sequence id, record, persistent)."""
    lost: dict[int, tuple[str, Damage]]
    """Sequence id -> name of the file, and where and why it cannot be read there."""


def to_close(open_segments: list[int], opening: int) -> int:
    """Choose the one of four open segments to close when a fifth is opened.

    open [L, ML, MR, R]     closed
    opening > MR            MR
    opening < ML            ML
    between the two         the nearer one; ML when both are as near
    """
    _, middle_left, middle_right, _ = sorted(open_segments)
    if opening > middle_right:
        return middle_right
    if opening < middle_left or opening - middle_left <= middle_right - opening:
        return middle_left
    return middle_right


class _OpenFiles:
    """The files of one segment, each opened when it is first needed, and where they end."""

    __slots__ = ("bodies", "bodies_end", "entries", "entries_end")

    def __init__(self) -> None:
        self.entries: File | None = None
        self.bodies: File | None = None
        self.entries_end = self.bodies_end = 0

    def close(self) -> None:
        for file in (self.entries, self.bodies):
            if file is not None:
                file.close()


_CLOSED = _OpenFiles()


class SegmentFiles:
    """The .qi and .qs files of one directory.

    folder_changed    files were made or deleted, and the folder was not synced since
    _open             segment -> its open files
    _unsynced         segments written since the last sync, in order, and whether bodies were written, too
    bodies_left       segments whose .qi file was removed, and whose .qs file may go once that is safe
    """

    def __init__(self, disk: Disk, directory: str, entry_count: int, *, check_crc: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._entry_count = entry_count
        self._check_crc = check_crc
        self.folder_changed = False
        self._open: dict[int, _OpenFiles] = {}
        self._unsynced: dict[int, bool] = {}
        self.bodies_left: dict[int, None] = {}

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
        files = self._open.get(number) or self._files_of(number)
        if (store := files.bodies) is None and any(map(embedded, records)):
            store = self._open_bodies(number, files)
        bodies_end = files.bodies_end
        bodies, entries = pack(published, records, flags, bodies_end or qi.HEADER_BYTES)
        if published and not acked and published[-1] - published[0] + 1 == len(published):
            pieces = [(published[0] - base, entries)]
        else:
            pieces = adjacent(base, published, entries, acked)
        # ahead of the bodies: a .qs file without its .qi counts as damage at the next start
        file = files.entries if files.entries and segment.on_disk else self._begin_entries(segment, files)
        writes: list[Write] = []
        if bodies and store is not None:
            if not bodies_end:
                self.folder_changed = True
                bodies = qi.pack_header(qs.MAGIC, base, base + self._entry_count) + bodies
            writes.append((store, bodies, None))
        end = files.entries_end
        for position, data in pieces:
            place = qi.HEADER_BYTES + qi.ENTRY_BYTES * position
            writes.append((file, data, place))
            end = max(end, place + len(data))
        self._unsynced[number] = bool(bodies) or self._unsynced.get(number, False)
        try:
            self._disk.write_files(writes)
        except OSError:
            self._take_back(number, files)
            raise
        files.bodies_end = bodies_end + len(bodies)
        files.entries_end = end
        return len(bodies) + len(entries) + qi.ENTRY_BYTES * len(acked), len(bodies)

    def _take_back(self, number: int, files: _OpenFiles) -> None:
        """Cut both files where they ended before a write that failed; if that fails, too, they are opened
        anew, to go on at their end.

        Entries that stay have no effect, bodies that stay have no entry; the first error is the one to report.
        """
        for file, end in ((files.entries, files.entries_end), (files.bodies, files.bodies_end)):
            try:
                if file is not None:
                    file.truncate(end)
            except OSError:
                if self._open.pop(number, None) is not None:
                    files.close()

    def read(self, number: int, start: int, end: int, known: Container[int], *, bodies: bool) -> OnDisk:
        """The messages of a segment in [start, end), but for those that are `known` already.

        Without `bodies` a record ends behind its header, and damage of the bodies stays unseen.
        """
        base = number * self._entry_count
        first = start - base
        files = self._files_of(number)
        file = files.entries or self._open_entries(number, files)
        data = file.pread(qi.ENTRY_BYTES * (end - start), qi.HEADER_BYTES + qi.ENTRY_BYTES * first)
        entries, damage = qi.parse_entries(data, first)
        lost: dict[int, tuple[str, Damage]] = {}
        for each in damage:
            seq_id = base + (each.offset - qi.HEADER_BYTES) // qi.ENTRY_BYTES
            if seq_id not in known:
                lost[seq_id] = f"{number}{qi.EXTENSION}", each
        messages: dict[int, tuple[int, bytes, bool]] = {}
        wanted: list[tuple[int, qi.Entry]] = []
        for seq_id, entry in [(base + relative, entry) for relative, entry in entries]:
            if seq_id in known:
                continue
            if bodies and entry.location == _IN_QS:
                wanted.append((seq_id, entry))
            else:
                record = HEADER.pack(entry.msg_id or NO_ID, entry.expiry, entry.size, entry.stored_size)
                messages[seq_id] = seq_id, record, entry.persistent
        for (seq_id, entry), body in zip(wanted, self._read_bodies(number, files, wanted), strict=True):
            problem = body if isinstance(body, str) else message_problem(body, seq_id, entry.size)
            if problem is not None:
                damaged = Damage(entry.offset, qs.ENTRY_HEADER_BYTES + entry.stored_size, problem)
                lost[seq_id] = f"{number}{qs.EXTENSION}", damaged
            elif isinstance(body, bytes):
                record = HEADER.pack(NO_ID, entry.expiry, entry.size, len(body)) + body
                messages[seq_id] = seq_id, record, entry.persistent
        return OnDisk(messages, lost)

    def read_alike(self, number: int, start: int, end: int, *, bodies: bool) -> list[bytes]:
        """Records of the messages from `start` on, as far as they are alike (unpack.py); none where anything
        is not as it has to be.
        """
        files = self._files_of(number)
        file = files.entries or self._open_entries(number, files)
        place = qi.HEADER_BYTES + qi.ENTRY_BYTES * (start - number * self._entry_count)
        run = run_of(file.pread(qi.ENTRY_BYTES * (end - start), place))
        if run is None:
            return []
        if not bodies:
            return [HEADER.pack(NO_ID, run.expiry, run.size, run.stored)] * run.messages
        if files.bodies is None and not self._disk.exists(self._path(number, qs.EXTENSION)):
            return []
        if run.length > qs.READ_BYTES:
            run = run._replace(messages=qs.READ_BYTES // (run.length // run.messages))
        store = files.bodies or self._open_bodies(number, files)
        return records_of_run(run, store.pread(run.length, run.offset), start)

    def _read_bodies(
        self, number: int, files: _OpenFiles, wanted: list[tuple[int, qi.Entry]]
    ) -> list[bytes | str]:
        if not wanted:
            return []
        if files.bodies is None and not self._disk.exists(self._path(number, qs.EXTENSION)):
            return ["the body file is missing"] * len(wanted)
        file = files.bodies or self._open_bodies(number, files)
        places = [(entry.offset, entry.stored_size) for _, entry in wanted]
        return qs.read_bodies(file, places, check_crc=self._check_crc)

    def live(self, number: int) -> list[tuple[int, int]]:
        """The sequence ids of a segment's live entries, and the low 64 bits of their message ids, or 0."""
        base = number * self._entry_count
        entries = qi.parse(self._disk.read(self._path(number, qi.EXTENSION))).entries
        return [(base + relative, message_number(entry.msg_id or NO_ID)) for relative, entry in entries]

    def not_acked(self, number: int) -> list[int]:
        """The sequence ids of a segment's entries that are live, or make no sense."""
        base = number * self._entry_count
        data = self._disk.read(self._path(number, qi.EXTENSION))
        entries, damage = qi.parse_entries(data[qi.HEADER_BYTES :])
        positions = [relative for relative, _ in entries]
        positions += [(each.offset - qi.HEADER_BYTES) // qi.ENTRY_BYTES for each in damage]
        return [base + each for each in positions if each < self._entry_count]

    def delete(self, segment: SegmentV2) -> None:
        """Remove the .qi file of a segment; `delete_bodies` follows."""
        self._close(segment.number)
        self._unsynced.pop(segment.number, None)
        self._disk.unlink(self._path(segment.number, qi.EXTENSION))
        segment.on_disk = False
        self.folder_changed = True
        self.bodies_left[segment.number] = None

    def delete_bodies(self) -> None:
        """Remove the .qs files of deleted segments; after an error it can be tried again.

        The bodies go when it is safe that the entries have gone: an entry that a power cut brings back
        without its body is a lost message.
        """
        if not self.bodies_left:
            return
        self._disk.sync_dir(self._directory)
        self.folder_changed = True
        for number in self.bodies_left:
            self._close(number)
            self._disk.unlink(self._path(number, qs.EXTENSION))
        self.bodies_left.clear()

    def _close(self, number: int) -> None:
        if (files := self._open.pop(number, None)) is not None:
            files.close()

    def sync(self) -> None:
        """Return when everything that was written, made and removed is safe, in closed files too."""
        together, closed = self._written()
        try:
            if together:
                self._disk.sync_files(together)
            for number in closed:
                self._disk.sync_files(self._reopened(number))  # which may close one of the others
        except OSError:
            self._distrust_unsynced()
            raise
        self._unsynced.clear()
        if self.folder_changed:
            self._disk.sync_dir(self._directory)
            self.folder_changed = False

    def to_sync(self) -> Sequence[File]:
        """The files of a sync; none if some are closed."""
        together, closed = self._written()
        return () if closed else together

    def _written(self) -> tuple[list[File], list[int]]:
        """The files that were written since the last sync, and the segments of those that are closed."""
        together: list[File] = []
        closed: list[int] = []
        for number, with_bodies in self._unsynced.items():
            files = self._open.get(number, _CLOSED)
            written = (files.bodies, files.entries) if with_bodies else (files.entries,)
            if None in written:
                closed.append(number)
            else:
                together += filter(None, written)
        return together, closed

    def _reopened(self, number: int) -> list[File]:
        """The files of a segment that were written and then closed."""
        files = self._files_of(number)
        entries = files.entries or self._open_entries(number, files)
        return (
            [files.bodies or self._open_bodies(number, files), entries]
            if self._unsynced[number]
            else [entries]
        )

    def _distrust_unsynced(self) -> None:
        """The note needs no sync: after a power cut what can be read is what is on the disk."""
        names = [f"{number}{qs.EXTENSION}" for number, with_bodies in self._unsynced.items() if with_bodies]
        names += [f"{number}{qi.EXTENSION}" for number in self._unsynced]
        with suppress(OSError):
            file = self._disk.open(f"{self._directory}/{UNSYNCED}", create=True)
            file.append("".join(f"{name}\n" for name in names).encode())
            file.close()

    def close(self) -> None:
        """Close all."""
        while self._open:
            self._open.popitem()[1].close()

    # -- open files

    def _path(self, number: int, extension: str) -> str:
        return f"{self._directory}/{number}{extension}"

    def _files_of(self, number: int) -> _OpenFiles:
        """The open files of a segment, of which there may be none yet."""
        if (files := self._open.get(number)) is None:
            if len(self._open) == MOST_OPEN:
                self._open.pop(to_close(list(self._open), number)).close()
            files = self._open[number] = _OpenFiles()
        return files

    def _open_entries(self, number: int, files: _OpenFiles, *, create: bool = False) -> File:
        files.entries = self._disk.open(self._path(number, qi.EXTENSION), create=create)
        files.entries_end = files.entries.size()
        return files.entries

    def _begin_entries(self, segment: SegmentV2, files: _OpenFiles) -> File:
        """A segment's .qi file for writing; a new one, or one with half a header, gets its header."""
        if segment.on_disk:
            return self._open_entries(segment.number, files)
        self.folder_changed = True
        file = files.entries or self._open_entries(segment.number, files, create=True)
        if (end := files.entries_end) < qi.HEADER_BYTES:
            if end:
                file.truncate(0)
                files.entries_end = 0
            base = segment.number * self._entry_count
            file.append(qi.pack_header(qi.MAGIC, base, base + self._entry_count))
            files.entries_end = qi.HEADER_BYTES
        segment.on_disk = True
        self.bodies_left.pop(segment.number, None)  # it goes on in the old one
        return file

    def _open_bodies(self, number: int, files: _OpenFiles) -> File:
        files.bodies = self._disk.open(self._path(number, qs.EXTENSION), create=True)
        files.bodies_end = files.bodies.size()
        if 0 < files.bodies_end < qi.HEADER_BYTES:
            files.bodies.truncate(0)  # a header that was torn
            files.bodies_end = 0
        return files.bodies
