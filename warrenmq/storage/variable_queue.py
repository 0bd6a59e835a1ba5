"""The backing queue: where each message of one queue is, and in which order (rabbit_variable_queue).

    publish -> head (records in memory) -> deliver -> pending acks -> ack
                 |  when the head is full, or the tail is not empty
                 v
               tail: a range of sequence ids; the messages themselves are in the index only

It is the head and tail of RabbitMQ 3.12 and later: nothing moves from the head back to the disk, the tail is
read back in runs (reference/classic-queue.md, 3.5).  A message keeps its sequence id for life, so a requeued one
returns to its old place.

Rules for maintainers
1. head and pending hold sequence ids below the tail's start, each in one of the two; the head ascends.
2. A persistent message has an index entry, and its body is in that entry or in the store.  A transient one has
   both only when it went to the tail.
3. Nothing here blocks, syncs or sends; the index and the two stores are passed in, and the queue process
   decides when they write.

A message in memory is a tuple (seq_id, record, flags, stored): the cyclic collector lets go of tuples that hold
only numbers and bytes, and a queue may hold a great many of them.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warrenmq.storage.queue_index_protocol import Index

HEAD_MESSAGES = 16_384
HEAD_BYTES = 32 << 20
"""The head's bounds.  A backlog of any size keeps this much in memory, and the journal its own share."""
READ_AHEAD = 2_048
"""Messages that one read of the tail brings: a segment's worth, about 2 ms of parsing."""

NO_LIMIT = 1 << 62

INDEXED = 1
"""There is an index entry."""
PERSISTENT = 2
IN_STORE = 4
"""The body is in a message store, not in the record."""

Message: TypeAlias = tuple[int, bytes, int, bytes | None]
"""(seq_id, record, flags, stored); `record` as in queue_index; `stored` is the stored message of one IN_STORE
when it is in memory."""

_HEADER = Struct(">8sQQII")
_EMBEDDED_SIZE = Struct(">I")
_BIN8, _BIN16, _BIN32 = Struct(">BB").pack, Struct(">BH").pack, Struct(">BI").pack


class Store(Protocol):
    """What the queue needs of a message store (MsgStoreClient)."""

    def write(self, msg_id: bytes, stored: bytes) -> None: ...
    def remove(self, msg_ids: list[bytes]) -> None: ...
    def read_many(self, msg_ids: Sequence[bytes]) -> dict[bytes, bytes]: ...


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


class Fetched(NamedTuple):
    """One message on its way to a consumer."""

    seq_id: int
    payload: bytes
    """The record, or the stored message of one that was in a store; the body is its last `size` bytes."""
    size: int
    redelivered: bool
    in_store: bool


def embeds(body_size: int, properties_size: int, limit: int) -> bool:
    """Whether a message goes into the queue's own files (`queue_index_embed_msgs_below`).

    ======================  ========  =================
    body                    and       goes to
    ======================  ========  =================
    >= limit                any       the message store
    < limit                 body + properties >= limit  the message store
    < limit                 body + properties < limit   the queue index
    any                     limit 0   the message store
    ======================  ========  =================

    Source: rabbit_variable_queue:determine_persist_to, reference/classic-queue.md 2.5.
    """
    return body_size + properties_size < limit


def bin_header(size: int) -> bytes:
    """msgpack's header of a byte string of `size` bytes: what stands between a stored message's head and body."""
    if size < 1 << 8:
        return _BIN8(0xC4, size)
    if size < 1 << 16:
        return _BIN16(0xC5, size)
    return _BIN32(0xC6, size)


def _records(publications: Sequence[Publication], embed_below: int) -> tuple[list[bytes], dict[int, bytes]]:
    """Index records of publications, and by position the stored messages that are not embedded in them."""
    pack, join = _HEADER.pack, b"".join
    records: list[bytes] = []
    append = records.append
    stored: dict[int, bytes] = {}
    last_head, last_size = b"", -1
    head_and_bin = b""
    embedded = 0
    for publication in publications:
        prefix, msg, head = publication.id_prefix, publication.first_id, publication.head
        for body in publication.bodies:
            size = len(body)
            if size != last_size or head is not last_head:
                last_head, last_size = head, size
                head_and_bin = head + bin_header(size)
                embed = embeds(size, publication.properties_size, embed_below)
                embedded = len(head_and_bin) + size if embed else 0
            if embedded:
                append(join((pack(prefix, msg, 0, size, embedded), head_and_bin, body)))
            else:
                stored[len(records)] = head_and_bin + body
                append(pack(prefix, msg, 0, size, 0))
            msg += 1
    return records, stored


class VariableQueue:
    """One queue's messages.  It belongs to its queue process and is not thread-safe."""

    def __init__(self, index: Index, persistent_store: Store, transient_store: Store, embed_below: int) -> None:
        self.index = index
        self._persistent_store = persistent_store
        self._transient_store = transient_store
        self._embed_below = embed_below
        self.next_seq_id = 0
        """What the next message gets; never goes back."""
        self._head: deque[Message] = deque()
        self._head_bytes = 0
        self._tail_start = 0
        """First sequence id that may be in the tail; ids from here to next_seq_id are in the index only."""
        self._tail_count = 0
        self._pending: dict[int, Message] = {}
        """Delivered, not acked; in order of delivery."""
        self._delivered_below = 0
        """Everything below may have been delivered before this process began (next_deliver_seq_id)."""
        self.next_deliver_seq_id = 0
        """One more than the largest sequence id ever delivered."""
        self._requeued: set[int] = set()
        """Ready again after a delivery: redelivered when they leave; looked up, never walked."""
        self._lost: list[int] = []
        """Messages left out of a fetch since `take_lost`."""

    def recovered(self, low: int, count: int, next_seq_id: int, next_deliver_seq_id: int) -> None:
        """Take over what the index found: everything is tail."""
        self.next_seq_id = next_seq_id
        self._tail_start, self._tail_count = low, count
        self._delivered_below = self.next_deliver_seq_id = next_deliver_seq_id

    # -- how many

    @property
    def ready(self) -> int:
        """Messages that could be delivered now."""
        return len(self._head) + self._tail_count

    @property
    def unacked(self) -> int:
        """Messages delivered and not yet acked."""
        return len(self._pending)

    @property
    def in_memory(self) -> int:
        """Ready messages that are in memory."""
        return len(self._head)

    # -- in

    def publish(self, publications: Sequence[Publication], *, persistent: bool) -> tuple[int, dict[int, bytes]]:
        """Take messages in, in order; all of them are persistent, or none is.

        Returns the first sequence id (the others follow it) and, by sequence id, the ids of persistent messages
        whose bodies went to the store: their confirms wait for it.
        """
        first = self.next_seq_id
        if not persistent and self._room():
            # In memory only, whatever its size: the record carries the body so that delivery is the same.
            records, _ = _records(publications, embed_below=NO_LIMIT)
            self._to_head(first, records, 0)
            self.next_seq_id = first + len(records)
            return first, {}
        records, stored = _records(publications, self._embed_below)
        self.next_seq_id = first + len(records)
        self.index.publish_many(first, records, persistent)
        if stored:
            store = self._persistent_store if persistent else self._transient_store
            for position, body in stored.items():
                store.write(records[position][:16], body)
        flags = INDEXED | PERSISTENT if persistent else INDEXED
        if not self._room():
            if self._tail_count == 0:
                self._tail_start = first
            self._tail_count += len(records)
        elif stored:
            self._head.extend(
                (first + i, record, flags | IN_STORE if i in stored else flags, stored.get(i))
                for i, record in enumerate(records)
            )
            self._head_bytes += sum(map(len, records)) + sum(map(len, stored.values()))
        else:
            self._to_head(first, records, flags)
        return first, {first + i: records[i][:16] for i in stored} if persistent else {}

    def _room(self) -> bool:
        """Whether a batch may go to the head, which may overshoot its bounds by that batch."""
        return not self._tail_count and len(self._head) < HEAD_MESSAGES and self._head_bytes < HEAD_BYTES

    def _to_head(self, first: int, records: list[bytes], flags: int) -> None:
        self._head.extend([(seq, record, flags, None) for seq, record in enumerate(records, first)])
        self._head_bytes += sum(map(len, records))

    # -- out

    def fetch(self, most: int, *, ack_required: bool) -> list[Fetched]:
        """Take up to `most` messages from the front; without acks they are gone at once.

        A message whose body the store no longer has is left out, acked, and told by `take_lost`.
        """
        head = self._head
        taken: list[Message] = []
        while len(taken) < most and (head or self._refill()):
            while head and len(taken) < most:
                taken.append(head.popleft())
        fetched, lost = self._load(taken)
        if taken:
            self.next_deliver_seq_id = max(self.next_deliver_seq_id, taken[-1][0] + 1)
        if ack_required:
            pending = self._pending
            for message in taken:
                pending[message[0]] = message if message[3] is None else (*message[:3], None)
            if lost:
                self.ack(lost)
        else:
            self._remove(taken)
        self._lost += lost
        return fetched

    def take_lost(self) -> list[int]:
        """Sequence ids of messages whose bodies were damaged, since the last time."""
        lost, self._lost = self._lost, []
        return lost

    def _load(self, taken: list[Message]) -> tuple[list[Fetched], list[int]]:
        """Give each message its payload."""
        bodies = self._read_bodies(taken)
        below, requeued = self._delivered_below, self._requeued
        fetched: list[Fetched] = []
        lost: list[int] = []
        freed = 0
        for seq, record, flags, stored in taken:
            payload: bytes | None = record
            freed += len(record)
            if flags & IN_STORE:
                payload = stored if stored is not None else bodies.get(record[:16])
                freed += len(stored or b"")
            if payload is None:
                lost.append(seq)
                continue
            redelivered = seq < below or seq in requeued
            fetched.append(
                Fetched(seq, payload, int.from_bytes(record[24:28], "big"), redelivered, bool(flags & IN_STORE))
            )
        self._head_bytes -= freed
        return fetched, lost

    def _read_bodies(self, taken: Iterable[Message]) -> dict[bytes, bytes]:
        wanted: dict[bool, list[bytes]] = {}
        for _seq, record, flags, stored in taken:
            if flags & IN_STORE and stored is None:
                wanted.setdefault(bool(flags & PERSISTENT), []).append(record[:16])
        bodies: dict[bytes, bytes] = {}
        for persistent, ids in wanted.items():
            bodies.update((self._persistent_store if persistent else self._transient_store).read_many(ids))
        return bodies

    def _refill(self) -> bool:
        """Read the next run of the tail into the head; False when there is nothing left."""
        while self._tail_count:
            start = self.index.next_live(self._tail_start)
            end = min(start + READ_AHEAD, self.next_seq_id)
            for seq, record, persistent in self.index.read(start, end):
                in_store = _EMBEDDED_SIZE.unpack_from(record, 28)[0] == 0
                flags = INDEXED | (PERSISTENT if persistent else 0) | (IN_STORE if in_store else 0)
                self._head.append((seq, record, flags, None))
                self._head_bytes += len(record)
            self._tail_start = end
            self._tail_count = max(0, self._tail_count - len(self._head)) if end < self.next_seq_id else 0
            if self._head:
                return True
        return False

    # -- settled

    def ack(self, seq_ids: Iterable[int]) -> list[int]:
        """Forget delivered messages; unknown ids are ignored (3.6.6).  Returns those that were pending."""
        pop = self._pending.pop
        gone = sorted(message for seq in seq_ids if (message := pop(seq, None)) is not None)
        self._remove(gone)
        if self._requeued:
            self._requeued.difference_update(message[0] for message in gone)
        return [message[0] for message in gone]

    def requeue(self, seq_ids: Iterable[int]) -> list[int]:
        """Put delivered messages back to their old positions, ascending; unknown ids are ignored."""
        pop = self._pending.pop
        back = sorted(message for seq in seq_ids if (message := pop(seq, None)) is not None)
        if not back:
            return []
        head = self._head
        if not head or back[-1][0] < head[0][0]:
            head.extendleft(reversed(back))
        else:
            self._head = deque(heapq.merge(back, head))
        for message in back:
            self._requeued.add(message[0])
            self._head_bytes += len(message[1])
        return [message[0] for message in back]

    def purge(self) -> list[int]:
        """Drop every ready message; returns their sequence ids, ascending."""
        dropped: list[int] = []
        while self._head or self._refill():
            messages = list(self._head)
            self._head.clear()
            self._head_bytes = 0
            self._remove(messages)
            self._requeued.difference_update(message[0] for message in messages)
            dropped += [message[0] for message in messages]
        return dropped

    def drop_transient_pending(self) -> None:
        """At a clean stop: unacked transient messages go, unacked persistent ones stay on disk."""
        self._remove(sorted(message for message in self._pending.values() if not message[2] & PERSISTENT))

    def _remove(self, messages: Sequence[Message]) -> None:
        """Ack index entries and give up references to the stores; `messages` ascend."""
        if not messages:
            return
        first, last = messages[0][0], messages[-1][0]
        if last - first + 1 == len(messages) and all(message[2] & INDEXED for message in messages):
            self.index.ack_range(first, len(messages))
        elif indexed := [message[0] for message in messages if message[2] & INDEXED]:
            self.index.ack(indexed)
        for store, kind in (
            (self._persistent_store, IN_STORE | INDEXED | PERSISTENT),
            (self._transient_store, IN_STORE | INDEXED),
        ):
            if ids := [message[1][:16] for message in messages if message[2] == kind]:
                store.remove(ids)
