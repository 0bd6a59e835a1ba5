"""Segment files: the immutable part of a trace, rotated by size.

    file = "WTR1" u32 length u32 crc32 header frame* [footer frame]        name: {run}-{node}-{pid}-{n:06d}.wtr

    header = msgpack {v, lib, run, node, pid, boot, directory, vhost, machine, follows, wall_ns, mono_ns, n, columns, events {id: name},
                      actors {id: [name, kind, parent]}, kinds {id: name}}

The header repeats the tables of actors and message kinds known when the file began, so each file can be read
alone; what is registered later follows at once in META frames.  A file gets its name when it has its header
(`create_whole`): readers meet none without one, unless the power failed.  A file without a footer belongs to
a run that is still going or was killed; its last rows are then in the slab file (slab.py).

Not thread-safe: the recorder holds its lock around every call.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from typing import Any, Protocol

import msgpack  # type: ignore[import-untyped]

from warrenmq import forks
from warrenmq.trace.block import encode_footer

FILE_MAGIC = b"WTR1"
FILE_HEAD = struct.Struct("<4sII")
SEGMENT_SUFFIX = ".wtr"
OF_A_RUN = frozenset({"v", "run", "node", "pid", "boot", "wall_ns", "mono_ns"})
OF_A_SEGMENT = OF_A_RUN | {"n", "events", "actors", "kinds"}
"""The keys of the headers of slab files and of segments, in every version."""


class Output(Protocol):
    """A segment file being written."""

    def append(self, data: bytes) -> None:
        """Append bytes at the end; after an OSError none is there."""

    def close(self) -> None: ...


class OutputFile:
    """A real file.  One unbuffered write a frame: what was appended survives SIGKILL."""

    def __init__(self, path: str, head: bytes) -> None:
        self._fd = create_whole(path, head, os.O_WRONLY | os.O_APPEND)
        self._size = len(head)
        forks.register(self)

    def after_fork(self) -> None:
        """Let go of the file in a forked child (forks.py): it is the parent's."""
        self.close()

    def append(self, data: bytes) -> None:
        try:
            _write_all(self._fd, data)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def create_whole(path: str, head: bytes, flags: int) -> int:
    """Create a file that begins with these bytes, and return its descriptor.

    It has a hidden name, which readers skip, until they are written: a process that is killed meanwhile
    leaves no trace file that cannot be read.
    """
    folder, name = os.path.split(path)
    hidden = os.path.join(folder, f".{name}")
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    fd = os.open(hidden, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        _write_all(fd, head)
        os.rename(hidden, path)
    except BaseException:
        os.close(fd)
        os.unlink(hidden)
        raise
    return fd


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class OutputBytes:
    """A file in memory, for simulation."""

    def __init__(self, content: bytearray) -> None:
        self._content = content

    def append(self, data: bytes) -> None:
        self._content += data

    def close(self) -> None:
        """Do nothing: the content stays in memory."""


def encode_header(header: dict[str, Any]) -> bytes:
    body: bytes = msgpack.packb(header)
    return FILE_HEAD.pack(FILE_MAGIC, len(body), zlib.crc32(body)) + body


def decode_header(data: memoryview, keys: frozenset[str] = OF_A_SEGMENT) -> tuple[dict[str, Any], int] | None:
    """The header and its end; None if the bytes do not begin with a whole header that has these keys."""
    if len(data) < FILE_HEAD.size:
        return None
    magic, length, crc = FILE_HEAD.unpack_from(data)
    body = data[FILE_HEAD.size : FILE_HEAD.size + length]
    if magic != FILE_MAGIC or len(body) != length or zlib.crc32(body) != crc:
        return None
    try:
        header = msgpack.unpackb(body, strict_map_key=False)
    except ValueError:  # zeros behind the magic are a right check, of nothing
        return None
    return (header, FILE_HEAD.size + length) if isinstance(header, dict) and header.keys() >= keys else None


class Segment:
    """The segment file being written, with the counts for its footer."""

    def __init__(self, output: Output, header_size: int) -> None:
        """`output` holds the header."""
        self._output = output
        self.size = header_size
        self._frames = 0
        self.rows = 0

    def append(self, frame: bytes, rows: int) -> None:
        self._output.append(frame)
        self.size += len(frame)
        self._frames += 1
        self.rows += rows

    def finish(self, *, closed: bool) -> None:
        """Write the footer and close; `closed` when no file of the run follows."""
        self._output.append(encode_footer(self._frames, self.rows, closed=closed))
        self._output.close()
