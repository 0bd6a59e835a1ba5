"""Reading files without leaving a trace, and noting what is wrong with them.

Nothing here can write: files are opened for reading only, and nothing is locked.  The directory may be in use
meanwhile, so a file that vanishes between two looks is no file, and one that grows is read as far as it went when it
was opened.  A file that the system refuses to read is damage like any other.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Self

from warrenmq.commit_log.contents import patched
from warrenmq.inspect.pending_log import pending_log
from warrenmq.seams.real_disk import read_rest
from warrenmq.seams.salvage import is_of_a_place, pieces


class Damage(NamedTuple):
    """Invalid bytes, or a file that cannot be read."""

    file: str
    """Relative to the directory that was asked for."""
    offset: int
    reason: str


class Findings:
    """The damage found in one directory; every file is opened through it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._damaged: dict[Damage, bool] = {}
        """Damage -> True if it counts only while no broker runs."""
        self._refused: dict[Damage, OSError] = {}
        """Files and folders that may not be read."""
        self._seen: dict[str, tuple[int, int]] = {}
        self.broker_runs = False
        """Known beside the files: a broker that rests changes none."""
        self._log = pending_log(root)
        for path, reason in self._log.damage:
            self.note(path, 0, reason)

    def relative(self, path: str) -> str:
        """A path as it is reported."""
        return os.path.relpath(path, self.root)

    def note(self, path: str, offset: int, reason: str, *, unless_in_use: bool = False) -> None:
        """Note damage, once: files are parsed twice where their messages are listed.

        `unless_in_use`: two files disagree, which is no damage while either is written to.
        """
        self._damaged[Damage(self.relative(path), offset, reason)] = unless_in_use

    def open(self, path: str) -> File | None:
        """A file to read, None when it is not there; one that may not be read is noted."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._note_refusal(path, "read", error)
            return None
        status = os.fstat(descriptor)
        self._seen.setdefault(os.path.normpath(path), (status.st_size, status.st_mtime_ns))
        extents = self._log.writes.get(os.path.realpath(path)) if self._log.writes else None
        if extents is not None:
            with File(self, path, descriptor, status.st_size) as file:
                return PatchedFile(self, path, patched(file.pread(file.size(), 0), extents))
        return File(self, path, descriptor, status.st_size)

    def size_of(self, path: str) -> int:
        """Bytes of a file as a start would have it; OSError when it is not there."""
        size = os.stat(path).st_size
        if self._log.writes:
            extents = self._log.writes.get(os.path.realpath(path), ())
            size = max([size, *(offset + len(data) for offset, data in extents)])
        return size

    def read(self, path: str, most: int = 64 << 20) -> bytes | None:
        """A whole small file, None when it is not there."""
        file = self.open(path)
        if file is None:
            return None
        with file:
            return file.pread(min(file.size(), most), 0)

    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted; none when it is missing."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._note_refusal(path, "listed", error)
            return []

    def _note_refusal(self, path: str, done: str, error: OSError) -> None:
        reason = f"it cannot be {done} ({error.strerror})"
        self.note(path, 0, reason)
        if isinstance(error, PermissionError):
            self._refused[Damage(self.relative(path), 0, reason)] = error

    def check_permissions(self) -> None:
        """Raise the PermissionError of a file that was to be read: it may not be taken for one that is gone."""
        for error in self._refused.values():
            raise error

    def changed(self, path: str) -> bool:
        """True if a file was written to, or removed, since it was first opened."""
        seen = self._seen.get(os.path.normpath(path))
        if seen is None:
            return False  # it could not be opened
        try:
            status = os.stat(path)
        except OSError:
            return True
        return seen != (status.st_size, status.st_mtime_ns)

    def in_use(self) -> bool:
        """True if a broker runs, or any file was written to, or removed, while it was looked at."""
        return self.broker_runs or any(self.changed(path) for path in self._seen)

    def damaged(self) -> list[Damage]:
        """The damage found, without files that are being written: a half-written record there is not damage.

        Nothing but files that may not be read, if there are some: the rest may follow from that.
        """
        in_use = self.in_use()
        return [*self._refused] or [
            each
            for each, unless_in_use in self._damaged.items()
            if not (unless_in_use and in_use) and not self.changed(self._path(each))
        ]

    def _path(self, damage: Damage) -> str:
        return os.path.normpath(os.path.join(self.root, damage.file))


def file_sizes(findings: Findings, folder: str) -> dict[str, int]:
    """Bytes of each file in a folder; one that vanishes meanwhile is left out."""
    found = {}
    for name in findings.names(folder):
        try:
            found[name] = findings.size_of(f"{folder}/{name}")
        except OSError:
            continue
    return found


class File:
    """An open file, read up to the size that it had."""

    def __init__(self, findings: Findings, path: str, descriptor: int, size: int) -> None:
        self.path = path
        self._size = size
        self._findings = findings
        self._descriptor = descriptor

    def size(self) -> int:
        """Bytes in it when it was opened."""
        return self._size

    def pread(self, size: int, offset: int) -> bytes:
        """Bytes at a place; fewer at the end, and where the file was cut down or the disk refuses.

        Those of a bad sector make no sense to any reader (seams/salvage.py), as at a start of the broker.
        """
        size = min(size, self._size - offset)
        if size <= 0:
            return b""
        try:
            return self._read(size, offset)
        except OSError as error:
            if is_of_a_place(error):
                return b"".join(pieces(self._read, offset, offset + size, self._note_unreadable))
            self._note_unreadable(offset, size, error)
            return b""

    def _read(self, size: int, offset: int) -> bytes:
        return read_rest(self._descriptor, b"", size, offset)

    def _note_unreadable(self, offset: int, _size: int, error: OSError) -> None:
        self._findings.note(self.path, offset, f"it cannot be read ({error.strerror})")

    def note(self, offset: int, reason: str) -> None:
        self._findings.note(self.path, offset, reason)

    def close(self) -> None:
        """Closing it again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        """A store keeps the file that it was read from last open, until the store itself goes."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PatchedFile(File):
    """A file as a start would have it, in memory."""

    def __init__(self, findings: Findings, path: str, data: bytes) -> None:
        super().__init__(findings, path, -1, len(data))
        self._data = data

    def pread(self, size: int, offset: int) -> bytes:
        return self._data[offset : offset + size] if size > 0 else b""
