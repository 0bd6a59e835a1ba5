"""Packs the rows of a frame: sorted by event, as byte planes, in less than five bytes a row.

    |0           |9                                                      |-rows
    +------------+-------------------------------------------------------+-------------------+
    | which      | zlib level 1 of: steps | events | the other planes    | lowest plane of t |
    +------------+-------------------------------------------------------+-------------------+

A plane is one byte of each row: the lowest of `msg`, the one above it, and so on.  Rows that follow each other are of different
events, but those of one event resemble each other; so all but the times are sorted by event, those of one event in their order.
`events` has the event of each row as it was written, from which a reader sorts back.

`which` has a bit for each byte of a row: 1 if its plane is there, the others are all zeros.  `seq`, which rises by one, the actor
and the check of a row have no planes.  The lowest plane of t is random: compressed it takes more room, and a seventh of the time.

`steps` are the planes of numbers that rise, joined, each byte as the difference to the one before it.  Read as one large number,
lowest byte first, the planes times 256 are the planes one byte further; so the differences are 255 times the number, and a
division brings the planes back.  Both run in C, as everything here that touches each row but one loop in either direction.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Collection
from functools import lru_cache

from warrenmq.trace.schema import COLUMNS

_ROW_BYTES = 8 * len(COLUMNS)
_START = {name: 8 * number for number, name in enumerate(COLUMNS)}
_FLAG = _START["who"]
_EVENT = _FLAG + 1
_WHICH_BYTES = 9

_FIRST, _SORTED_BYTES = _START["msg"], _FLAG + 1 - _START["msg"]
_SORTED = f"{_FIRST}x{_SORTED_BYTES}s{_ROW_BYTES - _FIRST - _SORTED_BYTES}x"
"""The bytes of a row that are sorted, for struct: from `msg` up to the flag."""
_TIMES = range(1, 8)
"""The planes of t that are compressed."""
_STEPS = (1, 2, _START["msg"], _START["pseq"], _START["a"])
"""The planes that are stored as steps: two of t, and the lowest of columns that hold ids, rows and sequence ids."""
_STEP = 255
"""The factor that leaves the differences between the bytes of a number."""
_OTHERS = [byte for byte in (*_TIMES, *range(_FIRST, _FLAG + 1)) if byte not in _STEPS]

Columns = list[memoryview]


@lru_cache(8)
def _splitter(rows: int, form: str) -> Callable[[bytes | bytearray], tuple[bytes, ...]]:
    """Cut the bytes of rows into one piece a row, or into what `form` keeps of each."""
    return struct.Struct(form * rows).unpack


def pack(raw: bytes) -> bytes:
    """Pack rows as they are in a slab: of one actor, without a gap in seq."""
    rows = len(raw) // _ROW_BYTES
    events = raw[_EVENT::_ROW_BYTES]
    of_event: dict[int, list[bytes]] = {event: [] for event in sorted(set(events))}
    for event, row in zip(events, _splitter(rows, _SORTED)(raw), strict=True):
        of_event[event].append(row)
    ordered = b"".join([b"".join(some) for some in of_event.values()])
    planes = {byte: raw[byte::_ROW_BYTES] for byte in _TIMES}
    planes |= {_FIRST + byte: ordered[byte::_SORTED_BYTES] for byte in range(_SORTED_BYTES)}
    zeros = bytes(rows)
    steps = [byte for byte in _STEPS if planes[byte] != zeros]
    others = [byte for byte in _OTHERS if planes[byte] != zeros]
    which = sum([1 << byte for byte in steps + others])
    rising = b"".join([planes[byte] for byte in steps])
    stepped = (int.from_bytes(rising, "little") * _STEP).to_bytes(len(rising) + 1, "little")
    joined = b"".join([stepped, events, *[planes[byte] for byte in others]])
    return b"".join((which.to_bytes(_WHICH_BYTES, "little"), zlib.compress(joined, 1), raw[::_ROW_BYTES]))


def unpack(payload: memoryview, rows: int, actor: int, seq_first: int, wanted: Collection[str]) -> Columns:
    """The nine columns of packed rows, as block.decode_columns returns them."""
    which = int.from_bytes(payload[:_WHICH_BYTES], "little")
    steps = [byte for byte in _STEPS if which >> byte & 1]
    others = [byte for byte in _OTHERS if which >> byte & 1]
    data = zlib.decompress(payload[_WHICH_BYTES:-rows])
    size = len(steps) * rows
    rising = (int.from_bytes(data[: size + 1], "little") // _STEP).to_bytes(size, "little")
    planes = rising + data[size + 1 + rows :]
    events = data[size + 1 : size + 1 + rows]

    names = [name for name in COLUMNS if name in wanted and name not in ("t", "seq")]
    places = {COLUMNS.index(name): 8 * number for number, name in enumerate(names)}
    width = 8 * len(names)
    counts = {event: rows - len(events.translate(None, bytes([event]))) for event in sorted(set(events))}
    who_bytes = 8 if "who" in wanted else 0
    ordered = bytearray().join(
        [(bytes(width - who_bytes) + _who(actor, event)[:who_bytes]) * n for event, n in counts.items()]
    )
    times = bytearray(8 * rows)
    times[::8] = payload[-rows:]
    for number, byte in enumerate(steps + others):
        column, above = divmod(byte, 8)
        if column == 0:
            times[above::8] = planes[number * rows : (number + 1) * rows]
        elif column in places:
            ordered[places[column] + above :: width] = planes[number * rows : (number + 1) * rows]
    found = {"t": memoryview(int64s(times))}
    if "seq" in wanted:
        found["seq"] = memoryview(int64s(_consecutive(seq_first, rows)))
    if names:
        found |= zip(names, _as_written(ordered, events, counts, len(names)), strict=True)
    nothing = memoryview(bytes(8 * rows)).cast("q")
    return [found.get(name, nothing) for name in COLUMNS]


def _who(actor: int, event: int) -> bytes:
    """The bytes of `who` with the flag 0."""
    return (actor << 16 | event << 8).to_bytes(8, "little")


def _as_written(ordered: bytearray, events: bytes, counts: dict[int, int], columns: int) -> Columns:
    """The columns of rows that are sorted by event, in the order in which they were written."""
    if "numpy" in sys.modules:  # loaded by what reads the rows; a broker does not load it for this
        import numpy as np  # noqa: PLC0415 - see above

        places = np.frombuffer(events, "u1").argsort(kind="stable")
        rows = np.empty((len(events), columns), "i8")
        rows[places] = np.frombuffer(ordered, "<i8").reshape(-1, columns)
        return [column.data.cast("B").cast("q") for column in rows.T.copy()]
    pieces, following, at = _splitter(len(events), f"{8 * columns}s")(ordered), {}, 0
    for event, n in counts.items():
        following[event] = iter(pieces[at : at + n])
        at += n
    words = int64s(b"".join(map(next, map(following.__getitem__, events))))
    return [memoryview(words[number::columns]) for number in range(columns)]


def _consecutive(first: int, rows: int) -> bytes:
    """Numbers from `first` on as int64s, four times as quickly as array("q", range(...)) makes them."""
    ones, counted = _of_rows(rows)
    return (first * ones + counted).to_bytes(8 * rows, "little")


@lru_cache(8)
def _of_rows(rows: int) -> tuple[int, int]:
    """So many int64s that are all 1, and 0, 1, 2, ..., each as one large number."""
    ones, counted = struct.pack(f"<{rows}q", *[1] * rows), struct.pack(f"<{rows}q", *range(rows))
    return int.from_bytes(ones, "little"), int.from_bytes(counted, "little")


def int64s(data: bytes | bytearray) -> array[int]:
    """Little-endian bytes as this machine's int64."""
    words = array("q", bytes(data))
    if sys.byteorder != "little":
        words.byteswap()
    return words
