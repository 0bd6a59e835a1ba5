"""Find the records of a store's file, whatever happened to it (rabbit_msg_file:scan, which also finds its way again).

A healthy file is a chain: each record begins where the last one ends.  Where the chain breaks (a torn write, zeros left
by a file system or by RabbitMQ, bytes that rotted) the scan looks for the next place where a record stands and goes on
from there.  It covers every byte of the file once, raises on nothing that it reads, and keeps one block in memory.
Recovery, `check`, `repair` and `compact` all read with it; they differ in what they do with a record by its `Trust`.

    plausible   a record may begin here: 16 <= size, it ends within the file, and its last byte is FF
    certain     plausible, and: its id is wanted (a queue refers to it); or another plausible record or the end of the
                file follows, if need be behind zeros, and no wanted record begins inside it

    | at a place in the chain                   | it is                                                               |
    | ----------------------------------------- | ------------------------------------------------------------------- |
    | a plausible record                        | taken; the chain goes on behind it                                  |
    | none, and a wanted record begins inside   | the last one's size is wrong: BAD_SIZE if it is wanted and the      |
    | the last one                              | bytes before the inner record end like a record, else damage        |
    | zeros to the end of the file              | no damage: RabbitMQ extends files with zeros                        |
    | zeros, then a record (where there are     | that record and what follows it are BEHIND_ZEROS                    |
    | fewer than eight of them, a certain one)  |                                                                     |
    | a record whose last byte is not FF, then  | BAD_MARKER                                                          |
    | a plausible one or the end                |                                                                     |
    | a wanted id, bytes that end like a record,| BAD_SIZE                                                            |
    | a certain record                          |                                                                     |
    | anything else                             | damage up to the next certain record; what follows is BEHIND_DAMAGE |

Inside a wanted record only a wanted one that is followed by a record or the end counts: half a record that was copied
claims bytes of the next ones, but a body may also contain whole records.

Where a record may stand outside the chain is found by its size's four zero bytes (no record is as large as 4 GiB), so
that garbage is searched at the speed of a regular expression.  After a run of zeros up to eight places fit; the wanted
ids show which (RabbitMQ reads a record of size 4096 behind a zero one byte early: defect S25).

Source: rabbit_msg_file, docs/reference/message-store.md#records-on-disk.
"""

from __future__ import annotations

import re
from collections.abc import Container, Generator, Iterator
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from warrenmq.message_store.rdq import HEAD, ID_SIZE, MARKER
from warrenmq.seams.disk import Readable

BLOCK = 256 << 10
LOOK_AHEAD = 64 << 10
"""Bytes of a plausible record that are searched for a wanted one; more would be quadratic in hostile garbage."""
_SIZE_BYTES = 8
_FRAME = _SIZE_BYTES + len(MARKER)
"""A record's bytes beyond its `size`."""
_ZERO_RUN = re.compile(rb"\0{4,}")
_NONZERO = re.compile(rb"[^\0]")
_NO_RECORD = "no record begins here"

Record: TypeAlias = tuple[bytes, int, int]
"""(message id, offset, total size); a plain tuple, since a start makes hundreds of thousands."""


class Trust(IntEnum):
    """The way a record was found.  RabbitMQ up to 3.12 finds only SOUND ones; a start takes those before BAD_MARKER."""

    SOUND = 0
    BEHIND_ZEROS = 1
    BEHIND_DAMAGE = 2
    BAD_MARKER = 3
    BAD_SIZE = 4
    BAD_ID = 5
    """Found by the id inside the message (inspect/store.py), not by a scan."""


class Records(NamedTuple):
    """Records that follow one another, in file order."""

    records: list[Record]
    trust: Trust


class Gap(NamedTuple):
    """Bytes that are no record."""

    offset: int
    length: int
    damage: str
    """The reason why they are damage; empty for zeros."""


def scan(file: Readable, wanted: Container[bytes]) -> Iterator[Records | Gap]:
    """Scan a file for records and damage, in order.  `wanted`: the ids that queues refer to."""
    return _Scan(file, wanted).run()


def whole_records(file: Readable, wanted: Container[bytes]) -> Iterator[Record]:
    """The records of a file whose frames are right: what a start takes."""
    for found in scan(file, wanted):
        if isinstance(found, Records) and found.trust < Trust.BAD_MARKER:
            yield from found.records


def is_cut_off(file: Readable, offset: int) -> bool:
    """True if the end of a store's last file is the beginning of a record and perhaps zeros, as a killed process or
    a power cut leaves of a write.

    It was never synced, so nobody was promised the message.  A record whose size has a flipped bit ends in a marker.
    """
    came = file.pread(file.size() - offset, offset).rstrip(b"\0")
    if not came.startswith(bytes(4)):
        return False  # no size is as large as 4 GiB
    if len(came) < HEAD.size:
        return True
    size, _ = HEAD.unpack_from(came)
    return size + _FRAME > len(came) and not came.endswith(MARKER)


class _Scan:
    """One pass over a file, by blocks; `_data[0]` stands at `_base`."""

    def __init__(self, file: Readable, wanted: Container[bytes]) -> None:
        self._file = file
        self._wanted = wanted
        self._size = file.size()
        self._trust = Trust.SOUND
        """The trust in records that the chain finds from here on."""
        self._base = 0
        self._data = b""

    def run(self) -> Iterator[Records | Gap]:
        at = 0
        while at < self._size:
            at = yield from self._chain(at)
            if at < self._size:
                at = yield from self._broken(at)

    def _chain(self, at: int) -> Generator[Records | Gap, None, int]:
        """Give the records that follow one another from `at`; returns where that ends.

        The inner loop is what a start costs: 0.4 us a record.  The last record is held back until the chain goes on
        behind it.
        """
        unpack, marker = HEAD.unpack_from, MARKER[0]
        records: list[Record] = []
        while True:
            self._load(at)
            base, data = self._base, self._data
            position, size_of_block = at - base, len(data)
            last = size_of_block - HEAD.size
            append = records.append
            while position < last:
                size, msg_id = unpack(data, position)
                end = position + size + _SIZE_BYTES
                if size < ID_SIZE or end >= size_of_block or data[end] != marker:
                    break
                append((msg_id, base + position, size + _FRAME))
                position = end + 1
            reached = base + position
            if total := self._plausible(reached):
                if reached == at:  # larger than a block
                    append((self._msg_id(at), at, total))
                    reached += total
                at = reached
                if len(records) > 1:
                    yield Records(records[:-1], self._trust)
                    records = records[-1:]
                continue
            if records and reached < self._size and (inside := self._inside(*records[-1])):
                msg_id, offset, _ = records.pop()
                if records:
                    yield Records(records, self._trust)
                    records = []
                self._trust = Trust.BEHIND_DAMAGE
                at = yield from self._no_record(offset, inside, msg_id, _NO_RECORD)
                continue
            if records:
                yield Records(records, self._trust)
            return reached

    def _inside(self, msg_id: bytes, offset: int, total: int) -> int:
        """The chain broke behind this record: where one begins inside it, if its size was wrong; 0 = it was not.

        The scan ends, because the chain then goes on with a record that is certain.
        """
        end, wanted = offset + total, self._wanted
        for inner, length in self._candidates(offset + 1, end):
            if msg_id in wanted:  # half a record that was copied, or a body that holds records
                behind = inner + length
                if self._msg_id(inner) in wanted and (behind == self._size or self._plausible(behind)):
                    return inner
            elif self._msg_id(inner) in wanted or (
                inner < offset + _SIZE_BYTES and self._certain(inner, length)
            ):
                return inner
        return 0

    def _broken(self, at: int) -> Generator[Records | Gap, None, int]:
        """Give what stands at `at`, where the chain broke; returns where a record may be again."""
        nonzero = self._next_nonzero(at)
        if nonzero == self._size:
            yield Gap(at, nonzero - at, "")
            return nonzero
        if nonzero - at >= _SIZE_BYTES:
            self._trust = max(self._trust, Trust.BEHIND_ZEROS)
            end = self._behind_zeros(nonzero)
            yield Gap(at, end - at, "")
            return end
        head = self._bytes(at, HEAD.size)
        msg_id = head[_SIZE_BYTES:]
        if len(head) == HEAD.size:
            size = int.from_bytes(head[:_SIZE_BYTES], "big")
            behind = at + size + _FRAME
            if size >= ID_SIZE and self._may_follow(behind) and not self._wanted_inside(at, behind):
                yield Records([(msg_id, at, size + _FRAME)], Trust.BAD_MARKER)
                return behind
        certain = (
            place for place, total in self._candidates(at + 1, self._size) if self._certain(place, total)
        )
        found = next(certain, self._size)
        if found <= nonzero:
            self._trust = max(self._trust, Trust.BEHIND_ZEROS)
            yield Gap(at, found - at, "")
            return found
        self._trust = Trust.BEHIND_DAMAGE
        return (yield from self._no_record(at, found, msg_id, _NO_RECORD if found < self._size else ""))

    def _no_record(
        self, start: int, end: int, msg_id: bytes, reason: str
    ) -> Generator[Records | Gap, None, int]:
        """Give [start, end): a record of which only the size is wrong, or damage and the zeros behind it."""
        if msg_id in self._wanted and end - start > HEAD.size and self._bytes(end - 1, 1) == MARKER:
            yield Records([(msg_id, start, end - start)], Trust.BAD_SIZE)
            return end
        zeros = self._end_of_nonzero(start, end)
        length = zeros - start
        yield Gap(start, length, reason or f"a record is cut off, or {length} bytes are no record")
        if zeros < end:
            yield Gap(zeros, end - zeros, "")
        return end

    def _behind_zeros(self, nonzero: int) -> int:
        """The beginning of the record whose first byte that is not zero is at `nonzero`: a size begins with zeros."""
        places = [at for at in range(nonzero - _SIZE_BYTES + 1, nonzero + 1) if self._plausible(at)]
        for at in places:
            if self._msg_id(at) in self._wanted:
                return at
        for at in places:
            if self._certain(at, self._plausible(at)):
                return at
        # the only one, before a copy that was not finished
        if len(places) == 1 and not self._wanted_inside(places[0], places[0] + self._plausible(places[0])):
            return places[0]
        return nonzero - 3  # no size is as large as 4 GiB

    def _candidates(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Plausible records that begin in [start, end): (offset, total size)."""
        while start < end:
            self._load(start)
            base, data = self._base, self._data
            for run in _ZERO_RUN.finditer(data, start - base, end + 7 - base):
                # the size's first four bytes lie in the run, its last bytes do not
                for candidate in range(base + max(run.start(), run.end() - 7), base + run.end() - 3):
                    if candidate < end and (total := self._plausible(candidate)):
                        yield candidate, total
            # a run that the block's end cut is looked at again with what follows
            following = base + len(data) - 7
            # a file that was cut down meanwhile gives fewer bytes
            start = end if following + 7 >= min(end + 7, self._size) or following <= start else following

    def _plausible(self, at: int) -> int:
        """The total size of the record at `at`, 0 if none can stand there."""
        if at + HEAD.size >= self._size:
            return 0
        size = int.from_bytes(self._bytes(at, _SIZE_BYTES), "big")
        end = at + size + _SIZE_BYTES
        if size < ID_SIZE or end >= self._size or self._bytes(end, 1) != MARKER:
            return 0
        return size + _FRAME

    def _certain(self, at: int, total: int) -> bool:
        """True if a plausible record is more than an accident."""
        if self._msg_id(at) in self._wanted:
            return True
        # Zeros and an FF far away make a record of anything: it must not swallow one that is wanted.
        return self._may_follow_zeros(at + total) and not self._wanted_inside(at, at + total)

    def _may_follow(self, at: int) -> bool:
        return at == self._size or self._plausible(at) > 0

    def _may_follow_zeros(self, at: int) -> bool:
        """True if the chain may go on at `at`, or behind zeros there: a compaction leaves holes between records."""
        if self._may_follow(at):
            return True
        nonzero = self._next_nonzero(at)
        first = max(at, nonzero - _SIZE_BYTES) + 1
        return nonzero == self._size or any(map(self._plausible, range(first, nonzero + 1)))

    def _wanted_inside(self, start: int, end: int) -> bool:
        inside = self._candidates(start + 1, min(end, start + LOOK_AHEAD))
        return any(self._msg_id(at) in self._wanted for at, _ in inside)

    # bytes of the file

    def _load(self, at: int) -> None:
        """Load a block that begins at `at`, or all that is left."""
        end = min(at + BLOCK, self._size)
        if self._base <= at and end <= self._base + len(self._data):
            return
        self._data = self._file.pread(end - at, at)
        self._base = at

    def _bytes(self, at: int, size: int) -> bytes:
        """Read some bytes without moving the block."""
        position = at - self._base
        if position >= 0 and position + size <= len(self._data):
            return self._data[position : position + size]
        return self._file.pread(size, at)

    def _msg_id(self, at: int) -> bytes:
        return self._bytes(at + _SIZE_BYTES, ID_SIZE)

    def _next_nonzero(self, at: int) -> int:
        """The first byte from `at` on that is not zero, or the end of the file."""
        while block := self._bytes(at, min(BLOCK, self._size - at)):
            if (nonzero := _NONZERO.search(block)) is not None:
                return at + nonzero.start()
            at += len(block)
        return self._size

    def _end_of_nonzero(self, start: int, end: int) -> int:
        """Behind the last byte before `end` that is not zero."""
        for at in range(end, start, -BLOCK):
            first = max(start, at - BLOCK)
            if rest := self._bytes(first, at - first).rstrip(b"\0"):
                return first + len(rest)
        return start
