"""The open .qi files of one queue: at most four, and which of them were written since the last sync.

Reads and acks are at the old end of a queue, writes at the new one, so the files in the middle are closed first.

Source: rabbit_classic_queue_index_v2 (get_fd, reduce_fd_usage), docs/reference/classic-queue.md#index-operations.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from warrenmq.queue_index.v2.qi import ENTRY_BYTES, EXTENSION, HEADER_BYTES

if TYPE_CHECKING:
    from warrenmq.seams.disk import Disk, File

MOST_OPEN = 4


def to_close(open_segments: list[int], opening: int) -> int:
    """Which of four open segments to close when a fifth is opened.

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


class QiFiles:
    """The .qi files of one directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._open: dict[int, File] = {}
        self._unsynced: dict[int, None] = {}
        """Segments that were written since the last sync, in order."""

    def path(self, number: int) -> str:
        """Of a segment's file."""
        return f"{self._directory}/{number}{EXTENSION}"

    @property
    def unsynced(self) -> list[int]:
        """Segments that were written since the last sync."""
        return list(self._unsynced)

    def create(self, number: int, header: bytes) -> None:
        """Begin a file, unless it is there; one that has no whole header does not count."""
        file = self._file(number, create=True)
        if (size := file.size()) < HEADER_BYTES:
            if size:
                file.truncate(0)
            file.append(header)
            self._unsynced[number] = None

    def write(self, number: int, runs: list[tuple[int, bytes]]) -> None:
        """Write entries: runs of them, each with the position of its first.

        After an error the file has no more entries than before.
        """
        file = self._file(number)
        end = file.size()
        self._unsynced[number] = None
        try:
            for position, data in runs:
                file.pwrite(data, HEADER_BYTES + ENTRY_BYTES * position)
        except OSError:
            with suppress(OSError):  # the first error is the one to tell
                file.truncate(end)
            raise

    def read(self, number: int, first: int, count: int) -> bytes:
        """The bytes of entries; fewer at the end of the file."""
        return self._file(number).pread(ENTRY_BYTES * count, HEADER_BYTES + ENTRY_BYTES * first)

    def begin_sync(self) -> None:
        """Have what was written on its way; closed files wait for datasync()."""
        for number in self._unsynced:
            if (file := self._open.get(number)) is not None:
                file.begin_sync()

    def datasync(self) -> None:
        """Return when everything written is safe, in closed files too."""
        for number in list(self._unsynced):
            self._file(number).datasync()
            del self._unsynced[number]

    def delete(self, number: int) -> None:
        """Remove a segment's file."""
        if (file := self._open.pop(number, None)) is not None:
            file.close()
        self._unsynced.pop(number, None)
        self._disk.unlink(self.path(number))

    def close(self) -> None:
        """Close all."""
        while self._open:
            self._open.popitem()[1].close()

    def _file(self, number: int, *, create: bool = False) -> File:
        if (file := self._open.get(number)) is not None:
            return file
        file = self._disk.open(self.path(number), create=create)
        if len(self._open) == MOST_OPEN:
            self._open.pop(to_close(list(self._open), number)).close()
        self._open[number] = file
        return file
