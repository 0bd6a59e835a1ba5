"""The check of a row in a slab: 16 bits that tell a row from one that was changed, or that was half of it lost.

It is made of the hash that CPython has for a tuple of numbers, because nothing else in Python that mixes eleven numbers is nearly as
quick (0.1 us; zlib.crc32 of the packed row, twice that), and every row pays for it.  A file must outlive the Python that wrote it, so
the hash is spelled out here (`mixed`), and is what is used where this Python's own is another one.

It cannot tell a column that is -1 from one that is -2, which CPython gives the same hash; no rule asks which of the two it is.

Source: tuplehash in CPython's Objects/tupleobject.c (xxHash, since 3.8), long_hash in Objects/longobject.c.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

SLAB_ROW = struct.Struct("<8qBBIH")
"""A row as it stands in a slab: `who` is in its parts (flag, event, actor), and the check is where nothing of it is."""

CHECK_MASK = 0xFFFF

_PRIME_1, _PRIME_2, _PRIME_5 = 11400714785074694791, 14029467366897019727, 2870177450012600261
_MODULUS = (1 << 61) - 1
_BITS = (1 << 64) - 1


def mixed(columns: tuple[int, ...]) -> int:
    """What hash() of a tuple of numbers is in CPython on a 64-bit machine."""
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


def row_check(columns: tuple[int, ...]) -> int:
    """The check of a row: t, seq, msg, peer, pseq, a, b, c, flag, event, actor."""
    return mix(columns) & CHECK_MASK
