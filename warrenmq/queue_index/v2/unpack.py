"""Reading messages that are alike back from the two files of a segment, as columns: the counterpart of `pack_alike`.

Messages that were written together mostly have entries which differ in the offset alone, and bodies of one
size, one behind the other.  Their entries are compared, all at once, with those that such a run would have;
heads and checksums of the bodies are compared as columns.  All else, damage included, is left to the reader
of single messages (segment_files.py): nothing is reported here.

Source: docs/reference/classic-queue.md#index-operations and #store-files.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from operator import add
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from warrenmq.message.columns import WIDTH, column, xored
from warrenmq.message.queue_message import FEW
from warrenmq.message.stored import FRONT, MASK, SEALED
from warrenmq.queue_index.record import HEADER, ID_BYTES, columns
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.pack import alike_entries

_IN_QS = int(qi.Location.QUEUE_STORE)
_NO_ID = bytes(ID_BYTES)
_HEAD = Struct(">IBHx3sII")
"""The header of a body in the .qs file, and FRONT."""
_HAS_CRC_AT, _CHECKSUM_AT = 4, range(11, 15)
_DIFFERENT = (_HAS_CRC_AT, 5, 6, *_CHECKSUM_AT)
"""The places in which messages of a run may differ."""


class Run(NamedTuple):
    """Persistent messages with bodies of one size in the .qs file, one behind the other."""

    messages: int
    offset: int
    """The offset of the first body's header."""
    stored: int
    """Bytes of the data of each, without its header."""
    size: int
    """Bytes of each message's body."""
    expiry: int

    @property
    def length(self) -> int:
        """Bytes in the .qs file."""
        return self.messages * (qs.ENTRY_HEADER_BYTES + self.stored)


def run_of(entries: bytes) -> Run | None:
    """The run that entries begin with, as long as it goes on; None if it has fewer than FEW messages."""
    count = len(entries) // qi.ENTRY_BYTES
    if count < FEW:
        return None
    status, flags, zero, location, offset, stored, nothing, size, expiry = qi.ENTRY.unpack_from(entries)
    if (status, flags, zero, location, nothing) != (
        qi.LIVE,
        qi.PERSISTENT,
        0,
        _IN_QS,
        0,
    ) or stored <= FRONT.size:
        return None
    if offset < qi.HEADER_BYTES or qi.entry_problem(entries) is not None:
        return None
    like = alike_entries(count, flags, offset, stored, size, expiry)
    if entries != like:
        count = _equal(entries, like) // qi.ENTRY_BYTES
    return Run(count, offset, stored, size, expiry) if count >= FEW else None


def _equal(a: bytes, b: bytearray) -> int:
    """The number of bytes at the beginning that are the same in both, which have one length."""
    low, high = 0, len(a)
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@lru_cache(maxsize=256)
def _layout(stored: int) -> Struct:
    """A message in the .qs file: its header and FRONT, and the rest of it."""
    return Struct(f"{_HEAD.size}s{stored - FRONT.size}s")


def records_of_run(run: Run, data: bytes, first_seq_id: int) -> list[bytes]:
    """The index records of a run, given its bytes of the .qs file; none if anything in them is not as it has to be."""
    if len(data) != run.length:
        return []
    heads, rests = columns(_layout(run.stored).iter_unpack(data), 2)
    found, like = b"".join(heads), bytearray(_HEAD.pack(run.stored, 0, 0, SEALED, 0, run.size) * run.messages)
    for at in _DIFFERENT:
        like[at :: _HEAD.size] = found[at :: _HEAD.size]
    if found != like or max(found[_HAS_CRC_AT :: _HEAD.size]) > qs.HAS_CRC:
        return []
    checksums = bytearray(WIDTH * run.messages)
    for low, at in enumerate(_CHECKSUM_AT, WIDTH - len(_CHECKSUM_AT)):
        checksums[low::WIDTH] = found[at :: _HEAD.size]
    computed = column(map(crc32, rests, repeat(crc32(run.size.to_bytes(4, "big")))))
    seq_ids = column(map(MASK.__and__, range(first_seq_id, first_seq_id + run.messages)))
    if xored(checksums, computed) != seq_ids:
        return []
    header = HEADER.pack(_NO_ID, run.expiry, run.size, run.stored)
    fronts = [header + head[qs.ENTRY_HEADER_BYTES :] for head in heads]
    return list(map(add, fronts, rests))
