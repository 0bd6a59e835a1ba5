"""The lenient reader of journal.jif and N.idx: finds whole records, damage, and where to go on behind it.

Recovery, `check`, `repair` and `recover` all read with this; `Policy` says in what they differ.  The formats
are in journal.py and segment.py.  Neither has a checksum or an end mark, so damage shows as a record that
cannot be.  Records behind it are still to be found, since a whole publish with its deliver mark is hardly
ever seen by chance.

    behind a publish comes                              it is
    its own deliver mark                                whole, whatever is inside the message (a checksum tells later)
    anything else, and the message ends as claimed      whole: RabbitMQ before 3.10 wrote no deliver marks
    zeros, and it ends in a zero that may be a torn     torn
    byte
    its own mark, where the message itself ends         its size is damage (Policy)
    anything else                                       damage, up to the next certain record

    certain outside the chain
    a publish with its own mark, or whose message ends as claimed; without both, one that looks right and is followed
    by another record
    marks of known messages, up to such a publish or the end: in a segment file only right behind one damaged mark,
    as two letters of a text look like a mark

Half a record that was copied to a wrong place claims bytes of the next ones.  So a publish without its own mark is none if a
certain one begins inside it, and a whole one of the same sequence id replaces it; marks before damage may have been the head
of a publish.

Zeros at the end of a journal are what a power cut or a file system leaves, and no damage; in a segment file they are, since
RabbitMQ crashes over them.

Source: rabbit_queue_index, docs/reference/classic-queue.md#journal, #segment-files, #merge-rules and #torn-tails.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import ne
from struct import Struct

from warrenmq.directory.torn import OUT_OF_STEP, Damage, in_doubt
from warrenmq.message.extent import FIRST_BYTES, WARREN_MESSAGE, stored_end
from warrenmq.message.stored import bin_header
from warrenmq.queue_index.record import HEADER, HEADER_BYTES, columns, lengths_agree
from warrenmq.queue_index.v1 import journal as jif
from warrenmq.queue_index.v1 import segment as idx
from warrenmq.queue_index.v1.segment import Facts

_ALIKE = 16
"""Records that are taken together at first; as many again before the next attempt when they were not alike."""
_RUN_OF_MARKS = 13
"""26 bytes, more than a message id, so that random bytes are not taken for a run of marks; the expiry after them is
hardly ever anything but zeros."""
_ZEROS_BY_CHANCE = 4
"""The number of zeros that eight random bytes do not reach."""
_EXPIRIES = range(1 << 50, 1 << 53)
"""The range of plausible expiries: from 2005 to 2255."""
_LOOKS_LIKE_A_RECORD = (
    rb"(?!\x00{16}).{16}"  # message id
    rb"\x00.{7}"  # expiry: none, or before the year 4253
    rb".{4}(?:\x00{4}|\x00.{3}[\x83\x95])"  # sizes, first byte of an embedded message
)


class Policy(Enum):
    """The purpose of reading a file.  All else is read alike, so a start and `check` see the same messages.

    | found                                                | RECOVER             | INSPECT                            |
    | ---------------------------------------------------- | ------------------- | ---------------------------------- |
    | the size of an embedded message is wrong, but the    | damage              | damage, and the message with its   |
    | message itself ends before its own mark              |                     | true size                          |
    | a journal of nothing but zeros, or with fewer at its | a power cut left it | damage                             |
    | end than an action has bytes                         |                     |                                    |
    | records                                              | whole               | their headers; messages stay in    |
    |                                                      |                     | the file, at `Facts.places`        |
    """

    RECOVER = auto()
    """Read to go on with the queue: what is taken must be right in the file, too."""
    INSPECT = auto()
    """Read to list, to mend or to move messages: take all that can be read."""


class _Kind(Enum):
    """The meaning of the two highest bits of a prefix."""

    NOTHING = auto()
    PUBLISH = auto()
    TRANSIENT = auto()
    MARK = auto()
    """Segment files: the first of a message is a deliver, the second an ack."""
    DELIVER = auto()
    ACK = auto()


@dataclass(frozen=True, slots=True)
class _Layout:
    """The differences between journal and segment files."""

    prefix: Struct
    """The prefix of a record, and the whole of a mark; two bits are its kind, the others the sequence id, or the position
    in the segment."""
    kinds: tuple[_Kind, _Kind, _Kind, _Kind]
    publish: int
    """The highest bits of a persistent publish."""
    mark: int
    """The highest bits of a deliver mark."""
    looks_right: re.Pattern[bytes]
    most_ahead: int
    """The largest distance beyond the known ones of a sequence id that no mark confirms."""


_JOURNAL = _Layout(
    Struct(">Q"), (_Kind.PUBLISH, _Kind.TRANSIENT, _Kind.DELIVER, _Kind.ACK), 0, jif.DELIVER,
    re.compile(rb"[\x00\x40]\x00.{6}" + _LOOKS_LIKE_A_RECORD, re.DOTALL), 1 << 16,
)  # fmt: skip
_SEGMENT = _Layout(
    Struct(">H"), (_Kind.NOTHING, _Kind.MARK, _Kind.TRANSIENT, _Kind.PUBLISH), idx.PUBLISH | idx.PERSISTENT, idx.MARK,
    re.compile(rb"[\x80-\xff]." + _LOOKS_LIKE_A_RECORD, re.DOTALL), 1 << 14,
)  # fmt: skip


@dataclass(slots=True)
class Reading:
    """The decoded contents of a file."""

    facts: dict[int, Facts] = field(default_factory=dict)
    """The facts by segment number; those of a single segment file by 0."""
    damage: list[Damage] = field(default_factory=list)
    actions: int = 0
    next_seq_id: int = 0
    """One more than the largest sequence id that anything names."""
    end: int = 0
    """The end of the last record; behind it are zeros, or less than a record."""


def read_journal(data: bytes, entry_count: int, policy: Policy = Policy.RECOVER) -> Reading:
    """Decode a journal; never raises, whatever the bytes."""
    reading = _Reader(data, _JOURNAL, entry_count, jif.PLAUSIBLE_SEQ_ID, policy).read()
    _forget_early_ack(data, reading, entry_count)
    return reading


def _forget_early_ack(data: bytes, reading: Reading, entry_count: int) -> None:
    """Forget the ack with which a journal begins if its message is published only behind it.

    It told how far the queue had come (Journal.restart).  Conversions from version 2 used to move that message after it.
    """
    first = data[: jif.ACTION_BYTES]
    kind, seq_id = divmod(int.from_bytes(first, "big"), jif.NO_SEQ_ID)
    number, relative = divmod(seq_id, entry_count)
    facts = reading.facts.get(number)
    if (
        facts is not None
        and _JOURNAL.kinds[kind] is _Kind.ACK
        and relative in facts.published
        and data.find(first, 1) < 0
    ):
        facts.acked.discard(relative)


def read_segment(
    data: bytes, entry_count: int, policy: Policy = Policy.RECOVER
) -> tuple[Facts, list[Damage]]:
    """Decode a segment file; never raises, whatever the bytes."""
    reading = _Reader(data, _SEGMENT, entry_count, entry_count, policy).read()
    return reading.facts.get(0) or Facts(), reading.damage


class _NoRecord(Exception):
    """The bytes at a place are no record."""

    def __init__(self, reason: str, resume: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.resume = resume
        """The offset from which records follow for certain; 0 if that is to be found out."""


class _Reader:
    """One file, which is read as a chain of records, each where the one before it ends."""

    def __init__(self, data: bytes, layout: _Layout, entry_count: int, limit: int, policy: Policy) -> None:
        self._data = data
        self._layout = layout
        self._entry_count = entry_count
        self._limit = limit
        """Sequence ids are below it."""
        self._policy = policy
        self._width = layout.prefix.size
        self._shift = 8 * self._width - 2
        self._seq_id = (1 << self._shift) - 1
        self._reading = Reading()
        self._unmarked: set[int] = set()
        """Published without their own mark behind them."""
        self._believed = 0
        """The end of the last publish with its own mark."""
        self._last_publish = -1
        """The beginning of the last publish without its own mark."""
        self._undo_mark: set[int] | None = None
        """The set that the last mark was added to."""
        self._highest = -1
        """The highest sequence id of a record; `Reading.next_seq_id` follows it at damage and at the end."""
        self._first = 0
        """The first sequence id of the segment that the record being read belongs to."""
        self._last_size = -1
        """The size of the body that the last publish has."""
        self._look_again = 0
        """The offset from which it is worth looking again whether the next publishes are all alike."""

    def read(self) -> Reading:
        data, reading = self._data, self._reading
        zeros = len(data.rstrip(b"\x00"))
        position, reason, following = self._records(0)
        while True:
            # marks before damage, or before the end, may have been the head of a publish
            inside = self._next_publish(max(self._believed, position - OUT_OF_STEP), position, certain=True)
            if inside < position:
                self._believed = inside + 1
                reading.damage.append(Damage(inside, 0, "marks reach into a publish"))
                position, reason, following = self._records(inside)
                continue
            reading.end = position
            if position == len(data):
                return reading
            torn = position
            if not any(data[position : position + self._width]):
                torn = self._distrust_last(position)
            if position >= zeros:
                self._zero_tail(torn, position)
                return reading
            resume = following or self._resume(position)
            self._believed = max(self._believed, resume + 1)
            reading.damage.append(Damage(torn, resume - torn, reason))
            position, reason, following = self._records(resume)

    def _records(self, position: int) -> tuple[int, str, int]:
        """Read from `position` to the end or to the first bytes that make no sense: where, why, and where records
        follow for certain, if that is known (else 0).
        """
        data, reading, entry_count, limit = self._data, self._reading, self._entry_count, self._limit
        unpack, shift, mask = self._layout.prefix.unpack_from, self._shift, self._seq_id
        cases = {
            _Kind.NOTHING: self._nothing,
            _Kind.PUBLISH: self._publish,
            _Kind.TRANSIENT: self._transient,
            _Kind.MARK: self._mark,
            _Kind.DELIVER: self._deliver,
            _Kind.ACK: self._ack,
        }
        read = [cases[kind] for kind in self._layout.kinds]
        last = len(data) - self._width
        facts, self._first = Facts(), -entry_count  # no sequence id is in this segment
        self._last_size, self._look_again = -1, 0
        try:
            while position <= last:
                (action,) = unpack(data, position)
                seq_id = action & mask
                if seq_id >= limit:
                    raise _NoRecord(f"sequence id {seq_id} is not below {limit}")
                relative = seq_id - self._first
                if not 0 <= relative < entry_count:
                    number, relative = divmod(seq_id, entry_count)
                    self._first = seq_id - relative
                    facts = reading.facts.setdefault(number, Facts())
                position = read[action >> shift](position, relative, facts)
                if seq_id > self._highest:  # noqa: PLR1730 - max() costs three times as much, on every record
                    self._highest = seq_id
        except _NoRecord as found:
            return position, found.reason, found.resume
        finally:
            reading.next_seq_id = self._highest + 1
        return position, "a record is cut off", 0

    # one method for each kind of record: adds it to the facts of its segment and returns where it ends

    def _nothing(self, *_: object) -> int:
        raise _NoRecord("no record begins with the bits 00")

    def _ack(self, position: int, relative: int, facts: Facts) -> int:
        self._undo_mark = None if relative in facts.acked else facts.acked
        facts.acked.add(relative)
        self._reading.actions += 1
        return position + self._width

    def _deliver(self, position: int, relative: int, facts: Facts) -> int:
        self._undo_mark = None  # one too few or too many says nothing
        facts.delivered.add(relative)
        self._reading.actions += 1
        return position + self._width

    def _mark(self, position: int, relative: int, facts: Facts) -> int:
        after = position + self._width
        if relative in facts.delivered:
            return self._ack(position, relative, facts)
        if relative in facts.published:
            self._undo_mark = facts.delivered
            facts.delivered.add(relative)
        elif not self._in_step(after):
            # where records follow, only the publish of this mark was damaged, and it is set aside already
            raise _NoRecord("a mark without a publish is followed by bytes that are no record")
        elif not self._reading.damage:
            raise _NoRecord("a mark comes before its publish", after)
        self._reading.actions += 1
        return after

    def _transient(self, position: int, relative: int, facts: Facts) -> int:
        after = self._publish(position, relative, facts)
        facts.transient.add(relative)
        return after

    def _publish(self, position: int, relative: int, facts: Facts) -> int:
        """Read a publish, with its own mark if that follows, or a run of publishes that look alike."""
        data, recover = self._data, self._policy is Policy.RECOVER
        start = position + self._width
        body = start + HEADER_BYTES
        if body > len(data):
            raise _NoRecord("a publish is cut off")
        msg_id, expiry, size, embedded = HEADER.unpack_from(data, start)
        if recover and size == self._last_size and position >= self._look_again:
            after: int = self._alike(position, facts)
            self._look_again = after + _ALIKE * (body + embedded - position)
            if after > position:
                return after
        seq_id, stop = self._first + relative, body + embedded
        marked = data.startswith(self._own_mark(seq_id), stop) and (not embedded or data[body] in FIRST_BYTES)
        if not marked:
            stop, marked = self._without_mark(position, seq_id, size, stop)
        after = stop + self._width if marked else stop
        if relative in facts.published:
            if not (marked and seq_id in self._unmarked):
                raise _NoRecord(f"sequence id {seq_id} is published twice", after if marked else 0)
            self._take_back(facts, relative, seq_id)
        facts.published[relative] = (
            data[start:stop] if recover else HEADER.pack(msg_id, expiry, size, stop - body)
        )
        facts.places[relative] = position
        self._last_size, self._undo_mark = size, None
        if marked:
            facts.delivered.add(relative)
            self._last_publish, self._believed = -1, after
        else:
            self._unmarked.add(seq_id)
            self._last_publish = position
        self._reading.actions += 1 + marked
        return after

    def _alike(self, position: int, facts: Facts) -> int:
        """Read persistent publishes, each with its mark, that have the lengths of the one at `position`.

        Returns where they end, which is at `position` when anything is odd: `_publish` then looks at it.

        Most queues hold messages of one size.  Taking them by the column, not by the record, halves the time of a read.
        """
        data, layout = self._data, self._layout
        record = position + self._width
        _, _, size, embedded = HEADER.unpack_from(data, record)
        # the bytes that show that the lengths agree: both of them, the first byte of the message and the header of its body
        start, body = HEADER_BYTES + 1, HEADER_BYTES + embedded - size
        header = body - len(bin_header(size))
        sample = data[record : record + HEADER_BYTES + embedded]
        if not lengths_agree(sample, HEADER_BYTES, len(sample), size):
            return position
        if not embedded:
            header = body = start
        lengths = sample[24:start], sample[header:body]
        letter = layout.prefix.format[-1]
        row = Struct(f">{letter}{HEADER_BYTES + embedded}s{letter}")
        view = memoryview(data)
        less, more = layout.publish + self._first, layout.mark - layout.publish
        many = _ALIKE
        while many := min(many, (len(data) - position) // row.size):
            stop = position + many * row.size
            prefixes, records, marks = columns(row.iter_unpack(view[position:stop]), 3)
            relatives = [prefix - less for prefix in prefixes]
            if (
                any(map(ne, marks, [prefix + more for prefix in prefixes]))
                or min(relatives) < 0
                or max(relatives) >= self._entry_count
                or len({*relatives}) < many
                or not facts.published.keys().isdisjoint(relatives)
                or any((each[24:start], each[header:body]) != lengths for each in records)
            ):
                break
            facts.published.update(zip(relatives, records, strict=True))
            facts.places.update(zip(relatives, range(position, stop, row.size), strict=True))
            facts.delivered.update(relatives)
            self._highest = max(self._highest, self._first + max(relatives))
            self._reading.actions += 2 * many
            self._last_publish, self._undo_mark = -1, None
            position = self._believed = stop
            many *= 2
        return position

    def _without_mark(self, position: int, seq_id: int, size: int, stop: int) -> tuple[int, bool]:
        """A publish that its own mark does not follow where its size says: where it ends, and whether its
        mark stands there.
        """
        data = self._data
        record = position + self._width
        body = record + HEADER_BYTES
        if stop > len(data) or not self._ends(body, stop, size):
            end = stored_end(data, body) if self._policy is Policy.INSPECT else None
            if end is None or end == stop or not data.startswith(self._own_mark(seq_id), end):
                raise _NoRecord("a publish is cut off, or one of its lengths is wrong")
            if self._next_publish(position + 1, end, certain=True) < end:
                raise _NoRecord("a publish reaches into the next one")
            reason = "the size of an embedded message is wrong"
            self._reading.damage.append(Damage(position, end - position, reason))
            return end, True
        if not _random(data[record : record + 8]):
            raise _NoRecord("a message id is hardly anything but zeros")
        if self._next_publish(position + 1, stop, certain=True) < stop:
            raise _NoRecord("a publish reaches into the next one")
        return stop, False

    def _own_mark(self, seq_id: int) -> bytes:
        """The deliver mark that ends the publish of this sequence id."""
        return self._layout.prefix.pack(self._layout.mark | seq_id)

    def _ends(self, body: int, stop: int, size: int) -> bool:
        """True if data[body:stop] is a whole message as far as its own lengths tell; without bytes it is."""
        if not lengths_agree(self._data, body, stop, size):
            return False
        return body == stop or self._data[body] == WARREN_MESSAGE or stored_end(self._data, body) == stop

    def _take_back(self, facts: Facts, relative: int, seq_id: int) -> None:
        """A publish was none.  Marks in a segment file were its own; acks in a journal have their own sequence id."""
        del facts.published[relative]
        taken = (
            (facts.transient, facts.delivered, facts.acked)
            if self._layout is _SEGMENT
            else (facts.transient,)
        )
        for each in taken:
            each.discard(relative)
        self._unmarked.discard(seq_id)

    def _distrust_last(self, position: int) -> int:
        """Zeros begin at `position`: take back the record before them if they may have replaced its end; where it began.

        After a power cut a file can have its new length before it has its bytes.  A publish has its mark behind it, or
        it is torn, unless it ends in a byte that arrived; of a mark only one that ends in zeros across a sector
        boundary is in doubt.
        """
        data, layout = self._data, self._layout
        start = self._last_publish
        if start >= 0:
            (action,) = layout.prefix.unpack_from(data, start)
            number, relative = divmod(action & self._seq_id, self._entry_count)
            facts = self._reading.facts[number]
            _, _, size, embedded = HEADER.unpack_from(data, start + self._width)
            ends_here = start + self._width + HEADER_BYTES + embedded == position
            whole = data[position - 1] if embedded else size
            if ends_here and not whole:
                self._take_back(facts, relative, action & self._seq_id)
                return start
        start = position - self._width
        if self._undo_mark is not None and in_doubt(data[start:position], start):
            (action,) = layout.prefix.unpack_from(data, start)
            self._undo_mark.discard((action & self._seq_id) % self._entry_count)
            return start
        return position

    def _zero_tail(self, torn: int, position: int) -> None:
        """Tell what is damage when nothing but zeros follows; the record before them, at `torn`, may be."""
        size = len(self._data)
        if self._layout is _SEGMENT:
            reason = f"{size - position} zero bytes up to the end of the file are no records"
            self._reading.damage.append(Damage(torn, size - torn, reason))
            return
        if torn < position:
            what = "a publish" if position - torn > self._width else "an ack"
            self._reading.damage.append(Damage(torn, position - torn, f"{what} is followed by zeros"))
        if self._policy is Policy.INSPECT:
            if position == 0:
                reason = f"{size} zero bytes up to the end of the file are no records"
                self._reading.damage.append(Damage(0, size, reason))
            elif size - position < self._width:
                self._reading.damage.append(Damage(position, size - position, "a record is cut off"))

    def _in_step(self, position: int) -> bool:
        """True if records seem to begin here; asked after a mark without a publish, which may be a damaged publish."""
        data = self._data
        for _ in range(_RUN_OF_MARKS):
            if position + idx.MARK_BYTES > len(data):
                return True
            if data[position] >= idx.PUBLISH >> 8:
                return self._layout.looks_right.match(data, position) is not None
            if data[position] < idx.MARK >> 8:
                return False
            position += idx.MARK_BYTES
        return True

    # where it goes on

    def _resume(self, position: int) -> int:
        """The next place behind `position` where a record begins for certain, or the end of the file."""
        width = self._width
        place = self._next_publish(position + 1, len(self._data), certain=False)
        if place == len(self._data) and self._is_cut_off(position):
            return place  # its last bytes may read as an ack, and to believe that could cost a message
        marks = place
        while marks - width > position and self._is_known_mark(marks - width):
            marks -= width
        return marks if self._layout is _JOURNAL or marks == position + width else place

    def _is_cut_off(self, position: int) -> bool:
        """True if a publish begins here that is longer than the rest of the file, as a kill or a power cut leaves one."""
        data = self._data
        if position + self._width > len(data):
            return False
        (action,) = self._layout.prefix.unpack_from(data, position)
        record = position + self._width
        body = record + HEADER_BYTES
        if self._layout.kinds[action >> self._shift] not in (_Kind.PUBLISH, _Kind.TRANSIENT):
            return False
        return body > len(data) or body + HEADER.unpack_from(data, record)[3] > len(data)

    def _is_known_mark(self, position: int) -> bool:
        """True if a mark stands here of a message that the file publishes."""
        (action,) = self._layout.prefix.unpack_from(self._data, position)
        if self._layout.kinds[action >> self._shift] not in (_Kind.MARK, _Kind.DELIVER, _Kind.ACK):
            return False
        number, relative = divmod(action & self._seq_id, self._entry_count)
        facts = self._reading.facts.get(number)
        return facts is not None and relative in facts.published

    def _next_publish(self, position: int, limit: int, *, certain: bool) -> int:
        """The first place before `limit` where a publish begins, or `limit`.

        `certain`: only one whose end is confirmed, by its own mark or by its message.
        """
        search = self._layout.looks_right.search
        most = limit + self._width + HEADER_BYTES + 1
        while position < limit and (match := search(self._data, position, most)) is not None:
            position = match.start()
            if position < limit and self._is_publish(position, certain=certain):
                return position
            position += 1
        return limit

    def _is_publish(self, position: int, *, certain: bool) -> bool:
        data, layout = self._data, self._layout
        (action,) = layout.prefix.unpack_from(data, position)
        seq_id = action & self._seq_id
        record = position + self._width
        _, expiry, size, embedded = HEADER.unpack_from(data, record)
        body = record + HEADER_BYTES
        stop = body + embedded
        if seq_id >= self._limit or stop > len(data) or not _random(data[record : record + 8]):
            return False
        marked = data.startswith(self._own_mark(seq_id), stop)
        if self._is_published(seq_id) and not (marked and seq_id in self._unmarked):
            return False
        if marked:
            return self._ends(body, stop, size)
        if expiry and expiry not in _EXPIRIES:
            return False
        if seq_id >= (self._reading.next_seq_id or seq_id) + layout.most_ahead:
            return False
        if embedded:
            return self._ends(body, stop, size)
        # One of before 3.10 without a message tells nothing of its end; a byte beside one with zeros in it seems
        # to be another.
        return not certain and size > 0 and self._looks_like_a_record(stop)

    def _is_published(self, seq_id: int) -> bool:
        number, relative = divmod(seq_id, self._entry_count)
        facts = self._reading.facts.get(number)
        return facts is not None and relative in facts.published

    def _looks_like_a_record(self, position: int) -> bool:
        """True if a place that should be behind a publish of before 3.10 looks like it."""
        if position + self._width > len(self._data):
            return position == len(self._data)
        (action,) = self._layout.prefix.unpack_from(self._data, position)
        kind = self._layout.kinds[action >> self._shift]
        if kind in (_Kind.PUBLISH, _Kind.TRANSIENT):
            return self._layout.looks_right.match(self._data, position) is not None
        return kind is not _Kind.NOTHING and self._is_published(action & self._seq_id)


def _random(half_an_id: bytes) -> bool:
    """True if it may be the first half of a message id, which is random in RabbitMQ and here."""
    return half_an_id.count(0) < _ZEROS_BY_CHANCE
