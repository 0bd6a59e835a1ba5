"""The backing queue: the place of each message of one queue, and their order (rabbit_variable_queue).

    publish -> ready, part of it on disk only -> fetch -> pending acks -> ack
                        ^                                     |
                        '----------------- requeue -----------'

A message keeps its sequence id for life, so a requeued one returns to its old place.  The two behaviours
(`queue_paging`) share this class; they differ in which of the ready messages are in memory:

    memory_target   q1 q2 delta q3 q4, paged out when memory is short       backing_queue/memory_target.py
    read_ahead      a head as long as the consumers are fast, and a tail    backing_queue/read_ahead.py

Rules for maintainers
1. A ready message is in one place, a delivered one is pending and nowhere else.
2. A persistent message has an index entry, and its body is in that entry or in the store.  A transient one has
   both only when it was paged out.
3. A reference to the persistent store is given up when its ack is safe (`index_synced`): after a power cut an index that
   lost the ack would name a record that the store may have overwritten.  (RabbitMQ gives it up at once.)
4. Nothing here blocks, syncs or sends; the index and the two stores are passed in, and the queue process
   decides when they write.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import chain, count, repeat
from operator import itemgetter

from warrenmq.backing_queue.paging import MESSAGE_BYTES
from warrenmq.backing_queue.parts import PagingRows, QueueMemory, StoreClient, Wanted, body_bytes
from warrenmq.backing_queue.rates import Rates
from warrenmq.directory.recovery_terms import Terms
from warrenmq.message.queue_message import (
    APART,
    EMBEDDED_SIZE_AT,
    FLAGS,
    HAVING,
    IN_STORE,
    INDEXED,
    NOT_EMBEDDED,
    PERSISTENT,
    RECORD,
    SEQ_ID,
    STORED,
    Fetched,
    Message,
    Publication,
    all_have,
    any_has,
    body_size,
    fetched_of,
    flags_of,
    in_memory,
    records_of,
    size_in,
)
from warrenmq.message.stored import body_size as size_of
from warrenmq.queue_index.protocol import Index
from warrenmq.settings import Settings
from warrenmq.trace.recorder import ActorTrace

_seq_id, _record = itemgetter(SEQ_ID), itemgetter(RECORD)  # of a Message

PURGE_BATCH = 2_048
"""Messages that a purge drops at a time."""
LONG_RUN = 64
"""Messages that were alike, and read together, from which on the next ones, perhaps of another segment, are tried as well."""


class VariableQueue(ABC):
    """One queue's messages.  It belongs to its queue process and is not thread-safe."""

    def __init__(self, index: Index, persistent_store: StoreClient, transient_store: StoreClient, settings: Settings,
                 clock: Callable[[], int], trace: ActorTrace | None = None) -> None:  # fmt: skip
        """`clock` gives nanoseconds; `recovered` must be called before anything else."""
        self.index = index
        self._persistent_store = persistent_store
        self._transient_store = transient_store
        self._embed_below = settings.queue_index_embed_msgs_below
        self._bound = settings.queue_ram_bytes
        self._clock = clock
        self._trace = trace
        self.rates = Rates(clock())
        self.next_seq_id = 0
        """The sequence id of the next message; it never decreases."""
        self.ready = 0
        """Messages that could be delivered now."""
        self._head: deque[Message] = deque()
        """The ready messages that leave first; a behaviour that has another name for it changes it in place."""
        self.ram_msg_count = 0
        """Ready messages whose body is in memory."""
        self.ram_bytes = 0
        """Bytes of bodies in memory, of ready and of unacked messages."""
        self.ready_bytes: int | None = None
        """Bytes of the bodies of all ready messages, kept after `count_bytes`; else None."""
        self.unacked_bytes = 0
        """Bytes of the bodies of pending messages, kept with `ready_bytes`."""
        self._pending: dict[int, Message] = {}
        """Delivered, not acked; in order of delivery."""
        self._delivered_below = 0
        """Everything below may have been delivered before this process began."""
        self.next_deliver_seq_id = 0
        """One more than the largest sequence id ever delivered."""
        self._transient_threshold = 0
        """Transient messages below were published before this process began: they are gone."""
        self._transient_end = 0
        """Messages from here on are persistent."""
        self._store_end = 0
        """Bodies of persistent messages from here on are not in the store."""
        self._requeued: set[int] = set()
        """Ready again after a delivery: redelivered when they leave; looked up, never walked."""
        self.to_remove: list[bytes] = []
        """Messages in the persistent store that are done with, but their acks are not safe yet."""
        self.lost: list[int] = []
        """Sequence ids of messages that were found damaged and left out, since `take_lost`."""
        self._taken: tuple[int, list[bytes], dict[int, bytes]] = 0, [], {}
        """The last publish: its first sequence id, the records, and the bodies that are apart; kept with a trace only."""
        self.paging_rows = PagingRows(trace)
        self._paged, self.tell_paged = self.paging_rows.note, self.paging_rows.tell
        self.must_reduce_again = False
        """`reduce_memory_use` had more to do than one step may; the next step follows with BumpReduceMemoryUse."""

    def recovered(
        self, low: int, count: int, next_seq_id: int, next_deliver_seq_id: int, lost: Sequence[int] = (), store_end: int = 0
    ) -> None:  # fmt: skip
        """Take over the messages that the index found: all are on disk.  `lost` are the damaged ones; those
        from `store_end` on are in the index's own files.
        """
        self._store_end = store_end
        self.lost += lost
        self.next_seq_id = self._transient_threshold = next_seq_id
        self._delivered_below = self.next_deliver_seq_id = next_deliver_seq_id
        self.ready = count
        if count:
            self._found_on_disk(low, count, next_seq_id)

    @property
    def unacked(self) -> int:
        """Messages delivered and not yet acked."""
        return len(self._pending)

    @property
    def numbered(self) -> int:
        """Sequence ids that were given, ever."""
        return self.next_seq_id

    @property
    def next_seq_ids(self) -> tuple[int, ...]:
        """Sequence ids of the next message of each priority, from 0; none without priorities."""
        return ()

    @property
    def memory_bytes(self) -> int:
        """Bytes that its messages take in memory, as its own bound counts them."""
        return self.ram_bytes + MESSAGE_BYTES * (self.ram_msg_count + len(self._pending))

    @abstractmethod
    def memory(self) -> QueueMemory:
        """Counts of the ready messages by state, and their memory."""

    def _entered_memory(self, messages: Sequence[Message]) -> None:
        """Count ready messages that are in memory now."""
        count, size = in_memory(messages)
        self.ram_msg_count += count
        self.ram_bytes += size

    # -- in

    def publish(self, publications: Sequence[Publication], *, persistent: bool,
                expiries: Sequence[int] | None = None) -> tuple[int, dict[int, bytes]]:  # fmt: skip
        """Take messages in, in order; all of them are persistent, or none is.

        `expiries` has a time for each publication (microseconds since 1970, 0 = none).
        Returns the first sequence id (the others follow it) and, by sequence id, the ids of persistent messages
        whose bodies went to the store: their confirms wait for it.
        """
        first = self.next_seq_id
        records, stored = records_of(publications, first, self._embed_below, expiries, self.index.share)
        if self._trace is not None:
            self._taken = first, records, stored
        new = len(records)
        self.next_seq_id = first + new
        if persistent:
            if stored:
                self._write_bodies(records, stored, self._persistent_store)
                self._store_end = self.next_seq_id
            self.index.publish_many(first, records, True)
        else:
            self._transient_end = self.next_seq_id
        self.ready += new
        self.rates.arrived += new
        if self.ready_bytes is not None:
            self.ready_bytes += sum(len(body) for publication in publications for body in publication.bodies)
        queue, kept = self._place(first, records, stored, persistent=persistent)
        here = records[:kept] if kept < new else records
        embedded = INDEXED | PERSISTENT if persistent else 0
        if stored:
            apart = embedded | APART | IN_STORE if persistent else APART
            messages: list[Message] = [
                (seq, record, apart, stored[i]) if i in stored else (seq, record, embedded, None)
                for i, (seq, record) in enumerate(zip(count(first), here))
            ]
            queue.extend(messages)
            self._entered_memory(messages)
        else:
            queue.extend(zip(count(first), here, repeat(embedded), repeat(None)))
            self.ram_msg_count += kept
            # as in_memory() counts bodies that are part of their records
            self.ram_bytes += sum(map(len, here))
        if self.has_ram_duration:
            self._operated(new)
        return first, {first + i: records[i][:16] for i in stored} if persistent and stored else {}

    def taken(self, first: int, count: int) -> Iterator[tuple[int, bytes, bool]]:
        """Messages of the last `publish` as they are stored (checksum_of), for a trace."""
        begin, records, stored = self._taken
        for place in range(first - begin, first - begin + count):
            yield begin + place, stored.get(place, records[place]), place in stored

    def _write(self, first: int, records: list[bytes], stored: dict[int, bytes], *, persistent: bool) -> None:
        """Bodies to their store, then entries to the index."""
        if stored:
            self._write_bodies(records, stored, self._store(persistent))
        self.index.publish_many(first, records, persistent)

    @staticmethod
    def _write_bodies(records: list[bytes], stored: dict[int, bytes], store: StoreClient) -> None:
        for position, body in stored.items():
            store.write(records[position][:16], body)

    def _store(self, persistent: int) -> StoreClient:
        return self._persistent_store if persistent else self._transient_store

    # -- out

    def fetch(self, most: int, *, ack_required: bool) -> list[Fetched]:
        """Take up to `most` messages from the front; without acks they are gone at once.

        A message whose body the store no longer has is left out, acked, and listed by `take_lost`.  After a MemoryError or an
        OSError all of them are ready, as before.
        """
        taken = self._take(most, Wanted.BODIES)
        if not taken:
            return []
        try:
            fetched, apart, lost = self._with_payloads(taken)
        except (MemoryError, OSError):
            self._untake(taken)
            raise
        self.next_deliver_seq_id = max(self.next_deliver_seq_id, taken[-1][SEQ_ID] + 1)
        self.rates.left += len(taken)
        if self.ready_bytes is not None:
            size = self._left_ready(taken)
            self.unacked_bytes += size if ack_required else 0
        self.ram_msg_count -= len(taken)
        if apart:
            self.ram_msg_count += sum(message[STORED] is None for message in apart)
        if ack_required:
            self.rates.delivered += len(taken)
            self._pending.update(zip(map(_seq_id, taken), taken, strict=True))
            if apart:
                self._bodies_pending(apart)
            if lost:
                self.ack(lost)
        else:
            self._settle(taken)
            if self._requeued:
                self._requeued.difference_update(map(_seq_id, taken))
        self.lost += lost
        if self.has_ram_duration:
            self._operated(len(taken))
        if self.paging_rows.unwritten:
            self.tell_paged()
        return fetched

    def _untake(self, taken: list[Message]) -> None:
        """Have the messages of a `_take` ready again."""
        self._head.extendleft(reversed(taken))
        self.ready += len(taken)

    def peek(self, most: int) -> list[Fetched]:
        """The first `most` messages, which stay ready and are not marked as delivered."""
        next_deliver_seq_id, requeued, rates = self.next_deliver_seq_id, set(self._requeued), copy(self.rates)
        seen: list[Fetched] = []
        try:
            while len(seen) < most and (more := self.fetch(most - len(seen), ack_required=True)):
                seen += more
        finally:
            self.requeue([each.seq_id for each in seen])
            self._requeued &= requeued
            self.next_deliver_seq_id = next_deliver_seq_id
            self.rates = rates
        return seen

    def take_lost(self) -> list[int]:
        """Sequence ids of messages whose bodies were damaged, since the last time."""
        lost, self.lost = self.lost, []
        return lost

    def unacked_messages(self, seq_ids: Iterable[int]) -> list[Fetched]:
        """Delivered messages with their payloads, ascending; one whose body is damaged is left out."""
        held = sorted(self._pending[seq] for seq in seq_ids if seq in self._pending)
        return self._with_payloads(held)[0]

    def _with_payloads(self, taken: list[Message]) -> tuple[list[Fetched], list[Message], list[int]]:
        """Messages with their bodies, those of them with a body apart, and the sequence ids of those whose body is lost."""
        below, requeued = self._delivered_below, self._requeued
        if (
            not requeued
            and HAVING[APART].isdisjoint(map(flags_of, taken))
            and (not taken or taken[0][SEQ_ID] >= below)
        ):
            records = [*map(_record, taken)]
            sizes = chain.from_iterable(map(size_in, records))
            columns = zip(map(_seq_id, taken), records, sizes, repeat(False), repeat(False))
            return [*map(fetched_of, columns)], [], []
        bodies: dict[bytes, bytes] | None = None
        fetched: list[Fetched] = []
        apart: list[Message] = []
        lost: list[int] = []
        for message in taken:
            seq, payload, flags, body = message
            size = int.from_bytes(payload[24:28], "big")
            if flags & APART:
                apart.append(message)
                if body is None:
                    if bodies is None:
                        bodies = self._read_bodies(
                            [each for each in taken if each[FLAGS] & APART and each[STORED] is None]
                        )
                    body = bodies.get(payload[:16])
                if body is None:
                    lost.append(seq)
                    continue
                payload, size = body, size_of(body, size)
            redelivered = seq < below or seq in requeued
            fetched.append(fetched_of((seq, payload, size, redelivered, flags & APART != 0)))
        return fetched, apart, lost

    def _read_bodies(self, messages: Sequence[Message]) -> dict[bytes, bytes]:
        """The bodies of messages that are in a store, by message id; those of one store with one call."""
        found: dict[bytes, bytes] = {}
        for persistent in (PERSISTENT, 0):
            if ids := [
                message[RECORD][:16] for message in messages if message[FLAGS] & PERSISTENT == persistent
            ]:
                found.update(self._store(persistent).read_many(ids))
        return found

    def _from_index(self, start: int, end: int, wanted: Wanted) -> tuple[list[Message], int]:
        """The ready messages among the index entries in [start, end): not those that are pending, and no transient
        ones of an earlier process, which are acked.  Also how many turned out to be damaged.
        """
        pending, threshold = self._pending, self._transient_threshold
        messages: list[Message] = []
        stale: list[int] = []
        if not pending or pending.keys().isdisjoint(range(start, end)):
            bodies, alike = wanted is not Wanted.HEADERS, self.index.read_alike
            last = LONG_RUN
            while last >= LONG_RUN and start < end:
                records = alike(start, end, bodies=bodies)
                messages += zip(count(start), records, repeat(INDEXED | PERSISTENT), repeat(None))
                last = len(records)
                start += last
        read = self.index.read_headers if wanted is Wanted.HEADERS else self.index.read
        for seq, record, persistent in read(start, end) if start < end else ():
            if seq in pending:
                continue
            if seq < threshold and not persistent:
                stale.append(seq)
                continue
            flags = INDEXED | PERSISTENT if persistent else INDEXED
            if record[EMBEDDED_SIZE_AT : EMBEDDED_SIZE_AT + 4] == NOT_EMBEDDED:
                flags |= APART | IN_STORE
            messages.append((seq, record, flags, None))
        if stale:
            self.index.ack(stale)
        lost = self.index.take_lost()
        return messages, self._note_lost(lost) if lost else 0

    def _note_lost(self, seqs: list[int]) -> int:
        """Note messages that the index found damaged and acked; returns how many of them were not pending."""
        before = len(self.lost)
        for seq in seqs:
            if (message := self._pending.get(seq)) is None:
                self.lost.append(seq)
            else:
                self._pending[seq] = (seq, message[RECORD], message[FLAGS] & ~INDEXED, message[STORED])
        return len(self.lost) - before

    # -- settled

    def ack(self, seq_ids: Iterable[int]) -> list[int]:
        """Forget delivered messages; unknown ids are ignored (3.6.6).  Returns those that were pending."""
        pop = self._pending.pop
        gone = sorted(filter(None, map(pop, seq_ids, repeat(None))))
        if not gone:
            return []
        self.rates.acked += len(gone)
        self._no_longer_pending(gone)
        if self.ready_bytes is not None:
            self.unacked_bytes -= sum(map(body_size, gone))
        self._settle(gone)
        if self._requeued:
            self._requeued.difference_update(message[SEQ_ID] for message in gone)
        if self.has_ram_duration:
            self._operated(len(gone))
        return [*map(_seq_id, gone)]

    def requeue(self, seq_ids: Iterable[int]) -> list[int]:
        """Put delivered messages back to their old positions, ascending; unknown ids are ignored."""
        pop = self._pending.pop
        back = sorted(filter(None, map(pop, seq_ids, repeat(None))))
        if not back:
            return []
        self.ready += len(back)
        self.rates.arrived += len(back)
        self._no_longer_pending(back)
        if self.ready_bytes is not None:
            size = sum(map(body_size, back))
            self.ready_bytes += size
            self.unacked_bytes -= size
        self._put_back(back)
        self._requeued.update(message[SEQ_ID] for message in back)
        if self.has_ram_duration:
            self._operated(len(back))
        return [message[SEQ_ID] for message in back]

    def purge(self) -> Iterator[list[int]]:
        """Drop every ready message; gives their sequence ids, ascending, as they go.  To be walked to the end."""
        while seqs := self._drop(PURGE_BATCH, Wanted.HEADERS):
            yield seqs

    def drop(self, most: int) -> list[int]:
        """Drop up to `most` messages from the front; returns their sequence ids, ascending."""
        return self._drop(most, Wanted.RECORDS)

    def _drop(self, most: int, wanted: Wanted) -> list[int]:
        taken = self._take(most, wanted)
        self.ram_msg_count -= in_memory(taken)[0]
        self._left_ready(taken)
        self._settle(taken)
        seqs = [message[SEQ_ID] for message in taken]
        self._requeued.difference_update(seqs)
        self.tell_paged()
        return seqs

    def count_bytes(self) -> None:
        """Keep `ready_bytes` and `unacked_bytes` from now on.

        The index has the ready messages and the delivered ones, but for those that are in memory alone.
        """
        delivered = sum(body_size(message) for message in self._pending.values() if message[FLAGS] & INDEXED)
        in_memory = sum(body_size(message) for message in self._in_memory() if not message[FLAGS] & INDEXED)
        self.ready_bytes = body_bytes(self.index) - delivered + in_memory
        self.unacked_bytes = sum(map(body_size, self._pending.values()))

    def _in_memory(self) -> Iterator[Message]:
        """The ready messages that are in memory, with or without their bodies; none unless a subclass keeps some."""
        return iter(())

    def _left_ready(self, taken: list[Message]) -> int:
        """Messages are not ready any more; returns the bytes of their bodies, 0 if they are not counted."""
        if self.ready_bytes is None:
            return 0
        size = sum(map(body_size, taken))
        # the index's lost ones were counted, too
        self.ready_bytes = self.ready_bytes - size if self.ready else 0
        return size

    def terminate(self) -> list[Terms]:
        """A clean stop: everything is on disk, and the terms of each folder say so."""
        return [
            self.index.terminate(next_seq_id=self.next_seq_id, next_deliver_seq_id=self.next_deliver_seq_id)
        ]

    def terms(self) -> list[Terms]:
        """The terms that `terminate` would return now that everything is on disk."""
        return [self.index.terms(next_seq_id=self.next_seq_id, next_deliver_seq_id=self.next_deliver_seq_id)]

    @property
    def all_stays(self) -> bool:
        """True if each ready message is persistent, so that a clean stop loses none."""
        front = self.front()
        return not front or front[0][SEQ_ID] >= self._transient_end

    @property
    def uses_store(self) -> bool:
        """True if the body of a persistent message may be in the store."""
        end, front = self._store_end, self.front() if self._store_end else ()
        return bool(front and front[0][SEQ_ID] < end) or any(seq < end for seq in self._pending)

    def drop_transient_pending(self) -> None:
        """Drop unacked transient messages at a clean stop; unacked persistent ones stay on disk."""
        self._settle(sorted(message for message in self._pending.values() if not message[FLAGS] & PERSISTENT))

    def _settle(self, messages: Sequence[Message]) -> None:
        """Messages are done with: ack their index entries, give up their references to the stores; they ascend."""
        if not messages:
            return
        self.ram_bytes -= in_memory(messages)[1]
        first, last = messages[0][SEQ_ID], messages[-1][SEQ_ID]
        if last - first + 1 == len(messages) and all_have(INDEXED, messages):
            self.index.ack_range(first, len(messages))
        elif indexed := [message[SEQ_ID] for message in messages if message[FLAGS] & INDEXED]:
            self.index.ack(indexed)
        if not any_has(IN_STORE, messages):
            return
        for persistent in (PERSISTENT, 0):
            wanted = IN_STORE | persistent
            if ids := [
                message[RECORD][:16]
                for message in messages
                if message[FLAGS] & (IN_STORE | PERSISTENT) == wanted
            ]:
                if persistent:
                    self.to_remove += ids
                else:
                    self._transient_store.remove(ids)

    def index_synced(self) -> None:
        """Handle an index sync: release the references of acked messages in the store."""
        if self.to_remove:
            ids, self.to_remove = self.to_remove, []
            self._persistent_store.remove(ids)

    # -- memory; a behaviour that does not page leaves these as they are
    has_ram_duration = False
    """True if it pages by the memory monitor's target."""
    max_priority: int | None = None

    @property
    def anything_counted(self) -> bool:
        """True if messages moved since the rates were computed last."""
        return self.rates.anything_counted

    def ram_duration(self) -> float:
        """Seconds for which the messages in memory last, for the memory monitor."""
        return math.inf

    def set_ram_duration_target(self, duration: float) -> None:
        """Set the memory monitor's target: messages in memory that last longer than it are paged out."""

    def reduce_memory_use(self) -> None:
        """Page out the surplus, or a part of it (then `must_reduce_again` is set)."""

    # -- the behaviours' own

    @abstractmethod
    def _found_on_disk(self, low: int, count: int, end: int) -> None:
        """Count what recovery found: `count` messages in the index, with sequence ids in [low, end)."""

    @abstractmethod
    def _place(
        self, first: int, records: list[bytes], stored: dict[int, bytes], *, persistent: bool
    ) -> tuple[deque[Message], int]:
        """Decide where new messages go: returns the queue of those that stay in memory, and how many of them, the first.

        The others are on the disk only: transient ones are written now, persistent ones were before.
        """

    @abstractmethod
    def front(self) -> Sequence[Message]:
        """The messages that leave first, of which at least one is there unless the queue is empty."""

    def _take(self, most: int, wanted: Wanted) -> list[Message]:
        """Remove up to `most` messages from the front; they are not ready any more."""
        taken: list[Message] = []
        head = self._head
        while left := most - len(taken):
            try:
                if not head and not self._refill(left, wanted):
                    break
            except (MemoryError, OSError):
                head.extendleft(reversed(taken))
                raise
            if left >= len(head):
                taken += head
                head.clear()
            else:
                taken += map(deque.popleft, repeat(head, left))
        self.ready -= len(taken)
        return taken

    def _refill(self, most: int, wanted: Wanted) -> bool:  # noqa: ARG002  # of a behaviour with more than a head
        """Refill a head that has run dry with the next messages, `most` of which are about to leave; False if
        there are none.
        """
        return False

    def _bodies_pending(self, apart: list[Message]) -> None:
        """Delivered messages with bodies apart wait for an ack."""

    def _no_longer_pending(self, messages: list[Message]) -> None:
        """Messages were acked or come back."""

    @abstractmethod
    def _put_back(self, back: list[Message]) -> None:
        """Place requeued messages; they ascend."""

    def _operated(self, count: int) -> None:
        """`count` messages were published, fetched, acked or requeued, in a queue that pages by the monitor's target."""
