"""Records of the message store's files (rabbit_msg_file; docs/reference/message-store.md#records-on-disk).

A file `N.rdq` is a run of records, written by its store only, read by anyone:

    |0              |8                              |24
    +---------------+-------------------------------+--------- ... ---+----+
    | size (u64 BE) | message id (16 bytes)         | body            | FF |
    +---------------+-------------------------------+--------- ... ---+----+

`size` counts id and body: 16 + len(body).  A record takes size + 9 bytes, its `total_size`, which is what all
tables count in.  In RabbitMQ nothing checks the body but its last byte: a write that was torn leaves something else
than FF there, or no byte at all.  Bodies of ours have a checksum, which is bound to the message id (message/stored.py).
"""

from __future__ import annotations

from struct import Struct

from warrenmq.errors import CorruptFile
from warrenmq.message.stored import bound_to, problem_of

HEAD = Struct(">Q16s")
MARKER = b"\xff"
ID_SIZE = 16
BODY_AT = HEAD.size
"""Offset of the body in a record."""
OVERHEAD = HEAD.size + len(MARKER)
"""Bytes of a record beyond its body: 25."""

LARGE_MESSAGE = 4_000_000
"""Bytes of a body from which on a message gets a file of its own (RabbitMQ from 4.0)."""

EXTENSION = ".rdq"
TEMPORARY = ".rdq.tmp"
"""A combined file that is not complete yet; never the only copy of anything."""
RABBITMQ_TEMPORARY = ".rdt"
"""RabbitMQ's temporary file of a combine, which may hold the only copy of a message."""


def head(msg_id: bytes, body_size: int) -> bytes:
    """The bytes of a record before its body."""
    return HEAD.pack(ID_SIZE + body_size, msg_id)


def body_of(record: bytes, msg_id: bytes, path: str, offset: int) -> bytes:
    """The body of a record that was read whole; `CorruptFile` when it is not the record that the index says."""
    if len(record) < OVERHEAD:
        raise CorruptFile(path, offset, f"a record begins here but only {len(record)} bytes are left")
    size, found = HEAD.unpack_from(record)
    if found != msg_id:
        raise CorruptFile(path, offset, f"message {found.hex()} stands where {msg_id.hex()} should be")
    if size != len(record) - 9 or record[-1] != MARKER[0]:
        raise CorruptFile(path, offset, f"the record of message {msg_id.hex()} is not whole")
    body = record[HEAD.size : -1]
    if (problem := problem_of(body, bound_to(msg_id))) is not None:
        raise CorruptFile(path, offset, f"message {msg_id.hex()}: {problem}")
    return body


def file_name(number: int) -> str:
    return f"{number}{EXTENSION}"


def file_numbers(names: list[str]) -> list[int]:
    """The numbers of a folder's files, ascending."""
    stems = [name.removesuffix(EXTENSION) for name in names if name.endswith(EXTENSION)]
    return sorted(int(stem) for stem in stems if stem.isdecimal())
