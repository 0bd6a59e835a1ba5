"""The commit log: group commit of the files of all actors with one sync.

    commit (any thread)      the first to come leads: it takes what others add meanwhile into one record, writes and syncs it
                             the others wait for their leader
    submit                   the same without waiting: the waiter is called when it is done
    two files take turns     records go to one until it is full, then to the other; the more files its records name, the more it takes
    before a file is used    all that its records name is synced by itself, a few files a commit, while the other one fills
      again                  up; then a record says so: "what came before me is not needed"

Purpose.  A sync costs the same for one file as for another, so the round of a thousand queues costs one sync instead of two
thousand.  A log file is as large as it will be before it is written to, and is used again and again: syncing an
overwritten block is half the price of syncing a file that grew, as the file system has no metadata to write.

Guarantees.  When `commit` returns COMMITTED, a replay writes these bytes, until their file was synced by itself and the log
said so; one that raises leaves it open.  An actor that comes alone writes and syncs in its own thread.

Assumptions.  Committed bytes stand in the files already (not synced).  No file's name is deleted and given to another
without a Forget between them (disk.py sees to that).

After a failed sync it is unknown what is in the log: all files are synced by themselves, and the log begins
anew behind what failed.  If a sync of one of the files fails, whoever does it, every later commit fails as
well: what the log promised is only in the log, and the next start reads it.  A file that cannot be opened for
want of descriptors is synced later: the log files take more meanwhile.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from copy import copy
from enum import Enum, auto
from functools import partial
from itertools import chain
from posixpath import dirname
from threading import Lock as ThreadLock
from types import TracebackType
from typing import Any, Protocol

from warrenmq.commit_log import note
from warrenmq.commit_log.contents import FILE_NAMES, Contents
from warrenmq.commit_log.record import CLEAN, encoded, pack, pack_forget, room_for
from warrenmq.seams.blocking import THIS_THREAD
from warrenmq.seams.disk import SECTOR, Disk, File, Waiter
from warrenmq.seams.disk_errors import FileDeleted, SyncFailed, is_full, is_short_of_descriptors


class Lock(AbstractContextManager[Any], Protocol):
    """A lock from the runtime; a simulation has its own kind, as it must not block its only thread."""

    def acquire(self) -> bool: ...

    def release(self) -> None: ...


class LogSeams(Protocol):
    """The parts of a runtime that the log needs."""

    def lock(self) -> Lock: ...

    def token_bytes(self, n: int) -> bytes: ...


FILE_SIZE = 32 << 20
"""Bytes of each of the two files at the most."""
_FULL, _FULL_PER_FILE = 1 << 20, 64 << 10
"""Bytes with which a file is full, and bytes for each file that its records name, if that is more: each of
those costs a sync of its own before the file is used again, so that a log of many files that took no more
than one of few would sync them with every message.
"""
_RESERVE = 4 * SECTOR
"""Bytes at the end of a file for the records without entries: of a change-over, of the close, and of the start after it."""
_FIRST_GROWTH, _LAST_GROWTH = 64 << 10, 1 << 20
"""Bytes by which a file grows; each time twice as many as before."""
_ROOM_TO_START = 1 << 20
"""Free bytes that are enough for a start: it writes a few small files anew, and recovered queues may have to flush."""
_GONE_TOGETHER = 64
"""Deleted files that one sync of their folder takes off the list of those to sync, at most: each is looked for before."""
_HINTED = 64
"""Files that are asked to be on their way to the disk when a log file is full; more would be a pause of its own."""


class Outcome(Enum):
    """The outcome of a commit."""

    COMMITTED = auto()
    NO_ROOM = auto()
    """Nothing was written: it is too large, or the disk has no room for a longer log.  Sync the files themselves."""


class Batch:
    """The commits that share one record."""

    def __init__(self, done: Lock) -> None:
        self.done = done
        """Held by the leader until `outcome` is known."""
        self.has_leader = False
        self.waiters: list[Waiter] = []
        self.parts: list[bytes] = []
        self.ranges: list[tuple[str, int, int]] = []
        """(file, begin, end) of what is written."""
        self.forgets: list[str] = []
        self.outcome: Outcome | BaseException | None = None
        """None: not known yet, or its leader was killed on the way."""

    def is_mine_to_lead(self) -> bool:
        """True for the first to ask, who leads from now on; asked under the log's `_tables`, and followed by `_lead`."""
        if self.has_leader:
            return False
        self.has_leader = True
        return self.done.acquire()

    def add(
        self, parts: Iterable[bytes], ranges: Iterable[tuple[str, int, int]], forgets: Iterable[str]
    ) -> None:
        self.forgets += forgets
        self.parts += parts
        self.ranges += ranges


class _Turn:
    """Exclusive access to the log files: `with turn:`."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self.taken = False
        """True while a thread writes: others that want to write have to wait."""

    def __enter__(self) -> None:
        if self.taken:
            with THIS_THREAD.blocking:
                self._lock.acquire()
        else:
            self._lock.acquire()
        self.taken = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.taken = False
        self._lock.release()


class _LogFile:
    """One of the two log files.

    position   where its next record begins
    start      the number of its first record
    ranges     file -> from where to where its records name bytes of it; they are needed while this is not empty
    to_sync    those that are to be synced by themselves before this file can be used again
    """

    def __init__(self, file: File) -> None:
        self.file = file
        self.size = file.size()
        self.position = self.start = 0
        self.ranges: dict[str, tuple[int, int]] = {}
        self.to_sync: list[str] = []

    def have(self, end: int, most: int) -> None:
        """Extend the file with zeros to at least this size; OSError when the disk is full."""
        while self.size < end:
            more = min(max(_FIRST_GROWTH, min(self.size, _LAST_GROWTH)), most - self.size)
            self.file.pwrite(bytes(more), self.size)
            self.size += more

    def cut(self, size: int) -> None:
        """Give back the blocks behind this size."""
        self.file.truncate(size)
        self.size = size

    def note(self, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Note what a record names."""
        for path, begin, end in ranges:
            known = self.ranges.get(path)
            self.ranges[path] = (begin, end) if known is None else (min(begin, known[0]), max(end, known[1]))


class CommitLog:
    """The commit log of one data directory; thread-safe."""

    def __init__(self, disk: Disk, root: str, log_id: int, found: Contents,
                 lock: Callable[[], Lock] = ThreadLock, size: int = FILE_SIZE) -> None:  # fmt: skip
        """Continue the log that was found, or begin one with this id; the writes that were found are in the files, synced."""
        self._disk = disk
        self._root = root
        self._lock = lock
        self._size = size
        self._look_at_limit()
        self._files = tuple[_LogFile, ...]()
        """Both, the one that is written to first; none before the first write."""
        self._note: File | None = None
        """The note beside them, open with them (note.py)."""
        self._number = found.newest + 1
        """Of the next record."""
        self._first = self._number
        """The oldest record that a replay still needs; each record has it."""
        self._told_first = self._first
        """The one that the newest record has."""
        self._tables = ThreadLock()
        """Held for a moment around what several threads change."""
        self._turn = _Turn(lock())
        """Taken by the leader from its last look at who else wants something to the end of the sync."""
        self._collecting: Batch | None = None
        """The batch that has not been written: who comes now joins it."""
        self._in_doubt = False
        """True if the last write may be in the log or not."""
        self._failed: OSError | None = None
        """Every commit raises this from now on: what the log promised may be nowhere else."""
        self.lack = OSError(errno.ENOSPC, "No space left on device")
        """Why there was no room the last time."""
        self._made = False
        """The files were made, and the folder not synced since."""
        self._id = found.id or log_id
        # the files are about to change, and a later replay must not write old bytes over them
        if found.newest:
            self._open()
            if found.file:
                self._switch()
            self._files[0].position = found.end
            self._mark()
            self._give_room_back()

    # -- questions

    def names(self, path: str) -> bool:
        """True if a replay would write to this file."""
        return any(path in each.ranges for each in self._files)

    def overlaps(self, path: str, begin: int, end: int) -> bool:
        """True if a replay might write into this range of the file."""
        for each in self._files:
            there = each.ranges.get(path)
            if there is not None and there[0] < end and begin < there[1]:
                return True
        return False

    # -- commit

    def commit(
        self, parts: list[bytes], ranges: Iterable[tuple[str, int, int]] = (), forgets: Sequence[str] = ()
    ) -> Outcome:
        """Make these entries durable; raises OSError when it is unknown whether they are.

        parts     what pack_writes made; `ranges` says the same as (file, begin, end)
        forgets   files of which nothing that was committed before is needed: they have been synced, or deleted
        """
        if forgets:
            parts = [*chain.from_iterable(pack_forget(encoded(path)) for path in forgets), *parts]
        if self._collecting is None and not self._turn.taken:  # nobody to share a record with
            with self._turn:
                outcome = self._write(parts, ranges, forgets)
            self._sync_some(parts)
            return outcome
        while True:
            with self._tables:
                batch = self._collect(parts, ranges, forgets)
                leads = batch.is_mine_to_lead()
            if leads:
                self._lead(batch)
            else:
                with THIS_THREAD.blocking, batch.done:
                    pass
            if isinstance(batch.outcome, Outcome):
                return batch.outcome
            if batch.outcome is not None:
                raise copy(batch.outcome) from batch.outcome
            # the leader was killed on the way: write the batch again, whatever reached the log
            with self._tables:
                if self._collecting is batch:
                    self._collecting = None

    def submit(self, parts: list[bytes], ranges: Iterable[tuple[str, int, int]], waiter: Waiter) -> Batch:
        """Begin to make these entries durable; the waiter is told when the outcome of the batch is known."""
        with self._tables:
            is_new = self._collecting is None
            batch = self._collect(parts, ranges, ())
            batch.waiters.append(waiter)
        if is_new:
            waiter.run_later(partial(self._lead_unless_led, batch))
        return batch

    def _collect(
        self, parts: Iterable[bytes], ranges: Iterable[tuple[str, int, int]], forgets: Iterable[str]
    ) -> Batch:
        if (batch := self._collecting) is None:
            batch = self._collecting = Batch(self._lock())
        batch.add(parts, ranges, forgets)
        return batch

    def _lead_unless_led(self, batch: Batch) -> None:
        with self._tables:
            leads = batch.is_mine_to_lead()
        if leads:
            with suppress(OSError):  # of a sync behind the batch: every later commit raises it
                self._lead(batch)

    def _lead(self, batch: Batch) -> None:
        try:
            with self._turn:
                with self._tables:
                    self._collecting = None
                try:
                    batch.outcome = self._write(batch.parts, batch.ranges, batch.forgets)
                except OSError as error:
                    batch.outcome = error
        finally:
            batch.done.release()
            for waiter in batch.waiters:
                waiter.over()
        self._sync_some(batch.parts)

    def _write(
        self, parts: list[bytes], ranges: Iterable[tuple[str, int, int]], forgets: Sequence[str]
    ) -> Outcome:
        if self._failed is not None:
            raise self._failed
        if self._most < self._size:  # it may be higher now
            self._look_at_limit()
        size, most = room_for(sum(map(len, parts))), self._most
        if size > most - _RESERVE:
            if most < self._size:
                self.lack = OSError(errno.EFBIG, "File too large")
            return Outcome.NO_ROOM
        try:
            if not self._files:
                self._open()
            file = self._files[0]
            # or if there is no room left to say that the other file is not needed
            if self._in_doubt or file.position + SECTOR > most:
                self._begin_anew()
            file = self._files[0]
            if file.position and file.position + size > self._full_at(file):
                self._change_over_for(size)
            file = self._files[0]
            if file.size < file.position + size:
                file.have(file.position + size, most)
        except OSError as error:
            return self._no_room(error)
        try:
            self._append(parts)
        except BaseException as error:
            if self._in_doubt:  # the record may be there all the same, and a start would write what it says
                with self._tables:
                    file.note(ranges)
            elif isinstance(error, OSError):
                return self._no_room(error)
            raise
        with self._tables:
            for path in forgets:
                for each in self._files:
                    each.ranges.pop(path, None)
            file.note(ranges)
        return Outcome.COMMITTED

    def _no_room(self, error: OSError) -> Outcome:
        if not is_full(error):
            raise error
        self.lack = error
        self._look_at_limit()  # it may be lower now
        return Outcome.NO_ROOM

    def _append(self, parts: Sequence[bytes] = (), flags: int = 0) -> None:
        """Write one record and sync it; the caller has made room."""
        file, other = self._files
        data = pack(self._id, self._number, self._first, parts, flags)
        self._in_doubt = True
        try:
            file.file.pwrite(data, file.position)
        except OSError as error:
            self._in_doubt = not is_full(error)  # half a record is none, and the next one is written over it
            raise
        file.file.datasync()
        self._in_doubt = False
        self._told_first = self._first
        if self._note is not None:
            with suppress(OSError):  # an older note only tells less
                self._note.pwrite(note.pack(self._id, self._number, flags), 0)
        self._number += 1
        file.position += len(data)
        if self._first == file.start and other.ranges:
            with self._tables:
                other.ranges = {}

    def _mark(self, flags: int = 0) -> None:
        """Write a checkpoint: a record which says that no earlier one is needed, as all files are synced."""
        if not self._has_room_for_mark():
            # the last record is a checkpoint too, so the other file is not needed
            self._switch()
            self._files[0].position = 0
        file = self._files[0]
        self._first = file.start = self._number
        file.have(file.position + SECTOR, self._most)
        self._append(flags=flags)
        with self._tables:
            for each in self._files:
                each.ranges = {}

    def _has_room_for_mark(self) -> bool:
        file = self._files[0]
        if (end := file.position + SECTOR) > (most := self._most):
            return False
        try:
            file.have(end, most)
        except OSError as error:
            if not is_full(error):
                raise
            return False
        return True

    def _give_room_back(self) -> None:
        """Give back what the log files do not need after a checkpoint, if the disk has so little room that a
        start may not find enough.
        """
        if self._disk.free_space(self._root) < _ROOM_TO_START:
            file, other = self._files
            other.cut(0)
            file.cut(file.position)

    def _open(self) -> None:
        """Open the log files, or create them for the first write."""
        paths = [f"{self._root}/{name}" for name in (*FILE_NAMES, note.NAME)]
        self._made = self._made or not all(map(self._disk.exists, paths))
        *files, self._note = [self._disk.open(path, create=True) for path in paths]
        if self._made:
            self._disk.sync_dir(self._root)
            self._made = False
        self._files = tuple(map(_LogFile, files))
        if self._number == 1:
            self._mark()  # from now on the log's id is at the beginning of a file, where recovery looks for it

    # -- the turns of the two files

    def _switch(self) -> None:
        """Have the other file be the one that is written to."""
        self._files = self._files[::-1]

    def _look_at_limit(self) -> None:
        self._most = min(self._size, self._disk.longest() // SECTOR * SECTOR)

    def _full_at(self, file: _LogFile) -> int:
        """The size with which a log file is full; a single record may be larger."""
        return min(max(_FULL, _FULL_PER_FILE * len(file.ranges)), self._most - _RESERVE)

    def _change_over_for(self, size: int) -> None:
        """Switch to the other log file for a record of this size; without descriptors for that, go on in this
        one as long as it has room.
        """
        try:
            self._change_over()
        except OSError as error:
            end = self._files[0].position + size
            if not is_short_of_descriptors(error) or end > self._most - _RESERVE:
                raise

    def _change_over(self) -> None:
        """Switch to the other log file, after syncing the files that its records name."""
        full, other = self._files
        self._sync_files(other)
        # even if no file is named any more: the other file's first record is about to be overwritten, perhaps in part
        if self._told_first < full.start:
            self._first = full.start
            self._append()
        self._switch()
        other.position, other.start = 0, self._number
        self._first = full.start
        full.to_sync = list(full.ranges)
        for path in full.to_sync[:_HINTED]:
            with suppress(OSError):  # whoever syncs it meets the error again
                self._opened(path, lambda file: file.begin_sync())

    def _sync_some(self, written: Iterable[bytes]) -> None:
        """Sync some of the files that the full log file names, paced to finish when the current one is three quarters full.

        The first quarter is the system's, which was asked to begin with them.
        """
        if not self._files or not self._files[1].to_sync:
            return
        with self._turn:
            file, waiting = self._files[0], self._files[1].to_sync
            full = self._full_at(file)
            if self._failed is not None or file.position < full // 4:
                return
            left = max(full * 3 // 4 - file.position, 1)
            size = room_for(sum(map(len, written)))
            for _ in range(-(-len(waiting) * size // left)):
                if not waiting:
                    break
                try:
                    self._sync_last(waiting)
                except OSError as error:
                    if is_short_of_descriptors(error):
                        return
                    raise
            if not waiting:
                self._first = file.start

    def _sync_files(self, of: _LogFile) -> None:
        """Sync the remaining files that a full log file names."""
        places = dict.fromkeys(self._folder_if_gone(path) or f"{self._root}/{path}" for path in of.to_sync)
        try:
            if places:
                self._disk.sync_many([*places])
        except FileNotFoundError:  # deleted meanwhile
            for path in of.to_sync:
                self._sync_file(path)
        except OSError as error:
            self._cannot_sync(error)
            raise
        of.to_sync.clear()

    def _sync_last(self, waiting: list[str]) -> None:
        """Sync the last of these files, and take it off the list; with a deleted one those before it that one
        sync makes safe as well.
        """
        count, folder = 1, self._folder_if_gone(waiting[-1])
        while (
            folder is not None
            and count < min(len(waiting), _GONE_TOGETHER)
            and self._folder_if_gone(waiting[-1 - count]) == folder
        ):
            count += 1
        self._sync_file(waiting[-1])
        del waiting[-count:]

    def _sync_file(self, path: str) -> None:
        """Sync one file; for a deleted one sync its folder, as a crash could bring it back without its bytes."""
        try:
            try:
                self._opened(path, lambda file: file.datasync())
            except (FileNotFoundError, FileDeleted):
                self._disk.sync_dir(self._folder_of(path))
        except OSError as error:
            self._cannot_sync(error)
            raise

    def _folder_if_gone(self, path: str) -> str | None:
        """The folder whose sync makes the deletion of a file safe; None if the file is there."""
        return None if self._disk.exists(f"{self._root}/{path}") else self._folder_of(path)

    def _folder_of(self, path: str) -> str:
        """The folder that a file is in, or the lowest one above it that is there."""
        folder = dirname(f"{self._root}/{path}")
        while not self._disk.is_dir(folder):
            folder = dirname(folder)
        return folder

    def _cannot_sync(self, error: OSError) -> None:
        if not is_short_of_descriptors(error):  # else it was not opened, and can be synced another time
            self._failed = error

    def cannot_sync(self, error: OSError, paths: Iterable[str]) -> None:
        """One of these files could not be synced outside the log: if the sync failed, what a replay would
        write is only in the log.
        """
        if isinstance(error, SyncFailed) and any(map(self.names, paths)):
            self._failed = error

    def _opened(self, path: str, do: Callable[[File], None]) -> None:
        file = self._disk.open(f"{self._root}/{path}")
        try:
            do(file)
        finally:
            file.close()

    def _begin_anew(self) -> None:
        """Recover from a failed sync: sync all data files, then continue in the other log file."""
        self._sync_all()
        self._switch()
        self._files[0].position = 0
        self._number += 1  # the failed record may have reached the disk
        self._mark()

    def _sync_all(self) -> None:
        for each in self._files:
            each.to_sync = list(each.ranges)
            self._sync_files(each)

    # -- the end

    def close(self) -> None:
        """Sync every file and write the clean mark; after an OSError the next start replays.  A closed log
        rejects commits.
        """
        with self._turn:
            try:
                if self._files and self._failed is None:
                    if self._in_doubt:
                        self._begin_anew()
                    self._sync_all()
                    self._mark(CLEAN)
            finally:
                self._failed = OSError("the commit log is closed")
                if self._note is not None:
                    self._note.close()
                for each in self._files:
                    each.file.close()
                self._files = ()
