"""A segment file in which all messages are alike, read as columns: most files are, as a flush leaves them.

None of its messages is copied, so a start takes a hundredth of the time that `read_segment` takes
(reader.py), which reads all others.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from warrenmq.message.stored import bin_header
from warrenmq.queue_index.record import HEADER, HEADER_BYTES, lengths_agree
from warrenmq.queue_index.v1 import segment as idx


class Run(NamedTuple):
    """Messages of a segment file that differ in nothing that a start looks at."""

    messages: int
    first: int
    """The lowest position."""
    last: int
    expires: bool
    """True if some of them may have an expiry."""


_MARK_OF_PUBLISH = bytes(
    (each & 0x3F | idx.MARK >> 8) if each >> 6 == (idx.PUBLISH | idx.PERSISTENT) >> 14 else 0xFF
    for each in range(256)
)
"""The first byte of a persistent publish -> that of its mark."""


def alike(data: bytes, entry_count: int) -> Run | None:
    """Sum up a segment file of persistent, embedded messages of one size, each with its mark, none acked.

    None if it is anything else, or has any damage.
    """
    record = idx.MARK_BYTES
    body = record + HEADER_BYTES
    if len(data) <= body:
        return None
    _, _, size, embedded = HEADER.unpack_from(data, record)
    row = body + embedded + idx.MARK_BYTES
    count, rest = divmod(len(data), row)
    if rest or not embedded or count > entry_count or not lengths_agree(data, body, body + embedded, size):
        return None
    first, second = data[::row], data[1::row]
    if first.translate(_MARK_OF_PUBLISH) != data[row - 2 :: row] or second != data[row - 1 :: row]:
        return None
    header = body + embedded - size - len(bin_header(size))
    constant = (*range(record + 24, body + 1), *range(max(header, body), body + embedded - size))
    if any(data[column::row].count(data[column]) != count for column in constant):
        return None
    prefixes = bytearray(2 * count)
    prefixes[::2], prefixes[1::2] = first, second
    positions = {prefix & idx.RELATIVE for prefix in Struct(f">{count}H").unpack(prefixes)}
    if len(positions) < count or max(positions) >= entry_count:
        return None
    expires = any(data[column::row].strip(b"\0") for column in range(record + 16, record + 24))
    return Run(count, min(positions), max(positions), expires)
