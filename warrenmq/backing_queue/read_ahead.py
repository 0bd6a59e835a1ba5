"""The queue that reads ahead: a head as long as its consumers are fast, and a tail on disk (rabbit_variable_queue from
3.12; q_head and q_tail since 4.3).

    publish --> q_head  while the tail is empty and the head has less than M messages
           '--> tail    a range of sequence ids; the messages themselves are on disk only
                  |
                  '--> q_head  when that has run dry: the next M messages

M = min(1 + 2 * messages out a second, 2048), so the head holds what is taken in two seconds, and an idle queue one
message.  Nothing moves from the head back to the disk.  A message beyond the head is written at once, a transient one,
too, whether memory is short or not.

After every operation no counter is negative, tail_start + tail_count <= tail_end, and every message of the head and
every pending one lies below tail_start.  Source: docs/reference/classic-queue.md#head-and-tail.

Departures.  Messages are fetched many at a time, so a read brings those that are wanted at once, however small M is.  The
head takes no more messages in while the queue has more than its own bound of bytes in memory (queue_ram_bytes).  An
unacked message does not keep in memory a body that is in a store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from warrenmq.backing_queue import paging, rates
from warrenmq.backing_queue.parts import QueueMemory, StoreClient, Wanted, merge
from warrenmq.backing_queue.variable_queue import PURGE_BATCH, VariableQueue
from warrenmq.message.queue_message import (
    APART,
    FLAGS,
    IN_STORE,
    PERSISTENT,
    RECORD,
    SEQ_ID,
    STORED,
    Message,
    any_has,
    body_size,
    in_memory,
)
from warrenmq.queue_index.protocol import Index
from warrenmq.settings import Settings
from warrenmq.trace.events import Ev, State
from warrenmq.trace.recorder import ActorTrace


class ReadAheadQueue(VariableQueue):
    """The backing queue with a head and a tail (the record vqstate since 3.12)."""

    def __init__(self, index: Index, persistent_store: StoreClient, transient_store: StoreClient, settings: Settings,
                 clock: Callable[[], int], trace: ActorTrace | None = None) -> None:  # fmt: skip
        super().__init__(index, persistent_store, transient_store, settings, clock, trace)
        self.q_head = self._head
        self.tail_start = self.tail_end = self.tail_count = 0

    # -- how many

    def _in_memory(self) -> Iterator[Message]:
        return iter(self.q_head)

    def memory(self) -> QueueMemory:
        alpha = self.ram_msg_count
        gamma = len(self.q_head) - alpha
        return QueueMemory(alpha, 0, gamma, self.tail_count, alpha, self.ram_bytes, self.rates.most_ahead)

    # -- in

    def _found_on_disk(self, low: int, count: int, end: int) -> None:
        self.tail_start, self.tail_end, self.tail_count = low, end, count

    def _place(
        self, first: int, records: list[bytes], stored: dict[int, bytes], *, persistent: bool
    ) -> tuple[deque[Message], int]:
        head, count, ahead = self.q_head, len(records), 0
        # memory_bytes, written out: every message passes here
        held = self.ram_bytes + paging.MESSAGE_BYTES * (self.ram_msg_count + len(self._pending))
        if not self.tail_count and held <= self._bound:
            ahead = 1 - len(head)  # M is not less, whatever the rates are
            if ahead < count:
                self.rates.maybe_update(self._clock())
                ahead = min(max(0, self.rates.most_ahead - len(head)), count)
        if ahead == count:
            return head, ahead
        if not persistent:
            rest = {position - ahead: body for position, body in stored.items() if position >= ahead}
            self._write(first + ahead, records[ahead:], rest, persistent=False)
        if not self.tail_count:
            self.tail_start = first + ahead
        self.tail_end = first + count
        self.tail_count += count - ahead
        self._paged(Ev.PAGE_OUT, range(first + ahead, first + count), State.DELTA, State.ALPHA)
        return head, ahead

    # -- out

    def front(self) -> Sequence[Message]:
        if not self.q_head:
            self._refill(1, Wanted.BODIES)
        return self.q_head

    def _refill(self, count: int, wanted: Wanted) -> bool:
        """Read at least `count` messages from the tail into the head; False when there is nothing left."""
        if ahead := wanted is Wanted.BODIES:
            self.rates.maybe_update(self._clock())
            most = min(max(self.rates.most_ahead, count), rates.MOST_AHEAD)
        else:
            most = PURGE_BATCH
        while self.tail_count:
            start = max(self.tail_start, self.index.next_live(self.tail_start))
            end = min(start + most, self.tail_end)
            if start < end:
                end = min(self.index.tune_read(start, end), self.tail_end)
                messages, lost = self._from_index(start, end, wanted)
                if ahead:
                    messages = self._with_bodies(messages)
            else:
                end, messages, lost = self.tail_end, [], 0
            self.tail_start = end
            # a count beyond the range's end is of messages that the index does not have after all
            left = self.tail_count - len(messages) - lost if end < self.tail_end else 0
            self.ready += len(messages) + left - self.tail_count
            self.tail_count = left
            if messages:
                self._to_head(messages)
                return True
        return False

    def _to_head(self, messages: list[Message]) -> None:
        self.q_head.extend(messages)
        self._entered_memory(messages)
        if self._trace is not None:
            for state, present in ((State.ALPHA, True), (State.GAMMA, False)):
                seqs = [
                    m[SEQ_ID] for m in messages if (not m[FLAGS] & APART or m[STORED] is not None) is present
                ]
                self._paged(Ev.PAGE_IN, seqs, state, State.DELTA)

    def _with_bodies(self, messages: list[Message]) -> list[Message]:
        """Read bodies from the stores along with their entries, where that is worth it."""
        if not any_has(APART, messages):
            return messages
        together: list[Message] = []
        for persistent in (PERSISTENT, 0):
            small = [
                message
                for message in messages
                if message[FLAGS] & (APART | PERSISTENT) == APART | persistent
                and body_size(message) <= paging.TOGETHER_SIZE
            ]
            if paging.worth_reading_together(len(small)):
                together += small
        bodies = super()._read_bodies(together) if together else {}
        return [
            (*message[:STORED], bodies.get(message[RECORD][:16])) if message[FLAGS] & APART else message
            for message in messages
        ]

    def _read_bodies(self, messages: Sequence[Message]) -> dict[bytes, bytes]:
        """One at a time, as each is sent."""
        found: dict[bytes, bytes] = {}
        for message in messages:
            body = self._store(message[FLAGS] & PERSISTENT).read(message[RECORD][:16])
            if body is not None:
                found[message[RECORD][:16]] = body
        return found

    # -- pending acks and requeue

    def _bodies_pending(self, apart: list[Message]) -> None:
        for seq, record, flags, body in apart:
            if flags & IN_STORE and body is not None:
                self.ram_bytes -= len(body)
                self._pending[seq] = seq, record, flags, None

    def _put_back(self, back: list[Message]) -> None:
        """Requeue messages to the head: a delivered message is older than the tail."""
        self.ram_msg_count += in_memory(back)[0]
        merge(self.q_head, back)
