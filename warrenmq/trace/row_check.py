"""The check of a row in a slab: 16 bits by which a reader knows a row that was changed, or of which only a
part came to the disk.

It is CPython's hash of a tuple of numbers, because nothing else in Python that mixes eleven numbers is nearly
as quick (0.1 us; zlib.crc32 of the packed row takes twice that), and every row pays for it.  For the same
reason a writer hashes only the columns that its event uses, all others are 0; the header of the slab file
lists them.  A file must outlive the Python that wrote it, so the hash is spelled out here (`mixed`), and used
where this Python's own hash is another one.

The check cannot tell a column that is -1 from one that is -2, which CPython gives the same hash; no rule asks
which of the two it is.

Source: tuplehash in CPython's Objects/tupleobject.c (xxHash, since 3.8), long_hash in Objects/longobject.c.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection

from warrenmq.trace.schema import FLAG, STORED

SLAB_ROW = struct.Struct("<8qBBIH")
"""A row as it stands in a slab: t, seq, msg, peer, pseq, a, b, c, then `who` as its parts flag, event and
actor, then the check.
"""

CHECK_MASK = 0xFFFF

_PRIME_1, _PRIME_2, _PRIME_5 = 11400714785074694791, 14029467366897019727, 2870177450012600261
_MODULUS = (1 << 61) - 1
_BITS = (1 << 64) - 1


def mixed(columns: tuple[int, ...]) -> int:
    """The hash() of a tuple of numbers in CPython on a 64-bit machine."""
    mixture = _PRIME_5
    for column in columns:
        lane = abs(column) % _MODULUS * (-1 if column < 0 else 1)
        mixture = (mixture + (lane if lane != -1 else -2) * _PRIME_2) & _BITS
        mixture = (mixture << 31 | mixture >> 33) & _BITS
        mixture = mixture * _PRIME_1 & _BITS
    mixture = (mixture + (len(columns) ^ _PRIME_5 ^ 3527539)) & _BITS
    if mixture == _BITS:
        return 1546275796
    return mixture - (1 << 64) if mixture >> 63 else mixture


_SAMPLES = [
    tuple(sign * (base + place) ** 3 for place in range(9))
    for sign in (1, -1)
    for base in (0, 1 << 7, 1 << 20)
]

mix: Callable[[tuple[int, ...]], int] = hash if all(hash(each) == mixed(each) for each in _SAMPLES) else mixed


def row_check(numbers: tuple[int, ...]) -> int:
    """The check of a row: t, seq, columns, flag, event and actor, without those columns that the event does not use."""
    return mix(numbers) & CHECK_MASK


_FIRST, _LAST = 2, 8
"""The places in an unpacked row of the columns that an event may leave unused: msg to c and the flag."""
EVERYTHING = (1 << _LAST + 1 - _FIRST) - 1


def layout(places: Collection[str]) -> int:
    """The columns that an event uses, as bits: lowest is msg, highest the flag."""
    return sum(1 << bit for bit, place in enumerate((*STORED, FLAG)) if place in places)


def is_whole(row: tuple[int, ...], check: int, used: int) -> bool:
    """True if the check is that of the row; `used` is its event's layout.

    Rows that did not come from the writer of their event, and those of format 2, have a check of all columns.
    """
    if row_check(row) == check:
        return True
    columns = range(_FIRST, _LAST + 1)
    if any(row[at] for at in columns if not used >> at - _FIRST & 1):
        return False
    kept = (row[at] for at in columns if used >> at - _FIRST & 1)
    return row_check((*row[:_FIRST], *kept, *row[_LAST + 1 :])) == check
