"""Segment files, which hold a queue's messages once they have left the journal.

Segment k holds the sequence ids k*N to (k+1)*N - 1; `relative` is the position within it.  `k.idx` is a run of

    publish    |1|P|relative (14 bits)| record (queue_index/record.py) |     34 bytes and the embedded message
    mark       |0|1|relative (14 bits)|                                 2 bytes

P is 1 for a persistent message.  The first mark of a message means delivered, the second acked.  No record
begins with 00, so a tail of zeros is no record.  Since 3.10 every publish is followed at once by its deliver mark.

A flush appends the entries of one segment in descending order (3.10.8 does; a reader takes any order).  The file
is deleted when nothing in it is unacked.  It is never trusted to be whole: the journal keeps what was
appended until the file has been synced, and parsing reports the bytes that make no sense.

Source: rabbit_queue_index, docs/reference/classic-queue.md#segment-files, #journal-in-memory and #torn-tails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct

from warrenmq.directory.torn import Damage, in_doubt

EXTENSION = ".idx"

PUBLISH = 0x8000
PERSISTENT = 0x4000
MARK = 0x4000
RELATIVE = 0x3FFF
MARK_BYTES = 2

pack_prefix = Struct(">H").pack


@dataclass(slots=True)
class Facts:
    """The facts that a file holds about the messages of one segment, by relative position.

    Facts only add up: that a message was published, delivered or acked never becomes untrue.
    """

    published: dict[int, bytes] = field(default_factory=dict)
    """The records, acked ones included."""
    transient: set[int] = field(default_factory=set)
    """Positions of records that are not persistent."""
    delivered: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    places: dict[int, int] = field(default_factory=dict, compare=False)
    """The offset of each publish in the file."""

    def live(self) -> dict[int, bytes]:
        """Published, not acked, ascending."""
        acked = self.acked
        return {
            relative: record for relative, record in sorted(self.published.items()) if relative not in acked
        }


@dataclass(slots=True)
class Segment:
    """One segment in memory (the record `segment` of rabbit_queue_index).

    A message that is published and acked between two flushes leaves nothing here, so it never reaches the file.
    """

    number: int
    unacked: int = 0
    """Published, not acked: in the file and in memory together."""
    on_disk: bool = False
    """True if the segment has a file."""
    published: dict[int, bytes] = field(default_factory=dict)
    """Publish records that are not yet in the file; a deliver mark goes with each."""
    transient: set[int] = field(default_factory=set)
    """Positions in `published` that are not persistent."""
    delivered: set[int] = field(default_factory=set)
    """Published in the file, but the deliver mark is still to come."""
    acked: set[int] = field(default_factory=set)
    """Published in the file, acked since."""

    def dirty(self) -> bool:
        """True if a flush has anything to append."""
        return bool(self.published or self.acked or self.delivered)

    def to_append(self) -> list[int]:
        """The positions that a flush has something to append for; the largest comes last."""
        return sorted({*self.published, *self.delivered, *self.acked})

    def entries(self, positions: list[int], most: int, offset: int = 0) -> tuple[bytes, list[int]]:
        """The bytes that a flush appends at this offset of the file: entries in descending order, until they
        have `most` bytes.

        Takes their positions off the end of the list, and returns them, too.
        """
        published, transient, delivered, acked = self.published, self.transient, self.delivered, self.acked
        parts: list[bytes] = []
        taken: list[int] = []
        size = 0
        while positions and size < most:
            relative = positions.pop()
            taken.append(relative)
            mark = pack_prefix(MARK | relative)
            if (record := published.get(relative)) is not None:
                kind = PUBLISH if relative in transient else PUBLISH | PERSISTENT
                parts += (pack_prefix(kind | relative), record, mark)
                size += len(record)
            else:
                if relative in delivered:
                    parts.append(mark)
                if relative in acked:
                    parts.append(mark)
        data = b"".join(parts)
        last = data[-MARK_BYTES:]
        if taken and taken[-1] in acked and in_doubt(last, offset + len(data) - len(last)):
            # One ack mark too many says nothing new.  A deliver mark in doubt is left alone: twice it would be an
            # ack, and without it the message only counts as not delivered.
            data += last
        return data, taken

    def flushed(self, positions: list[int]) -> None:
        """Forget these positions: the file has their entries."""
        pop = self.published.pop
        for relative in positions:
            pop(relative, None)
        for each in (self.transient, self.delivered, self.acked):
            each.difference_update(positions)


def what_no_kill_did(damage: list[Damage], data: bytes, journal: Facts) -> list[Damage]:
    """The damage of a segment's file that is not the end of a flush whose process was killed in the middle of a write.

    `journal` is what the journal says of the segment: it keeps what a flush appends until the file is synced.
    """
    last = damage[-1] if damage else None
    if (
        last is None
        or last.offset + last.length < len(data)
        or not _begins_entry(data[last.offset :], journal)
    ):
        return damage
    return damage[:-1]


def _begins_entry(end: bytes, journal: Facts) -> bool:
    """True if the bytes are the beginning of an entry of something that the journal has."""
    for relative, record in journal.published.items():
        kind = PUBLISH if relative in journal.transient else PUBLISH | PERSISTENT
        if (pack_prefix(kind | relative) + record).startswith(end):
            return True
    marked = journal.published.keys() | journal.delivered | journal.acked
    return any(pack_prefix(MARK | relative).startswith(end) for relative in marked)


def split(first_seq_id: int, count: int, entry_count: int) -> Iterator[tuple[int, int, int]]:
    """The segments that a run of sequence ids lies in: (number, first position, how many)."""
    number, relative = divmod(first_seq_id, entry_count)
    while count > 0:
        room = min(count, entry_count - relative)
        yield number, relative, room
        number, relative, count = number + 1, 0, count - room


def next_boundary(seq_id: int, entry_count: int) -> int:
    """The first sequence id of the next segment.

    | seq_id | entry_count | next |
    | ------ | ----------- | ---- |
    | 0      | 8           | 8    |
    | 7      | 8           | 8    |
    | 8      | 8           | 16   |
    """
    return (seq_id // entry_count + 1) * entry_count


def tune_read(start: int, end: int, entry_count: int) -> int:
    """The best end of a read from `start` to `end`: the end of its first segment if that is near (a seventh
    of the read, or one).

    | start, end | entry_count | from start to the segment's end | end tuned          |
    | ---------- | ----------- | ------------------------------- | ------------------ |
    | 0, 70      | 100         | 100: far behind `end`           | 70                 |
    | 0, 90      | 100         | 100: 10 more                    | 100                |
    | 50, 104    | 100         | 50: 4 less                      | 100                |
    | 50, 150    | 100         | 50: far before `end`            | 150                |
    | 98, 99     | 100         | 2: 1 more                       | 100                |

    Source: rabbit_classic_queue_index_v2:tune_read of 4.3, docs/reference/classic-queue.md#index-operations.
    """
    boundary = next_boundary(start, entry_count)
    near = max(1, (end - start) // 7)
    return boundary if abs(boundary - end) <= near else end
