"""Packs the rows of a frame in less than five bytes each: sorted by event, turned into planes, compressed.

Rows that follow each other are of different events; those of one event resemble each other.  So all but the
times are sorted by event, those of one event in their order.  A plane is one byte of each row, the lowest of
`msg`, say; where rows resemble each other, so do its bytes, and most planes are all zeros and left out:

    as written             sorted                as planes
    t   msg a event        msg a event           events    S C S C    as written, from which a reader sorts back
    10   7  1 SEND          7  1 SEND            msg       7 8 7 8
    11   7  0 CONFIRM       8  2 SEND            a         1 2 0 0
    12   8  2 SEND          7  0 CONFIRM         t      10 11 12 13    as written
    13   8  0 CONFIRM       8  0 CONFIRM

Planes of numbers that mostly rise are stored as differences, which zlib finds more alike: 7 8 9 10 as 7 1 1
1.  The lowest plane of t is noise and not compressed.  `seq`, which rises by one, the actor and the check of
a row have no planes.

    |0           |9                                                                         |-rows
    +------------+--------------------------------------------------------------------------+-------------------+
    | which      | zlib of: differences of rising planes, one byte, events, the other planes | lowest plane of t |
    +------------+--------------------------------------------------------------------------+-------------------+

`which` has a bit for each byte of a row: 1 if its plane is there.  Everything that touches each row runs in C.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Collection
from functools import lru_cache
from operator import itemgetter
from typing import Any

from warrenmq.trace.schema import COLUMNS

_ROW_BYTES = 8 * len(COLUMNS)
_START = {name: 8 * number for number, name in enumerate(COLUMNS)}
"""The first byte in a row of each column; a plane is known by the place of its byte."""
_FLAG = _START["who"]
_EVENT = _FLAG + 1
_WHICH_BYTES = 9

_TIMES = range(1, 8)
"""The planes of t that are compressed."""
_SORTED = range(_START["msg"], _FLAG + 1)
"""The planes that are sorted by event."""
_RISING = (1, 2, _START["msg"], _START["pseq"], _START["a"])
"""The planes that are stored as differences: two of t, and the lowest of columns that hold ids, rows and sequence ids."""
_OTHERS = [byte for byte in (*_TIMES, *_SORTED) if byte not in _RISING]

_PIECE_BYTES = len(_SORTED) + 1
_PIECE = f"{_SORTED.start}x{_PIECE_BYTES}s{_ROW_BYTES - _SORTED.start - _PIECE_BYTES}x"
"""The columns of a row that are sorted and, last, its event, as a format of struct."""
_event_of = itemgetter(-1)
"""The event of such a piece; a function in C, as a loop of Python's would take as long as zlib."""

Columns = list[memoryview]


def pack(raw: bytes) -> bytes:
    """Pack rows as they are in a slab: of one actor, without a gap in seq."""
    events = raw[_EVENT::_ROW_BYTES]
    pieces = sorted(_splitter(len(events), _PIECE)(raw), key=_event_of)
    ordered = b"".join(pieces)
    planes = {byte: raw[byte::_ROW_BYTES] for byte in _TIMES}
    planes |= {byte: ordered[place::_PIECE_BYTES] for place, byte in enumerate(_SORTED)}
    zeros = bytes(len(events))
    rising = [byte for byte in _RISING if planes[byte] != zeros]
    others = [byte for byte in _OTHERS if planes[byte] != zeros]
    which = sum([1 << byte for byte in rising + others])
    differences = _differences(b"".join([planes[byte] for byte in rising]))
    compressed = _compressed(b"".join([differences, events, *[planes[byte] for byte in others]]))
    return b"".join((which.to_bytes(_WHICH_BYTES, "little"), compressed, raw[::_ROW_BYTES]))


def unpack(payload: memoryview, rows: int, actor: int, seq_first: int, wanted: Collection[str]) -> Columns:
    """The nine columns of packed rows, as block.decode_columns returns them."""
    if "numpy" in sys.modules:  # loaded by what reads the rows; a broker does not load it for this
        import numpy as np  # noqa: PLC0415

        table = np.empty((len(COLUMNS), rows), "<i8")
        unpack_into(table, payload, actor, seq_first, wanted)
        return [column.astype("i8", copy=False).data.cast("B").cast("q") for column in table]

    bytes_there, planes, events = _decompressed(payload, rows)
    names = [name for name in COLUMNS if name in wanted and name not in ("t", "seq")]
    places = {COLUMNS.index(name): 8 * number for number, name in enumerate(names)}
    counts = {event: events.count(event) for event in _distinct(events)}
    ordered = bytearray().join([_blank_row(names, actor, event) * n for event, n in counts.items()])
    times = bytearray(8 * rows)
    times[::8] = payload[-rows:]
    for number, byte in enumerate(bytes_there):
        column, above = divmod(byte, 8)
        if column == 0:
            times[above::8] = planes[number * rows : (number + 1) * rows]
        elif column in places:
            ordered[places[column] + above :: 8 * len(names)] = planes[number * rows : (number + 1) * rows]
    found = {"t": memoryview(int64s(times))}
    if "seq" in wanted:
        found["seq"] = memoryview(int64s(_consecutive(seq_first, rows)))
    if names:
        found |= zip(names, _as_written(ordered, events, counts, len(names)), strict=True)
    nothing = memoryview(bytes(8 * rows)).cast("q")
    return [found.get(name, nothing) for name in COLUMNS]


def unpack_into(
    table: Any, payload: memoryview, actor: int, seq_first: int, wanted: Collection[str] = COLUMNS
) -> None:
    """`unpack` with numpy: fills an array of nine rows, one for each column; of columns that are not wanted with zeros."""
    import numpy as np  # noqa: PLC0415 - a broker that only writes traces does not load it

    rows = table.shape[1]
    bytes_there, planes, events = _decompressed(payload, rows)
    of_planes, of_events = np.frombuffer(planes, "u1").reshape(-1, rows), np.frombuffer(events, "u1")
    order, counted = of_events.argsort(kind="stable"), np.arange(rows)
    ordered = np.zeros((len(COLUMNS), rows), "<i8")
    ordered[-1] = actor << 16
    ordered_bytes, times = ordered.view("u1"), table[0].view("u1")
    ordered_bytes[-1, 1::8] = of_events[order]
    table[0] = 0
    times[::8] = np.frombuffer(payload[-rows:], "u1")
    for byte, plane in zip(bytes_there, of_planes, strict=True):
        column, above = divmod(byte, 8)
        if column == 0:
            times[above::8] = plane
        elif COLUMNS[column] in wanted:
            ordered_bytes[column, above::8] = plane
    places = np.empty(rows, np.intp)
    places[order] = counted
    ordered[2:].take(places, axis=1, out=table[2:], mode="clip")
    np.add(counted, seq_first, out=table[1])


def _decompressed(payload: memoryview, rows: int) -> tuple[list[int], bytes, bytes]:
    """Decompress a payload: the byte of a row that each plane is, the planes, the events."""
    which = int.from_bytes(payload[:_WHICH_BYTES], "little")
    rising, others = ([byte for byte in some if which >> byte & 1] for some in (_RISING, _OTHERS))
    data = zlib.decompress(payload[_WHICH_BYTES:-rows])
    end = len(rising) * rows + 1
    return rising + others, _undone(data[:end]) + data[end + rows :], data[end : end + rows]


def _as_written(ordered: bytearray, events: bytes, counts: dict[int, int], columns: int) -> Columns:
    """The columns of rows that are sorted by event, in the order in which they were written."""
    pieces, following, at = _splitter(len(events), f"{8 * columns}s")(ordered), {}, 0
    for event, n in counts.items():
        following[event] = iter(pieces[at : at + n])
        at += n
    words = int64s(b"".join(map(next, map(following.__getitem__, events))))
    return [memoryview(words[number::columns]) for number in range(columns)]


def _distinct(events: bytes) -> list[int]:
    """The events that occur, ascending; a set of all bytes would take three times as long."""
    found: list[int] = []
    while events:
        found.append(events[0])
        events = events.replace(events[:1], b"")
    return sorted(found)


def _blank_row(names: Collection[str], actor: int, event: int) -> bytes:
    """A row of these columns in which all planes are zeros."""
    blank = bytes(8 * len(names))
    return blank[8:] + (actor << 16 | event << 8).to_bytes(8, "little") if "who" in names else blank


def _differences(data: bytes) -> bytes:
    """Each byte less the one before, with what it borrows from the next; one byte longer.

    Read as a number, lowest byte first, `data` moved on by a byte is 256 times itself; that less itself is 255 times itself.
    """
    return (int.from_bytes(data, "little") * 255).to_bytes(len(data) + 1, "little")


def _undone(differences: bytes) -> bytes:
    """The bytes of which these are the _differences."""
    return (int.from_bytes(differences, "little") // 255).to_bytes(len(differences) - 1, "little")


def _compressed(data: bytes) -> bytes:
    """Compress at level 1.  With its usual 256 KB, malloc gives pages back to the system after each frame,
    and has 20 faults with the next.
    """
    packer = zlib.compressobj(1, wbits=14, memLevel=7)
    return packer.compress(data) + packer.flush()


def _consecutive(first: int, rows: int) -> bytes:
    """Numbers from `first` on as int64s, all at once as one large number: four times as quick as array("q", range(...))."""
    ones, counted = _of_rows(rows)
    return (first * ones + counted).to_bytes(8 * rows, "little")


@lru_cache(8)
def _of_rows(rows: int) -> tuple[int, int]:
    """So many int64s that are all 1, and 0, 1, 2, ..., each as one large number."""
    ones, counted = struct.pack(f"<{rows}q", *[1] * rows), struct.pack(f"<{rows}q", *range(rows))
    return int.from_bytes(ones, "little"), int.from_bytes(counted, "little")


@lru_cache(8)
def _splitter(rows: int, form: str) -> Callable[[bytes | bytearray], tuple[bytes, ...]]:
    """Cut the bytes of rows into one piece a row, or into what `form` keeps of each."""
    return struct.Struct(form * rows).unpack


def int64s(data: bytes | bytearray) -> array[int]:
    """Little-endian bytes as this machine's int64."""
    words = array("q", bytes(data))
    if sys.byteorder != "little":
        words.byteswap()
    return words
