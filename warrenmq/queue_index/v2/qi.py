"""Index files of version 2: where each message of a segment is.

`k.qi` holds the sequence ids k*N to (k+1)*N - 1.  It begins like its body file (qs.py):

    |0        |4        |5           |13               |21
    +---------+---------+------------+-----------------+------------------+
    | magic   | version | first      | end             | 43 bytes of zero |     64 bytes
    | 4 bytes | u8, 2   | u64        | u64: last + 1   |                  |
    +---------+---------+------------+-----------------+------------------+

and the message `first + i` has the 32 bytes at 64 + 32*i; its sequence id is its position, written nowhere:

    |0       |1      |2  |3         |4                                 |20     |24
    +--------+-------+---+----------+----------------------------------+-------+--------+
    | status | flags | 0 | location | 1: message id                    | size  | expiry |
    |   u8   |  u8   |   |    u8    | 2: offset u64, stored size u32, 0 |  u32  |  u64   |
    +--------+-------+---+----------+----------------------------------+-------+--------+

status    1 = live; 0 = never written, or acked: then all 32 bytes are zero, or the first one only (by a recovery)
flags     1 = persistent; no other bit
location  1 = in the message store, 2 = in the segment's .qs file (offset of the entry there, bytes of its data)
size      bytes of the body; expiry: microseconds since 1970, 0 = none

All numbers are big-endian.  There is no checksum, no end mark and no padding: the file ends with the last entry that
was written.  32 divides the sector, so a power cut leaves each entry whole or not at all, and a shorter rest at the
end is what a killed process had written of one.

Source: rabbit_classic_queue_index_v2, docs/reference/classic-queue.md#index-files.
"""

from __future__ import annotations

import re
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from warrenmq.directory.torn import Damage
from warrenmq.errors import CorruptFile

EXTENSION = ".qi"
MAGIC = b"RCQI"
VERSION = 2
HEADER_BYTES = 64
ENTRY_BYTES = 32
MSG_ID_AT = 4
MSG_ID_BYTES = 16
ACKED = bytes(ENTRY_BYTES)
"""The bytes of an acked entry."""
LIVE = 1
PERSISTENT = 1

_HEADER = Struct(">4sBQQ43s")
_NOTHING = bytes(43)
_PLAUSIBLE_EXPIRY = 1 << 56
"""The largest plausible expiry, in the year 4253."""

ENTRY = Struct(">BBBBQIIIQ")
"""Status, flags, 0, location, three parts of 16 bytes, size, expiry."""
_MSG_ID = Struct(">QII")


class Location(IntEnum):
    """The place of a message's body."""

    MEMORY = 0
    """Nowhere on disk; such an entry is never written."""
    STORE = 1
    """The body is in the message store, under the message id."""
    QUEUE_STORE = 2
    """The body is in the .qs file of the same number."""


# Plain numbers: looking up an enum's member costs as much as reading an entry.
_IN_STORE, _IN_QS = int(Location.STORE), int(Location.QUEUE_STORE)


_WHOLE_ENTRIES = re.compile(
    rb"(?:"
    rb"\x00.{31}"  # not live
    rb"|\x01[\x00\x01]\x00(?:"
    rb"\x01(?!\x00{16}).{16}"  # in the message store
    rb"|\x02(?!\x00{7}[\x00-\x3f]).{8}(?!\x00{4}).{4}\x00{4}"  # in the .qs file, behind its header
    rb").{4}\x00.{7}"  # size, and an expiry below _PLAUSIBLE_EXPIRY
    rb")*+",
    re.DOTALL,
)
"""`entry_problem` of every entry of a file at once: 0.1 us an entry, where a loop over them takes 0.7."""


class Header(NamedTuple):
    """The decoded header of a file."""

    first: int
    """The first sequence id that the file is for."""
    end: int
    """One more than the last."""


class Entry(NamedTuple):
    """A live entry."""

    persistent: bool
    location: int
    msg_id: bytes
    """16 bytes; empty unless the body is in the message store."""
    offset: int
    """The body's offset in the .qs file; 0 unless the body is there."""
    stored_size: int
    """Bytes of the data there, without its own header."""
    size: int
    """Bytes of the body."""
    expiry: int


class Parsed(NamedTuple):
    """The decoded contents of a file."""

    header: Header | None
    """None if the header is invalid."""
    entries: list[tuple[int, Entry]]
    """Position and entry of each live one, ascending."""
    damage: list[Damage]


def pack_header(magic: bytes, first: int, end: int) -> bytes:
    """The beginning of a .qi or .qs file."""
    return _HEADER.pack(magic, VERSION, first, end, _NOTHING)


def unpack_header(magic: bytes, data: bytes) -> Header | str:
    """Decode a file's header; returns a text if it is invalid."""
    if len(data) < HEADER_BYTES:
        return f"a header has {HEADER_BYTES} bytes, here are {len(data)}"
    found, version, first, end, nothing = _HEADER.unpack_from(data)
    if found != magic:
        return f"it does not begin with {magic.decode()}"
    if version != VERSION:
        return f"its version is {version}, only {VERSION} is known"
    if end <= first or nothing != _NOTHING:
        return "its header makes no sense"
    return Header(first, end)


def pack_entry(entry: Entry) -> bytes:
    """The 32 bytes of a live entry."""
    place = (entry.offset, entry.stored_size, 0)
    if entry.location == Location.STORE:
        place = _MSG_ID.unpack(entry.msg_id)
    flags = PERSISTENT if entry.persistent else 0
    return ENTRY.pack(LIVE, flags, 0, entry.location, *place, entry.size, entry.expiry)


def entry_problem(data: bytes, position: int = 0) -> str | None:
    """The problem of an invalid entry; None if it is valid."""
    status, flags, zero, location, a, b, c, _, expiry = ENTRY.unpack_from(data, position)
    if status == 0:
        return None
    if status != LIVE or flags & ~PERSISTENT or zero or expiry >= _PLAUSIBLE_EXPIRY:
        return "an entry's first bytes, or its expiry, cannot be"
    match location:
        case Location.STORE if a or b or c:
            return None
        case Location.QUEUE_STORE if a >= HEADER_BYTES and b and not c:
            return None
        case Location.STORE | Location.QUEUE_STORE:
            return "an entry's location makes no sense"
        case _:
            return f"an entry's location is {location}"


def unpack_entry(data: bytes) -> Entry | None:
    """Decode one entry; None if it is not live.  Raises CorruptFile if the bytes are invalid."""
    if (problem := entry_problem(data)) is not None:
        raise CorruptFile("an entry", 0, problem)
    status, flags, _, location, a, b, c, size, expiry = ENTRY.unpack(data)
    if not status:
        return None
    if location == Location.STORE:
        return Entry(bool(flags), location, _MSG_ID.pack(a, b, c), 0, 0, size, expiry)
    return Entry(bool(flags), location, b"", a, b, size, expiry)


def parse(data: bytes) -> Parsed:
    """Decode a file; never raises, whatever the bytes.

    Entries beyond the end that the header gives are damage.
    """
    header = unpack_header(MAGIC, data)
    if isinstance(header, str):
        return Parsed(None, [], [Damage(0, len(data), header)])
    end = HEADER_BYTES + ENTRY_BYTES * (header.end - header.first)
    entries, damage = parse_entries(data[HEADER_BYTES:end])
    if any(data[end:]):
        damage.append(Damage(end, len(data) - end, "it goes on behind its last entry"))
    return Parsed(header, entries, damage)


def whole(entries: bytes) -> bool:
    """True if nothing is wrong with any of these entries."""
    return _WHOLE_ENTRIES.fullmatch(entries) is not None


def parse_entries(data: bytes, first: int = 0) -> tuple[list[tuple[int, Entry]], list[Damage]]:
    """Decode entries: position and entry of each live one, ascending, and the damage, by its place in the file.

    `data` begins with the entry at the position `first`.  Entries do not depend on each other: an invalid one
    is damage, and the next is read as if it were not there.
    """
    entries: list[tuple[int, Entry]] = []
    damage: list[Damage] = []
    whole = len(data) - len(data) % ENTRY_BYTES
    append, plausible = entries.append, _PLAUSIBLE_EXPIRY
    fields = ENTRY.iter_unpack(memoryview(data)[:whole])
    for position, (status, flags, zero, location, a, b, c, size, expiry) in enumerate(fields, first):
        if not status:
            continue
        if status == LIVE and flags <= PERSISTENT and not zero and expiry < plausible:
            if location == _IN_QS and a >= HEADER_BYTES and b and not c:
                append((position, Entry(flags == PERSISTENT, _IN_QS, b"", a, b, size, expiry)))
                continue
            if location == _IN_STORE and (a or b or c):
                append(
                    (
                        position,
                        Entry(flags == PERSISTENT, _IN_STORE, _MSG_ID.pack(a, b, c), 0, 0, size, expiry),
                    )
                )
                continue
        problem = entry_problem(data, ENTRY_BYTES * (position - first)) or ""
        damage.append(Damage(HEADER_BYTES + ENTRY_BYTES * position, ENTRY_BYTES, problem))
    if any(data[whole:]):
        place = HEADER_BYTES + ENTRY_BYTES * first + whole
        damage.append(Damage(place, len(data) - whole, "an entry is cut off"))
    return entries, damage
