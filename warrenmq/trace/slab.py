"""Slabs: memory-mapped buffers that hold each actor's latest rows until they fill a frame.

One actor writes to a slab, without a lock.  The pages belong to the kernel, so the rows survive SIGKILL of
the process; only a power cut or a crash of the machine can lose them.  A run has one slab file:

    |0                              |4032       |4095  |4096                              name: {run}-{node}-{pid}.slab
    +-------------------------------+-----------+------+------------+------------+ ...
    | header of a segment, "slab" 3 | progress  |lossy | row (72 B) | row        |
    +-------------------------------+-----------+------+------------+------------+ ...

The file after its first page is an array of places, each for one row; the reader sorts rows by `who` and
`seq`, and need not know which slab a place belongs to.  The upper 16 bits of `who` are a check of the row
(row_check.py).  An empty place is not all zeros, so that a page of zeros is known as lost:

    an empty place's bytes          no row
    the check is right              a row
    columns or none, then zeros     the process died while it wrote this row; the next place is empty
    zeros, then the end of a row    the process died while it emptied this place; the place before is empty
    anything else                   damaged: a bit flipped, or the page never came to the disk

At most one place of a file is half written or half emptied, since a thread holds the GIL while it copies; two are damage.

A slab is emptied after its rows were written to a segment.  If the process dies in between, the rows are in
both files, and the reader takes those of the segment.  `progress` holds how many bytes and rows of which
segment file were written, and how many chunks were filled with empty places; a file that has less has lost
something, and a segment file beyond it has no rows yet.  After any damage or loss the reader does not take
the last row that it finds of an actor for the actor's last one (`lossy`).

Formats.  3: the check is of the columns that the row's event uses, which the header lists ("layouts").  2:
the check is of all columns.  Older files have no "slab" in their header, no checks, no progress, and zeros in
empty places.

Slabs come in four sizes.  An actor begins with a small one and gets the next size when it fills one quickly,
until `LARGE_BUDGET` is used: 5,000 idle queues cost 5,000 x 1,152 bytes.  The largest is that from which on a
row's share of a frame falls no further.  The file grows by chunks whose blocks are allocated on disk, since a
write to a mapped hole fails with SIGBUS when the disk is full.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from warrenmq import forks
from warrenmq.trace.block import CHECK_BYTES, ROW
from warrenmq.trace.row_check import EVERYTHING, SLAB_ROW, is_whole, layout
from warrenmq.trace.schema import EVENTS
from warrenmq.trace.segment import OF_A_RUN, create_whole, decode_header, encode_header

SLAB_SUFFIX = ".slab"
SIZES = (16, 128, 1024, 2048)
"""Rows of the four sizes; each divides the next."""
BLOCK_BYTES = SIZES[0] * ROW.size

HEAD_BYTES = 4096
SLAB_FORMAT = 3
_CHECKED = 2
"""The first format whose rows have a check: of all columns.  Since format 3 it is of those that the event uses."""
EMPTY_ROW = SLAB_ROW.pack(*[0] * 11, 0xEEEE)
"""A place without a row: all is 0 but the check."""
_WHO_AT = ROW.size - 8
_SECTOR = 512
"""Bytes that a disk writes whole or not at all; a page is some of them."""

_PROGRESS = struct.Struct("<4sIQQII")
"""Magic, number of the segment file, its bytes, its rows, chunks; the crc of what precedes."""
_PROGRESS_MAGIC = b"WTRP"
_PROGRESS_AT = HEAD_BYTES - 64
LOSSY_AT = HEAD_BYTES - 1
"""The offset of a byte that is 1 when the disk refused rows: then no actor's last row is known to be its last."""

CHUNK_ROWS = 16384
CHUNK_BYTES = CHUNK_ROWS * ROW.size
"""1,179,648: a multiple of the page and of 2,048 rows."""

EMPTY_CHUNK = memoryview(EMPTY_ROW * CHUNK_ROWS)

LARGE_BUDGET = 32 << 20
"""Bytes of slabs above the smallest size, all actors together."""


SHORT_HEADER = (
    "v", "run", "node", "pid", "boot", "wall_ns", "mono_ns", "directory", "vhost", "machine", "follows",
    "untraced", "slab",
)  # fmt: skip
"""The keys of a segment's header that the first page repeats."""


class Progress(NamedTuple):
    """The progress of a run's files: the least that was written."""

    segment: int
    size: int
    rows: int
    chunks: int


NOTHING = Progress(0, 0, 0, 0)
"""No segment file was begun."""


class Chunks(ABC):
    """The memory that slabs are cut from, with the first page of the file."""

    def __init__(self) -> None:
        self._progress = NOTHING

    def grow(self) -> memoryview:
        """Return CHUNK_BYTES more, filled with empty places."""
        chunk = self._grow()
        self._note(self._progress._replace(chunks=self._progress.chunks + 1))
        return chunk

    def written(self, segment: int, size: int, rows: int) -> None:
        """Note how many bytes and rows of the current segment file are written."""
        self._note(self._progress._replace(segment=segment, size=size, rows=rows))

    def mark_lossy(self) -> None:
        """Mark for the reader that rows were dropped."""
        self._write(LOSSY_AT, b"\1")

    def _note(self, progress: Progress) -> None:
        self._progress = progress
        self._write(_PROGRESS_AT, _encoded(progress))

    @abstractmethod
    def _grow(self) -> memoryview: ...

    @abstractmethod
    def _write(self, offset: int, data: bytes) -> None:
        """Write to the first page."""

    @abstractmethod
    def close(self, *, keep: bool) -> None:
        """The run ended and every row is in a segment: delete the file, or `keep` it because it is marked as lossy."""


class ChunkFile(Chunks):
    """Chunks of a real file."""

    def __init__(self, path: str, header: dict[str, Any]) -> None:
        super().__init__()
        self._path = path
        self._fd = create_whole(path, _first_page(header), os.O_RDWR)
        self._size = HEAD_BYTES
        forks.register(self)

    def _grow(self) -> memoryview:
        _allocate(self._fd, self._size, CHUNK_BYTES)
        chunk = mmap.mmap(self._fd, CHUNK_BYTES, offset=self._size)
        chunk[:] = EMPTY_CHUNK
        self._size += CHUNK_BYTES
        return memoryview(chunk)

    def _write(self, offset: int, data: bytes) -> None:
        os.pwrite(self._fd, data, offset)

    def close(self, *, keep: bool) -> None:
        # The maps stay until nothing refers to them: an actor that was killed may still be writing a row.
        self.after_fork()
        if not keep:
            with suppress(OSError):  # the folder was removed, or moved away: its rows are in the segments
                os.unlink(self._path)

    def after_fork(self) -> None:
        """Close the descriptor only: in the child of a fork (forks.py) the file is still the parent's."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class ChunkBytes(Chunks):
    """Chunks in memory, for simulation."""

    def __init__(self, header: dict[str, Any]) -> None:
        super().__init__()
        self._header = bytearray(_first_page(header))
        self._chunks: list[bytearray] = []
        self.gone = False

    def _grow(self) -> memoryview:
        self._chunks.append(bytearray(EMPTY_CHUNK))
        return memoryview(self._chunks[-1])

    def content(self) -> bytes:
        """The bytes that the file would have."""
        return bytes(self._header) + b"".join(self._chunks)

    def _write(self, offset: int, data: bytes) -> None:
        self._header[offset : offset + len(data)] = data

    def close(self, *, keep: bool) -> None:
        self.gone = not keep


def _allocate(fd: int, start: int, size: int) -> None:
    """Extend the file, with its blocks allocated where the system can do that."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, size)
    else:
        os.pwrite(fd, bytes(size), start)


def _first_page(header: dict[str, Any]) -> bytes:
    """The first page of a slab file that is made before any segment file."""
    page = bytearray(slab_header(header))
    page[_PROGRESS_AT : _PROGRESS_AT + _PROGRESS.size] = _encoded(NOTHING)
    return bytes(page)


def _encoded(progress: Progress) -> bytes:
    bare = _PROGRESS.pack(_PROGRESS_MAGIC, *progress, 0)
    return bare[:-4] + zlib.crc32(bare[:-4]).to_bytes(4, "little")


def slab_header(header: dict[str, Any]) -> bytes:
    """The first page of a slab file that says nothing of its run's other files."""
    encoded = encode_header(
        {key: header[key] for key in SHORT_HEADER if key in header} | {"layouts": _layouts()}
    )
    return encoded.ljust(HEAD_BYTES, b"\0")


@cache
def _layouts() -> dict[int, int]:
    """The columns that each event uses."""
    return {number: layout(event.places) for number, event in EVENTS.items()}


class SlabContent(NamedTuple):
    """The contents of a slab file."""

    header: dict[str, Any]
    rows: dict[int, bytes]
    """Whole rows of each actor, in the order of seq, without their checks."""
    torn: int
    """Rows that were being written when the process died: 0 or 1 in a file with checks."""
    bad: list[int]
    """Offsets of places that were changed or lost."""
    lossy: bool
    """True if rows were dropped, the file was cut short, or a place is damaged."""
    marked: bool
    """True if the recorder marked the file as lossy."""
    progress: Progress | None = None


class Block(NamedTuple):
    """The contents of BLOCK_BYTES of a slab file: places of one slab, since the smallest slab is as large."""

    rows: dict[int, dict[int, bytes]]
    """Actor -> seq -> the row without its check."""
    odd: list[int]
    """Offsets in the file of places as a process leaves them that dies while it writes or empties them."""
    bad: list[int]
    """Offsets of places that were changed or lost."""


class Blocks:
    """Parses the blocks of a slab file, in the format that its header names."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.checked: bool = header.get("slab", 1) >= _CHECKED
        """True if each row has a check."""
        self.empty = EMPTY_ROW if self.checked else bytes(ROW.size)
        """A place without a row."""
        self._layouts: Mapping[int, int] = header.get("layouts", {})

    def changed(self, body: bytes, before: bytes = b"") -> list[int]:
        """List the offsets of the blocks that differ from those of `before`, which had empty places where it is shorter."""
        before += self.empty * ((len(body) - len(before)) // ROW.size)
        return [
            at
            for at in range(0, len(body) - BLOCK_BYTES + 1, BLOCK_BYTES)
            if body[at : at + BLOCK_BYTES] != before[at : at + BLOCK_BYTES]
        ]

    def parse(self, block: bytes, begin: int) -> Block:
        """Parse the block that begins at `begin` behind the first page."""
        rows: dict[int, dict[int, bytes]] = {}
        odd: list[int] = []
        bad: list[int] = []
        places = [block[at : at + ROW.size] for at in range(0, BLOCK_BYTES, ROW.size)]
        for number, place in enumerate(places):
            if place == self.empty:
                continue
            *row, check = SLAB_ROW.unpack(place)
            used = self._layouts.get(row[-2], EVERYTHING)
            if row[-1] and (not self.checked or is_whole(tuple(row), check, used)):
                rows.setdefault(row[-1], {})[row[1]] = place[:-CHECK_BYTES] + bytes(CHECK_BYTES)
            else:
                at = HEAD_BYTES + begin + number * ROW.size
                half = (
                    not self.checked
                    or _is_half_written(places, number, at)
                    or _is_half_emptied(places, number)
                )
                (odd if half else bad).append(at)
        return Block(rows, odd, bad)


def damaged(blocks: Iterable[Block], progress: Progress | None) -> tuple[list[int], list[int]]:
    """Half-written places, and damaged ones, of a file with checks.

    Chunks that the file has grown by, but that `progress` does not count yet, may be lost without damage: no row is in them.
    """
    until = HEAD_BYTES + progress.chunks * CHUNK_BYTES if progress is not None else sys.maxsize
    found = list(blocks)
    odd = [at for block in found for at in block.odd if at < until]
    bad = [at for block in found for at in block.bad if at < until]
    return (odd, bad) if len(odd) < 2 else ([], sorted([*bad, *odd]))


def read_slabs(data: memoryview) -> SlabContent | None:
    """Read a slab file; None if it does not begin with a whole header."""
    head = decode_header(data[:HEAD_BYTES], OF_A_RUN)
    if head is None or len(data) < HEAD_BYTES:
        return None
    header, body = head[0], bytes(data[HEAD_BYTES:])
    marked = bool(data[LOSSY_AT])
    blocks = Blocks(header)
    if not blocks.checked:
        body += bytes(-len(body) % BLOCK_BYTES)
    found = [blocks.parse(body[at : at + BLOCK_BYTES], at) for at in blocks.changed(body)]
    rows: dict[int, dict[int, bytes]] = {}
    for block in found:
        for actor, some in block.rows.items():
            rows.setdefault(actor, {}).update(some)
    joined = {actor: b"".join(some[seq] for seq in sorted(some)) for actor, some in sorted(rows.items())}
    if not blocks.checked:
        lossy = marked or is_cut(len(data) - HEAD_BYTES, None, checked=False)
        return SlabContent(header, joined, sum(len(block.odd) for block in found), [], lossy, lossy)
    progress = read_progress(data)
    odd, bad = damaged(found, progress)
    cut = is_cut(len(body), progress, checked=True)
    return SlabContent(header, joined, len(odd), bad, marked or cut or bool(bad), marked, progress)


def is_cut(size: int, progress: Progress | None, *, checked: bool) -> bool:
    """True if a file was longer than it is, behind its first page: than it noted, or, of an old one without
    checks, than whole chunks.
    """
    if not checked:
        return size % CHUNK_BYTES != 0
    return size < progress.chunks * CHUNK_BYTES if progress is not None else size > 0


def read_progress(data: memoryview) -> Progress | None:
    """The progress; None if it is damaged, or the process died before it was written."""
    magic, *progress, crc = _PROGRESS.unpack_from(data, _PROGRESS_AT)
    whole = data[_PROGRESS_AT : _PROGRESS_AT + _PROGRESS.size - 4]
    return Progress(*progress) if magic == _PROGRESS_MAGIC and zlib.crc32(whole) == crc else None


def _is_half_written(places: list[bytes], number: int, at: int) -> bool:
    """True if the process died while it wrote the row: `pack_into` zeroes the place, then writes t first and `who` last.

    A place of zeros alone may also be the edge of a sector that never came to the disk; it is not if its neighbours in the
    same sectors did.
    """
    place = places[number]
    if any(place[_WHO_AT:]) or not all(each == EMPTY_ROW for each in places[number + 1 : number + 2]):
        return False
    if any(place):
        return True
    next_is_beside = number + 1 < len(places) and at % _SECTOR + 2 * ROW.size <= _SECTOR
    before_is_beside = number > 0 and at % _SECTOR > 0 and any(places[number - 1][_WHO_AT:])
    return next_is_beside or (
        before_is_beside and (number + 1 < len(places) or at % _SECTOR + ROW.size <= _SECTOR)
    )


def _is_half_emptied(places: list[bytes], number: int) -> bool:
    """True if the process died while it emptied the place: its beginning is empty, its end is still that of the row."""
    place = places[number]
    return (
        not any(place[:8])
        and any(place[_WHO_AT:])
        and all(each == EMPTY_ROW for each in places[:number][-1:])
    )


class Slabs:
    """Hands slabs out and takes them back.  Not thread-safe: the recorder holds its lock."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._free: dict[int, list[memoryview]] = {rows: [] for rows in SIZES}
        self._large = 0

    def take(self, rows: int) -> memoryview:
        """A slab of empty places, of one of SIZES; OSError when the file cannot grow."""
        slab = self._cut(rows)
        if rows > SIZES[0]:
            self._large += len(slab)
        return slab

    def can_take(self, rows: int) -> bool:
        return self._large + rows * ROW.size <= LARGE_BUDGET

    def give_back(self, slab: memoryview) -> None:
        """Take back a slab whose places are all empty and whose owner writes no more."""
        rows = len(slab) // ROW.size
        self._free[rows].append(slab)
        if rows > SIZES[0]:
            self._large -= len(slab)

    def _cut(self, rows: int) -> memoryview:
        free = self._free[rows]
        if not free:
            size = rows * ROW.size
            whole = self._chunks.grow() if rows == SIZES[-1] else self._cut(SIZES[SIZES.index(rows) + 1])
            free += [whole[at : at + size] for at in range(len(whole) - size, -1, -size)]
        return free.pop()
