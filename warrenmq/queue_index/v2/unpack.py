"""Reading messages that are alike back from the two files of a segment, as columns: the counterpart of `pack_alike`.

Messages that were written together mostly have entries which differ in the offset alone, and bodies of one size, one behind the
other.  Their entries are compared, all at once, with those that such a run would have; heads and checksums of the
bodies are compared as columns.  Whatever is otherwise, damage included, is left to the reader of single messages
(segment_files.py): nothing is reported here.

Source: docs/reference/classic-queue.md#index-operations and #store-files.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from operator import xor
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from warrenmq.message.queue_message import FEW
from warrenmq.message.stored import CHECKED_FROM, FRONT, MASK, SEALED
from warrenmq.queue_index.record import HEADER, ID_BYTES, columns
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.pack import alike_entries

_IN_QS = int(qi.Location.QUEUE_STORE)
_NO_ID = bytes(ID_BYTES)


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
def _layout(stored: int) -> tuple[Struct, Struct]:
    """The fields before a message's body in the .qs file, and the data."""
    return Struct(f">IBHB3sII{stored - FRONT.size}x"), Struct(f"{qs.ENTRY_HEADER_BYTES}x{stored}s")


def records_of_run(run: Run, data: bytes, first_seq_id: int) -> list[bytes]:
    """The index records of a run, given its bytes of the .qs file; none if anything in them is not as it has to be."""
    if len(data) != run.length:
        return []
    fields, payload = _layout(run.stored)
    sizes, has_crc, _, zeros, marks, checksums, of_bodies = columns(fields.iter_unpack(data), 7)
    if (
        {*sizes} != {run.stored} or max(has_crc) > qs.HAS_CRC or any(zeros)
        or {*marks} != {SEALED} or {*of_bodies} != {run.size}
    ):  # fmt: skip
        return []
    stride, behind, view = qs.ENTRY_HEADER_BYTES + run.stored, run.stored - CHECKED_FROM, memoryview(data)
    start = qs.ENTRY_HEADER_BYTES + CHECKED_FROM
    found = [crc32(view[at : at + behind]) for at in range(start, len(data), stride)]
    seq_ids = [seq_id & MASK for seq_id in range(first_seq_id, first_seq_id + run.messages)]
    if list(map(xor, found, checksums)) != seq_ids:
        return []
    header = HEADER.pack(_NO_ID, run.expiry, run.size, run.stored)
    return list(map(header.__add__, chain.from_iterable(payload.iter_unpack(data))))
