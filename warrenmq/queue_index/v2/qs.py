"""Body files of version 2: the small messages of a segment.

`k.qs` begins with a header like its index file's (qi.py), but with another magic; after it, one after the other:

    |0     |4              |5       |7  |8
    +------+---------------+--------+---+----------------+
    | size | 1 = has a crc |  crc   | 0 | data           |
    | u32  |      u8       |  u16   |   | `size` bytes   |
    +------+---------------+--------+---+----------------+

crc       the low 16 bits of the data's CRC-32; 0 when there is none
data      the stored message: ours begins with 95 (message/stored.py), RabbitMQ's, an Erlang term, with 83

The index entry of a message has the offset of the entry's header and the size of its data.  A body is written once and
never taken away: the file goes when its index file goes.  A segment whose bodies are all in the message store has no
body file.

RabbitMQ from 3.12 on pads data with zeros behind the term when it had estimated its size too high, and computes the crc
without the padding; its own reader then finds a mismatch.  Here the size is exact, and a reader tries both.
A message that has a checksum of its own (message/stored.py) is compared with that, which is longer, and not with this one.

Source: rabbit_classic_queue_store_v2, docs/reference/classic-queue.md#store-files.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from warrenmq.directory.torn import Damage
from warrenmq.message.stored import ERLANG_TERM, SEALED
from warrenmq.queue_index.v2.qi import HEADER_BYTES, unpack_header
from warrenmq.seams.disk import Readable

EXTENSION = ".qs"
MAGIC = b"RCQS"
ENTRY_HEADER = Struct(">IBHB")
ENTRY_HEADER_BYTES = ENTRY_HEADER.size
HAS_CRC = 1
READ_BYTES = 4 << 20
"""Adjacent bodies are read together up to this many bytes."""

_CRC = 0xFFFF
_pack = ENTRY_HEADER.pack


class Body(NamedTuple):
    """An entry that a scan found."""

    offset: int
    """The offset of the entry's header, as index entries have it."""
    size: int
    """Bytes of the data."""
    whole: bool
    """The checksum is right, or absent."""


def pack_entry_header(data: bytes) -> bytes:
    """The header of a body."""
    return _pack(len(data), HAS_CRC, crc32(data) & _CRC, 0)


def crc_matches(data: bytes, crc: int) -> bool:
    """True if the data has this checksum, with or without the zeros that RabbitMQ may have put behind a term."""
    if crc32(data) & _CRC == crc:
        return True
    return data[:1] == bytes([ERLANG_TERM]) and data[-1:] == b"\0" and crc32(data.rstrip(b"\0")) & _CRC == crc


def entry_problem(data: bytes, position: int, size: int, *, check_crc: bool = True) -> str | None:
    """The problem of the entry of `size` bytes of data at this position; None if it is valid."""
    start = position + ENTRY_HEADER_BYTES
    if start + size > len(data):
        return "a body is cut off"
    if (problem := entry_header_problem(data[position:start], size)) is not None:
        return problem
    return crc_problem(data[position:start], data[start : start + size]) if check_crc else None


def entry_header_problem(header: bytes, size: int) -> str | None:
    """The reason for which this is not the header of an entry with `size` bytes of data; None if it is."""
    if len(header) < ENTRY_HEADER_BYTES:
        return "a body is cut off"
    found, has_crc, _, zero = ENTRY_HEADER.unpack(header)
    return f"a body of {size} bytes should begin here" if found != size or has_crc > HAS_CRC or zero else None


def crc_problem(header: bytes, data: bytes) -> str | None:
    """The reason for which the data is not that of this header; None if it is, or if the header has no crc."""
    _, has_crc, crc, _ = ENTRY_HEADER.unpack(header)
    return "a body does not have its checksum" if has_crc and not crc_matches(data, crc) else None


def scan(data: bytes) -> tuple[list[Body], list[Damage]]:
    """Find the bodies of a file without its index, as far as their sizes lead from one to the next.

    A body with a wrong checksum is in the list and among the damage; where no entry begins the scan ends.
    """
    bodies: list[Body] = []
    damage: list[Damage] = []
    if isinstance(header := unpack_header(MAGIC, data), str):
        damage.append(Damage(0, min(len(data), HEADER_BYTES), header))
    position = HEADER_BYTES
    while position < len(data):
        if position + ENTRY_HEADER_BYTES > len(data):
            damage.append(Damage(position, len(data) - position, "a body is cut off"))
            break
        size = ENTRY_HEADER.unpack_from(data, position)[0]
        if not size or entry_problem(data, position, size, check_crc=False) is not None:
            damage.append(Damage(position, len(data) - position, "no body begins here"))
            break
        problem = entry_problem(data, position, size)
        if problem is not None:
            damage.append(Damage(position, ENTRY_HEADER_BYTES + size, problem))
        bodies.append(Body(position, size, problem is None))
        position += ENTRY_HEADER_BYTES + size
    return bodies, damage


def together(places: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int, int]]:
    """Consolidate places (offset, size of the data) that follow each other: (first offset, bytes, how many places).

    A group ends where the next body does not begin behind the last one, or when it would pass `most` bytes.
    """
    groups: list[tuple[int, int, int]] = []
    start = end = count = 0
    for offset, size in places:
        length = ENTRY_HEADER_BYTES + size
        if count and offset == end and end + length - start <= most:
            end += length
            count += 1
            continue
        if count:
            groups.append((start, end - start, count))
        start, end, count = offset, offset + length, 1
    if count:
        groups.append((start, end - start, count))
    return groups


def read_bodies(file: Readable, places: Sequence[tuple[int, int]], *, check_crc: bool) -> list[bytes | str]:
    """The data of bodies at (offset, size); text where there is no such body, or not a whole one.

    A message that has a checksum of its own, of 32 bits, is left to the caller, who compares that with its sequence id.
    """
    found: list[bytes | str] = []
    done, end = 0, file.size()
    for start, length, count in together(places, READ_BYTES):
        data = file.pread(min(length, end - start), start) if start < end else b""
        for offset, size in places[done : done + count]:
            position = offset - start
            body = data[position + ENTRY_HEADER_BYTES : position + ENTRY_HEADER_BYTES + size]
            check = check_crc and not body.startswith(SEALED)
            found.append(entry_problem(data, position, size, check_crc=check) or body)
        done += count
    return found
