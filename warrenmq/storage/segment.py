"""Segment files: where a queue's messages lie once they have left the journal.

Segment k holds the sequence ids k*N to (k+1)*N - 1; `relative` is the position within it.  `k.idx` is a run of

    publish    |1|P|relative (14 bits)| record (index_record.py) |     34 bytes and the embedded message
    mark       |0|1|relative (14 bits)|                                 2 bytes

P is 1 for a persistent message.  The first mark of a message means delivered, the second acked.  No record
begins with 00, so a tail of zeros is no record.  Since 3.10 every publish is followed at once by its deliver mark.

A flush appends the entries of one segment in descending order (3.10.8 does; a reader takes any order).  The file
is deleted when nothing in it is unacked.  It is never trusted to be whole: the journal keeps what was
appended until the file has been synced, and parsing reports the bytes that make no sense.

Source: rabbit_queue_index, reference/classic-queue.md 1.4, 1.5 and 1.12.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from warrenmq.storage.index_record import lengths_agree

EXTENSION = ".idx"

_PUBLISH = 0x8000
_PERSISTENT = 0x4000
_MARK = 0x4000
_RELATIVE = 0x3FFF
_PUBLISH_BYTES = 34
_MARK_BYTES = 2

SECTOR = 512
"""What a disk writes as a whole."""

_pack_prefix = Struct(">H").pack
_unpack_sizes = Struct(">26xII").unpack_from  # of the body and of the embedded message

_RUN_OF_MARKS = 13
"""26 bytes, more than a message id, so that random bytes are not taken for a run of marks; the expiry after them is
hardly ever anything but zeros."""

_ANY_PUBLISH = re.compile(
    rb"[\x80-\xff]."  # prefix
    rb"(?!\x00{16}).{16}"  # message id
    rb"\x00.{7}"  # expiry: none, or before the year 4253
    rb".{4}(?:\x00{4}|\x00.{3}[\x83\x95])",  # sizes, first byte of an embedded message
    re.DOTALL,
)


@dataclass(slots=True)
class Facts:
    """What a file says about the messages of one segment, by relative position.

    Facts only add up: that a message was published, delivered or acked never becomes untrue.
    """

    published: dict[int, bytes] = field(default_factory=dict)
    """The records, acked ones included."""
    transient: set[int] = field(default_factory=set)
    """Those of them that are not persistent."""
    delivered: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)

    def live(self) -> dict[int, bytes]:
        """Published, not acked, ascending."""
        acked = self.acked
        return {
            relative: record for relative, record in sorted(self.published.items()) if relative not in acked
        }


class Damage(NamedTuple):
    """Bytes of a file that make no sense."""

    offset: int
    length: int
    reason: str


@dataclass(slots=True)
class Segment:
    """What a queue knows of one segment in memory (the record `segment` of rabbit_queue_index).

    A message that is published and acked between two flushes leaves nothing here, so it never reaches the file.
    """

    number: int
    unacked: int = 0
    """Published, not acked: in the file and in memory together."""
    on_disk: bool = False
    """There is a file."""
    published: dict[int, bytes] = field(default_factory=dict)
    """Not yet in the file; a deliver mark goes with each."""
    transient: set[int] = field(default_factory=set)
    """Those of `published` that are not persistent."""
    delivered: set[int] = field(default_factory=set)
    """Published in the file, but the deliver mark is still to come."""
    acked: set[int] = field(default_factory=set)
    """Published in the file, acked since."""

    def dirty(self) -> bool:
        """Whether a flush has anything to append."""
        return bool(self.published or self.acked or self.delivered)

    def entries(self, offset: int = 0) -> bytes:
        """What a flush appends at this offset of the file."""
        published, transient, delivered, acked = self.published, self.transient, self.delivered, self.acked
        parts: list[bytes] = []
        for relative in sorted({*published, *delivered, *acked}, reverse=True):
            mark = _pack_prefix(_MARK | relative)
            if (record := published.get(relative)) is not None:
                kind = _PUBLISH if relative in transient else _PUBLISH | _PERSISTENT
                parts += (_pack_prefix(kind | relative), record, mark)
            else:
                if relative in delivered:
                    parts.append(mark)
                if relative in acked:
                    parts.append(mark)
        data = b"".join(parts)
        last = data[-_MARK_BYTES:]
        # a mark too many says nothing new
        return data + last if in_doubt(last, offset + len(data) - len(last)) else data

    def flushed(self) -> None:
        """The file has it all."""
        self.published, self.transient, self.delivered, self.acked = {}, set(), set(), set()


def parse(data: bytes, entry_count: int) -> tuple[Facts, list[Damage]]:
    """What a segment file says; whatever the bytes, this returns.

    After bytes that make no sense, parsing goes on at the next publish that is whole and has its deliver mark.
    """
    facts = Facts()
    damage: list[Damage] = []
    position, reason = _parse_run(data, 0, entry_count, facts)
    while position < len(data):
        resume = _next_publish(data, position + 1)
        damage.append(Damage(position, resume - position, reason))
        position, reason = _parse_run(data, resume, entry_count, facts)
    return facts, damage


def _parse_run(data: bytes, position: int, entry_count: int, facts: Facts) -> tuple[int, str]:
    """Parse from `position` to the end, or to the first bytes that make no sense, and why."""
    published, transient, delivered, acked = facts.published, facts.transient, facts.delivered, facts.acked
    end = len(data)
    last_publish = -1
    last_mark: set[int] | None = None  # what it was new to
    while position + _MARK_BYTES <= end:
        prefix = data[position] << 8 | data[position + 1]
        relative = prefix & _RELATIVE
        if relative >= entry_count:
            return position, f"position {relative} is outside a segment of {entry_count} entries"
        if prefix >= _PUBLISH:
            body = position + _PUBLISH_BYTES
            if body > end:
                return position, "a publish is cut off"
            size, embedded_size = _unpack_sizes(data, position)
            stop = body + embedded_size
            if stop > end or (embedded_size and not lengths_agree(data, body, stop, size)):
                return position, "a publish is cut off, or one of its lengths is wrong"
            if relative in published:
                return position, f"position {relative} is published twice"
            published[relative] = data[position + _MARK_BYTES : stop]
            if not prefix & _PERSISTENT:
                transient.add(relative)
            last_publish, position = position, stop
        elif prefix >= _MARK:
            if relative in delivered:
                last_mark = acked if relative not in acked else None
                acked.add(relative)
            elif relative in published:
                last_mark = delivered
                delivered.add(relative)
            elif not _in_step(data, position + _MARK_BYTES):
                # where records follow, only the publish of this mark was damaged, and it is set aside already
                return position, "a mark without a publish is followed by bytes that are no record"
            position += _MARK_BYTES
        else:
            start = _distrust_last(data, position, facts, last_publish, last_mark)
            return start, "no record begins with the bits 00"
    return position, "a record is cut off"


def _distrust_last(
    data: bytes, position: int, facts: Facts, last_publish: int, last_mark: set[int] | None
) -> int:
    """Zeros begin at `position`: take back the record before them if they may have replaced its end.

    After a power cut a file can have its new length before it has its bytes.  A publish has its mark behind it, or
    it is torn; of a mark only one that ends in zeros across a sector boundary is in doubt.
    """
    if last_publish >= 0:
        relative = int.from_bytes(data[last_publish : last_publish + _MARK_BYTES], "big") & _RELATIVE
        if last_publish + _MARK_BYTES + len(facts.published[relative]) == position:
            del facts.published[relative]
            facts.transient.discard(relative)
            return last_publish
    start = position - _MARK_BYTES
    if last_mark is not None and in_doubt(data[start:position], start):
        last_mark.discard(int.from_bytes(data[start:position], "big") & _RELATIVE)
        return start
    return position


def in_doubt(record: bytes, offset: int) -> bool:
    """Whether a sector begins within this record of a file, with nothing but zeros from there on.

    If zeros follow it, nobody can tell whether it is whole.  So the last record of a write must not be like this.
    """
    arrived = SECTOR - offset % SECTOR
    return arrived < len(record) and not any(record[arrived:])


def _in_step(data: bytes, position: int) -> bool:
    """Whether records seem to begin here; asked after a mark without a publish, which may be a damaged publish."""
    for _ in range(_RUN_OF_MARKS):
        if position + _MARK_BYTES > len(data):
            return True
        if data[position] >= _PUBLISH >> 8:
            return _ANY_PUBLISH.match(data, position) is not None
        if data[position] < _MARK >> 8:
            return False
        position += _MARK_BYTES
    return True


def _next_publish(data: bytes, position: int) -> int:
    """Where the next whole publish with its deliver mark begins; the end of the data when there is none."""
    while (match := _ANY_PUBLISH.search(data, position)) is not None:
        position = match.start()
        size, embedded_size = _unpack_sizes(data, position)
        body = position + _PUBLISH_BYTES
        stop = body + embedded_size
        mark = bytes((_MARK >> 8 | data[position] & _RELATIVE >> 8, data[position + 1]))
        if data.startswith(mark, stop) and lengths_agree(data, body, stop, size):
            return position
        position += 1
    return len(data)
