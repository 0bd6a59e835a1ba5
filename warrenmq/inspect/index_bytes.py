"""The bytes of one message's entries in a queue's index, field by field: journal.jif and N.idx, or N.qi and N.qs.

    for each in records_of(findings, queue, entry_count, seq_id):
        print(each.file, each.offset, each.note)
        for field in each.fields:
            print(field.offset, field.name, field.data, field.says)

The places come from the readers that a start uses (queue_index/v1/reader.py, queue_index/v2/reader.py), and
the fields from the structs of the formats' own modules.  Only what lies on the disk is seen: entries in a
buffer are not there yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from warrenmq.inspect.index_v2 import IndexV2
from warrenmq.inspect.layout import QueueFolder
from warrenmq.inspect.reading import Findings
from warrenmq.message.stored import ERLANG_TERM, FRONT, SEALED
from warrenmq.queue_index.record import HEADER, HEADER_BYTES
from warrenmq.queue_index.v1 import journal as jif
from warrenmq.queue_index.v1 import segment as idx
from warrenmq.queue_index.v1.reader import Policy, read_journal, read_segment
from warrenmq.queue_index.v1.segment import Facts
from warrenmq.queue_index.v2 import qi, qs

BODY = "message"
"""The name of the field that holds what a user has published."""


class Field(NamedTuple):
    """A field of a record: its bytes and their meaning."""

    name: str
    offset: int
    """The field's offset in the file."""
    data: bytes
    says: str


class Record(NamedTuple):
    """A record of the message, or the header of a file."""

    file: str
    note: str
    """Further facts of the message, or damage; "" = nothing."""
    fields: list[Field]

    @property
    def offset(self) -> int:
        """The offset of its first byte in the file."""
        return self.fields[0].offset


def records_of(findings: Findings, queue: QueueFolder, entry_count: int, seq_id: int) -> list[Record]:
    """The records of a message on the disk; `entry_count` is that of the segments of version 1."""
    if queue.version == 2:
        return [*_of_v2(findings, queue.path, seq_id)]
    return [*_of_v1(findings, queue.path, entry_count, seq_id)]


class _Taken:
    """Fields that follow each other."""

    def __init__(self, data: bytes, offset: int) -> None:
        self.fields: list[Field] = []
        self._data, self._at = data, offset

    def take(self, name: str, size: int, says: str) -> None:
        """The next bytes; none if the file ends before them."""
        found = self._data[self._at : self._at + size]
        if found:
            self.fields.append(Field(name, self._at, found, says))
        self._at += size

    def message(self, size: int) -> None:
        """The next bytes are a stored message (message/stored.py)."""
        start = self._data[self._at : self._at + min(size, FRONT.size)]
        if start.startswith(SEALED) and len(start) == FRONT.size:
            _, crc, body = FRONT.unpack(start)
            self.take("version", len(SEALED), "a message with a checksum of its own")
            self.take("checksum", 4, f"{crc:#010x}: CRC-32 of what follows, bound to the sequence id")
            self.take("body size", 4, f"{body} bytes")
            size -= FRONT.size
            says = "exchange, routing keys, properties, body"
        else:
            says = (
                "an Erlang term" if start[:1] == bytes([ERLANG_TERM]) else "a message of an earlier version"
            )
        self.take(BODY, size, says)


def _expiry(microseconds: int) -> str:
    if not microseconds:
        return "never expires"
    try:
        when = datetime.fromtimestamp(microseconds / 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{microseconds} microseconds since 1970: no time that can be meant"
    return f"expires {when:%Y-%m-%d %H:%M:%S} UTC"


# -- version 1


def _of_v1(findings: Findings, folder: str, entry_count: int, seq_id: int) -> Iterator[Record]:
    number, relative = divmod(seq_id, entry_count)
    data = findings.read(f"{folder}/{jif.FILE_NAME}")
    if data is not None:
        facts = read_journal(data, entry_count, Policy.INSPECT).facts.get(number, Facts())
        mark = (jif.DELIVER | seq_id).to_bytes(jif.ACTION_BYTES, "big")
        prefix = "publish", jif.ACTION_BYTES, f"sequence id {seq_id}, {_durability(facts, relative)}"
        yield from _publish_v1(jif.FILE_NAME, data, facts, relative, prefix, mark)
    name = f"{number}{idx.EXTENSION}"
    data = findings.read(f"{folder}/{name}")
    if data is not None:
        facts, _ = read_segment(data, entry_count, Policy.INSPECT)
        mark = idx.pack_prefix(idx.MARK | relative)
        says = f"position {relative} of segment {number}, {_durability(facts, relative)}"
        yield from _publish_v1(name, data, facts, relative, ("publish", idx.MARK_BYTES, says), mark)


def _durability(facts: Facts, relative: int) -> str:
    return "transient" if relative in facts.transient else "persistent"


def _publish_v1(
    name: str, data: bytes, facts: Facts, relative: int, prefix: tuple[str, int, str], mark: bytes
) -> Iterator[Record]:
    """The publish of a message, and the deliver that follows it at once."""
    told = [
        word for word, of in (("delivered", facts.delivered), ("acknowledged", facts.acked)) if relative in of
    ]
    note = f"The file says that it is {' and '.join(told)}." if told else ""
    place = facts.places.get(relative)
    if place is None:
        if told:
            yield Record(
                name, note, [Field("marks", 0, b"", "two bits and its number each, anywhere in the file")]
            )
        return
    taken, body = _Taken(data, place), place + prefix[1] + HEADER_BYTES
    msg_id, expiry, size, embedded = HEADER.unpack_from(data, place + prefix[1])
    taken.take(*prefix)
    taken.take("message id", len(msg_id), "unique; a message store finds a body by it")
    taken.take("expiry", 8, _expiry(expiry))
    taken.take("size", 4, f"the body has {size} bytes")
    taken.take(
        "embedded",
        4,
        f"{embedded} bytes of message follow" if embedded else "0: the body is in a message store",
    )
    if embedded:
        taken.message(embedded)
    if data.startswith(mark, body + embedded):
        taken.take("deliver", len(mark), "it was delivered; written with each publish")
    yield Record(name, note, taken.fields)


# -- version 2


def _of_v2(findings: Findings, folder: str, seq_id: int) -> Iterator[Record]:
    index = IndexV2(findings, folder)
    number, position = divmod(seq_id, index.entry_count)
    name, bodies = f"{number}{qi.EXTENSION}", f"{number}{qs.EXTENSION}"
    data = index.data(number, qi.EXTENSION)
    if data is None:
        return
    place = qi.HEADER_BYTES + position * qi.ENTRY_BYTES
    if len(data) < place + qi.ENTRY_BYTES:
        said = f"its entry would begin at byte {place}, and the file has {len(data)} bytes"
        yield Record(name, "It is not written yet.", [Field("entry", place, b"", said)])
    else:
        record, found = _entry(name, data, place)
        yield record
        if found is not None and found.location == qi.Location.QUEUE_STORE:
            yield from _body(findings, f"{folder}/{bodies}", bodies, found)
    yield _header(name, qi.MAGIC, data)


def _entry(name: str, data: bytes, place: int) -> tuple[Record, qi.Entry | None]:
    problem = qi.entry_problem(data, place)
    found = None if problem else qi.unpack_entry(data[place : place + qi.ENTRY_BYTES])
    taken = _Taken(data, place)
    if found is None:
        taken.take("entry", qi.ENTRY_BYTES, problem or "status 0: acknowledged, or never written")
        return Record(name, f"It is damaged: {problem}." if problem else "", taken.fields), None
    taken.take("status", 1, "1: live")
    taken.take("flags", 1, "persistent" if found.persistent else "transient")
    taken.take("zero", 1, "nothing")
    if found.location == qi.Location.STORE:
        taken.take("location", 1, "1: the body is in a message store")
        taken.take("message id", qi.MSG_ID_BYTES, "unique; the store finds the body by it")
    else:
        taken.take("location", 1, f"2: the body is in the {qs.EXTENSION} file of this number")
        taken.take("offset", 8, f"byte {found.offset} of that file")
        taken.take("stored size", 4, f"{found.stored_size} bytes of data there")
        taken.take("zero", 4, "nothing")
    taken.take("size", 4, f"the body has {found.size} bytes")
    taken.take("expiry", 8, _expiry(found.expiry))
    return Record(name, "", taken.fields), found


def _body(findings: Findings, path: str, name: str, entry: qi.Entry) -> Iterator[Record]:
    data = findings.read(path)
    if data is None or len(data) < entry.offset + qs.ENTRY_HEADER_BYTES:
        return
    size, has_crc, crc, _ = qs.ENTRY_HEADER.unpack_from(data, entry.offset)
    problem = qs.entry_problem(data, entry.offset, entry.stored_size)
    taken = _Taken(data, entry.offset)
    taken.take("size", 4, f"{size} bytes of data follow")
    taken.take("has crc", 1, "1: a checksum follows" if has_crc else "0: without a checksum")
    taken.take("crc", 2, f"{crc:#06x}: the low half of the data's CRC-32" if has_crc else "nothing")
    taken.take("zero", 1, "nothing")
    taken.message(min(size, len(data) - entry.offset - qs.ENTRY_HEADER_BYTES))
    yield Record(name, f"It is damaged: {problem}." if problem else "", taken.fields)
    yield _header(name, qs.MAGIC, data)


def _header(name: str, magic: bytes, data: bytes) -> Record:
    found = qi.unpack_header(magic, data)
    taken = _Taken(data, 0)
    if isinstance(found, str):
        taken.take("header", qi.HEADER_BYTES, found)
        return Record(
            name, f"The header is damaged: {found}.", taken.fields or [Field("header", 0, b"", found)]
        )
    taken.take("magic", len(magic), magic.decode())
    taken.take("version", 1, f"{qi.VERSION}")
    taken.take("first", 8, f"sequence id {found.first} is the first")
    taken.take("end", 8, f"and {found.end - 1} the last one of the segment")
    taken.take("zeros", qi.HEADER_BYTES - len(magic) - 17, "nothing")
    return Record(name, "The header of the file.", taken.fields)
