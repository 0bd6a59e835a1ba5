"""A message of one queue: what is published, how it stands in memory, what leaves for a consumer.

In memory a message is a tuple (sequence id, record, flags, stored), the record msg_status: the cyclic collector lets
go of tuples that hold only numbers and bytes, and a queue may hold a great many of them.  `record` is what the queue
index has or would have (queue_index/record.py).  The flags tell where the body is, and so which of RabbitMQ's four
states the message is in (docs/reference/classic-queue.md#message-states):

    flags                              the body is
    none, or INDEXED                   in the record (and with it in the index)
    APART                              in `stored`, in memory only: a transient message that was not paged out
    APART | IN_STORE                   in a message store; `stored` has it, too, unless it is None

    state      body                  position
    alpha                                      memory (and disk)     memory (and disk)
    beta                                       disk                  memory
    gamma                                      disk                  memory and disk
    delta                                      disk                  disk

A small body is part of the position, so a beta or gamma that is not APART still has it in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from operator import add, itemgetter
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, cast
from zlib import crc32

from warrenmq.message.columns import WIDTH, column, number, set_field, xored
from warrenmq.message.stored import (
    CHECKSUMS,
    FRONT,
    MASK,
    SEALED,
    StoredMessage,
    bound_to,
    decode,
    sealed_head,
)
from warrenmq.seams.disk import UNLIMITED

INDEXED = 1
"""There is an index entry."""
PERSISTENT = 2
"""The message is persistent and the queue durable."""
APART = 4
"""The body belongs in a message store, not into the index (persist_to = msg_store)."""
IN_STORE = 8
"""The message has been written to the message store."""

Message: TypeAlias = tuple[int, bytes, int, bytes | None]
"""A message in memory; see the module."""
SEQ_ID: Final = 0
RECORD: Final = 1
FLAGS: Final = 2
STORED: Final = 3
"""The places of a Message."""

_record, flags_of = itemgetter(RECORD), itemgetter(FLAGS)

HAVING = {
    flag: frozenset(flags for flags in range(16) if flags & flag)
    for flag in (INDEXED, PERSISTENT, APART, IN_STORE)
}
"""All flags that have this one: many messages are compared with them in one step."""

_HEADER = Struct(">8sQQII")
_RECORD_HEADER = _HEADER.size
"""Bytes of an index record before the embedded stored message."""
NOT_EMBEDDED = bytes(4)
"""The embedded size of a record whose body is apart."""
EMBEDDED_SIZE_AT = 28
_BESIDE = 64
"""Bytes of an entry beside the head and the body of its message, at most, in the files of either version."""
_EMBEDDED = Struct(">8sQQII3sII")
"""_HEADER, and FRONT of the message behind it."""
_MSG_AT, _CHECKSUM_AT = 8, _RECORD_HEADER + len(SEALED)
"""The places of the two fields in which records of messages that are alike differ: u64 and u32."""
FEW = 16
"""The number of messages below which columns cost more than they save."""


_seal_of = Struct(">3sI").unpack_from
_sealed: tuple[bytes, int, bytes, int] = (b"", -1, b"", 0)
"""The last head, size, and what sealed_head made of them: messages that are published one by one are often alike."""


@dataclass(slots=True)
class Publication:
    """Messages published together: one exchange, routing key and properties, many bodies."""

    id_prefix: bytes
    """The first eight bytes of every message id of this run."""
    first_id: int
    """The last eight of the first; the others follow it without a gap."""
    head: bytes
    """The stored message up to its body (stored_message.encode_head)."""
    properties_size: int
    """Bytes of the encoded properties, for the embed rule."""
    bodies: Sequence[bytes]
    persistent: bool
    expiration: int | None = None
    """Milliseconds that they may wait in a queue; None = as long as they have to."""
    priority: int = 0
    due: int = 0
    """For a queue of delayed messages: when they are to be delivered, in microseconds since 1970; 0 = as their header x-delay
    says, counted from their arrival.
    """
    checksums: bytes = b""
    """Those of all messages, before they are bound to their places (alike_checksums); b"" = not computed yet."""

    def one(self, place: int) -> Publication:
        """The message at a place alone."""
        checksum = self.checksums[WIDTH * place : WIDTH * (place + 1)]
        bodies = self.bodies[place : place + 1]
        return replace(self, first_id=self.first_id + place, bodies=bodies, checksums=checksum)


def alike_checksums(head: bytes, bodies: Sequence[bytes]) -> bytes:
    """The column of the checksums of messages, not yet bound to a place; b"" unless they are many, and of one size.

    A publisher computes them once for all queues, and while these wait for the disk.
    """
    if len(bodies) < FEW or {*map(len, bodies)} != {len(bodies[0])}:
        return b""
    _, so_far = sealed_head(head, len(bodies[0]))
    return column(map(crc32, bodies, repeat(so_far)))


def checksum_of(messages: Iterable[tuple[int, bytes, bool]]) -> int:
    """The checksum of messages for a trace (PUBLISH in trace/events/), from (sequence id, record or stored
    message, True if it is the latter); 0 if one of them was stored without.
    """
    total = 0
    for seq_id, payload, in_store in messages:
        seal, crc = _seal_of(payload, 0 if in_store else _RECORD_HEADER)
        if seal != SEALED:
            return 0
        total += crc * (seq_id + 1)
    return total % CHECKSUMS + 1


class Fetched(NamedTuple):
    """One message on its way to a consumer."""

    seq_id: int
    payload: bytes
    """The record, or the stored message of one that was in a store; the body is its last `size` bytes."""
    size: int
    redelivered: bool
    in_store: bool

    def decoded(self) -> StoredMessage:
        """Decode the exchange, routing keys and properties; CorruptFile if they are invalid."""
        return decode(self.payload if self.in_store else self.payload[_RECORD_HEADER:])


size_in = Struct(">24xI").unpack_from
"""(body_size,) of a record."""
fetched_of = cast("Callable[[tuple[int, bytes, int, bool, bool]], Fetched]", partial(tuple.__new__, Fetched))
"""A Fetched of its fields, without the Python function that Fetched(...) calls: there is one for each message."""


def records_of(publications: Sequence[Publication], first_seq_id: int, embed_below: int,
               expiries: Sequence[int] | None = None, share: int = UNLIMITED) -> tuple[list[bytes], dict[int, bytes]]:  # fmt: skip
    """Index records of publications, and by position the stored messages that are not embedded in them.

    The messages get consecutive sequence ids from `first_seq_id`.  `expiries` has a time for each publication.

    | body and properties together, in bytes           | go to             |
    | ------------------------------------------------ | ----------------- |
    | less than `embed_below`, and not above the share | the queue index   |
    | others                                           | the message store |

    The share is what a message may take in a file of the index (Index.share).

    Source: rabbit_variable_queue:determine_persist_to, docs/reference/classic-queue.md#where-a-body-goes.
    """
    global _sealed  # noqa: PLW0603
    records: list[bytes] = []
    stored: dict[int, bytes] = {}
    sealed = _sealed
    for publication, expiry in zip(publications, repeat(0) if expiries is None else expiries):  # noqa: B905
        head, bodies = publication.head, publication.bodies
        largest = min(embed_below - publication.properties_size, share - len(head) - _BESIDE)
        checksums = publication.checksums
        if not checksums and len(bodies) >= FEW:
            checksums = alike_checksums(head, bodies)
        msg, first, last_size = publication.first_id, first_seq_id + len(records), -1
        for place, body in enumerate(bodies):
            size = len(body)
            if size != last_size:
                last_size = size
                if sealed[0] is not head or sealed[1] != size:
                    sealed = head, size, *sealed_head(head, size)
                _, _, rest, so_far = sealed
                if checksums and size < largest:
                    records += _embedded_alike(publication, checksums, first, expiry, rest)
                    break
                embedded = FRONT.size + len(rest) + size
            crc = number(checksums, place) if checksums else crc32(body, so_far)
            if size < largest:
                checksum = (crc ^ first + place) & MASK
                front = _EMBEDDED.pack(
                    publication.id_prefix, msg + place, expiry, size, embedded, SEALED, checksum, size
                )
                records.append(b"".join((front, rest, body)))
            else:
                record = _HEADER.pack(publication.id_prefix, msg + place, expiry, size, 0)
                front = FRONT.pack(SEALED, crc ^ bound_to(record[:16]), size)
                stored[len(records)] = b"".join((front, rest, body))
                records.append(record)
    _sealed = sealed  # of any thread: one name bound to one tuple
    return records, stored


def _embedded_alike(
    publication: Publication, checksums: bytes, seq_id: int, expiry: int, rest: bytes
) -> list[bytes]:
    """The records of a publication whose bodies have one size and are embedded: a third of the time of one by one.

    `rest` is what stands between FRONT and body.
    """
    bodies = publication.bodies
    count, size = len(bodies), len(bodies[0])
    embedded = FRONT.size + len(rest) + size
    like = _EMBEDDED.pack(publication.id_prefix, 0, expiry, size, embedded, SEALED, 0, size) + rest
    fronts, row = bytearray(like * count), len(like)
    set_field(fronts, row, _MSG_AT, 8, column(range(publication.first_id, publication.first_id + count)))
    bound = xored(checksums, column(range(seq_id, seq_id + count)))
    set_field(fronts, row, _CHECKSUM_AT, 4, bound)
    whole = bytes(fronts)
    return list(map(add, [whole[at : at + row] for at in range(0, row * count, row)], bodies))


def body_size(message: Message) -> int:
    """Bytes of the body, without head and properties."""
    return int.from_bytes(message[RECORD][24:28], "big")


def expiry_of(message: Message) -> int:
    """The time at which it expires, in microseconds since 1970; 0 = never."""
    return int.from_bytes(message[RECORD][16:24], "big")


def in_memory(messages: Sequence[Message]) -> tuple[int, int]:
    """The number of these messages whose body is in memory, and the bytes of those bodies."""
    if not any_has(APART, messages):
        return len(messages), sum(map(len, map(_record, messages)))
    sizes = [
        len(record) if stored is None else len(stored)
        for _, record, flags, stored in messages
        if stored is not None or not flags & APART
    ]
    return len(sizes), sum(sizes)


def all_have(flag: int, messages: Sequence[Message]) -> bool:
    """True if each of these messages has the flag."""
    return HAVING[flag].issuperset(map(flags_of, messages))


def any_has(flag: int, messages: Sequence[Message]) -> bool:
    """True if one of these messages has the flag."""
    return not HAVING[flag].isdisjoint(map(flags_of, messages))
