"""A disk in memory whose power can be cut.

Each file is an inode (inode.py), with what a reader sees now and what the platter holds.  Folder entries
likewise: a file created, renamed or unlinked has a live name and a durable one, until its folder is synced.
A power cut keeps a random selection of the unsynced folder entries, in any order, since a file system
promises none.

Errors are injected by operation and path (`fail_next`) or by a limit of space (`free_bytes`).  `before_op` is
called before each operation on a file, with its name and path: a simulation makes it a point where another actor
may run, and `power_fails_at` has it raise `PowerCut`.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from random import Random
from threading import RLock

from warrenmq.errors import CallerError
from warrenmq.seams.descriptors import Descriptors
from warrenmq.seams.disk import UNLIMITED, File, Salvage, Waiter, Write, refuse_to_salvage, write_in_turn
from warrenmq.seams.disk_errors import SyncFailed, deleted
from warrenmq.testing.inode import Change, Inode, sectors
from warrenmq.testing.outage import Outage, PowerCut

PLENTY = 1 << 40
"""The answer of `free_space` for a disk without a limit."""
ENOUGH = 1 << 24
"""The answer of `room` for a disk that tells: so little that it is asked for each time."""


OPERATIONS = (
    "create", "append", "pread", "pwrite", "truncate", "datasync",
    "unlink", "rename", "mkdir", "rmdir", "sync_dir",
)  # fmt: skip
"""The names of operations, as `before_op` is given them."""
_Entries = dict[str, Inode | None]
"""Names to inodes; None is a name that went away."""


class _Unlimited:
    """The Descriptors of simulated files, which take none."""

    def lowest_free(self) -> int:
        return 0

    def are_short(self, promised: int) -> bool:  # noqa: ARG002
        return False


class SimulatedDisk:
    """Files by normalised path.  Thread-safe, so that it can stand under real threads too."""

    descriptors: Descriptors = _Unlimited()

    def __init__(self, rng: Random) -> None:
        self.lock = RLock()
        self.before_op: Callable[[str, str], None] | None = None
        """Called before each operation, with its name and path; it may raise, or let others run."""
        self.salvage: Salvage = refuse_to_salvage
        self.free_bytes: int | None = None
        """Bytes of room; None for any number."""
        self.tells_room = False
        """`room` says what `free_bytes` does, so that a full disk is known before a write meets it."""
        self.longest_file = UNLIMITED
        """Bytes that a file may have: one that would grow further gets EFBIG."""
        self.no_descriptors = False
        """The process has no descriptor left: no file and no folder can be opened; files that are open go on."""
        self.reads_fail = False
        """Nothing can be read, of any file: EIO.  Writes go on; `break_sector` is for one place."""
        self.in_order = True
        """Writes to one file reach the platter in their order."""
        self.rng = rng
        """Decides what a power cut or a failing sync leaves."""
        self._folders: dict[str, set[str]] = {"": set(), "/": set()}
        """By path the names in each folder."""
        self._files: dict[str, Inode] = {}
        """The files that a process sees."""
        self._durable_files: dict[str, Inode] = {}
        """The names that a power cut leaves; an inode knows which of its bytes."""
        self._unsynced: list[tuple[str, _Entries]] = []  # folder, its entries that change together
        self._failures: list[tuple[str, str, int]] = []

    # for tests

    def power_cut(self) -> None:
        """Forget what was not safe.  Files opened before still work, on bytes that no new reader sees."""
        with self.lock:
            entries = dict(self._durable_files)
            for _, change in self._unsynced:
                if self.rng.random() < 0.5:
                    _apply_entries(entries, change)
            self._note_names(dict.fromkeys(self._files))
            self._files = {
                path: inode.after_power_cut(self.rng, in_order=self.in_order)
                for path, inode in sorted(entries.items())
            }
            self._durable_files = dict(self._files)
            for path in self._files:
                self._add_folders(_folder(path))  # an rmtree that only half arrived
            self._note_names(self._files)
            self._unsynced.clear()
            self._failures.clear()

    def paths(self) -> list[str]:
        """The paths of all files."""
        with self.lock:
            return sorted(self._files)

    def contents(self) -> dict[str, bytes]:
        """All files as a reader would find them; looking is no operation, so no other actor runs because of it."""
        with self.lock:
            return {path: bytes(self._inode(path).live) for path in self.paths()}

    def flip_bit(self, path: str, offset: int, bit: int) -> None:
        """Flip one bit of a file, on the platter, too; this is no disk operation."""
        with self.lock:
            inode = self._inode(_normal(path))
            for content in (inode.live, inode.durable):
                if offset < len(content):
                    content[offset] ^= 1 << bit

    def break_sector(self, path: str, offset: int) -> None:
        """Let the sector at this place of a file fail with EIO when it is read, until it is written to, as a
        disk has another one then.
        """
        with self.lock:
            self._inode(_normal(path)).bad.update(sectors(offset, 1))

    @contextmanager
    def power_fails_at(self, operation: int, *, reads: bool = True) -> Iterator[Outage]:
        """End the block before the n-th operation in it, without an exception; `power_cut` is left to the test.

        `reads`: operations that only read are counted, too.  A SimulatedMachine has `crash_at` for this.
        """
        outage = Outage(operation, reads=reads)
        self.before_op = lambda op, _path: outage.before_op(op)
        try:
            with suppress(PowerCut):
                yield outage
        finally:
            self.before_op = None

    def fail_next(self, op: str, path_suffix: str, error: int) -> None:
        """Let the next operation of this name (OPERATIONS) on a path with this end raise `OSError(error)`."""
        if op not in OPERATIONS:
            raise CallerError(f"{op!r} is no operation of a disk; there are {', '.join(OPERATIONS)}.")
        self._failures.append((op, path_suffix, error))

    # Disk

    def open(self, path: str, *, create: bool = False) -> File:
        path = _normal(path)
        self._take_descriptor(path)
        if create and path not in self._files:
            self.begin("create", path)
            with self.lock:
                self._check_folder(path)
                self._change_entries(_folder(path), {path: Inode()})
        return SimulatedFile(self, path, self._inode(path))

    def open_read(self, path: str) -> File:
        return self.open(path)

    def mkdir(self, path: str) -> None:
        path = _normal(path)
        self.begin("mkdir", path)
        with self.lock:
            self._add_folders(path)

    def exists(self, path: str) -> bool:
        path = _normal(path)
        return path in self._files or path in self._folders

    def is_dir(self, path: str) -> bool:
        return _normal(path) in self._folders

    def size(self, path: str) -> int:
        return len(self._inode(_normal(path)).live)

    def listdir(self, path: str) -> list[str]:
        path = _normal(path)
        self._take_descriptor(path)
        with self.lock:
            if path in self._files:
                raise _os_error(errno.ENOTDIR, path)
            return sorted(self._folders.get(path, ()))

    def read(self, path: str) -> bytes:
        return self.open_read(path).pread(self.size(path), 0)

    def replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append(data)
        file.datasync()
        self.rename(temporary, path)
        self.sync_dir(_folder(_normal(path)))

    def unlink(self, path: str) -> None:
        path = _normal(path)
        if path in self._files:
            self.begin("unlink", path)
            with self.lock:
                self.give_back(len(self._files[path].live))
                self._change_entries(_folder(path), {path: None})

    def rename(self, src: str, dst: str) -> None:
        src, dst = _normal(src), _normal(dst)
        self.begin("rename", dst)
        with self.lock:
            inode = self._inode(src)
            self._check_folder(dst)
            if src == dst:
                return
            if dst in self._files:
                self.give_back(len(self._files[dst].live))
            self._change_entries(_folder(dst), {dst: inode, src: None})

    def rmtree(self, path: str) -> None:
        path = _normal(path)
        for file in sorted(f for f in self._files if f.startswith(path + "/")):
            self.unlink(file)
        self.begin("rmdir", path)
        with self.lock:
            for folder in [f for f in self._folders if f == path or f.startswith(path + "/")]:
                del self._folders[folder]
            self._folders.get(_folder(path), set()).discard(_name(path))

    def sync_dir(self, path: str) -> None:
        path = _normal(path)
        self._take_descriptor(path)
        self.begin("sync_dir", path)
        with self.lock:
            if path not in self._folders:
                raise _os_error(errno.ENOENT, path)
            self._sync_entries(path)

    def write_files(self, writes: Iterable[Write]) -> None:
        write_in_turn(writes)

    def sync_files(self, files: Sequence[File]) -> None:
        for file in files:
            file.datasync()

    def begin_sync(self, files: Sequence[File], waiter: Waiter) -> bool:  # noqa: ARG002
        return False

    def sync_many(self, paths: Sequence[str]) -> None:
        for path in paths:
            if self.is_dir(path):
                self.sync_dir(path)
            else:
                self.open(path).datasync()

    def pause(self, seconds: float) -> None:
        """Return at once: how many reads of a place fail is up to the test, not to time."""

    def free_space(self, path: str) -> int:
        if not self.is_dir(path):
            raise _os_error(errno.ENOENT, path)
        return PLENTY if self.free_bytes is None else self.free_bytes

    def room(self, path: str) -> int:  # noqa: ARG002
        """Enough, so that a full disk is met in the middle of a write; with `tells_room` what there is."""
        if not self.tells_room:
            return PLENTY
        return ENOUGH if self.free_bytes is None else self.free_bytes

    def longest(self) -> int:
        return self.longest_file

    # for its files

    def begin(self, op: str, path: str) -> None:
        """Announce an operation; what a test wants to go wrong goes wrong here."""
        if self.before_op is not None:
            self.before_op(op, path)
        for failure in self._failures:
            if failure[0] == op and path.endswith(failure[1]):
                self._failures.remove(failure)
                raise _os_error(failure[2], path)

    def take(self, size: int, path: str, end: int) -> None:
        """Account for a file that grows by `size` bytes to `end`."""
        if size and end > self.longest_file:
            raise _os_error(errno.EFBIG, path)
        if self.free_bytes is not None:
            if size > self.free_bytes:
                raise _os_error(errno.ENOSPC, path)
            self.free_bytes -= size

    def give_back(self, size: int) -> None:
        """Account for a file that shrinks."""
        if self.free_bytes is not None:
            self.free_bytes += size

    def _take_descriptor(self, path: str) -> None:
        if self.no_descriptors:
            raise _os_error(errno.EMFILE, path)

    def _inode(self, path: str) -> Inode:
        inode = self._files.get(path)
        if inode is None:
            raise _os_error(errno.EISDIR if path in self._folders else errno.ENOENT, path)
        return inode

    def _check_folder(self, path: str) -> None:
        """Raise what a new name raises in a folder that is not there, or that a folder has already."""
        if path in self._folders:
            raise _os_error(errno.EISDIR, path)
        if _folder(path) not in self._folders:
            raise _os_error(errno.ENOENT, path)

    def _add_folders(self, path: str) -> None:
        names: set[str] = set()
        while path not in self._folders:
            self._sync_entries(_folder(path))
            self._folders[path] = names
            names = {_name(path)}
            path = _folder(path)
        self._folders[path] |= names

    def _change_entries(self, folder: str, change: _Entries) -> None:
        for path in change:
            if (before := self._files.get(path)) is not None:
                before.has_name = False
        for inode in change.values():
            if inode is not None:
                inode.has_name = True
        _apply_entries(self._files, change)
        self._note_names(change)
        self._unsynced.append((folder, change))

    def _note_names(self, change: Mapping[str, Inode | None]) -> None:
        for path, inode in change.items():
            names = self._folders[_folder(path)]
            if inode is None:
                names.discard(_name(path))
            else:
                names.add(_name(path))

    def _sync_entries(self, folder: str) -> None:
        waiting = []
        for parent, change in self._unsynced:
            there = parent
            while there not in self._folders:  # it goes for good with its name, in the folder that it was in
                there = _folder(there)
            if there == folder:
                _apply_entries(self._durable_files, change)
            else:
                waiting.append((parent, change))
        self._unsynced = waiting


class SimulatedFile:
    """An open inode; goes on working when its name is gone, as on POSIX."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def append(self, data: bytes) -> None:
        disk, inode = self._disk, self._inode
        disk.begin("append", self.path)
        with disk.lock:
            end = len(inode.live)
            try:
                disk.take(len(data), self.path, end + len(data))
            except OSError:
                # a short write that was cut back again: a power cut may still find some of its bytes
                fits = min(disk.longest_file - end, len(data) if disk.free_bytes is None else disk.free_bytes)
                inode.change(Change(bytes(data[: max(0, fits)]), end))
                inode.change(Change(None, end))
                raise
            inode.change(Change(bytes(data), end))

    def pread(self, size: int, offset: int) -> bytes:
        try:
            return self.pread_once(size, offset)
        except OSError as error:
            return self._disk.salvage(self, size, offset, error)

    def pread_once(self, size: int, offset: int) -> bytes:
        """See File."""
        disk, inode = self._disk, self._inode
        disk.begin("pread", self.path)
        with disk.lock:
            if disk.reads_fail or inode.is_bad(offset, size):
                raise _os_error(errno.EIO, self.path)
            return bytes(inode.live[offset : offset + size])

    def pwrite(self, data: bytes, offset: int) -> None:
        disk, inode = self._disk, self._inode
        disk.begin("pwrite", self.path)
        with disk.lock:
            if data:  # nothing to write makes no file longer
                end = offset + len(data)
                disk.take(max(0, end - len(inode.live)), self.path, end)
                inode.change(Change(bytes(data), offset))

    def truncate(self, size: int) -> None:
        disk, inode = self._disk, self._inode
        disk.begin("truncate", self.path)
        with disk.lock:
            disk.give_back(max(0, len(inode.live) - size))  # a longer file is sparse: zeros take no space
            inode.change(Change(None, size))

    def size(self) -> int:
        return len(self._inode.live)

    def datasync(self) -> None:
        disk, inode = self._disk, self._inode
        try:
            disk.begin("datasync", self.path)
        except OSError as error:
            with disk.lock:
                inode.fail_to_sync(disk.rng)
            raise SyncFailed(error.errno, error.strerror, self.path) from error
        with disk.lock:
            inode.sync()
        self.check_name()

    def check_name(self) -> None:
        if not self._inode.has_name:
            raise deleted(self.path)

    def begin_sync(self) -> None:
        """Do nothing: a power cut may keep any unsynced write anyway."""

    def close(self) -> None:
        """Do nothing: there is no descriptor to close."""


def _apply_entries(entries: dict[str, Inode], change: _Entries) -> None:
    for path, inode in change.items():
        if inode is None:
            entries.pop(path, None)
        else:
            entries[path] = inode


_normal = lru_cache(maxsize=4096)(posixpath.normpath)
_folder = lru_cache(maxsize=4096)(posixpath.dirname)
_name = lru_cache(maxsize=4096)(posixpath.basename)
"""A run names few paths, each of them often."""


def _os_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
