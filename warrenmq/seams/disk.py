"""The disk seam: what storage code may do with files and folders.

`RealDisk` (real_disk.py) is `os` calls; `SimulatedDisk` (testing/disk.py) keeps what is not synced apart, so that a test can
cut the power at any operation.  Storage code is given a `Disk` and never imports `os`.

Promises, for both:

- `append` and `pwrite` write everything, or raise `OSError`; a failed append leaves the file at its old size.
- What was written survives a crash of ours.  It survives a power cut once `datasync` returned.
- An entry of a folder (a file created, renamed or unlinked) survives a power cut once `sync_dir` of that folder
  returned.  `mkdir` does this by itself: it is rare, and a lost folder loses all that is in it.
- One `File` is written by one actor at a time; `pread` may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from warrenmq.seams.descriptors import Descriptors
from warrenmq.seams.disk_errors import ReadFailed

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""
UNLIMITED = 1 << 62
"""The answer of `longest` where files may be of any size."""


class Readable(Protocol):
    """A file that is only read: what the readers of RabbitMQ's formats need."""

    def size(self) -> int:
        """Bytes in the file."""

    def pread(self, size: int, offset: int) -> bytes:
        """Read `size` bytes at `offset`; fewer only at the end of the file."""


class SalvagedFile(Readable, Protocol):
    """A file of which a read failed."""

    path: str

    def pread_once(self, size: int, offset: int) -> bytes:
        """`pread`, but an error is raised at once."""


Salvage: TypeAlias = "Callable[[SalvagedFile, int, int, OSError], bytes]"
"""Gives the bytes of a read that failed, or raises its error (salvage.py)."""


def refuse_to_salvage(_file: SalvagedFile, _size: int, _offset: int, error: OSError) -> bytes:
    """The Salvage of a disk on which no directory is open."""
    raise ReadFailed(error.errno, error.strerror, error.filename) from error


class File(Protocol):
    """An open file.  Reads and writes name their place; only `append` knows an end."""

    path: str

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end, or raise `OSError` and leave the file at its old size."""

    def pread(self, size: int, offset: int) -> bytes:
        """Read `size` bytes at `offset`; fewer only at the end of the file.

        The bytes of a bad sector are filled in, so that they count as damage (salvage.py).
        """

    def pwrite(self, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or extend it with zeros."""

    def size(self) -> int:
        """Bytes in the file now."""

    def datasync(self) -> None:
        """Return when everything written survives a power cut.  After an error nothing may be assumed.

        FileDeleted of a file that has no name any more, whatever its sync did.
        """

    def check_name(self) -> None:
        """Raise FileDeleted if the file has no name any more."""

    def begin_sync(self) -> None:
        """Start writing back to the disk while another file is synced.  Promises nothing: a datasync has to follow."""

    def close(self) -> None:
        """Give the descriptor back; not a sync."""


Write: TypeAlias = tuple[File, bytes, int | None]
"""A `File.pwrite` at an offset, or with None a `File.append`."""


class Waiter(Protocol):
    """An actor that goes on once something is done."""

    def run_later(self, job: Callable[[], object]) -> None:
        """Have a job done by another thread, or by this one when it has nothing else to do."""

    def over(self) -> None:
        """Be told, in any thread, that it is done."""


class Disk(Protocol):
    """Files and folders, by path."""

    descriptors: Descriptors
    """The descriptors that its files take of those of the process."""
    salvage: Salvage
    """Asked when a read fails, of files that are opened from now on."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; `FileNotFoundError` unless `create`."""

    def open_read(self, path: str) -> File:
        """Open for reading only."""

    def mkdir(self, path: str) -> None:
        """Make a folder and its parents, durably; fine when it exists."""

    def exists(self, path: str) -> bool:
        """True if a file or folder has this path."""

    def is_dir(self, path: str) -> bool:
        """True if a folder has this path."""

    def size(self, path: str) -> int:
        """Bytes in a file."""

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted; none when it is missing."""

    def read(self, path: str) -> bytes:
        """Read a whole file."""

    def replace(self, path: str, data: bytes) -> None:
        """Put `data` in place of a file, durably: a power cut leaves the old bytes or the new, never a mixture."""

    def unlink(self, path: str) -> None:
        """Remove a file; fine when it is missing."""

    def rename(self, src: str, dst: str) -> None:
        """Give a file another name, replacing what had it."""

    def rmtree(self, path: str) -> None:
        """Remove a folder and all in it; fine when it is missing."""

    def sync_dir(self, path: str) -> None:
        """Return when the folder's entries survive a power cut."""

    def write_files(self, writes: Iterable[Write]) -> None:
        """Write to several open files, in this order; after an error some of it is written."""

    def sync_files(self, files: Sequence[File]) -> None:
        """Return when everything written to these open files survives a power cut; `File.datasync` for several."""

    def begin_sync(self, files: Sequence[File], waiter: Waiter) -> bool:
        """Begin a `sync_files` that another thread does along with those of others; the waiter is told when
        it is time to call it.

        Until then nothing may be written to the files.  False, and nothing was begun, where that cannot be.
        """

    def sync_many(self, paths: Sequence[str]) -> None:
        """Return when all these files, and the entries of these folders, survive a power cut, even if other
        threads changed them.
        """

    def free_space(self, path: str) -> int:
        """Bytes that may still be written below this folder."""

    def pause(self, seconds: float) -> None:
        """Wait before a read that failed is tried again."""

    def room(self, path: str) -> int:
        """Bytes of messages that are sure to fit below this folder: less than what is free, as files are made of blocks."""

    def longest(self) -> int:
        """Bytes that a file of this process may have (`ulimit -f`); a very large number without a limit."""


class DiskAbove:
    """A disk above another one, which does for it what is named here."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.open_read = disk.open_read
        self.exists = disk.exists
        self.is_dir = disk.is_dir
        self.size = disk.size
        self.listdir = disk.listdir
        self.read = disk.read
        self.sync_dir = disk.sync_dir
        self.free_space = disk.free_space
        self.room = disk.room
        self.longest = disk.longest
        self.descriptors = disk.descriptors
        self.salvage = disk.salvage
        self.pause = disk.pause


def write_in_turn(writes: Iterable[Write]) -> None:
    """`Disk.write_files`, of any disk."""
    for file, data, offset in writes:
        if offset is None:
            file.append(data)
        else:
            file.pwrite(data, offset)
