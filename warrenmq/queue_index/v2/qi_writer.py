"""What a flush writes to the .qi file of a segment: entries, acks, and how they join into few writes.

Pure functions over sequence ids and records; files are queue_index/v2/index.py's business.

Source: rabbit_classic_queue_index_v2:flush_buffer, docs/reference/classic-queue.md#index-operations.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warrenmq.message.runs import runs
from warrenmq.queue_index.record import HEADER, HEADER_BYTES
from warrenmq.queue_index.v2 import qi

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_pack, _unpack_record = qi.ENTRY.pack, HEADER.unpack_from
_LIVE, _IN_QS = qi.LIVE, int(qi.Location.QUEUE_STORE)
_IN_STORE = tuple(bytes((qi.LIVE, flags, 0, qi.Location.STORE)) for flags in (0, qi.PERSISTENT))


@dataclass(slots=True)
class SegmentV2:
    """What a queue knows of one segment in memory."""

    number: int
    unacked: int = 0
    """Published, not acked: on disk and in the buffer together."""
    on_disk: bool = False
    """There is a .qi file."""


def newest_that_fit(records: dict[int, bytes], most: int) -> dict[int, bytes]:
    """The last records that have no more than `most` bytes together, in order."""
    kept: list[tuple[int, bytes]] = []
    for seq_id, record in reversed(records.items()):
        most -= len(record)
        if most < 0:
            return dict(reversed(kept))
        kept.append((seq_id, record))
    return records


def by_segment(seq_ids: list[int], entry_count: int) -> Iterator[tuple[int, list[int]]]:
    """Ascending sequence ids, cut where a segment ends: (number, those in it)."""
    at = 0
    while at < len(seq_ids):
        number = seq_ids[at] // entry_count
        end = bisect_left(seq_ids, (number + 1) * entry_count, at)
        yield number, seq_ids[at:end]
        at = end


def pack_entries(records: list[bytes], flags: list[int], offsets: Iterable[int]) -> list[bytes]:
    """An entry for each record; `offsets` are those of the records that carry a message."""
    places = iter(offsets)
    entries: list[bytes] = []
    for record, persistent in zip(records, flags, strict=True):
        _, expiry, size, stored = _unpack_record(record)
        if len(record) > HEADER_BYTES:
            entries.append(_pack(_LIVE, persistent, 0, _IN_QS, next(places), stored, 0, size, expiry))
        else:
            entries.append(b"".join((_IN_STORE[persistent], record[:16], record[24:28], record[16:24])))
    return entries


def adjacent(
    base: int, published: list[int], entries: list[bytes], acked: list[int]
) -> list[tuple[int, bytes]]:
    """One write for each run of neighbours: (position in the segment, bytes); an ack is an entry of zeros."""
    if not acked and published[-1] - published[0] + 1 == len(published):
        return [(published[0] - base, b"".join(entries))]
    if not published:
        return [(first - base, bytes(qi.ENTRY_BYTES * count)) for first, count in runs(acked)]
    new = dict(zip(published, entries, strict=True))
    return [
        (first - base, b"".join([new.get(seq_id, qi.ACKED) for seq_id in range(first, first + count)]))
        for first, count in runs(sorted([*published, *acked]))
    ]
