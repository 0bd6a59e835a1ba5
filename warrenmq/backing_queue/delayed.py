"""The backing queue of delayed messages: they leave in the order of their due times.

    publish --> the index and the stores, at once, a transient message, too
           '--> a heap of (time, sequence id): 50 bytes a message, and nothing else of it is in memory
    fetch_due   those whose time has come, read back from the disk: earliest first, equal times as they came
    postpone    back, for a later time

A message's time is the expiry of its index record (microseconds since 1970), so a recovery reads the heap from the headers of
the records, and the files are those of any queue of version 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from warrenmq.backing_queue.parts import QueueMemory, StoreClient, Wanted
from warrenmq.backing_queue.variable_queue import VariableQueue
from warrenmq.message.queue_message import APART, FLAGS, PERSISTENT, SEQ_ID, Message, expiry_of, in_memory
from warrenmq.message.runs import runs
from warrenmq.queue_index.protocol import Index
from warrenmq.queue_index.record import HEADER_BYTES
from warrenmq.settings import Settings
from warrenmq.trace.events import Ev, State
from warrenmq.trace.recorder import ActorTrace

_SEQ_BITS = 64
_SEQ = (1 << _SEQ_BITS) - 1


class DueMessage(NamedTuple):
    """A message that is due."""

    seq_id: int
    stored: bytes
    """The message as message/stored.py encodes it."""
    persistent: bool


class DelayedQueue(VariableQueue):
    """A backing queue ordered by due time; a fetched message is pending until `ack` or `postpone`."""

    def __init__(self, index: Index, persistent_store: StoreClient, transient_store: StoreClient, settings: Settings,
                 clock: Callable[[], int], trace: ActorTrace | None = None) -> None:  # fmt: skip
        super().__init__(index, persistent_store, transient_store, settings, clock, trace)
        self._times: list[int] = []
        """A heap; each is the time, and the sequence id in the low 64 bits: one integer takes half of what a tuple takes."""

    @property
    def next_due(self) -> int | None:
        """The earliest due time, in microseconds since 1970; None when the queue is empty."""
        return self._times[0] >> _SEQ_BITS if self._times else None

    def memory(self) -> QueueMemory:
        return QueueMemory(0, 0, 0, len(self._times), 0, self.ram_bytes, 0)

    # -- in

    def _found_on_disk(self, low: int, count: int, end: int) -> None:  # noqa: ARG002  # the index is walked anyway
        step = self.index.segment_entry_count
        for start in range(low - low % step, end, step):
            messages, _ = self._from_index(start, min(start + step, end), Wanted.HEADERS)
            self._times += [_key(message) for message in messages]
        heapify(self._times)
        self.ready = len(self._times)

    def _place(
        self, first: int, records: list[bytes], stored: dict[int, bytes], *, persistent: bool
    ) -> tuple[deque[Message], int]:
        if not persistent:
            self._write(first, records, stored, persistent=False)
        for seq, record in enumerate(records, first):
            heappush(self._times, int.from_bytes(record[16:24], "big") << _SEQ_BITS | seq)
        self._paged(Ev.PAGE_OUT, range(first, first + len(records)), State.DELTA, State.ALPHA)
        return self._head, 0

    # -- out

    def fetch_due(self, now: int, most: int) -> list[DueMessage]:
        """Fetch up to `most` due messages, earliest first; each is pending then.

        A message whose body is damaged is left out, acked, and listed by `take_lost`.  After a MemoryError or
        an OSError all of them are ready, as before.
        """
        keys: list[int] = []
        while len(keys) < most and (due := self.next_due) is not None and due <= now:
            keys.append(heappop(self._times))
        if not keys:
            return []
        self.rates.maybe_update(self._clock())
        taken = self._taken_by(keys, Wanted.BODIES)
        self.rates.left += len(taken)
        try:
            fetched, _, lost = self._with_payloads(taken)
        except (MemoryError, OSError):
            self.ram_msg_count -= in_memory(taken)[0]
            self._wait(taken, keys)
            raise
        self.ram_msg_count -= in_memory(taken)[0]
        self._pending.update((message[SEQ_ID], message) for message in taken)
        if lost:
            self.ack(lost)
            self.lost += lost
        if taken:
            self.next_deliver_seq_id = max(self.next_deliver_seq_id, taken[-1][SEQ_ID] + 1)
        self.tell_paged()
        found = {
            each.seq_id: DueMessage(
                each.seq_id,
                each.payload if each.in_store else each.payload[HEADER_BYTES:],
                bool(self._pending[each.seq_id][FLAGS] & PERSISTENT),
            )
            for each in fetched
        }
        return [found[seq] for key in keys if (seq := key & _SEQ) in found]

    def postpone(self, seq_ids: Iterable[int], until: int) -> None:
        """Requeue pending messages until a time in microseconds since 1970; their records on disk keep the old time."""
        back = [message for seq in seq_ids if (message := self._pending.pop(seq, None)) is not None]
        self._wait(back, [until << _SEQ_BITS | message[SEQ_ID] for message in back])

    def front(self) -> Sequence[Message]:
        """The message with the earliest due time."""
        while self._times:
            if messages := self._read([self._times[0] & _SEQ], Wanted.HEADERS):
                return messages
            heappop(self._times)
            self.ready = len(self._times)
        return ()

    def _take(self, most: int, wanted: Wanted) -> list[Message]:
        """Take the messages due first, in the order of their sequence ids."""
        return self._taken_by([heappop(self._times) for _ in range(min(most, len(self._times)))], wanted)

    def _taken_by(self, keys: list[int], wanted: Wanted) -> list[Message]:
        """The messages of times that were taken; when they cannot be read, the times are back."""
        try:
            taken = self._read(sorted(key & _SEQ for key in keys), wanted)
        except (MemoryError, OSError):
            self._wait([], keys)
            raise
        self.ready = len(self._times)
        return taken

    def _untake(self, taken: list[Message]) -> None:
        self.ram_msg_count -= in_memory(taken)[0]
        self._put_back(taken)

    def _read(self, seqs: list[int], wanted: Wanted) -> list[Message]:
        """Read messages from the index, by ascending sequence id; they then count as in memory."""
        messages = [
            message
            for first, count in runs(seqs)
            for message in self._from_index(first, first + count, wanted)[0]
        ]
        self._entered_memory(messages)
        if self._trace is not None:
            for state, apart in ((State.ALPHA, 0), (State.GAMMA, APART)):
                self._paged(
                    Ev.PAGE_IN, [m[SEQ_ID] for m in messages if m[FLAGS] & APART == apart], state, State.DELTA
                )
        return messages

    # -- pending

    def _put_back(self, back: list[Message]) -> None:
        self._wait(back, map(_key, back))

    def _wait(self, back: list[Message], keys: Iterable[int]) -> None:
        for key in keys:
            heappush(self._times, key)
        self.ready = len(self._times)
        self.ram_bytes -= in_memory(back)[1]
        self._paged(Ev.PAGE_OUT, sorted(message[SEQ_ID] for message in back), State.DELTA, State.ALPHA)
        self.tell_paged()


def _key(message: Message) -> int:
    return expiry_of(message) << _SEQ_BITS | message[SEQ_ID]
