"""The queue index's record of a message: one bytes object for journal, segment file and memory alike.

    |0                |16             |24            |28              |32
    +-----------------+---------------+--------------+----------------+-----------------------+
    | message id (16) | expiry (u64)  | size (u32)   | embedded (u32) | stored message, or "" |
    +-----------------+---------------+--------------+----------------+-----------------------+

All numbers are big-endian.  `expiry` is in microseconds since 1970, 0 = none; `size` is the body's; `embedded`
is the length of the stored message that follows (message/stored.py), 0 = the message is in a message store.
Journal and segment put a prefix of their own before it and nothing after it.

The header has no checksum.  A stored message of ours has one of its own, with its body's size in it, and is bound by it to
its sequence id; of others it can be checked whether the three lengths agree with the stored message.

Source: rabbit_queue_index, docs/reference/classic-queue.md#constants-of-version-1, #journal and #segment-files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from operator import xor
from struct import Struct
from typing import Any
from zlib import crc32

from warrenmq.message.stored import CHECKED_FROM, ERLANG_TERM, FRONT, MASK, SEALED, bin_header, problem_of

HEADER = Struct(">16sQII")
HEADER_BYTES = HEADER.size
ID_BYTES = 16

_WARREN_MESSAGE = 0x95
_SEALED_RECORD = Struct(f">24xI4x{FRONT.format[1:]}")
"""The body's size, and the FRONT of the message behind the header."""
_CHECKED_FROM = HEADER_BYTES + CHECKED_FROM
_bin_header = lru_cache(maxsize=4096)(bin_header)


def pack(msg_id: bytes, expiry: int, size: int, stored: bytes = b"") -> bytes:
    """A record; without `stored` the message is in a store."""
    return HEADER.pack(msg_id, expiry, size, len(stored)) + stored


def embedded(record: bytes) -> bool:
    """True if the message travels in the record."""
    return len(record) > HEADER_BYTES


def message_number(record: bytes) -> int:
    """The low 64 bits of the message id that a record begins with: its number in the trace."""
    return int.from_bytes(record[8:ID_BYTES], "big")


def body_size(record: bytes) -> int:
    """Bytes of the body, wherever it is."""
    return int.from_bytes(record[24:28], "big")


def expiry_of(record: bytes) -> int:
    """The message's expiry in microseconds since 1970; 0 = never."""
    return int.from_bytes(record[16:24], "big")


def lengths_agree(data: bytes, start: int, stop: int, size: int) -> bool:
    """True if data[start:stop] can be a stored message whose body has `size` bytes; empty is fine.

    A flipped bit in either length, or in the message's own, is found here.  Of Erlang terms only the first byte is known.
    """
    if start == stop:
        return True
    first = data[start]
    if first != _WARREN_MESSAGE:
        return first == ERLANG_TERM
    header = _bin_header(size)
    place = stop - size - len(header)
    return place > start and data.startswith(header, place)


def message_problem(stored: bytes, seq_id: int, size: int) -> str | None:
    """The reason for which this is not the message with the sequence id whose body has `size` bytes; None if it is, as
    far as that can be checked.
    """
    if not stored.startswith(SEALED) and not lengths_agree(stored, 0, len(stored), size):
        return "a body is shorter or longer than its entry says"
    return problem_of(stored, seq_id, size)


def record_problem(record: bytes, seq_id: int) -> str | None:
    """`message_problem` of a record; None as well if its message is in a store."""
    if len(record) == HEADER_BYTES:
        return None
    return message_problem(record[HEADER_BYTES:], seq_id, body_size(record))


def columns(rows: Iterable[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """The columns of rows of fields, without holding a tuple for each row: the cyclic collector would look at all of them."""
    fields = [*chain.from_iterable(rows)]
    return [fields[column::width] for column in range(width)]


def all_whole(records: Sequence[bytes], seq_ids: Sequence[int]) -> bool:
    """True if `record_problem` finds nothing in any of these, and each has a message of ours with a checksum.

    It compares columns, so it takes a third of the time of one by one.
    """
    if not records or min(map(len, records)) < _SEALED_RECORD.size:
        return False
    sizes, marks, checksums, of_bodies = columns(map(_SEALED_RECORD.unpack_from, records), 4)
    if {*marks} != {SEALED} or sizes != of_bodies:
        return False
    found = [crc32(record[_CHECKED_FROM:]) for record in records]
    return list(map(xor, found, checksums)) == [seq_id & MASK for seq_id in seq_ids]
