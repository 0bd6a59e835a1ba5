"""Frames and columns: the bytes of a trace.

    |0      |4    |5     |6        |8       |12     |16    |20   |28        |36      |44      |52
    +-------+-----+------+---------+--------+-------+------+-----+----------+--------+--------+------- ... ----+
    | WTRB  |kind |codec | 0 (u16) | length | crc32 | rows | who | seq_first| t_first| t_last | payload        |
    +-------+-----+------+---------+--------+-------+------+-----+----------+--------+--------+------- ... ----+
       4       u8    u8     u16       u32      u32     u32    i64   i64        i64      i64      `length` bytes

All little-endian.  The crc covers the 52 bytes (with the crc itself as 0) and the payload.  `rows`, `who` (of the
last row), `seq_first`, `t_first` and `t_last` are those of a ROWS frame, which holds consecutive rows of one actor; so
a reader finds gaps, and skips frames, without unpacking.  0 in the other kinds.

    kind ROWS    payload = rows sorted by event (codec 4, packing.py).  Older files have zlib level 1 of msgpack {column: bytes}; a
                 column is its 64-bit integers as eight byte planes (first all lowest bytes, ...); of a column of zeros they are
                 left out (codec 1), of all columns those above the highest that is not all zeros (codec 2), and all of `seq`,
                 which rises by one from `seq_first` on, with the two lowest of `t` behind the compressed rest (codec 3)
    kind META    payload = msgpack {"actor": [id, name, kind, parent]}, {"kind": [id, name]} or {"text": [number, text]}
    kind FOOTER  payload = msgpack {"frames", "rows", "closed"}: the file is complete; closed = the run's last file

A torn tail is a frame that is cut short or whose crc fails; a damaged middle is skipped to the next magic whose crc
holds.  Nothing here opens a file.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Collection
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

from warrenmq.errors import CallerError
from warrenmq.trace.packing import int64s, pack, unpack, unpack_into
from warrenmq.trace.schema import COLUMNS

ROW = struct.Struct(f"<{len(COLUMNS)}q")
"""One row; `who` is its last word."""

CHECK_BYTES = 2
"""The last bytes of a row are its check, in a slab only (slab.py): `who` is what remains."""

FRAME = struct.Struct("<4sBBHIIIqqqq")
MAGIC = b"WTRB"
_CRC_AT = 12
MAX_PAYLOAD = 1 << 28
"""The longest frame: a length above it is garbage."""

_WITHOUT_SEQ = 3
_SORTED = 4
_NOISE = 2
"""The planes of t that codec 3 does not compress."""
_PLANES = 8


class Kind(IntEnum):
    """The kind of a frame."""

    ROWS = 1
    META = 2
    FOOTER = 3


class Frame(NamedTuple):
    """One frame as found in a file; `offset` is where it begins."""

    offset: int
    kind: int
    codec: int
    rows: int
    who: int
    seq_first: int
    t_first: int
    t_last: int
    payload: memoryview

    @property
    def end(self) -> int:
        return self.offset + FRAME.size + len(self.payload)


def _frame(
    kind: Kind,
    codec: int,
    payload: bytes,
    rows: int = 0,
    who: int = 0,
    seq_first: int = 0,
    t_first: int = 0,
    t_last: int = 0,
) -> bytes:
    rest = (rows, who, seq_first, t_first, t_last)
    bare = FRAME.pack(MAGIC, kind, codec, 0, len(payload), 0, *rest)
    crc = zlib.crc32(payload, zlib.crc32(bare))
    return FRAME.pack(MAGIC, kind, codec, 0, len(payload), crc, *rest) + payload


def encode_rows(raw: bytes) -> bytes:
    """The ROWS frame of rows as they are in a slab (at least one): of one actor, with checks, without a gap in seq."""
    n = len(raw) // ROW.size
    t_first, seq_first, *_ = ROW.unpack_from(raw, 0)
    t_last, *_, who = ROW.unpack(raw[-ROW.size : -CHECK_BYTES] + bytes(CHECK_BYTES))
    return _frame(Kind.ROWS, _SORTED, pack(raw), n, who, seq_first, t_first, t_last)


def encode_meta(meta: dict[str, Any]) -> bytes:
    return _frame(Kind.META, 0, msgpack.packb(meta))


def encode_footer(frames: int, rows: int, *, closed: bool) -> bytes:
    return _frame(Kind.FOOTER, 0, msgpack.packb({"frames": frames, "rows": rows, "closed": closed}))


def decode_map(frame: Frame) -> dict[str, Any]:
    """The content of a META or FOOTER frame."""
    result: dict[str, Any] = msgpack.unpackb(frame.payload)
    return result


def decode_columns(frame: Frame, wanted: Collection[str] = COLUMNS) -> list[memoryview]:
    """The nine columns of a ROWS frame, each a memoryview of int64 ('q'), in the order of COLUMNS.

    A column this version does not know is left out, one the writer did not know is all zeros; so is one that is not wanted.
    CallerError for a codec of a later version.
    """
    if frame.codec > _SORTED:
        msg = f"rows of the trace have codec {frame.codec}, which a later version of warrenmq writes; read it with that version"
        raise CallerError(msg)
    n = frame.rows
    if frame.codec == _SORTED:
        return unpack(frame.payload, n, frame.who >> 16, frame.seq_first, wanted)
    has_seq = frame.codec != _WITHOUT_SEQ
    noise = 0 if has_seq else n * _NOISE
    end = len(frame.payload) - noise
    packed: dict[str, bytes] = msgpack.unpackb(zlib.decompress(frame.payload[:end]))
    if not has_seq:
        packed["t"] = bytes(frame.payload[end:]) + packed.get("t", b"")
    columns = []
    for name in COLUMNS:
        if name == "seq" and not has_seq and name in wanted:
            columns.append(memoryview(array("q", range(frame.seq_first, frame.seq_first + n))))
            continue
        planes = packed.get(name) if name in wanted else None
        values = bytearray(n * _PLANES)
        if planes is not None:
            for byte in range(len(planes) // n):
                values[byte::_PLANES] = planes[byte * n : byte * n + n]
        columns.append(memoryview(int64s(values)))
    return columns


Stored = Frame | list[memoryview]
"""Rows as they stand in a file: a ROWS frame, or, of rows in a slab, their columns."""


def columns_of(stored: Stored, wanted: Collection[str] = COLUMNS) -> list[memoryview]:
    """The nine columns of stored rows, as decode_columns returns them."""
    return decode_columns(stored, wanted) if isinstance(stored, Frame) else stored


def decode_into(table: Any, stored: Stored, wanted: Collection[str] = COLUMNS) -> None:
    """Write the nine columns of stored rows into the rows of a numpy array: half the cost of decode_columns,
    whose columns would be copied.
    """
    if isinstance(stored, Frame) and stored.codec == _SORTED:
        unpack_into(table, stored.payload, stored.who >> 16, stored.seq_first, wanted)
        return
    for row, column in zip(table, columns_of(stored, wanted), strict=True):
        row[:] = column


def raw_columns(raw: bytes) -> list[memoryview]:
    """Split rows as they are in a slab, without their checks, into columns."""
    words = int64s(raw)
    width = len(COLUMNS)
    return [memoryview(words[i::width]) for i in range(width)]


def frame_at(data: memoryview, offset: int) -> Frame | None:
    """The whole and undamaged frame at `offset`, if there is one."""
    if offset + FRAME.size > len(data):
        return None
    magic, kind, codec, _, length, crc, *rest = FRAME.unpack_from(data, offset)
    start = offset + FRAME.size
    if magic != MAGIC or length > MAX_PAYLOAD or start + length > len(data):
        return None
    payload = data[start : start + length]
    bare = bytearray(data[offset:start])
    bare[_CRC_AT : _CRC_AT + 4] = bytes(4)
    if zlib.crc32(payload, zlib.crc32(bare)) != crc:
        return None
    rows, who, seq_first, t_first, t_last = rest
    return Frame(offset, kind, codec, rows, who, seq_first, t_first, t_last, payload)


def next_frame(data: memoryview, offset: int) -> Frame | None:
    """The first whole frame at or after `offset`: how a reader gets past damage, or starts anywhere."""
    text = data.obj
    while True:
        at = _find(text, offset)
        if at < 0:
            return None
        frame = frame_at(data, at)
        if frame is not None:
            return frame
        offset = at + 1


def _find(text: Any, offset: int) -> int:
    """`find` of bytes, bytearray and mmap alike."""
    at: int = text.find(MAGIC, offset)
    return at
