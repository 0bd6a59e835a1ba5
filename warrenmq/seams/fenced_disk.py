"""A disk behind a fence.

A thread cannot be killed.  An actor that its supervisor gave up (killed, or stuck past its shutdown timeout) may
still be inside a write, or wake up and begin one, while its successor already recovers the same files.  So
every write of an actor goes through the fence of its incarnation, and its supervisor cuts the fence before it
starts a successor: after that, nothing of the old incarnation reaches a file.

Reads pass: they change nothing.  A sync is refused too, before and after, so that a sync which returned late never
becomes a confirm of an incarnation that was given up; but the fence is not held during a sync, or a hanging disk
would hang the supervisor that cuts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any, NoReturn, Protocol

from warrenmq.seams.disk import Disk, DiskAbove, File, Waiter, Write


class Fence(Protocol):
    """The part of a runtime's fence that a fenced disk uses."""

    cut: bool
    """The actor was given up."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held around each write."""

    def refuse(self) -> NoReturn:
        """Raise the error of a fence that is cut."""

    def guard(self) -> AbstractContextManager[None]:
        """Hold the lock around one write; raises once the fence is cut."""


_unfenced = attrgetter("unfenced")


class FencedFile:
    """A file whose writes need the fence.

    `append`, `pwrite`, `datasync` and the disk's `write_files` and `sync_files` are on the way of every message, so they do
    themselves what `Fence.guard` does.
    """

    def __init__(self, file: File, fence: Fence) -> None:
        self.path = file.path
        self.pread = file.pread
        self.size = file.size
        self.begin_sync = file.begin_sync
        self.check_name = file.check_name
        self.close = file.close
        self.unfenced = file
        """The file behind the fence, for its disk."""
        self._fence = fence
        self._lock = fence.lock

    def append(self, data: bytes) -> None:
        with self._lock:
            if self._fence.cut:
                self._fence.refuse()
            self.unfenced.append(data)

    def pwrite(self, data: bytes, offset: int) -> None:
        with self._lock:
            if self._fence.cut:
                self._fence.refuse()
            self.unfenced.pwrite(data, offset)

    def truncate(self, size: int) -> None:
        with self._fence.guard():
            self.unfenced.truncate(size)

    def datasync(self) -> None:
        if self._fence.cut:
            self._fence.refuse()
        self.unfenced.datasync()
        if self._fence.cut:
            self._fence.refuse()


class FencedDisk(DiskAbove):
    """A disk whose changes need the fence."""

    def __init__(self, disk: Disk, fence: Fence) -> None:
        super().__init__(disk)
        self.sync_many = disk.sync_many
        self._fence = fence
        self._guard = fence.guard

    def open(self, path: str, *, create: bool = False) -> File:
        if not create:
            return FencedFile(self._disk.open(path), self._fence)
        with self._guard():
            return FencedFile(self._disk.open(path, create=True), self._fence)

    def write_files(self, writes: Iterable[Write]) -> None:
        with self._fence.lock:
            if self._fence.cut:
                self._fence.refuse()
            for file, data, offset in writes:
                if offset is None:
                    _unfenced(file).append(data)
                else:
                    _unfenced(file).pwrite(data, offset)

    def sync_files(self, files: Sequence[File]) -> None:
        if self._fence.cut:
            self._fence.refuse()
        self._disk.sync_files([*map(_unfenced, files)])
        if self._fence.cut:
            self._fence.refuse()

    def begin_sync(self, files: Sequence[File], waiter: Waiter) -> bool:
        if self._fence.cut:
            self._fence.refuse()
        return self._disk.begin_sync([*map(_unfenced, files)], waiter)

    def mkdir(self, path: str) -> None:
        with self._guard():
            self._disk.mkdir(path)

    def replace(self, path: str, data: bytes) -> None:
        with self._guard():
            self._disk.replace(path, data)

    def unlink(self, path: str) -> None:
        with self._guard():
            self._disk.unlink(path)

    def rename(self, src: str, dst: str) -> None:
        with self._guard():
            self._disk.rename(src, dst)

    def rmtree(self, path: str) -> None:
        with self._guard():
            self._disk.rmtree(path)
