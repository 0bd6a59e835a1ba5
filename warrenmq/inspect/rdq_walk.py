"""Walking over the records of a message store's file by their headers, whatever happened to the file.

A healthy file is a chain: one small read tells that a record ended well (FF) and how long the next one is; bodies are
never read.  Where the chain breaks, the walker finds its way again and says what it had to step over.  It never raises
on what it reads, and needs no more memory for a large file than for a small one.

    at a place in the chain                                then
    a record whose end is FF                               it is SOUND, go on behind it
    zeros to the end of the file                           nothing is wrong: RabbitMQ extends files with zeros
    zeros, then a record                                   it is BEHIND_ZEROS, so is what follows it
    a record whose end is not FF, another one behind it    BAD_MARKER
    a size that cannot be, a record further on             BAD_SIZE if the bytes between begin and end like a record
                                                           that is wanted; what follows is BEHIND_DAMAGE
    anything else                                          damage up to the next record, or the end

What counts as a record outside the chain: its end is FF and it is wanted (a queue refers to its id), or its end is
FF and it is followed by another such record or the end of the file.  Behind zeros up to eight places fit; the wanted
one is taken (RabbitMQ reads a record of size 4096 behind a zero one byte early: defect S25 in docs/defects.md).

Source: rabbit_msg_file, docs/reference/message-store.md#records-on-disk.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from warrenmq.message_store.rdq import HEAD, ID_SIZE, MARKER

if TYPE_CHECKING:
    from warrenmq.inspect.reading import File

BLOCK = 1 << 20
_MARKER = MARKER[0]
_AROUND = 9
"""A record's bytes beyond its `size`."""
_SIZE_BYTES = 8
_ANY_RECORD = re.compile(rb"(?=\x00{4}.{20}[\x83\x95])", re.DOTALL)
"""Below 4 GiB, and a stored message's first byte behind the id."""
_ANY_RECORD_BYTES = HEAD.size + 1
_NONZERO = re.compile(rb"[^\0]")


class Trust(IntEnum):
    """How a record was found; what is not SOUND, RabbitMQ up to 3.12 would not find by scanning."""

    SOUND = 0
    BEHIND_ZEROS = 1
    BEHIND_DAMAGE = 2
    BAD_MARKER = 3
    BAD_SIZE = 4
    BAD_ID = 5
    """Found by the id inside the message; never told by a walk."""


class Record(NamedTuple):
    """A record that a walk passed."""

    msg_id: bytes
    offset: int
    total: int
    """Bytes on disk."""
    trust: Trust


class Gap(NamedTuple):
    """Bytes that are no record."""

    offset: int
    length: int
    reason: str
    """Empty for zeros, which are nothing wrong."""


Found: TypeAlias = Record | Gap


def walk(file: File, wanted: Container[bytes]) -> Iterator[Found]:
    """Everything in a file, in its order."""
    return _Walk(file, wanted).run()


class _Walk:
    def __init__(self, file: File, wanted: Container[bytes]) -> None:
        self._file = file
        self._pread = file.pread
        self._size = file.size
        self._wanted = wanted
        self._trust = Trust.SOUND

    def run(self) -> Iterator[Found]:
        at = 0
        pread, unpack, size_of_file = self._pread, HEAD.unpack, self._size
        head = pread(HEAD.size, 0)
        last: Record | None = None  # held back until the chain goes on behind it
        while at < size_of_file:
            if len(head) == HEAD.size:
                size, msg_id = unpack(head)
                end = at + size + 8
                if size >= ID_SIZE and end < size_of_file:
                    behind = pread(1 + HEAD.size, end)
                    if behind[:1] == MARKER:
                        if last is not None:
                            yield last
                        last = Record(msg_id, at, size + _AROUND, self._trust)
                        at, head = end + 1, behind[1:]
                        continue
            if last is not None:
                believed, at = self._doubt(last)
                yield believed
                last = None
                if self._believable(at):
                    head = pread(HEAD.size, at)
                    continue
            for found in self._broken(at):
                yield found
                at = found.offset + (found.total if isinstance(found, Record) else found.length)
            head = pread(HEAD.size, at)
        if last is not None:
            yield last

    def _doubt(self, last: Record) -> tuple[Found, int]:
        """The chain broke behind `last`: if a wanted record begins inside it, its size was wrong by bad luck."""
        end = last.offset + last.total
        inside = self._search(last.offset + 1, end)
        if inside == end:
            return last, end
        self._trust = max(self._trust, Trust.BEHIND_DAMAGE)
        if last.msg_id in self._wanted and self._pread(1, inside - 1) == MARKER:
            return Record(last.msg_id, last.offset, inside - last.offset, Trust.BAD_SIZE), inside
        return Gap(last.offset, inside - last.offset, "no record begins here"), inside

    def _broken(self, at: int) -> Iterator[Found]:
        """No sound record is at `at`: what is there instead, up to where one may be again."""
        if not any(self._pread(_SIZE_BYTES, at)):
            yield self._zeros(at)
            return
        head = self._pread(HEAD.size, at)
        if len(head) == HEAD.size:
            size, msg_id = HEAD.unpack(head)
            behind = at + size + _AROUND
            if size >= ID_SIZE and behind <= self._size and (behind == self._size or self._plausible(behind)):
                yield Record(msg_id, at, size + _AROUND, Trust.BAD_MARKER)
                return
        found = self._search(at + 1)
        self._trust = max(self._trust, Trust.BEHIND_DAMAGE)
        length = found - at
        if (
            len(head) == HEAD.size
            and head[_SIZE_BYTES:] in self._wanted
            and length > HEAD.size
            and self._pread(1, found - 1) == MARKER
        ):
            yield Record(head[_SIZE_BYTES:], at, length, Trust.BAD_SIZE)
        elif found < self._size:
            yield Gap(at, length, "no record begins here")
        else:
            yield Gap(at, length, f"a record is cut off, or {length} bytes are no record")

    def _zeros(self, at: int) -> Gap:
        """The zeros at `at`, up to the record behind them."""
        start = at
        while at < self._size:
            block = self._pread(BLOCK, at)
            if not block:
                break
            if (nonzero := _NONZERO.search(block)) is not None:
                at += nonzero.start()
                self._trust = max(self._trust, Trust.BEHIND_ZEROS)
                return Gap(start, self._behind_zeros(start, at) - start, "")
            at += len(block)
        return Gap(start, self._size - start, "")

    def _behind_zeros(self, start: int, nonzero: int) -> int:
        """Where the record is to which the first byte that is not zero belongs; a size begins with zeros."""
        places = [at for at in range(max(start, nonzero - 7), nonzero + 1) if self._plausible(at)]
        for at in places:
            if self._msg_id(at) in self._wanted:
                return at
        for at in places:
            if self._believable(at):
                return at
        return max(start + 1, nonzero - 3)  # no size is larger than 4 GiB

    def _search(self, start: int, end: int | None = None) -> int:
        """The next record at or behind `start`, or the end of the file; before `end`, only one that is wanted."""
        limit = self._size if end is None else end
        at = start
        while at < limit:
            block = self._pread(BLOCK + _ANY_RECORD_BYTES, at)
            if not block:
                break
            for match in _ANY_RECORD.finditer(block):
                place = at + match.start()
                if place >= limit:
                    break
                if self._believable(place) if end is None else self._plausible_and_wanted(place):
                    return place
            at += max(1, len(block) - _ANY_RECORD_BYTES + 1)
        return limit

    def _plausible_and_wanted(self, at: int) -> bool:
        return self._plausible(at) > 0 and self._msg_id(at) in self._wanted

    def _believable(self, at: int) -> bool:
        """Whether a plausible record is more than an accident."""
        total = self._plausible(at)
        if not total:
            return False
        if self._msg_id(at) in self._wanted:
            return True
        return at + total == self._size or self._plausible(at + total) > 0

    def _plausible(self, at: int) -> int:
        """The total size of the record at `at`, 0 if none can be there."""
        head = self._pread(_SIZE_BYTES, at)
        size = int.from_bytes(head, "big")
        end = at + size + 8
        if len(head) < _SIZE_BYTES or size < ID_SIZE or end >= self._size or self._pread(1, end) != MARKER:
            return 0
        return size + _AROUND

    def _msg_id(self, at: int) -> bytes:
        return self._pread(ID_SIZE, at + _SIZE_BYTES)
