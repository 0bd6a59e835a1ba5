"""Compact a file in place: its last records move into the holes at its front (rabbit_msg_store_gc since 3.13;
docs/reference/message-store.md#compaction).

    A x B x x C x D            x: garbage, or a record without references

    1  zeros into the holes, the first one too                      datasync      A . B . . C . D
    2  copies into the holes, all but the marker, the last byte     datasync      A d B c . C . D
    3  the markers                                                  datasync      A D B C . C . D
    4  the index names the new places
    5  when no reader is left that began before 4: truncate                       A D B C

No live byte is overwritten before 5, so readers go on all the time: a place that was looked up before 4 still has the record
there, and is waited for.

A crash leaves each record whole in its old place until 5, and from 3 on in its new one too.  A copy counts only when it
has its marker, and it gets that when the rest of it is on the disk: so there is no torn copy that looks like a record.
(In RabbitMQ a copy whose head and marker arrived, but not its middle, wins over the good record behind it: defect S39 in
docs/defects.md.  Blanking first is what makes 2 safe: what a hole holds might end in a marker by chance.)

Two plans.  RabbitMQ's tries only the last record for each hole (`two_cursors`), and stays as it is when that record is
larger than every hole, however much garbage there is.  Then `gather` moves whatever fits, smallest first, and the
places that this vacates are larger holes for the next time.  It finds nothing to move only if each hole is smaller
than the record behind it, and then less than half of the file is garbage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop
from typing import NamedTuple, TypeAlias

from warrenmq.errors import CorruptFile
from warrenmq.message_store.gc_plan import is_mostly_garbage
from warrenmq.seams.disk import Disk, File

Span: TypeAlias = tuple[int, int]
"""(offset, length); of a record: (offset, total size)"""

RUN = 1 << 20
"""Bytes that are written at once, at least one record."""


class Move(NamedTuple):
    """A record gets a new place, left of its old one."""

    source: int
    target: int
    total: int


@dataclass(slots=True, frozen=True)
class Plan:
    """The plan of one compaction."""

    moves: list[Move]
    """The moves, in ascending order of their targets."""
    size: int
    """The size of the file after the compaction."""
    holes: list[Span]
    """Ranges to blank first: everything between records that begins before `size`, so that nothing is left of what a copy
    overwrites in part."""
    vacated: list[Span]
    """Ranges to blank when the old places are not needed any more: those before `size`."""


def plan(records: Sequence[Span]) -> Plan:
    """Compact a file with these records, in order of offset; whatever is not in them is garbage."""
    moves, size = two_cursors(records)
    if is_mostly_garbage(sum(total for _, total in records), size):
        moves, size = gather(records)
    return Plan(
        moves,
        size,
        list(_holes(records, size)),
        sorted((m.source, m.total) for m in moves if m.source < size),
    )


def two_cursors(records: Sequence[Span]) -> tuple[list[Move], int]:
    """RabbitMQ's plan: (moves, size).

    S walks the records from the left, E from the right, O is where the next copy would go.

    | the record at E                       | then                                          |
    | ------------------------------------- | --------------------------------------------- |
    | fits between O and S                  | it moves to O; O is behind it; E is the one   |
    |                                       | before; if that was S, stop: the file ends at O |
    | does not, and E is S                  | stop: the file ends behind S                  |
    | does not                              | O is behind S; S is the next one              |
    """
    moves: list[Move] = []
    write, first, last = 0, 0, len(records) - 1
    while first <= last:
        offset, total = records[last]
        start, length = records[first]
        if total <= start - write:
            moves.append(Move(offset, write, total))
            write += total
            last -= 1
        else:
            write = start + length
            first += 1
    return moves, write


def gather(records: Sequence[Span]) -> tuple[list[Move], int]:
    """Fill each hole, from the left, with the smallest records behind it, of equal ones the last: (moves, size)."""
    moves: list[Move] = []
    smallest = [(total, -offset) for offset, total in records]
    heapify(smallest)
    for start, length in _holes(records, records[-1][0] if records else 0):
        write, end = start, start + length
        while smallest:
            total, offset = smallest[0][0], -smallest[0][1]
            if offset > start:
                if total > end - write:
                    break
                moves.append(Move(offset, write, total))
                write += total
            heappop(smallest)  # moved, or left of this hole and of all that follow
    moved = {move.source for move in moves}
    ends = [move.target + move.total for move in moves]
    ends += [offset + total for offset, total in records if offset not in moved]
    return moves, max(ends, default=0)


def _holes(records: Iterable[Span], size: int) -> Iterator[Span]:
    """The ranges between the records that begin before `size`."""
    end = 0
    for offset, total in records:
        if end >= size:
            return
        if offset > end:
            yield end, offset - end
        end = offset + total


def fill_holes(disk: Disk, path: str, todo: Plan) -> None:
    """Steps 1 to 3.  After an error, or a crash, every record is still in its old place."""
    file = disk.open(path)
    try:
        file.datasync()  # copies of a killed collector: such a copy in a hole may be the only durable one
        if todo.holes:
            _blank(file, todo.holes)
            file.datasync()
        if todo.moves:
            markers = _copy(file, todo.moves)
            file.datasync()
            for offset, marker in markers:
                file.pwrite(marker, offset)
            file.datasync()
    finally:
        file.close()


def truncate(disk: Disk, path: str, size: int, vacated: list[Span]) -> None:
    """Step 5; synced, so that a dump with the new size stays true."""
    file = disk.open(path)
    try:
        _blank(file, vacated)
        file.truncate(size)
        file.datasync()
    finally:
        file.close()


def _blank(file: File, spans: list[Span]) -> None:
    for offset, length in spans:
        for at in range(offset, offset + length, RUN):
            file.pwrite(bytes(min(RUN, offset + length - at)), at)


def _copy(file: File, moves: list[Move]) -> list[tuple[int, bytes]]:
    """Copy records without their last bytes; returns those, with their places."""
    markers: list[tuple[int, bytes]] = []
    parts: list[bytes] = []
    start = end = 0
    for source, target, total in moves:
        record = file.pread(total, source)
        if len(record) < total:
            raise CorruptFile(file.path, source + len(record), "the file ends within a record")
        if target != end or end - start + total > RUN:
            if parts:
                file.pwrite(b"".join(parts), start)
            parts, start = [], target
        parts += (record[:-1], b"\0")
        end = target + total
        markers.append((end - 1, record[-1:]))
    if parts:
        file.pwrite(b"".join(parts), start)
    return markers
