"""A Disk whose syncs go through the commit log: one sync of the log makes many files durable.

    append, pwrite     to the file at once; what was written is remembered until the next sync
    sync               what was written since the last one goes into the log
    a large round      more than 128 KiB since the last sync, or a file that was cut: the file is synced by itself
    a file is renamed  or replaced or cut, and the log names it: first it is synced by itself, and the log forgets it

Storage code does not notice.  It relies on what `Disk` promises: after `datasync` the bytes survive a power cut,
because the next start writes them to the file again before anything reads it.

A replay must not put old bytes over newer ones, or over those of another file:

- bytes that were logged, and overwritten later: the log has both, in order.  If the later ones are synced by themselves, the log
  forgets the file, with a sync of its own, before that sync counts.  Files that only grow never need that.
- a file that was deleted: a replay makes no files.  One that gets its name is made only after the folder was synced and the
  log has forgotten the old one.
- a file that is cut, or renamed over: see above.

A `File` is written by one actor at a time.  Unsynced writes of an actor that was given up are synced by its successor,
with the whole file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from posixpath import dirname
from threading import Lock
from weakref import WeakValueDictionary

from warrenmq.commit_log import log, note
from warrenmq.commit_log.contents import FILE_NAMES, Contents, read, write_back
from warrenmq.commit_log.log import FILE_SIZE, Batch, CommitLog, Outcome
from warrenmq.commit_log.record import encoded, pack_writes
from warrenmq.seams.disk import Disk, DiskAbove, File, Waiter, write_in_turn
from warrenmq.seams.disk_errors import FileDeleted, NoRoomToSync

LARGE = 128 << 10
"""Bytes since the last sync with which a file is synced by itself: to write them twice costs a busy queue
more than a second sync.
"""
EXTENSIONS = (".qi", ".qs", ".jif", ".rdq")
"""The files that are logged: those that a confirm waits for."""


class LoggedFile:
    """A file that keeps the writes since its last sync."""

    __slots__ = (
        "__weakref__", "_begun", "_disk", "_doubtful", "_end", "_file", "alone", "check_name", "high", "logged", "low", "packed", "path", "pending",
        "pread", "relative", "size", "submitted", "written",
    )  # fmt: skip

    def __init__(self, disk: LoggedDisk, file: File, path: str, relative: str, *, doubtful: bool) -> None:
        self.path = path
        self.pread = file.pread
        self.size = file.size
        self.check_name = file.check_name
        self._disk = disk
        self._file = file
        self.name(relative)
        self._end = file.size()
        self._doubtful = doubtful
        """An actor that is gone had written to it: perhaps what it committed is still on its way into the log."""
        self.alone = doubtful
        """The next sync is one of the file itself: not everything that it has to make safe is in `pending`."""
        self.pending: list[tuple[int, bytes]] = []
        self.low = self.high = 0
        """The range of bytes written since the last sync, from `low` on."""
        self.written = 0
        """Bytes since the last sync."""
        self._begun = 0
        """Bytes of these that the system was asked to write back."""
        self.submitted: Batch | None = None
        """The commit that has all of `pending`, if it was submitted."""

    def name(self, relative: str) -> None:
        """Set the file's name, relative to the directory; "" once another file has taken its name."""
        self.relative = relative
        self.packed = encoded(relative)
        self.logged = relative.endswith(EXTENSIONS)

    def append(self, data: bytes) -> None:
        self._file.append(data)
        self._note(data, self._end)

    def pwrite(self, data: bytes, offset: int) -> None:
        self._file.pwrite(data, offset)
        self._note(data, offset)

    def _note(self, data: bytes, offset: int) -> None:
        if not (size := len(data)):
            return
        end = offset + size
        self.submitted = None
        self._end = max(self._end, end)
        self._disk.unsynced[self.relative] = self
        if not self.written:
            self.low, self.high = offset, end
        elif offset < self.low:
            self.low = offset
        self.high = max(self.high, end)
        self.written += size
        if self.written > LARGE:
            self.pending = []
            if self.logged and self.written - self._begun > LARGE:
                self._file.begin_sync()  # so that the sync, in which its queue stands still, has little left to write
                self._begun = self.written
        elif self.logged and not self.alone:
            self.pending.append((offset, data))

    def truncate(self, size: int) -> None:
        self._disk.retire([self.relative])
        self._disk.unsynced[self.relative] = self
        self.alone = True
        self.pending = []
        self.submitted = None
        self._file.truncate(size)
        self._end = size

    def datasync(self) -> None:
        self._disk.sync_files([self])

    def begin_sync(self) -> None:
        if self.alone or not self.logged or self.written > LARGE:
            self._file.begin_sync()

    def sync_alone(self) -> None:
        """Sync the file itself."""
        self._file.datasync()

    def is_in_log(self) -> bool:
        """True if the log may hold older bytes for a place that was written since the last sync."""
        log = self._disk.log
        if self.alone:
            return self._doubtful or log.names(self.relative)
        return self.written > 0 and log.overlaps(self.relative, self.low, self.high)

    def synced(self) -> None:
        """Forget the pending writes: they are durable."""
        self.pending = []
        self.submitted = None
        self.written = self._begun = 0
        self.alone = self._doubtful = False
        self._disk.forget_writer(self)

    def close(self) -> None:
        self._file.close()
        if not self.logged:  # whoever syncs it syncs the whole file, so there is nothing to remember
            self._disk.forget_writer(self)


class LoggedDisk(DiskAbove):
    """The Disk of one data directory; files outside it are not logged.

    log         the commit log
    unsynced    file -> who wrote to it since its last sync, perhaps an actor that is gone
    """

    def __init__(self, disk: Disk, root: str, commit_log: CommitLog) -> None:
        """Use `open_logged`."""
        super().__init__(disk)
        self.mkdir = disk.mkdir
        self.write_files = write_in_turn
        self.unsynced: dict[str, LoggedFile] = {}
        self._root = root
        self._prefix = f"{root}/"
        self.log = commit_log
        self._files: WeakValueDictionary[str, LoggedFile] = WeakValueDictionary()
        self._names = Lock()

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._prefix) if path.startswith(self._prefix) else ""

    def open(self, path: str, *, create: bool = False) -> File:
        relative = self._relative(path)
        if not relative:
            return self._disk.open(path, create=create)
        if create and self.log.names(relative) and not self._disk.exists(path):
            self._disk.sync_dir(dirname(path))  # makes the deletion of the older file durable
            self._forget([relative])
        doubtful = relative in self.unsynced
        file = LoggedFile(self, self._disk.open(path, create=create), path, relative, doubtful=doubtful)
        with self._names:
            self._files[relative] = file
        return file

    def replace(self, path: str, data: bytes) -> None:
        relative = self._relative(path)
        self.retire([relative])
        self._disk.replace(path, data)
        self._loses_its_name(relative)

    def unlink(self, path: str) -> None:
        self._disk.unlink(path)
        self._loses_its_name(self._relative(path))

    def rmtree(self, path: str) -> None:
        self._disk.rmtree(path)
        folder = f"{self._relative(path)}/"
        for name in [each for each in list(self.unsynced) if each.startswith(folder)]:
            self._loses_its_name(name)

    def rename(self, src: str, dst: str) -> None:
        source, target = self._relative(src), self._relative(dst)
        self.retire([source, target])
        self._disk.rename(src, dst)
        self._loses_its_name(target)
        if (writer := self.unsynced.pop(source, None)) is not None:
            self.unsynced[target] = writer
            writer.alone = True
        with self._names:
            if (file := self._files.pop(source, None)) is not None:
                file.path = dst
                file.name(target)
                self._files[target] = file

    def _loses_its_name(self, relative: str) -> None:
        """Take a file's name away; writes through its open handles are no longer logged."""
        with self._names:
            if (file := self._files.pop(relative, None)) is not None:
                file.name("")
        self.unsynced.pop(relative, None)

    def forget_writer(self, file: LoggedFile) -> None:
        """Forget that a file has unsynced writes, unless another one of its name was written to since."""
        if self.unsynced.get(file.relative) is file:
            del self.unsynced[file.relative]

    def sync_files(self, files: Sequence[File]) -> None:
        """Sync files with one record in the commit log; files with large or unlogged writes get a sync of their own."""
        together: list[LoggedFile] = []
        alone: list[LoggedFile] = []
        others: list[File] = []
        for file in files:
            if not isinstance(file, LoggedFile):
                others.append(file)
            elif not file.pending or not file.logged or file.alone:
                alone.append(file)
            elif file.submitted is not None and file.submitted.outcome is Outcome.COMMITTED:
                file.check_name()
                file.synced()
            else:
                together.append(file)
        if others:
            self._disk.sync_files(others)
        forgets = self._sync_alone(alone) if alone else []
        if (together or forgets) and self.log.commit(*_packed(together), forgets) is Outcome.NO_ROOM:
            forgets += self._sync_alone(together)
            if forgets:
                self._forget(forgets)
        for each in together:  # the others' own syncs have looked
            each.check_name()
        for each in (*together, *alone):
            each.synced()

    def begin_sync(self, files: Sequence[File], waiter: Waiter) -> bool:
        together = [
            file for file in files if isinstance(file, LoggedFile) and file.pending and not file.alone
        ]
        if len(together) < len(files):
            return False
        batch = self.log.submit(*_packed(together), waiter)
        for file in together:
            file.submitted = batch
        return True

    def _sync_alone(self, files: list[LoggedFile]) -> list[str]:
        """Sync each file itself; returns the files that the log must forget, as a replay would bring old bytes back."""
        for file in files[1:]:
            file.begin_sync()
        forgets = []
        for file in files:
            with self._outside_the_log(each.relative for each in files):
                file.sync_alone()
            if file.relative and file.is_in_log():
                forgets.append(file.relative)
        return forgets

    def sync_many(self, paths: Sequence[str]) -> None:
        names = [*map(self._relative, paths)]
        # before the sync: who writes from now on is in the table again
        writers = {name: writer for name in names if (writer := self.unsynced.pop(name, None)) is not None}
        try:
            with self._outside_the_log(names):
                self._disk.sync_many(paths)
            if named := [name for name in writers if self.log.names(name)]:
                self._forget(named)
        except BaseException:  # a kill, too: the next one that opens them has to know
            for name, writer in writers.items():
                self.unsynced.setdefault(name, writer)
            raise

    # -- the log

    def retire(self, names: Iterable[str]) -> None:
        """Sync each file itself and make the log forget it, before its bytes move or it is renamed."""
        named = [name for name in names if name and self.log.names(name)]
        if not named:
            return
        with self._outside_the_log(named):
            for name in named:
                with suppress(FileNotFoundError):
                    file = self._disk.open(f"{self._root}/{name}")
                    try:
                        file.datasync()
                    finally:
                        file.close()
        self._forget(named)

    @contextmanager
    def _outside_the_log(self, names: Iterable[str]) -> Iterator[None]:
        """Sync these files by themselves; the log is told of a failure."""
        try:
            yield
        except FileDeleted:  # a replay writes nothing to it, nor does the log answer for it
            raise
        except OSError as error:
            self.log.cannot_sync(error, names)
            raise

    def _forget(self, names: list[str]) -> None:
        if self.log.commit([], (), names) is Outcome.NO_ROOM:
            lack = self.log.lack
            raise NoRoomToSync(lack.errno, f"{lack.strerror} for the commit log", self._root)

    def close_log(self) -> None:
        """Sync every file by itself and close the log."""
        self.log.close()


def _packed(files: Iterable[LoggedFile]) -> tuple[list[bytes], list[tuple[str, int, int]]]:
    """The writes to these files since their last sync, as parts of a record and as ranges."""
    parts: list[bytes] = []
    ranges: list[tuple[str, int, int]] = []
    for each in files:
        parts += pack_writes(each.packed, each.pending)
        ranges.append((each.relative, each.low, each.high))
    return parts, ranges


def open_logged(
    disk: Disk, root: str, log_id: int, lock: Callable[[], log.Lock] = Lock
) -> tuple[LoggedDisk, Contents]:
    """Replay the directory's commit log and open it for writing; returns also the log's content before that.

    After it all files of the directory are safe as they are.
    """
    found = replay(disk, root)
    return LoggedDisk(disk, root, CommitLog(disk, root, log_id, found, lock, FILE_SIZE)), found


def replay(disk: Disk, root: str) -> Contents:
    """Replay a log unless it was closed cleanly: write its bytes to the files, and sync every file that it may name."""
    found = read(disk, root)
    if found.damage:
        _keep(disk, root, found)
    if not found.clean:
        write_back(disk, root, found.writes)
        if paths := list(_to_sync(disk, root)):
            disk.sync_many(paths)
    return found


def _keep(disk: Disk, root: str, found: Contents) -> None:
    """Copy a damaged log to the quarantine; a full disk there does not prevent the start."""
    with suppress(OSError):
        disk.mkdir(f"{root}/quarantine")
        for name in FILE_NAMES:
            if disk.exists(f"{root}/{name}"):
                disk.replace(f"{root}/quarantine/{name}-{found.newest}", disk.read(f"{root}/{name}"))


def remove_log(disk: Disk, root: str) -> Contents | None:
    """Replay the log and remove it, for a directory that is used without one."""
    # the note first, as no log is missed without it
    paths = [f"{root}/{name}" for name in (note.NAME, *FILE_NAMES)]
    if not any(map(disk.exists, paths)):
        return None
    found = replay(disk, root)
    CommitLog(disk, root, 0, found).close()
    newest = f"{root}/{FILE_NAMES[read(disk, root).file]}"
    # this file last: alone it still says that the log was closed cleanly
    for path in sorted(paths, key=newest.__eq__):
        disk.unlink(path)
        disk.sync_dir(root)
    return found


def _to_sync(disk: Disk, folder: str) -> Iterator[str]:
    for name in disk.listdir(folder):
        path = f"{folder}/{name}"
        if name.endswith(EXTENSIONS):
            yield path
        elif disk.is_dir(path):
            yield from _to_sync(disk, path)
