"""Packing the bytes that a flush writes to the two files of a segment: bodies with their headers, entries, acks.

Pure functions over sequence ids and records; the files are queue_index/v2/segment_files.py's business.

Messages that are published together mostly differ in their bodies alone.  Their entries are made as columns:
one template for all, in which the bytes that differ (checksums, offsets) are set with one assignment each.  A
message of ours has a checksum of its own, from which that of the file follows (derived_crc.py).

Source: rabbit_classic_queue_index_v2:flush_buffer, rabbit_classic_queue_store_v2:write,
docs/reference/classic-queue.md#index-operations and #store-files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast
from zlib import crc32

from warrenmq.message.columns import column, set_field
from warrenmq.message.queue_message import FEW
from warrenmq.message.runs import runs
from warrenmq.message.stored import FRONT
from warrenmq.queue_index.record import HEADER, HEADER_BYTES
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.derived_crc import derived_crc

_pack, _pack_body_header, _unpack_record = qi.ENTRY.pack, qs.ENTRY_HEADER.pack, HEADER.unpack_from
_LIVE, _IN_QS = qi.LIVE, int(qi.Location.QUEUE_STORE)
_IN_STORE = tuple(bytes((qi.LIVE, flags, 0, qi.Location.STORE)) for flags in (0, qi.PERSISTENT))
_COUNTERS = slice(16, HEADER_BYTES)
"""The counters in a record: expiry, size, embedded size."""
_CRC = 0xFFFF
_OFFSET_AT = 4
"""The place of the body's offset in an entry: eight bytes."""
_CRC_AT = 5
"""The place of the checksum in the header of a body: two bytes."""


@dataclass(slots=True)
class SegmentV2:
    """A segment as its index has it in memory."""

    number: int
    unacked: int = 0
    """Published, not acked: on disk and in the buffer together."""
    on_disk: bool = False
    """There is a .qi file."""


def leave_out_oldest(records: dict[int, bytes], too_many: int) -> dict[int, bytes]:
    """Drop the first records, which have `too_many` bytes together or more; returns the same dict."""
    left_out: list[int] = []
    for seq_id, record in records.items():
        if too_many <= 0:
            break
        too_many -= len(record)
        left_out.append(seq_id)
    for seq_id in left_out:
        del records[seq_id]
    return records


def by_segment(
    published: list[int], acked: list[int], entry_count: int
) -> Iterable[tuple[int, list[int], list[int]]]:
    """Sequence ids, both lists ascending, cut where a segment ends: (number, published in it, acked in it), ascending."""
    if published and not acked and published[0] // entry_count == published[-1] // entry_count:
        return [(published[0] // entry_count, published, acked)]
    new, old = dict(_cut(published, entry_count)), dict(_cut(acked, entry_count))
    return [(number, new.get(number, []), old.get(number, [])) for number in sorted({*new, *old})]


def _cut(seq_ids: list[int], entry_count: int) -> Iterator[tuple[int, list[int]]]:
    at = 0
    while at < len(seq_ids):
        number = seq_ids[at] // entry_count
        end = bisect_left(seq_ids, (number + 1) * entry_count, at)
        yield number, seq_ids[at:end]
        at = end


def pack(seq_ids: list[int], records: list[bytes], flags: list[int], offset: int) -> tuple[bytes, bytes]:
    """The bodies of records as the .qs file has them from `offset` on, and an entry for each record."""
    if len(records) >= FEW and len(records[0]) > HEADER_BYTES and flags.count(flags[0]) == len(flags):
        kind = records[0][_COUNTERS]
        if [record[_COUNTERS] for record in records].count(kind) == len(records):
            return pack_alike(seq_ids, records, flags[0], offset)
    bodies: list[bytes] = []
    entries: list[bytes] = []
    for record, persistent in zip(records, flags, strict=True):
        _, expiry, size, stored = _unpack_record(record)
        if len(record) > HEADER_BYTES:
            body = record[HEADER_BYTES:]
            bodies += (_pack_body_header(stored, qs.HAS_CRC, crc32(body) & _CRC, 0), body)
            entries.append(_pack(_LIVE, persistent, 0, _IN_QS, offset, stored, 0, size, expiry))
            offset += qs.ENTRY_HEADER_BYTES + stored
        else:
            entries.append(b"".join((_IN_STORE[persistent], record[:16], record[24:28], record[16:24])))
    return b"".join(bodies), b"".join(entries)


def pack_alike(seq_ids: list[int], records: list[bytes], persistent: int, offset: int) -> tuple[bytes, bytes]:
    """`pack` of records with a message in each, of one size and one expiry: a third of the time of one by one."""
    _, expiry, size, stored = _unpack_record(records[0])
    length = qs.ENTRY_HEADER_BYTES + stored
    header = bytearray(_pack_body_header(stored, qs.HAS_CRC, 0, 0))
    data = [record[HEADER_BYTES:] for record in records]
    bodies = header.join([b"", *data])  # a header before each
    derived = (
        derived_crc(stored).of(bodies, length, qs.ENTRY_HEADER_BYTES, column(seq_ids))
        if stored > FRONT.size
        else None
    )
    if derived is None:
        set_field(bodies, length, _CRC_AT, 2, column(map(crc32, data)))
    else:
        bodies[_CRC_AT::length], bodies[_CRC_AT + 1 :: length] = derived
    entries = alike_entries(len(records), persistent, offset, stored, size, expiry)
    # any buffer can be written; a copy to bytes would cost as much as all of the above
    return cast("bytes", bodies), cast("bytes", entries)


def alike_entries(count: int, persistent: int, offset: int, stored: int, size: int, expiry: int) -> bytearray:
    """The entries of messages with bodies of one size, which follow each other from `offset` on."""
    length = qs.ENTRY_HEADER_BYTES + stored
    entries = bytearray(_pack(_LIVE, persistent, 0, _IN_QS, 0, stored, 0, size, expiry) * count)
    offsets = column(range(offset, offset + length * count, length))
    set_field(entries, qi.ENTRY_BYTES, _OFFSET_AT, 8, offsets)
    return entries


def adjacent(base: int, published: list[int], entries: bytes, acked: list[int]) -> list[tuple[int, bytes]]:
    """One write for each run of neighbours: (position in the segment, bytes); an ack is an entry of zeros.

    `entries` are those of the published messages, one behind the other.
    """
    pieces = [(first, bytes(qi.ENTRY_BYTES * count)) for first, count in _runs(acked)]
    at = 0
    for first, count in _runs(published):
        end = at + qi.ENTRY_BYTES * count
        pieces.append((first, entries[at:end]))
        at = end
    writes: list[tuple[int, list[bytes]]] = []
    neighbour = -1
    for first, piece in sorted(pieces):
        if first != neighbour:
            writes.append((first - base, []))
        writes[-1][1].append(piece)
        neighbour = first + len(piece) // qi.ENTRY_BYTES
    return [(position, b"".join(together)) for position, together in writes]


def _runs(ascending: list[int]) -> Iterable[tuple[int, int]]:
    """`runs`, at once where there is one only, as of the messages of most rounds, and of the acks."""
    if ascending and ascending[-1] - ascending[0] + 1 == len(ascending):
        return [(ascending[0], len(ascending))]
    return runs(ascending)
