"""The bodies of one queue's small messages (rabbit_classic_queue_store_v2): its .qs files (qs.py).

A body is appended once, when its index entry is about to be written, so one that is acked before costs nothing.  It is
found by what the index entry says of it.

At most two files are open: the one that is written, and the one that was read last.

Source: docs/reference/classic-queue.md#store-files.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import accumulate, chain
from typing import TYPE_CHECKING
from zlib import crc32

from warrenmq.message.stored import SEALED
from warrenmq.queue_index.v2 import qs
from warrenmq.queue_index.v2.qi import HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warrenmq.seams.disk import Disk, File

READ_BYTES = 4 << 20
"""Adjacent bodies are read together up to this many bytes."""

_HEADER_OF_BODY = qs.ENTRY_HEADER_BYTES
_pack = qs.ENTRY_HEADER.pack
_CRC = 0xFFFF


def together(places: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int, int]]:
    """Consolidate places (offset, size of the data) that follow each other: (first offset, bytes, how many places).

    A group ends where the next body does not begin behind the last one, or when it would pass `most` bytes.
    """
    groups: list[tuple[int, int, int]] = []
    start = end = count = 0
    for offset, size in places:
        length = _HEADER_OF_BODY + size
        if count and offset == end and end + length - start <= most:
            end += length
            count += 1
            continue
        if count:
            groups.append((start, end - start, count))
        start, end, count = offset, offset + length, 1
    if count:
        groups.append((start, end - start, count))
    return groups


class QueueStore:
    """The .qs files of one directory."""

    def __init__(self, disk: Disk, directory: str, *, check_crc: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._check_crc = check_crc
        self._writing: tuple[int, File] | None = None
        self._reading: tuple[int, File] | None = None
        self._unsynced: dict[int, None] = {}
        """Segments that were written since the last sync, in order."""

    def path(self, number: int) -> str:
        """Of a segment's file."""
        return f"{self._directory}/{number}{qs.EXTENSION}"

    @property
    def unsynced(self) -> list[int]:
        """Segments that were written since the last sync."""
        return list(self._unsynced)

    def append(self, number: int, header: bytes, bodies: list[bytes]) -> tuple[list[int], int]:
        """Write bodies behind each other; `header` begins a new file.

        Returns the offset of each, and how many bytes were written.  After an error nothing was.
        """
        file = self._file_to_write(number)
        size = file.size()
        first = size or len(header)
        lengths = [_HEADER_OF_BODY + len(body) for body in bodies]
        heads = [_pack(len(body), qs.HAS_CRC, crc32(body) & _CRC, 0) for body in bodies]
        data = b"".join(chain([] if size else [header], chain.from_iterable(zip(heads, bodies, strict=True))))
        file.append(data)
        self._unsynced[number] = None
        offsets = list(accumulate(lengths, initial=first))
        offsets.pop()
        return offsets, len(data)

    def take_back(self, number: int, size: int) -> None:
        """Cut off the last `size` bytes, as their index entries could not be written."""
        with suppress(OSError):  # then they are bytes without an entry
            file = self._file_to_write(number)
            file.truncate(file.size() - size)

    def read_many(self, number: int, places: Sequence[tuple[int, int]]) -> list[bytes | str]:
        """The data of bodies at (offset, size); text where there is no such body, or not a whole one.

        A message that has a checksum of its own, of 32 bits, is left to the caller, who compares that with its sequence id.
        """
        if not places:
            return []
        file = self._file_to_read(number)
        if file is None:
            return ["the body file is missing"] * len(places)
        found: list[bytes | str] = []
        done, end = 0, file.size()
        for start, length, count in together(places, READ_BYTES):
            data = file.pread(min(length, end - start), start) if start < end else b""
            for offset, size in places[done : done + count]:
                position = offset - start
                body = data[position + _HEADER_OF_BODY : position + _HEADER_OF_BODY + size]
                check_crc = self._check_crc and not body.startswith(SEALED)
                found.append(qs.entry_problem(data, position, size, check_crc=check_crc) or body)
            done += count
        return found

    def datasync(self) -> None:
        """Return when everything written is safe."""
        for number in list(self._unsynced):
            self._file_to_write(number).datasync()
            del self._unsynced[number]

    def delete(self, number: int) -> None:
        """Remove a segment's file, if there is one."""
        if self._writing is not None and self._writing[0] == number:
            self._writing[1].close()
            self._writing = None
        if self._reading is not None and self._reading[0] == number:
            self._reading[1].close()
            self._reading = None
        self._unsynced.pop(number, None)
        self._disk.unlink(self.path(number))

    def close(self) -> None:
        """Close all."""
        for each in (self._writing, self._reading):
            if each is not None:
                each[1].close()
        self._writing = self._reading = None

    def _file_to_write(self, number: int) -> File:
        if self._writing is None or self._writing[0] != number:
            file = self._disk.open(self.path(number), create=True)
            if 0 < file.size() < HEADER_BYTES:
                file.truncate(0)  # a header that was torn
            if self._writing is not None:
                self._writing[1].close()
            self._writing = number, file
        return self._writing[1]

    def _file_to_read(self, number: int) -> File | None:
        if self._writing is not None and self._writing[0] == number:
            return self._writing[1]
        if self._reading is None or self._reading[0] != number:
            if not self._disk.exists(self.path(number)):
                return None
            file = self._disk.open_read(self.path(number))
            if self._reading is not None:
                self._reading[1].close()
            self._reading = number, file
        return self._reading[1]
