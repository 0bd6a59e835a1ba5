"""The records of the commit log, as bytes.

A record is what one sync made durable: bytes at places of files, whatever these files are.

    |0        |4       |8         |16            |24           |32        |36      |40
    | "WQlg"  | crc32  | id (u64) | number (u64) | first (u64) | length   | flags  | entries ...   zeros to the next sector

    crc32     of everything from `id` to the end of the entries
    id        of the log: a message may have a copy of some other log in it
    number    one more than that of the record before
    first     the oldest record that a replay still needs
    length    bytes of the entries
    flags     1: every file was synced by itself when this was written, and the log closed

    entry     | kind (u8) | 0 | length of the path (u16) | bytes (u32) | offset (u64) | path | bytes |

    WRITE     these bytes stand at this offset of the file
    FORGET    what earlier records say of the file is not to be written any more

All numbers are big-endian.  A path is relative to the data directory.  A record begins at a sector, so that a write which was
torn spoils no record but its own, and so that a reader finds the records behind one that is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from warrenmq.errors import CorruptFile
from warrenmq.seams.disk import SECTOR

MAGIC = b"WQlg"
CLEAN = 1
_HEAD = Struct(">4sI")
_FIELDS = Struct(">QQQII")
HEADER_BYTES = _HEAD.size + _FIELDS.size
_ENTRY = Struct(">BxHIQ")
ENTRY_BYTES = _ENTRY.size
_WRITE, _FORGET = 1, 2
_ZEROS = bytes(SECTOR)


class Write(NamedTuple):
    """Bytes at a place of a file."""

    path: str
    offset: int
    data: bytes


class Forget(NamedTuple):
    """An entry that cancels the earlier entries of a file."""

    path: str


class Record(NamedTuple):
    """One record read from a log; its checksum is right."""

    id: int
    number: int
    first: int
    clean: bool
    body: bytes
    end: int
    """The offset of the next record."""

    def entries(self) -> Iterator[Write | Forget]:
        """Decode the record's entries in order; CorruptFile if they are malformed."""
        body, at = self.body, 0
        while at < len(body):
            if len(body) - at < ENTRY_BYTES:
                raise CorruptFile("commit log", at, "an entry is cut off")
            kind, length, size, offset = _ENTRY.unpack_from(body, at)
            start = at + ENTRY_BYTES + length
            at = start + size
            if at > len(body) or kind not in {_WRITE, _FORGET}:
                raise CorruptFile("commit log", start, "an entry makes no sense")
            path = body[start - length : start].decode(errors="surrogateescape")
            yield Write(path, offset, body[start:at]) if kind == _WRITE else Forget(path)


def encoded(path: str) -> bytes:
    """Encode a path for an entry."""
    return path.encode(errors="surrogateescape")


def pack_writes(path: bytes, extents: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """Encode the writes to one file, merging adjacent ones."""
    parts: list[bytes] = []
    together: list[bytes] = []
    start = end = 0
    for offset, data in extents:
        if together and offset != end:
            parts += (_ENTRY.pack(_WRITE, len(path), end - start, start), path, *together)
            together = []
        if not together:
            start = offset
        together.append(data)
        end = offset + len(data)
    if together:
        parts += (_ENTRY.pack(_WRITE, len(path), end - start, start), path, *together)
    return parts


def pack_forget(path: bytes) -> list[bytes]:
    """Encode an entry that cancels the earlier entries of a file."""
    return [_ENTRY.pack(_FORGET, len(path), 0, 0), path]


def pack(log: int, number: int, first: int, parts: Sequence[bytes] = (), flags: int = 0) -> bytes:
    """Encode a record, padded to whole sectors."""
    size = sum(map(len, parts))
    fields = _FIELDS.pack(log, number, first, size, flags)
    checksum = crc32(fields)
    for part in parts:  # one by one, so that their bytes are copied once
        checksum = crc32(part, checksum)
    return b"".join((_HEAD.pack(MAGIC, checksum), fields, *parts, _ZEROS[: -(HEADER_BYTES + size) % SECTOR]))


def room_for(size: int) -> int:
    """The size of a record with this many bytes of entries."""
    return HEADER_BYTES + size + -(HEADER_BYTES + size) % SECTOR


def read_at(data: bytes, at: int, log: int | None = None, above: int = 0) -> Record | None:
    """Read the record at an offset; None if there is none, if it is another log's, or if its number is not above this."""
    if data[at : at + len(MAGIC)] != MAGIC or len(data) - at < HEADER_BYTES:
        return None
    checksum = _HEAD.unpack_from(data, at)[1]
    of, number, first, length, flags = _FIELDS.unpack_from(data, at + _HEAD.size)
    start = at + HEADER_BYTES
    if length > len(data) - start or not above < number or first > number or log not in {None, of}:
        return None
    with memoryview(data) as view:
        if crc32(view[at + _HEAD.size : start + length]) != checksum:
            return None
    return Record(of, number, first, bool(flags & CLEAN), data[start : start + length], at + room_for(length))


def read_all(data: bytes, log: int) -> list[Record]:
    """Read all records of one log file in ascending order; invalid bytes between them are skipped.

    Behind the newest record may stand some of an earlier turn of the file, whose numbers are lower: they are no longer true.
    """
    records: list[Record] = []
    at = number = 0
    while at >= 0:
        record = read_at(data, at, log, number)
        if record is not None:
            records.append(record)
            number, at = record.number, record.end
        else:
            at = _next_candidate(data, at)
    return records


def id_of(files: Iterable[bytes]) -> int | None:
    """Find the id of the log in its files; None if they have no record."""
    # the beginning of a file cannot be bytes of a message that look like a record
    for begins in (True, False):
        for data in files:
            at = 0
            while at >= 0:
                if (record := read_at(data, at)) is not None:
                    return record.id
                at = -1 if begins else _next_candidate(data, at)
    return None


def _next_candidate(data: bytes, at: int) -> int:
    at = data.find(MAGIC, at + 1)
    while at % SECTOR and at >= 0:
        at = data.find(MAGIC, at + 1)
    return at
