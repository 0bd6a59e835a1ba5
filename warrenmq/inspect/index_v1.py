"""Reading an index of version 1, journal.jif and N.idx, without changing or refusing anything.

The formats are in queue_index/v1/journal.py and queue_index/v1/segment.py.  What a broker's own recovery may leave out, this
reads: queues of before 3.10 (whose publishes have no deliver mark behind them), records behind damaged bytes, and
a record whose embedded size is wrong, as long as the embedded message itself tells where it ends.  Files are
read by windows, and bodies stay where they are.

    behind a publish comes                             it is
    its own deliver mark                               whole, whatever is inside the message
    anything else, and the message ends as claimed     whole
    the message ends elsewhere, its mark is there      whole; its size is damage
    anything else                                      damage, up to the next whole publish or run of marks

Half a record that was copied to a wrong place claims bytes of the ones behind it.  So a publish without its own mark is
none if a whole one begins inside it, marks before bytes that make no sense may have been the head of a publish, and of two
publishes with one sequence id the one with its own mark counts, or the first.

Zeros up to the end of a journal are no damage (file systems leave them after a power cut), unless there is nothing else.

Source: rabbit_queue_index, docs/reference/classic-queue.md#journal, #segment-files, #merge-rules and #torn-tails.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import TYPE_CHECKING

from warrenmq.inspect.entries import Entry, SegmentFacts, Where
from warrenmq.message.extent import FIRST_BYTES, WARREN_MESSAGE, stored_end
from warrenmq.queue_index.record import lengths_agree

if TYPE_CHECKING:
    from warrenmq.inspect.reading import File

WINDOW = 4 << 20
_RECORD = Struct(">16sQII")
_FIRST_BYTES = {FIRST_BYTES[:1], FIRST_BYTES[1:]}
_ZEROS_BY_CHANCE = 4
"""Of eight random bytes fewer than this are zero."""
_MORE_THAN_A_HEAD = 1 << 16
"""Bytes of a stored message before its body are hardly ever more."""
_OUT_OF_STEP = 256
"""Bytes that may be read as marks, though they are none."""
_BEHIND_PREFIX = rb"(?!\x00{16}).{16}.{8}.{4}(?:\x00{4}|\x00.{3}[\x83\x95])"
_HEAD_AND_FIRST = _RECORD.size + 1
_EXPIRIES = range(1 << 50, 1 << 53)
"""From 2005 to 2255."""


class Format:
    """What journal and segment files differ in.

    prefix_bytes      before a record, and all there is of a deliver or an ack
    zeros_are_normal  at the end of a file RabbitMQ stops at them; in a segment it crashes over them
    most_ahead        how far beyond the known ones a sequence id may be
    publishes         what may be a publish
    mark(seq_id)      the deliver mark of a message
    """

    prefix_bytes: int
    zeros_are_normal: bool
    most_ahead: int
    publishes: re.Pattern[bytes]

    def prefix(self, data: bytes, at: int) -> tuple[str, int] | None:
        """What begins at a place: (publish, transient, mark, deliver or ack; sequence id), None if nothing can."""
        raise NotImplementedError

    def mark(self, seq_id: int) -> bytes:
        raise NotImplementedError


class JournalFormat(Format):
    """journal.jif: 64 bits with the sequence id in them."""

    prefix_bytes = 8
    zeros_are_normal = True
    most_ahead = 65536  # entries, more than any journal has
    publishes = re.compile(rb"[\x00\x40]\x00.{6}" + _BEHIND_PREFIX, re.DOTALL)
    _KINDS = ("publish", "transient", "deliver", "ack")
    _SEQ_ID = (1 << 62) - 1
    _BELIEVABLE = 1 << 48

    def prefix(self, data: bytes, at: int) -> tuple[str, int] | None:
        action = int.from_bytes(data[at : at + 8], "big")
        seq_id = action & self._SEQ_ID
        return (self._KINDS[action >> 62], seq_id) if seq_id < self._BELIEVABLE else None

    def mark(self, seq_id: int) -> bytes:
        return (2 << 62 | seq_id).to_bytes(8, "big")


class SegmentFormat(Format):
    """N.idx: 16 bits with the position in the segment; deliver and ack are the same mark."""

    prefix_bytes = 2
    zeros_are_normal = False
    most_ahead = 16384
    publishes = re.compile(rb"[\x80-\xff]." + _BEHIND_PREFIX, re.DOTALL)
    _KINDS = (None, "mark", "transient", "publish")

    def __init__(self, number: int, entry_count: int) -> None:
        self._first = number * entry_count
        self._entry_count = entry_count

    def prefix(self, data: bytes, at: int) -> tuple[str, int] | None:
        bits = int.from_bytes(data[at : at + 2], "big")
        kind, relative = self._KINDS[bits >> 14], bits & 0x3FFF
        return (kind, self._first + relative) if kind and relative < self._entry_count else None

    def mark(self, seq_id: int) -> bytes:
        return (0x4000 | seq_id - self._first).to_bytes(2, "big")


def read(file: File, layout: Format) -> tuple[SegmentFacts, int | None]:
    """What a file says, and where its first damage is."""
    reader = _Reader(file, layout)
    reader.run()
    return reader.facts, reader.damaged_at


class _Reader:
    def __init__(self, file: File, layout: Format) -> None:
        self.facts = SegmentFacts()
        self.damaged_at: int | None = None
        self._file = file
        self._layout = layout
        self._name = file.path.rpartition("/")[2]
        self._base = 0
        self._data = b""
        self._unmarked: set[int] = set()
        """Published without their own mark."""
        self._believed = 0
        """Where the last publish with its own mark ends."""

    def run(self) -> None:
        at, size = 0, self._file.size()
        while True:
            at, reason = self._chain(at)
            start = max(self._believed, at - _OUT_OF_STEP)
            inside = self._inside(start, at)
            if inside < at:
                self._believed = inside + 1
                self._note(start, "marks reach into a publish")
                at = inside
                continue
            if at >= size:
                return
            if self._only_zeros(at):
                if at == 0 or not self._layout.zeros_are_normal:
                    self._note(at, f"{size - at} zero bytes up to the end of the file are no records")
                elif size - at < self._layout.prefix_bytes:
                    self._note(at, "a record is cut off")
                return
            self._note(at, reason)
            at = self._resume(at + 1)

    def _chain(self, at: int) -> tuple[int, str]:
        """Reads records up to the end of the file or the first place that makes no sense, and says why it makes none."""
        size, width = self._file.size(), self._layout.prefix_bytes
        head = width + _RECORD.size
        facts, prefix = self.facts, self._layout.prefix
        while at < size:
            if not self._base <= at <= self._base + len(self._data) - head:
                self._load(at, head)
            place = at - self._base
            found = prefix(self._data, place) if place + width <= len(self._data) else None
            if found is None:
                return at, "no record begins here" if at + width <= size else "a record is cut off"
            kind, seq_id = found
            if kind in {"publish", "transient"}:
                at, reason = self._publish(at, seq_id, persistent=kind == "publish")
                if reason:
                    return at, reason
                continue
            if kind == "ack" or (kind == "mark" and seq_id in facts.delivered):
                facts.acked.add(seq_id)
            else:
                if kind == "mark" and seq_id not in facts.published and self.damaged_at is None:
                    self._note(at, "a mark comes before its publish")
                facts.delivered.add(seq_id)
            at += width
        return at, ""

    def _publish(self, at: int, seq_id: int, *, persistent: bool) -> tuple[int, str]:
        """The publish at a place: where it ends, its own mark included, or why it is none."""
        width, size_of_file = self._layout.prefix_bytes, self._file.size()
        head = width + _RECORD.size
        body = at + head
        if body > size_of_file or len(self._data) < body - self._base:
            return at, "a publish is cut off"
        msg_id, expiry, size, embedded = _RECORD.unpack_from(self._data, at - self._base + width)
        stop = body + embedded
        own_mark = self._layout.mark(seq_id)
        if (
            stop > size_of_file
            or self._bytes(stop, width) != own_mark
            or (embedded and self._bytes(body, 1)[0] not in FIRST_BYTES)
        ):
            problem, stop = self._doubtful(body, stop, size, own_mark)
            if not problem and not _random(msg_id):
                problem = "a message id is hardly anything but zeros"
            if problem:
                return at, problem
            if stop != body + embedded:
                if self._inside(at + 1, stop) < stop:
                    return at, "a publish reaches into the next one"
                self._note(at, "the size of an embedded message is wrong")
        marked = self._bytes(stop, width) == own_mark
        if not marked and self._inside(at + 1, stop) < stop:
            return at, "a publish reaches into the next one"
        facts = self.facts
        if seq_id in facts.published:
            problem = f"sequence id {seq_id} is published twice"
            if not marked:
                return at, problem
            self._note(at, problem)
            if seq_id not in self._unmarked:
                return stop + width, ""
        facts.published[seq_id] = Entry(
            seq_id, persistent, msg_id, expiry, size,
            Where.INDEX if stop > body else Where.STORE, self._name, at, head, stop - body,
        )  # fmt: skip
        # What was said of a message before its publish was damage.
        facts.delivered.discard(seq_id)
        facts.acked.discard(seq_id)
        if marked:
            facts.delivered.add(seq_id)
            self._unmarked.discard(seq_id)
            self._believed = max(self._believed, stop + width)
            return stop + width, ""
        self._unmarked.add(seq_id)
        return stop, ""

    def _inside(self, at: int, limit: int) -> int:
        """The first place before `limit` where a publish begins that tells its own end, by its mark or its message."""
        width = self._layout.prefix_bytes
        while at < limit:
            self._load(at, WINDOW // 2)
            data = self._data
            window = len(data) if at + len(data) >= self._file.size() else len(data) - WINDOW // 4
            stop = min(window, limit - at)
            place = 0
            while place < stop and (
                match := self._layout.publishes.search(data, place, stop + _HEAD_AND_FIRST + width)
            ):
                place = match.start()
                found = self._layout.prefix(data, place)
                if place < stop and found is not None and self._certain(place, found[1], tells_its_end=True):
                    return at + place
                place += 1
            at += max(1, window)
        return limit

    def _doubtful(self, body: int, stop: int, size: int, own_mark: bytes) -> tuple[str, int]:
        """A publish without its own mark behind it: what is wrong with it if anything is, and where it really ends."""
        size_of_file = self._file.size()
        if stop == body:
            behind = self._bytes(body, 64)
            return ("a publish is followed by zeros" if behind and not any(behind) and not size else ""), stop
        data = self._bytes(body, min(stop, size_of_file) - body)
        end = stored_end(data, 0)
        if end is None or body + end != stop:
            data = self._bytes(body, min(size_of_file - body, size + _MORE_THAN_A_HEAD))
            end = stored_end(data, 0)
            if end is not None and body + end != stop and data.startswith(own_mark, end):
                return "", body + end
        if stop > size_of_file:
            return "a publish is cut off, or its size is wrong", stop
        if data[:1] and data[0] not in FIRST_BYTES and self._bytes(stop, len(own_mark)) == own_mark:
            return "", stop  # the frame is sound; that the message is not is found when it is read
        if end is None or body + end != stop:
            return "a publish is cut off, or its size is wrong", stop
        if data[0] == WARREN_MESSAGE and (
            not lengths_agree(data, 0, end, size) or (stop < size_of_file and self._only_zeros(stop))
        ):
            return "a publish is torn", stop  # zeros may have replaced the end of the body
        return "", stop

    def _resume(self, at: int) -> int:
        """The next place from `at` on where a record certainly begins, or the end of the file."""
        width = self._layout.prefix_bytes
        while at < self._file.size():
            self._load(at, WINDOW // 2)
            data = self._data
            last = at + len(data) >= self._file.size()
            window = len(data) - (0 if last else WINDOW // 4)
            for place in range(window):
                found = self._layout.prefix(data, place)
                if found is None or place + width > len(data):
                    continue
                kind, seq_id = found
                if kind in {"publish", "transient"}:
                    if self._certain(place, seq_id, tells_its_end=False):
                        return at + place
                elif self._marks_follow(place):
                    return at + place
            at += max(1, window)
        return self._file.size()

    def _certain(self, place: int, seq_id: int, *, tells_its_end: bool) -> bool:
        """Whether a whole publish stands at a place of the window: its message or its own mark ends it.

        One of before 3.10 without a message tells neither; a byte beside one with zeros in it there seems to be another.
        """
        width = self._layout.prefix_bytes
        body = place + width + _RECORD.size
        if body > len(self._data):
            return False
        msg_id, expiry, size, embedded = _RECORD.unpack_from(self._data, place + width)
        stop = body + embedded
        if seq_id in self.facts.published and not (
            seq_id in self._unmarked and self._data.startswith(self._layout.mark(seq_id), stop)
        ):
            return False
        if not _random(msg_id) or not _plausible(expiry) or stop > len(self._data):
            return False
        if seq_id > max(self.facts.published, default=seq_id) + self._layout.most_ahead:
            return False
        if embedded:
            return self._data[body] in FIRST_BYTES and stored_end(self._data, body) == stop
        return self._data.startswith(self._layout.mark(seq_id), stop) or (
            not tells_its_end and size > 0 and self._likely(stop)
        )

    def _likely(self, place: int) -> bool:
        """Whether a place that should be behind a publish of before 3.10 looks like it."""
        if self._base + place == self._file.size():
            return True
        width = self._layout.prefix_bytes
        found = self._layout.prefix(self._data, place) if place + width <= len(self._data) else None
        if found is None:
            return False
        if found[0] not in {"publish", "transient"}:
            return found[1] in self.facts.published
        body = place + width + _RECORD.size
        if body > len(self._data):
            return False
        msg_id, expiry, _, embedded = _RECORD.unpack_from(self._data, place + width)
        if not _random(msg_id) or not _plausible(expiry):
            return False
        return not embedded or self._data[body : body + 1] in _FIRST_BYTES

    def _marks_follow(self, place: int) -> bool:
        """Whether marks of known messages follow, up to the end of the file or a whole publish."""
        data, width = self._data, self._layout.prefix_bytes
        for at in range(place, len(data), width):
            found = self._layout.prefix(data, at) if at + width <= len(data) else None
            if found is None:
                return False
            if found[0] in {"publish", "transient"}:
                return self._certain(at, found[1], tells_its_end=False)
            if found[1] not in self.facts.published:
                return False
        return self._base + len(data) >= self._file.size()

    # bytes of the file

    def _load(self, at: int, need: int) -> None:
        self._data = self._file.pread(max(WINDOW, need), at)
        self._base = at

    def _bytes(self, at: int, size: int) -> bytes:
        place = at - self._base
        if place >= 0 and place + size <= len(self._data):
            return self._data[place : place + size]
        return self._file.pread(size, at)

    def _only_zeros(self, at: int) -> bool:
        while block := self._file.pread(WINDOW, at):
            if any(block):
                return False
            at += len(block)
        return True

    def _note(self, at: int, reason: str) -> None:
        if self.damaged_at is None:
            self.damaged_at = at
        self._file.note(at, reason)


def _random(msg_id: bytes) -> bool:
    """Whether it may be a message id: its first half at least is random, RabbitMQ's and ours."""
    return msg_id.count(0, 0, 8) < _ZEROS_BY_CHANCE


def _plausible(expiry: int) -> bool:
    return not expiry or expiry in _EXPIRIES
