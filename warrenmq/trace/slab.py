"""Slabs: where each actor's latest rows stand until they fill a frame.

A slab is a run of rows in a file that is mapped into memory, written by one actor without any lock.  The kernel owns
the pages, so the rows survive SIGKILL; only the loss of the machine loses them.  One file a run:

    |0                    |4096                                                     name: {run}-{node}-{pid}.slab
    +---------------------+------------+------------+------------+ ...
    | header of a segment | row (72 B) | row        | row        |
    +---------------------+------------+------------+------------+ ...

The whole file after the first page is an array of rows; which slab a row is in does not matter to the reader, since
`who` and `seq` say whose it is.  `who` is written last: a row whose `who` is 0 is empty, or torn if anything else in it
is not 0.  A slab is zeroed after its rows went into a segment; killed in between, the rows are in both, and the
reader takes those of the segment.

Slabs come in three sizes.  An actor begins with a small one and gets the next size when it fills one quickly, until
`LARGE_BUDGET` is used: 5,000 idle queues cost 5,000 x 1,152 bytes.  The file grows by chunks whose blocks
are allocated on disk: a write into a mapped hole of a full disk would be SIGBUS.
"""

from __future__ import annotations

import mmap
import os
from typing import Any, NamedTuple, Protocol

from warrenmq import forks
from warrenmq.trace.block import ROW
from warrenmq.trace.segment import decode_header, encode_header

SLAB_SUFFIX = ".slab"
SIZES = (16, 128, 1024)
"""Rows of the three sizes; each divides the next."""

HEAD_BYTES = 4096
_LOSSY_AT = HEAD_BYTES - 1
"""This byte is 1 when the disk refused rows: then no actor's last row is known to be its last."""

CHUNK_ROWS = 16384
CHUNK_BYTES = CHUNK_ROWS * ROW.size
"""1,179,648: a multiple of the page and of 1,024 rows."""

LARGE_BUDGET = 32 << 20
"""Bytes of slabs above the smallest size, all actors together."""


class Chunks(Protocol):
    """What slabs are cut from."""

    def grow(self) -> memoryview:
        """CHUNK_BYTES more, all zeros."""

    def mark_lossy(self) -> None:
        """Rows were dropped: say so to the reader."""

    def close(self, *, keep: bool) -> None:
        """The run ended.  Every row is in a segment, so the file can go, unless it has a loss to tell of."""


class ChunkFile:
    """Chunks of a real file."""

    def __init__(self, path: str, header: dict[str, Any]) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._size = HEAD_BYTES
        os.write(self._fd, slab_header(header))
        forks.register(self)

    def grow(self) -> memoryview:
        _allocate(self._fd, self._size, CHUNK_BYTES)
        chunk = mmap.mmap(self._fd, CHUNK_BYTES, offset=self._size)
        self._size += CHUNK_BYTES
        return memoryview(chunk)

    def mark_lossy(self) -> None:
        os.pwrite(self._fd, b"\1", _LOSSY_AT)

    def close(self, *, keep: bool) -> None:
        # The maps go with their last reader: an actor that was killed may still be writing a row.
        self.after_fork()
        if not keep:
            os.unlink(self._path)

    def after_fork(self) -> None:
        """Give the descriptor back, and no more: in a child the file is the parent's (forks.py)."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class ChunkBytes:
    """Chunks in memory, for simulation."""

    def __init__(self, header: dict[str, Any]) -> None:
        self._header = bytearray(slab_header(header))
        self._chunks: list[bytearray] = []
        self.gone = False

    def grow(self) -> memoryview:
        self._chunks.append(bytearray(CHUNK_BYTES))
        return memoryview(self._chunks[-1])

    def content(self) -> bytes:
        """The file as a reader would find it."""
        return bytes(self._header) + b"".join(self._chunks)

    def mark_lossy(self) -> None:
        self._header[_LOSSY_AT] = 1

    def close(self, *, keep: bool) -> None:
        self.gone = not keep


def _allocate(fd: int, start: int, size: int) -> None:
    """Make the file longer, its blocks allocated where the system can do that."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, size)
    else:
        os.pwrite(fd, bytes(size), start)


def slab_header(header: dict[str, Any]) -> bytes:
    """The first page."""
    encoded = encode_header(
        {key: header[key] for key in ("v", "run", "node", "pid", "boot", "wall_ns", "mono_ns")}
    )
    return encoded.ljust(HEAD_BYTES, b"\0")


class SlabContent(NamedTuple):
    """What a reader finds in a slab file."""

    header: dict[str, Any]
    rows: dict[int, bytes]
    """Whole rows of each actor, in the order of seq, as they stood."""
    torn: int
    """Rows that were being written when the process died."""
    lossy: bool
    """Rows were dropped, or the file was cut short."""


def read_slabs(data: memoryview) -> SlabContent | None:
    """The rows in a slab file; None when it is none."""
    head = decode_header(data[:HEAD_BYTES])
    if head is None or len(data) < HEAD_BYTES:
        return None
    rows: dict[int, dict[int, bytes]] = {}
    torn = 0
    body = bytes(data[HEAD_BYTES:])
    smallest = SIZES[0] * ROW.size
    unused = bytes(smallest)
    for begin in range(0, len(body), smallest):
        slab = body[begin : begin + smallest]
        if slab == unused:
            continue
        for at in range(0, len(slab) - ROW.size + 1, ROW.size):
            raw = slab[at : at + ROW.size]
            _, seq, *_, who = ROW.unpack(raw)
            if who:
                rows.setdefault(who >> 16, {})[seq] = raw
            elif raw != unused[: ROW.size]:
                torn += 1
    joined = {actor: b"".join(found[seq] for seq in sorted(found)) for actor, found in sorted(rows.items())}
    cut = len(body) % CHUNK_BYTES != 0
    return SlabContent(head[0], joined, torn, lossy=cut or bool(data[_LOSSY_AT]))


class Slabs:
    """Hands slabs out and takes them back.  Not thread-safe: the recorder holds its lock."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._free: dict[int, list[memoryview]] = {rows: [] for rows in SIZES}
        self._large = 0

    def take(self, rows: int) -> memoryview:
        """A slab of zeros of one of SIZES; OSError when the file cannot grow."""
        slab = self._cut(rows)
        if rows > SIZES[0]:
            self._large += len(slab)
        return slab

    def can_take(self, rows: int) -> bool:
        return self._large + rows * ROW.size <= LARGE_BUDGET

    def give_back(self, slab: memoryview) -> None:
        """The slab is all zeros again and its owner will not write any more."""
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
