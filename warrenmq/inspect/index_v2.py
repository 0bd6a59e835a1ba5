"""Reading an index of version 2, N.qi and N.qs, without changing or refusing anything.

The formats are in queue_index/v2/qi.py and queue_index/v2/qs.py.  RabbitMQ deletes a segment whose header is damaged, and crashes over
a torn last entry; here a header is only needed to count sequence ids, and a torn entry is read as far as it goes:
what is missing of it, N.qs tells (its bodies say how long they are).

Source: rabbit_classic_queue_index_v2, rabbit_classic_queue_store_v2; docs/reference/classic-queue.md#index-files,
#index-operations, #recovery-of-version-2 and #store-files.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from warrenmq.inspect.entries import Entry, Where
from warrenmq.message.stored import SEALED
from warrenmq.queue_index.v2 import qi, qs

if TYPE_CHECKING:
    from warrenmq.inspect.reading import File, Findings

ENTRIES = 4096
"""A segment's entries, where no header tells (classic_queue_index_v2_segment_entry_count)."""
_LOCATION_KNOWN = {int(qi.Location.STORE): 20, int(qi.Location.QUEUE_STORE): 12}
"""Bytes of a torn entry that must be there to find its message."""
_MOST_BYTES = qi.HEADER_BYTES + (1 << 16) * qi.ENTRY_BYTES


def entry_count(findings: Findings, folder: str, numbers: list[int]) -> int:
    """How many sequence ids a segment of this queue has: what most of its headers say that are their files' own."""
    found: Counter[int] = Counter()
    for number in numbers:
        for extension, magic in ((qi.EXTENSION, qi.MAGIC), (qs.EXTENSION, qs.MAGIC)):
            file = findings.open(f"{folder}/{number}{extension}")
            if file is not None:
                with file:
                    header = qi.unpack_header(magic, file.pread(qi.HEADER_BYTES, 0))
                if isinstance(header, qi.Header) and foreign(header, number) is None:
                    found[header.end - header.first] += 1
    return found.most_common(1)[0][0] if found else ENTRIES


def foreign(header: qi.Header, number: int) -> str | None:
    """Why a sound header is not that of the file with this number, if it is not: RabbitMQ goes by the name alone."""
    if header.first == number * (header.end - header.first):
        return None
    return f"its header says {header.first} to {header.end}, which is no segment of number {number}"


def read(findings: Findings, folder: str, number: int, entry_count: int) -> tuple[list[Entry], str | None]:
    """The live entries of a segment, ascending, and why RabbitMQ would not give them back, if it would not."""
    index = findings.open(f"{folder}/{number}{qi.EXTENSION}")
    if index is None:
        return [], None
    bodies = findings.open(f"{folder}/{number}{qs.EXTENSION}")
    with index:
        data = index.pread(_MOST_BYTES, 0)
        reader = _Segment(index, bodies, number, entry_count)
        try:
            return reader.read(data)
        finally:
            if bodies is not None:
                bodies.close()


class _Segment:
    def __init__(self, index: File, bodies: File | None, number: int, entry_count: int) -> None:
        self._index = index
        self._bodies = bodies
        self._number = number
        self._first = number * entry_count
        self._count = entry_count
        self._refused: str | None = None

    def read(self, data: bytes) -> tuple[list[Entry], str | None]:
        header = qi.unpack_header(qi.MAGIC, data)
        if isinstance(header, str):
            self._index.note(0, header)
            self._refused = f"RabbitMQ deletes {self._name}, whose header is damaged"
        elif (problem := foreign(header, self._number)) is not None:
            self._index.note(0, problem)
        else:
            self._first, self._count = header.first, header.end - header.first
        end = qi.HEADER_BYTES + self._count * qi.ENTRY_BYTES
        if any(data[end:]):
            self._index.note(end, "it goes on behind its last entry")
            data = data[:end]
        if self._bodies is not None:
            problem = qs.header_problem(self._bodies.pread(qi.HEADER_BYTES, 0))
            if problem is not None and self._bodies.size():
                self._bodies.note(0, problem)
        found = [
            entry
            for position in range(qi.HEADER_BYTES, len(data), qi.ENTRY_BYTES)
            if data[position] and (entry := self._entry(data[position : position + qi.ENTRY_BYTES], position))
        ]
        return found, self._refused

    @property
    def _name(self) -> str:
        return self._index.path.rpartition("/")[2]

    def _entry(self, data: bytes, position: int) -> Entry | None:
        seq_id = self._first + (position - qi.HEADER_BYTES) // qi.ENTRY_BYTES
        salvaged = None
        if len(data) < qi.ENTRY_BYTES:
            self._index.note(position, "an entry is cut off")
            self._refused = (
                self._refused
                or f"RabbitMQ does not start a queue with a torn entry at the end of {self._name}"
            )
            if len(data) < 4 or len(data) < _LOCATION_KNOWN.get(data[3], qi.ENTRY_BYTES):
                return None
            salvaged = "its index entry is cut off"
            data += bytes(qi.ENTRY_BYTES - len(data))
            if data[3] == qi.Location.QUEUE_STORE:
                data = self._completed(data)
        if (problem := qi.entry_problem(data)) is not None:
            self._index.note(position, problem)
            return None
        entry = qi.unpack_entry(data)
        if entry is None:
            return None
        if entry.location == qi.Location.STORE:
            return Entry(
                seq_id, entry.persistent, entry.msg_id, entry.expiry, entry.size, Where.STORE, self._name, position,
                salvaged=salvaged,
            )  # fmt: skip
        return Entry(
            seq_id, entry.persistent, b"", entry.expiry, entry.size, Where.QUEUE_STORE,
            self._name.removesuffix(qi.EXTENSION) + qs.EXTENSION,
            entry.offset, qs.ENTRY_HEADER_BYTES, entry.stored_size, salvaged,
        )  # fmt: skip

    def _completed(self, data: bytes) -> bytes:
        """A torn entry with its stored size as the body file has it."""
        offset = int.from_bytes(data[4:12], "big")
        size = self._bodies.pread(4, offset) if self._bodies is not None else b""
        return data[:12] + size.ljust(4, b"\0") + data[16:]


def body_problem(bodies: File, entry: Entry) -> str | None:
    """Why the body file does not have an entry's body, from its header alone."""
    header = bodies.pread(entry.head, entry.offset)
    if entry.offset + entry.head + entry.stored_size > bodies.size() or len(header) < entry.head:
        return "its body is cut off"
    size, has_crc, _, zero = qs.ENTRY_HEADER.unpack(header)
    if size != entry.stored_size or has_crc > qs.HAS_CRC or zero:
        return "the body file has something else in its place"
    return None


def checksum_problem(bodies: File, entry: Entry, stored: bytes) -> str | None:
    """Whether a stored message has the checksum of its entry's header, unless it has a better one of its own."""
    if stored.startswith(SEALED):
        return None
    _, has_crc, crc, _ = qs.ENTRY_HEADER.unpack(bodies.pread(entry.head, entry.offset))
    return "its body does not have its checksum" if has_crc and not qs.crc_matches(stored, crc) else None
