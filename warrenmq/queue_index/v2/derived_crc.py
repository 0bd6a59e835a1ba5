"""The checksum of a stored message in a .qs file, derived from the one that the message has itself.

A body in a .qs file has 16 bits of the CRC-32 of the whole stored message.  A stored message of ours begins
with a checksum of everything behind it (message/stored.py), so its bytes were read for a CRC-32 once already.
CRC is linear over XOR, for inputs of one length, and so the second one follows from the first:

    stored message              = front + rest        front = SEALED + c, c = crc32(rest) XOR sequence id
    crc32(front + rest)         = crc32(front + zeros) XOR crc32(rest) XOR crc32(zeros)
    crc32(SEALED + c + zeros)   = XOR of what each byte of c contributes, which a table says

The tables of a length are made when enough messages of that length have been packed to pay for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from zlib import crc32

from warrenmq.message.columns import xored
from warrenmq.message.stored import SEALED

_CHECKSUM_AT = len(SEALED)
_CHECKSUM_BYTES = 4
_BEFORE_REST = _CHECKSUM_AT + _CHECKSUM_BYTES
_LOW = 0xFFFF
WORTH = 512
"""The number of messages of one length whose checksums cost about as much as the tables."""


class DerivedCrc:
    """The checksums of stored messages of one length.

    _asked    messages since it was made
    _tables   for each byte of a message's checksum, what it contributes to the first and to the second byte of
              the result; once they are worth it
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._asked = 0
        self._tables: list[tuple[bytes, bytes]] = []

    def of(self, rows: bytes | bytearray, row: int, at: int, seq_ids: bytes) -> tuple[bytes, bytes] | None:
        """The first and the second bytes of the checksums, for messages that begin at `at` in rows of `row` bytes.

        `seq_ids` is the column of their sequence ids.  None if a message is not SEALED, or as long as the
        tables are not worth it.
        """
        count = len(rows) // row
        self._asked += count
        if self._asked < WORTH or any(
            rows[at + place :: row].count(byte) != count for place, byte in enumerate(SEALED)
        ):
            return None
        self._tables = self._tables or list(_tables(self._length))
        checksums = [rows[at + _CHECKSUM_AT + place :: row] for place in range(_CHECKSUM_BYTES)]
        high, low = (
            xored(
                *(
                    column.translate(tables[byte])
                    for column, tables in zip(checksums, self._tables, strict=True)
                ),
                seq_ids[6 + byte :: 8],
            )
            for byte in range(2)
        )
        return high, low


def _tables(length: int) -> Iterator[tuple[bytes, bytes]]:
    zeros = bytes(length - _BEFORE_REST)
    of_zero = crc32(zeros, crc32(SEALED + bytes(_CHECKSUM_BYTES))) & _LOW
    for place in range(_CHECKSUM_BYTES):
        each = [of_zero ^ crc32(zeros) & _LOW if place == 0 else 0]
        for bit in range(8):
            checksum = (1 << bit) << 8 * (_CHECKSUM_BYTES - 1 - place)
            front = SEALED + checksum.to_bytes(_CHECKSUM_BYTES, "big")
            # crc32(rest) is the checksum XOR the sequence id
            more = crc32(zeros, crc32(front)) & _LOW ^ of_zero ^ checksum & _LOW
            each += [so_far ^ more for so_far in each]
        yield bytes(value >> 8 for value in each), bytes(value & 0xFF for value in each)


derived_crc = lru_cache(maxsize=64)(DerivedCrc)
"""The one of a length, in bytes; at least those of FRONT."""
