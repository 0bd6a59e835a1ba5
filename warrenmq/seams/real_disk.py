"""The operating system's files: the only place that touches them."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from resource import RLIM_INFINITY, RLIMIT_FSIZE, getrlimit
from time import sleep

from warrenmq import forks
from warrenmq.seams.blocking import THIS_THREAD
from warrenmq.seams.descriptors import Descriptors, SystemDescriptors
from warrenmq.seams.disk import UNLIMITED, File, Salvage, Waiter, refuse_to_salvage, write_in_turn
from warrenmq.seams.disk_errors import SyncFailed, deleted
from warrenmq.seams.syncs import SYNCS

_datasync = getattr(os, "fdatasync", os.fsync)  # macOS has only fsync
_sync_file_range = getattr(ctypes.CDLL(None), "sync_file_range", None)  # Linux only
if _sync_file_range is not None:
    _sync_file_range.argtypes = ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint
_SYNC_FILE_RANGE_WRITE = 2
_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)  # Linux only
_statx = getattr(ctypes.CDLL(None), "statx", None)  # Linux only
if _statx is not None:
    _statx.argtypes = ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p
_AT_EMPTY_PATH, _STATX_NLINK = 0x1000, 0x4
_Statx, _NLINK_AT = ctypes.c_ubyte * 256, slice(16, 20)
_MANY = 128
"""Files that take longer to sync one by one (0.1 ms each) than a file system that is not busy otherwise."""
_FOR_BLOCKS = 256 << 10
"""Bytes of free space that are left for blocks which are not full and for what the file system itself needs."""

_descriptor = attrgetter("_fd")


def _sync(sync: Callable[[int], object], fd: int, path: str) -> None:
    try:
        sync(fd)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from error


def _counts_no_links(fd: int, path: str) -> bool:
    """True of a file system, as some in user space are, that says of a file which has a name that it has no link."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


def _fsync(fd: int) -> None:
    """os.fsync, of a file or folder; that of a folder fails with EINVAL on a file system that has none, which
    keeps its entries in its own way.
    """
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def read_rest(fd: int, data: bytes, size: int, offset: int) -> bytes:
    """Read what one call did not: it gives at most 2 GiB, less when a signal comes between, and what is in
    front of a bad sector.
    """
    parts = [data]
    missing = size - len(data)
    while missing > 0:
        data = os.pread(fd, missing, offset + size - missing)
        if not data:
            break
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


class RealFile:
    """A descriptor and the end that `append` writes at."""

    def __init__(self, path: str, fd: int, *, durable: bool, salvage: Salvage = refuse_to_salvage) -> None:
        self.path = path
        self._fd = fd
        self._durable = durable
        self._salvage = salvage
        self._end = os.fstat(fd).st_size
        forks.register(self)

    def append(self, data: bytes) -> None:
        end = self._end
        try:
            if (written := os.pwrite(self._fd, data, end)) < len(data):
                self._write_rest(data, end, written)
            self._end = end + len(data)
        except OSError as error:
            error.filename = self.path  # which a call with a descriptor does not name
            with suppress(OSError):  # the first error is the one to tell
                os.ftruncate(self._fd, end)
            self._end = end
            raise

    def pread(self, size: int, offset: int) -> bytes:
        try:
            data = os.pread(self._fd, size, offset)
            return data if len(data) == size or not data else read_rest(self._fd, data, size, offset)
        except OSError as error:
            error.filename = self.path
            return self._salvage(self, size, offset, error)

    def pread_once(self, size: int, offset: int) -> bytes:
        """See SalvagedFile."""
        return read_rest(self._fd, b"", size, offset)

    def pwrite(self, data: bytes, offset: int) -> None:
        if (written := os.pwrite(self._fd, data, offset)) < len(data):
            self._write_rest(data, offset, written)
        if data and offset + len(data) > self._end:  # nothing to write makes no file longer
            self._end = offset + len(data)

    def _write_rest(self, data: bytes, offset: int, written: int) -> None:
        """Write what one call did not: a signal came between, or it was more than 2 GiB."""
        view = memoryview(data)
        while written < len(data):
            more = os.pwrite(self._fd, view[written:], offset + written)
            if more == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
            written += more

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._end = size

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def datasync(self) -> None:
        if self._durable:
            SYNCS.total += 1
            with THIS_THREAD.blocking:
                _sync(_datasync, self._fd, self.path)
        self.check_name()

    def check_name(self) -> None:
        # No more than the number of names is asked for: since Linux 6.13 the next write to a file whose times
        # were looked at (fstat) writes its inode, too, and a lone confirm took a quarter longer.
        found = _Statx()
        if _statx is None or _statx(self._fd, b"", _AT_EMPTY_PATH, _STATX_NLINK, found):
            names = os.fstat(self._fd).st_nlink
        else:
            names = any(found[_NLINK_AT])
        if not names and not _counts_no_links(self._fd, self.path):
            raise deleted(self.path)

    def begin_sync(self) -> None:
        if self._durable and _sync_file_range is not None:
            _sync_file_range(self._fd, 0, 0, _SYNC_FILE_RANGE_WRITE)  # all of it; datasync tells of errors

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)

    def after_fork(self) -> None:
        """See forks.py: nothing of a child can be written, and a file that is deleted gives its blocks back."""
        if self._fd >= 0:
            self.close()

    def __del__(self) -> None:
        # An actor that was killed closes nothing; its descriptors go when nothing of it is left.
        if self._fd >= 0:
            self.close()


def _sync_file_system(path: str) -> bool:
    """Sync everything on the file system of `path`; False if that cannot be, or if a sync of anything there failed."""
    if _syncfs is None:
        return False
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return bool(_syncfs(fd) == 0)
    finally:
        os.close(fd)


class RealDisk:
    """The operating system's files.

    durability "fsync": a sync is a sync.  "os": syncs return at once; what was written is the kernel's business,
    and a power cut may lose it (RabbitMQ's rule since 3.13).
    """

    def __init__(self, durability: str = "fsync") -> None:
        self._durable = durability == "fsync"
        self.write_files = write_in_turn
        self.descriptors: Descriptors = SystemDescriptors()
        self.salvage: Salvage = refuse_to_salvage

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o644), durable=self._durable, salvage=self.salvage)

    def open_read(self, path: str) -> File:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return RealFile(path, fd, durable=self._durable, salvage=self.salvage)

    def mkdir(self, path: str) -> None:
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            with suppress(FileExistsError):  # another actor was quicker
                os.mkdir(folder, 0o755)
            try:
                self.sync_dir(os.path.dirname(folder) or ".")
            except OSError:
                with suppress(OSError):  # else it would be taken for a safe one the next time
                    os.rmdir(folder)
                raise

    def sync_name(self, path: str, *, is_new: bool) -> None:
        """Make the name of a folder safe that may have been made or renamed by a process that was killed before its sync.

        Those above it as well if it is new.  A folder that may be entered and not read was made by somebody else.
        """
        folder = os.path.realpath(path)
        while (parent := os.path.dirname(folder)) != folder:
            with suppress(OSError):
                self.sync_dir(parent)
            folder = parent if is_new else "/"

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes:
        file = self.open_read(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append(data)
            file.datasync()
        finally:
            file.close()
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path) or ".")

    def unlink(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def rename(self, src: str, dst: str) -> None:
        os.replace(src, dst)

    def rmtree(self, path: str) -> None:
        if not os.path.lexists(path):
            return
        import shutil  # noqa: PLC0415  # brings compressors that a first start does without

        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            error.filename = path  # it names what could not be removed without its folder
            raise

    def sync_dir(self, path: str) -> None:
        if not self._durable:
            return
        SYNCS.total += 1
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with THIS_THREAD.blocking:
                _fsync(fd)
        finally:
            os.close(fd)

    def sync_files(self, files: Sequence[File]) -> None:
        descriptors = [*map(_descriptor, files)]
        if self._durable:
            SYNCS.total += len(descriptors)
            if _sync_file_range is not None:
                # pages of the others travel with the first one's: a confirm takes a seventh less time
                for fd in descriptors[1:]:
                    _sync_file_range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)
            with THIS_THREAD.blocking:
                try:
                    for file, fd in zip(files, descriptors, strict=True):  # noqa: B007  # of the error
                        _datasync(fd)
                except OSError as error:
                    raise SyncFailed(error.errno, error.strerror, file.path) from error
        for file in files:
            file.check_name()

    def begin_sync(self, files: Sequence[File], waiter: Waiter) -> bool:  # noqa: ARG002
        return False

    def sync_many(self, paths: Sequence[str]) -> None:
        if not self._durable or (len(paths) > _MANY and _sync_file_system(paths[0])):
            return
        SYNCS.total += len(paths)
        for path in paths:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _sync(_fsync, fd, path)
            finally:
                os.close(fd)

    def pause(self, seconds: float) -> None:
        with THIS_THREAD.blocking:
            sleep(seconds)

    def free_space(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def room(self, path: str) -> int:
        return max(0, self.free_space(path) - _FOR_BLOCKS)

    def longest(self) -> int:
        limit = getrlimit(RLIMIT_FSIZE)[0]
        return UNLIMITED if limit == RLIM_INFINITY else limit
