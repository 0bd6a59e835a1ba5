"""Salvage of bytes that the disk does not give: a bad sector.

    the read is tried again            at once, after a moment, after a second; then it is the sector's fault, or the disk's
    something is written and read      if that fails, too, the disk is gone: the error is raised, and nothing was given up
    what can be read is read           the rest is filled with bytes that make no sense to any reader of our formats

So a bad sector is damage like any other: readers miss the checksum, tell what is lost, and go on behind it.
A message without a checksum, which a RabbitMQ has left, is taken for damaged if it has UNREADABLE in it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

from warrenmq.seams.disk import SECTOR, Disk, SalvagedFile
from warrenmq.seams.disk_errors import ReadFailed

UNREADABLE = bytes.fromhex("f7c1e59ab3d486ff92e8bd71ca5ff3a6")
"""These stand for bytes that cannot be read, again and again."""
_BAD_PLACES = frozenset({errno.EIO, errno.ENODATA, errno.EBADMSG, errno.EUCLEAN, errno.EILSEQ})
"""The errors of a place of a disk: a bad sector, or a checksum of the file system that does not match."""
_PAUSES = (0.0, 0.1, 1.0)
"""Seconds before each new try."""


class Salvage:
    """Reads what can be read of bytes whose read failed.

    _given_up   file -> sectors of it: there is no second wait, and each is told once
    """

    def __init__(self, disk: Disk, folder: str, tell: Callable[[str, int, int, OSError], object]) -> None:
        """`folder` is where a file is written and read to see whether the disk still can; `tell(path, offset,
        size, error)` of what was given up.
        """
        self._disk = disk
        self._folder = folder
        self._note = f"{folder}/unreadable"
        self._given_up: dict[str, set[int]] = {}
        self._tell = tell

    def __call__(self, file: SalvagedFile, size: int, offset: int, error: OSError) -> bytes:
        """The bytes of a read that failed; ReadFailed unless its error is one of single places."""
        failed = ReadFailed(error.errno, error.strerror, file.path)
        if not is_of_a_place(error) or file.path == self._note:
            raise failed from error
        for seconds in _PAUSES if file.path not in self._given_up else ():
            self._disk.pause(seconds)
            try:
                return file.pread_once(size, offset)
            except OSError:
                continue
        try:
            self._disk.mkdir(self._folder)
            self._disk.replace(self._note, f"{file.path} at {offset}: {error}\n".encode())
            self._disk.read(self._note)
        except OSError:
            raise failed from error
        given_up = self._given_up.setdefault(file.path, set())

        def tell(start: int, size: int, error: OSError) -> None:
            if (sector := start // SECTOR) not in given_up:
                given_up.add(sector)
                self._tell(file.path, start, size, error)

        return b"".join(pieces(file.pread_once, offset, min(offset + size, file.size()), tell))


def is_of_a_place(error: OSError) -> bool:
    """True for the error of a bad sector, perhaps."""
    return error.errno in _BAD_PLACES


def pieces(
    read: Callable[[int, int], bytes], start: int, end: int, tell: Callable[[int, int, OSError], object]
) -> Iterator[bytes]:
    """The bytes between two places, as few of them filled in as can be: `read(size, offset)`, and
    `tell(offset, size, error)` of what cannot be read.
    """
    try:
        if start < end:
            yield read(end - start, start)
    except OSError as error:
        middle = (start + end) // 2 // SECTOR * SECTOR
        if middle <= start:
            middle = (start // SECTOR + 1) * SECTOR
        if middle < end:
            yield from pieces(read, start, middle, tell)
            yield from pieces(read, middle, end, tell)
            return
        tell(start, end - start, error)
        first = start % len(UNREADABLE)
        yield (UNREADABLE * ((end - start) // len(UNREADABLE) + 2))[first : first + end - start]
