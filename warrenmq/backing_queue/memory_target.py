"""The queue that pages when memory is short: q1, q2, delta, q3, q4 (rabbit_variable_queue up to 3.11).

    publish --> q1 --> q2 --> delta --> q3 --> q4 --> deliver
                alphas betas  on disk   betas  alphas
                                 ^ betas of q2's front and q3's rear, when there are more than are permitted
                ^ alphas of q1's front become betas at q2's rear, those of q4's rear at q3's front

Without pressure all messages are alphas in q4, and only what must survive is written.  Pressure comes from the
memory monitor, as a duration that what is in memory may last, and from the queue's own bound in bytes; both become
`target_ram_count`.  A persistent message is on disk already: it becomes a gamma and a delta for nothing.

After every operation (len is what is ready; docs/reference/classic-queue.md#five-queues)

    1  q1 is not empty => q3 is not          4  len = 0 <=> q3 and q4 are empty
    2  q2 is not empty => delta is not       5  no counter is negative
    3  delta is not empty => q3 is not       6  ram_msg_count <= len
    7  a persistent message has its index entry; a body is in memory or on disk

Delta is a range of sequence ids with a count: some in the range may be acked, or pending.

Departures.  Where RabbitMQ pushes one message, runs are pushed here.  The body of a small message that became a beta
stays in memory with version 2 of the queue's files, too (there, RabbitMQ would index it and read it back).  A queue that
its own bound keeps from growing in memory is `lazy` until delta is empty: new messages expand delta at once, as those
of RabbitMQ's lazy queues did (3.6 to 3.11), instead of coming there through q1 and q2.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from warrenmq.backing_queue import paging
from warrenmq.backing_queue.paging import INFINITE
from warrenmq.backing_queue.parts import QueueMemory, StoreClient, Wanted, merge
from warrenmq.backing_queue.variable_queue import VariableQueue
from warrenmq.message.queue_message import (
    APART,
    FLAGS,
    IN_STORE,
    INDEXED,
    PERSISTENT,
    RECORD,
    SEQ_ID,
    STORED,
    Message,
    any_has,
    in_memory,
)
from warrenmq.message.runs import runs
from warrenmq.queue_index.protocol import Index
from warrenmq.queue_index.v1.segment import next_boundary
from warrenmq.settings import Settings
from warrenmq.trace.events import Ev, RamTarget, State
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_target = writer(RamTarget)

OPERATIONS_BETWEEN = 1_000
"""Messages handled between two looks at the target (queue_explicit_gc_run_operation_threshold)."""
READ_AT_ONCE = 2_048
"""Sequence ids that one read of delta covers, which ends with the segment in any case."""
STEP = 512
"""Messages that are paged out between two looks at the store's credit."""


class MemoryTargetQueue(VariableQueue):
    """The backing queue with q1, q2, delta, q3 and q4 (the record vqstate in mode `default`)."""

    has_ram_duration = True

    def __init__(self, index: Index, persistent_store: StoreClient, transient_store: StoreClient, settings: Settings,
                 clock: Callable[[], int], trace: ActorTrace | None = None) -> None:  # fmt: skip
        super().__init__(index, persistent_store, transient_store, settings, clock, trace)
        self.q1: deque[Message] = deque()
        self.q2: deque[Message] = deque()
        self.q3: deque[Message] = deque()
        self.q4 = self._head
        self.delta_start = self.delta_end = self.delta_count = 0
        self._io_batch_size = settings.msg_store_io_batch_size
        self._most_at_once = 2 * settings.msg_store_credit_disc_bound[0]
        self._target = INFINITE
        """target_ram_count, as the memory monitor's duration makes it."""
        self._ram_pending_ack: dict[int, None] = {}
        """Pending messages whose body could be paged out: it belongs in a store and is in memory."""
        self._counts_before = 0, 0
        """Messages and pending acks in memory at the last ram_duration()."""
        self._operations = 0
        self._lazy = False
        """Paging has not brought the queue below its own bound; q1 and q2 are empty."""

    # -- how many

    def _in_memory(self) -> Iterator[Message]:
        return chain(self.q1, self.q2, self.q3, self.q4)

    @property
    def target_ram_count(self) -> float:
        """The number of messages that may have their body in memory: the smaller of what the monitor and the
        own bound allow.
        """
        count = self.ram_msg_count + len(self._pending)
        return min(self._target, paging.count_within(self._bound, count, self.memory_bytes))

    def memory(self) -> QueueMemory:
        gamma = sum([message[FLAGS] & INDEXED for queue in (self.q2, self.q3) for message in queue])
        beta = len(self.q2) + len(self.q3) - gamma
        alpha = len(self.q1) + len(self.q4)
        return QueueMemory(
            alpha, beta, gamma, self.delta_count, self.ram_msg_count, self.ram_bytes, self.target_ram_count
        )

    # -- in and out

    def _found_on_disk(self, low: int, count: int, end: int) -> None:
        self.delta_start, self.delta_end, self.delta_count = low, end, count
        self._maybe_deltas_to_betas(Wanted.RECORDS)

    def _place(
        self, first: int, records: list[bytes], stored: dict[int, bytes], *, persistent: bool
    ) -> tuple[deque[Message], int]:
        if self._lazy and self._stays_lazy():
            if not persistent:
                self._write(first, records, stored, persistent=False)
            self._expand_delta(first, first + len(records), len(records))
            self._paged(Ev.PAGE_OUT, range(first, first + len(records)), State.DELTA, State.ALPHA)
            return self.q4, 0
        return self.q1 if self.q3 else self.q4, len(records)

    def _stays_lazy(self) -> bool:
        self._lazy = bool(self.delta_count or (self.q3 and self.memory_bytes > self._bound))
        return self._lazy

    def front(self) -> Sequence[Message]:
        return self.q4 or self.q3

    def _refill(self, most: int, wanted: Wanted) -> bool:
        """q4 has run dry: have what leaves next go through it, from q3."""
        if not self.q3:
            return False
        self.q4.extend(_popleft(self.q3, most))
        if not self.q3:
            try:
                self._maybe_deltas_to_betas(wanted)
            except (MemoryError, OSError):
                self.q3.append(self.q4.pop())  # were q3 empty, nothing would be behind it
                if not self.q4:
                    raise
        return True

    def _maybe_deltas_to_betas(self, wanted: Wanted) -> None:
        """q3 has run dry: have it read from delta; after delta comes q2, and after that q1, which becomes q4."""
        while self.delta_count and not self.q3:
            start = max(self.delta_start, self.index.next_live(self.delta_start))
            end = min(
                next_boundary(start, self.index.segment_entry_count), start + READ_AT_ONCE, self.delta_end
            )
            messages, lost = self._from_index(start, end, wanted) if start < end else ([], 0)
            self.q3.extend(messages)
            self._entered_memory(messages)
            self._paged(Ev.PAGE_IN, [message[SEQ_ID] for message in messages], State.GAMMA, State.DELTA)
            self.delta_start = end
            # a count beyond the range's end is of messages that the index does not have after all
            left = self.delta_count - len(messages) - lost if end < self.delta_end else 0
            self.ready += len(messages) + left - self.delta_count
            self.delta_count = left
        if not self.delta_count:
            self.q3.extend(self.q2)
            self.q2.clear()
            if not self.q3:
                self.q4.extend(self.q1)
                self.q1.clear()

    # -- pending acks and requeue

    def _bodies_pending(self, apart: list[Message]) -> None:
        self._ram_pending_ack.update(
            [(message[SEQ_ID], None) for message in apart if message[STORED] is not None]
        )

    def _no_longer_pending(self, messages: list[Message]) -> None:
        if self._ram_pending_ack:
            for message in messages:
                self._ram_pending_ack.pop(message[SEQ_ID], None)

    def _put_back(self, back: list[Message]) -> None:
        """Requeue messages: those before q3 become alphas of q4, those before delta betas of q3, the others deltas."""
        q3_begins = self.q3[0][SEQ_ID] if self.q3 else self.next_seq_id
        delta_begins = self.delta_start if self.delta_count else self.next_seq_id
        alphas = self._with_bodies([message for message in back if message[SEQ_ID] < q3_begins])
        if alphas:
            merge(self.q4, alphas)
        between = [message for message in back if q3_begins <= message[SEQ_ID] < delta_begins]
        if between:
            self.ram_msg_count += in_memory(between)[0]
            betas = self._to_betas(between)
            merge(self.q3, betas)
        deltas = [message for message in back if message[SEQ_ID] >= delta_begins]
        if deltas:
            self.ram_msg_count += in_memory(deltas)[0]
            self._to_delta(deltas)

    def _with_bodies(self, messages: list[Message]) -> list[Message]:
        """Read the bodies that are not in memory; one that the store has lost is missed when it is to be sent."""
        absent = [message for message in messages if message[FLAGS] & APART and message[STORED] is None]
        if absent:
            bodies: dict[bytes, bytes] = {}
            with suppress(MemoryError, OSError):  # else they are read when they are to be sent
                bodies = self._read_bodies(absent)
            messages = [
                (*message[:STORED], bodies.get(message[RECORD][:16]))
                if message[FLAGS] & APART and message[STORED] is None
                else message
                for message in messages
            ]
            self.ram_bytes += sum(map(len, bodies.values()))
        self.ram_msg_count += in_memory(messages)[0]
        return messages

    # -- memory

    def ram_duration(self) -> float:
        self.rates.update(self._clock())
        messages, acks = self.ram_msg_count, len(self._ram_pending_ack)
        messages_before, acks_before = self._counts_before
        self._counts_before = messages, acks
        return paging.ram_duration(messages, messages_before, acks, acks_before, self.rates)

    def set_ram_duration_target(self, duration: float) -> None:
        before, self._target = self._target, paging.target_ram_count(duration, self.rates.total)
        if self._trace is not None and before != self._target:
            target = -1 if self._target == INFINITE else int(self._target)
            _write_target(self._trace, target, self.ram_msg_count, self.ram_bytes)
        if self._target < before:
            self.reduce_memory_use()

    def _operated(self, count: int) -> None:
        self._operations += count
        if self._operations > OPERATIONS_BETWEEN or self.memory_bytes > self._bound:
            self._operations = 0
            self.reduce_memory_use()

    def reduce_memory_use(self) -> None:
        """Alphas and pending acks to betas down to the target, then betas to delta where they are too many.

        Each at most twice the store's credit at a time, so that deliveries come between.
        """
        self.must_reduce_again = False
        target = self.target_ram_count
        if target == INFINITE:
            return
        count = self.ram_msg_count + len(self._ram_pending_ack)
        if excess := paging.chunk_size(count, target):
            self.rates.maybe_update(self._clock())
            quota = min(excess, self._most_at_once)
            if self.rates.acks_grow_faster:
                quota = self._push_alphas_to_betas(self._limit_ram_acks(quota))
            else:
                quota = self._limit_ram_acks(self._push_alphas_to_betas(quota))
            self.must_reduce_again = not quota and excess > self._most_at_once
        permitted = paging.permitted_beta_count(
            self.ready, len(self.q1), len(self.q3), len(self.q4), target, self.index.segment_entry_count
        )
        too_many = paging.chunk_size(len(self.q2) + len(self.q3), permitted)
        if too_many >= self._io_batch_size:
            self._push_betas_to_deltas(min(too_many, self._most_at_once))
            self.must_reduce_again |= too_many > self._most_at_once
        if not self._lazy and self.memory_bytes > self._bound:
            self._become_lazy()
        self.must_reduce_again = self.must_reduce_again and not self._blocked()

    def _become_lazy(self) -> None:
        """Paging did not help: q1 and q2 go to delta, as new messages will, so that memory does not grow."""
        for queue in (self.q2, self.q1):
            self._to_delta(_popleft(queue, self._most_at_once))
        self._lazy = bool(self.q3 and not self.q2 and not self.q1)
        self.must_reduce_again |= bool(self.q2 or self.q1)

    def _blocked(self) -> bool:
        """True if a store grants no credit; its next grant resumes the paging."""
        return self._persistent_store.blocked or self._transient_store.blocked

    def _limit_ram_acks(self, quota: int) -> int:
        """Page out bodies of unacked messages, the latest first; returns the rest of the quota."""
        while quota and self._ram_pending_ack and not self._blocked():
            seqs = heapq.nlargest(min(quota, STEP), self._ram_pending_ack)
            messages = [self._pending[seq] for seq in reversed(seqs)]
            self._no_longer_pending(messages)
            self.ram_msg_count += len(messages)  # they are not ready: _to_betas counts them as if they were
            self._pending.update([(message[SEQ_ID], message) for message in self._to_betas(messages)])
            quota -= len(seqs)
        return quota

    def _push_alphas_to_betas(self, quota: int) -> int:
        """Make betas of q1's front, then of q4's rear; returns the rest of the quota."""
        while quota and self.q1 and not self._blocked():
            alphas = _popleft(self.q1, min(quota, STEP))
            (self.q2 if self.delta_count else self.q3).extend(self._to_betas(alphas))
            quota -= len(alphas)
        while quota and self.q4 and not self._blocked():
            alphas = _pop(self.q4, min(quota, STEP))
            self.q3.extendleft(reversed(self._to_betas(alphas)))
            quota -= len(alphas)
        return quota

    def _to_betas(self, alphas: list[Message]) -> list[Message]:
        """Move bodies from memory to disk; a small one is part of the position, and stays.

        The bodies of persistent messages are there already.
        """
        betas = alphas
        if any_has(APART, alphas):
            betas = [message if message[STORED] is None else self._to_beta(*message) for message in alphas]
        if self._trace is not None:
            for state, indexed in ((State.GAMMA, INDEXED), (State.BETA, 0)):
                self._paged(
                    Ev.PAGE_OUT,
                    [m[SEQ_ID] for m in betas if m[FLAGS] & INDEXED == indexed],
                    state,
                    State.ALPHA,
                )
        return betas

    def _to_beta(self, seq: int, record: bytes, flags: int, stored: bytes | None) -> Message:
        assert stored is not None
        if not flags & IN_STORE:
            self._store(flags & PERSISTENT).write(record[:16], stored)
        self.ram_msg_count -= 1
        self.ram_bytes -= len(stored)
        return seq, record, flags | IN_STORE, None

    def _push_betas_to_deltas(self, quota: int) -> None:
        """Push betas to delta: from q3's rear down to the next segment, so that delta is read segment by
        segment; then from q2's front.
        """
        q3, q2 = self.q3, self.q2
        if q3:
            limit = next_boundary(q3[0][SEQ_ID], self.index.segment_entry_count)
            betas: list[Message] = []
            while len(betas) < quota and q3[-1][SEQ_ID] >= limit:
                betas.append(q3.pop())
            betas.reverse()
            self._to_delta(betas)
            quota -= len(betas)
        if quota and q2:
            self._to_delta(_popleft(q2, quota))

    def _to_delta(self, messages: list[Message]) -> None:
        """Move messages to disk altogether; their sequence ids ascend."""
        if not messages:
            return
        self._write_rest([message for message in messages if not message[FLAGS] & INDEXED])
        count, size = in_memory(messages)
        self.ram_msg_count -= count
        self.ram_bytes -= size
        self._expand_delta(messages[0][SEQ_ID], messages[-1][SEQ_ID] + 1, len(messages))
        if self._trace is not None:
            for before, indexed in ((State.GAMMA, INDEXED), (State.BETA, 0)):
                self._paged(
                    Ev.PAGE_OUT,
                    [m[SEQ_ID] for m in messages if m[FLAGS] & INDEXED == indexed],
                    State.DELTA,
                    before,
                )

    def _expand_delta(self, first: int, end: int, count: int) -> None:
        if self.delta_count:
            first, end = min(first, self.delta_start), max(end, self.delta_end)
        self.delta_start, self.delta_end = first, end
        self.delta_count += count

    def _write_rest(self, messages: list[Message]) -> None:
        """Transient messages go to disk: bodies that were not written yet, then index entries."""
        by_seq = {message[SEQ_ID]: message for message in messages}
        for first, count in runs(by_seq):
            run = [by_seq[seq] for seq in range(first, first + count)]
            stored = {
                position: message[STORED]
                for position, message in enumerate(run)
                if message[STORED] is not None and not message[FLAGS] & IN_STORE
            }
            self._write(first, [message[RECORD] for message in run], stored, persistent=False)


def _popleft(queue: deque[Message], most: int) -> list[Message]:
    """Take up to `most` messages from the front."""
    if most >= len(queue):
        taken = list(queue)
        queue.clear()
        return taken
    pop = queue.popleft
    return [pop() for _ in range(most)]


def _pop(queue: deque[Message], most: int) -> list[Message]:
    """Take up to `most` messages from the rear; the result ascends."""
    pop = queue.pop
    taken = [pop() for _ in range(min(most, len(queue)))]
    taken.reverse()
    return taken
