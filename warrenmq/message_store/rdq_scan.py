"""Find the records of a file, whatever happened to it (rabbit_msg_file:scan, made to find its way again).

A healthy file is a chain: each record begins where the last one ends.  Where the chain breaks (a torn write, zeros
left by a file system or by RabbitMQ, bytes that rotted) the scanner looks for the next place where a record
stands and goes on from there.  It never raises on what it reads.

What counts as a record at a position
    plausible   16 <= size, the record ends within the file, and its last byte is FF
    trusted     plausible, and: its id is known to be alive; or the end of the file or another plausible record
                follows, and no living record begins inside it

    | at a position in the chain | then                                                                    |
    | -------------------------- | ----------------------------------------------------------------------- |
    | plausible                  | take it, go on behind it                                                |
    | not plausible              | the chain is broken: if a living record begins inside the one before,   |
    |                            | then its size was wrong: go on in there (if that one is alive, too:     |
    |                            | only if another record or the end follows; without ids: if a trusted    |
    |                            | one begins within its first eight bytes)                                |
    | broken: zeros              | skip them                                                               |
    | broken: anything else      | damaged: go on at the next plausible place, or at a trusted one soon    |
    |                            | behind it                                                               |

Where a record may stand outside the chain is found by its size's four zero bytes (no record is as large as 4 GiB), so
that garbage is searched at the speed of `bytes.find`.  After a run of zeros up to four places fit; the ids known to
be alive tell which (RabbitMQ reads a record of size 4096 behind a zero one byte early: defect S25 in docs/defects.md).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from warrenmq.message_store.rdq import HEAD, ID_SIZE, MARKER

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from warrenmq.seams.disk import File

BLOCK = 4 << 20
LOOK_AHEAD = 64 << 10
"""How far behind a plausible record a trusted one is looked for; more would be quadratic in hostile garbage."""
_MARKER = MARKER[0]
_ZERO_RUN = re.compile(rb"\0{4,}")
_NONZERO = re.compile(rb"[^\0]")
_AROUND = 9
"""A record's bytes beyond its `size`."""


Record: TypeAlias = tuple[bytes, int, int]
"""(message id, offset, total size); a plain tuple, since a start makes hundreds of thousands."""


class Scan(NamedTuple):
    """What a file holds."""

    records: list[Record]
    """In file order."""
    damaged: list[tuple[int, int]]
    """(offset, length) of the bytes between them that are neither a record nor zeros."""


def scan(file: File, alive: Container[bytes] | None = None) -> Scan:
    """Every record of a file.  `alive`: ids that are referenced, if that is known."""
    return _Scanner(file, alive).run()


class _Scanner:
    """One pass over a file, by blocks; `_data[0]` stands at `_base`."""

    def __init__(self, file: File, alive: Container[bytes] | None) -> None:
        self._file = file
        self._alive = alive
        self._size = file.size()
        self._base = 0
        self._data = b""
        self._records: list[Record] = []
        self._damaged: list[tuple[int, int]] = []

    def run(self) -> Scan:
        at = 0
        while at < self._size:
            at = self._chain(at)
            if at < self._size:
                at = self._broken(at)
        return Scan(self._records, self._damaged)

    def _chain(self, at: int) -> int:
        """Take the records that follow one another from `at`; returns where that ends.

        The inner loop is what a start costs: 0.4 us a record.
        """
        unpack, marker, append = HEAD.unpack_from, _MARKER, self._records.append
        while True:
            self._load(at)
            base, data = self._base, self._data
            position, size_of_block = at - base, len(data)
            last = size_of_block - HEAD.size
            while position < last:
                size, msg_id = unpack(data, position)
                end = position + size + 8
                if size < ID_SIZE or end >= size_of_block or data[end] != marker:
                    break
                append((msg_id, base + position, size + _AROUND))
                position = end + 1
            reached = base + position
            total = self._plausible(reached)
            if not total:
                at = self._inside_the_last(reached)
                if at == reached:
                    return at
                continue
            if reached == at:  # larger than a block
                append((self._msg_id(at), at, total))
                reached += total
            at = reached

    def _inside_the_last(self, at: int) -> int:
        """The chain broke at `at`: if that is the fault of the last record's size, go back into it.

        Ends, because the chain then goes on with a record that is believed.
        """
        if not self._records:
            return at
        msg_id, offset, total = self._records[-1]
        alive = self._alive
        if offset + total != at or at >= self._size:
            return at
        if alive is not None and msg_id in alive:
            return self._inside_a_copy(offset, at)
        # without ids only the ambiguity of zeros before a record is looked into: a body may hold whole records
        for candidate, inner in self._candidates(offset + 1, at if alive is not None else offset + 8):
            if self._msg_id(candidate) in alive if alive is not None else self._trusted(candidate, inner):
                self._records.pop()
                self._set_aside(offset, candidate)
                return candidate
        return at

    def _inside_a_copy(self, offset: int, at: int) -> int:
        """The chain broke behind a living record: half of one that was copied here claims bytes of the next ones."""
        assert self._alive is not None
        for candidate, inner in self._candidates(offset + 1, at):
            behind = candidate + inner
            if self._msg_id(candidate) in self._alive and (behind == self._size or self._plausible(behind)):
                self._records.pop()
                self._set_aside(offset, candidate)
                return candidate
        return at

    def _broken(self, at: int) -> int:
        """The chain ended at `at`: skip to the next record."""
        found = self._size
        for candidate, total in self._candidates(at, self._size):
            if candidate > found + LOOK_AHEAD:
                break
            if self._trusted(candidate, total):
                found = candidate
                break
            found = min(found, candidate)
        self._set_aside(at, found)
        return found

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
            start = (
                end if base + len(data) >= end + 7 or base + len(data) == self._size else base + len(data) - 7
            )

    def _plausible(self, at: int) -> int:
        """The total size of the record at `at`, 0 if none can stand there."""
        if at + HEAD.size >= self._size:
            return 0
        size = int.from_bytes(self._bytes(at, 8), "big")
        end = at + size + 8
        if size < ID_SIZE or end >= self._size or self._bytes(end, 1) != MARKER:
            return 0
        return size + _AROUND

    def _trusted(self, at: int, total: int) -> bool:
        """Whether a plausible record is more than an accident."""
        alive = self._alive
        if alive is not None and self._msg_id(at) in alive:
            return True
        if at + total < self._size and not self._plausible(at + total):
            return False
        # Zeros and a marker far away make a record of anything: it must not swallow one that somebody needs.
        end = min(at + total, at + LOOK_AHEAD)
        return alive is None or not any(
            self._msg_id(inside) in alive for inside, _ in self._candidates(at + 1, end)
        )

    def _set_aside(self, start: int, end: int) -> None:
        """Note [start, end) as damaged, less the runs of zeros around it."""
        first = last = None
        at = start
        while at < end:
            block = self._bytes(at, min(BLOCK, end - at))
            if (nonzero := _NONZERO.search(block)) is not None:
                first = at + nonzero.start() if first is None else first
                last = at + len(block.rstrip(b"\0"))
            at += len(block)
        if first is not None and last is not None:
            first = max(start, first - 7)  # a size begins with zeros
            self._damaged.append((first, last - first))

    # bytes of the file

    def _load(self, at: int) -> None:
        """Have a block from `at` in memory, or all that is left."""
        end = min(at + BLOCK, self._size)
        if self._base <= at and end <= self._base + len(self._data):
            return
        self._data = self._file.pread(end - at, at)
        self._base = at

    def _bytes(self, at: int, size: int) -> bytes:
        """Some bytes, without moving the block."""
        position = at - self._base
        if position >= 0 and position + size <= len(self._data):
            return self._data[position : position + size]
        return self._file.pread(size, at)

    def _msg_id(self, at: int) -> bytes:
        return self._bytes(at + 8, ID_SIZE)
