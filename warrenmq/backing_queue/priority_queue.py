"""The backing queue with priorities: one queue for each, 0 to x-max-priority, in a folder of its own (rabbit_priority_queue).

    publish    to the queue of the message's priority, of the highest one if it is above
    fetch      from the highest queue that has messages: it is the front of the whole
    requeue    to where it came from

So messages of one priority are first in, first out.  Each queue counts its sequence ids from 0; outside, they have the
priority in the bits from 48 on, which makes them different from each other.  RabbitMQ's folders, whose names are made of the
queue's name, a zero byte and the priority, are the same.

To the queue process this looks like one VariableQueue with one index, whose sync is that of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple
from itertools import groupby

from warrenmq.backing_queue.parts import QueueMemory
from warrenmq.backing_queue.variable_queue import VariableQueue
from warrenmq.directory.recovery_terms import Terms
from warrenmq.message.queue_message import Fetched, Message, Publication
from warrenmq.message.runs import runs
from warrenmq.queue_index.protocol import Index, Synced
from warrenmq.seams.disk import File
from warrenmq.trace.events import PRIORITY_SHIFT, QiSync, Trigger
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_WITHIN = (1 << PRIORITY_SHIFT) - 1
_write_synced = writer(QiSync)


class PriorityIndex:
    """The indexes of all priorities as one; the methods are those of QueueFiles."""

    def __init__(self, indexes: Sequence[Index], trace: ActorTrace | None) -> None:
        self._indexes = indexes
        self._trace = trace

    @property
    def dirty_bytes(self) -> int:
        return sum(index.dirty_bytes for index in self._indexes)

    @property
    def share(self) -> int:
        return min(index.share for index in self._indexes)

    def look_at_limit(self) -> None:
        for index in self._indexes:
            index.look_at_limit()

    @property
    def flushing(self) -> bool:
        return any(index.flushing for index in self._indexes)

    @property
    def needs_sync(self) -> bool:
        return any(index.needs_sync for index in self._indexes)

    def begin_flush(self) -> None:
        for index in self._indexes:
            if index.dirty_bytes:
                index.begin_flush()

    def close_files(self) -> None:
        for index in self._indexes:
            index.close_files()

    def flush_step(self) -> bool:
        more = [index.flush_step() for index in self._indexes if index.flushing]
        return any(more)

    def to_sync(self, trigger: Trigger) -> Sequence[File]:
        return [file for index in self._indexes for file in index.to_sync(trigger)]

    def sync(self, trigger: Trigger) -> Synced:
        """One row says that all of it is safe."""
        synced = [each for index in self._indexes if (each := index.sync(trigger, alone=False)) is not None]
        if not synced:
            return None
        size, records = (sum(numbers) for numbers in zip(*synced, strict=True))
        if self._trace is not None:
            _write_synced(self._trace, trigger, size, records)
        return size, records

    def live_messages(self) -> Iterator[tuple[int, int]]:
        for priority, index in enumerate(self._indexes):
            for seq_id, number in index.live_messages():
                yield priority << PRIORITY_SHIFT | seq_id, number

    def live_runs(self) -> Iterator[tuple[int, int]]:
        return runs(seq_id for seq_id, _ in self.live_messages())

    def delete(self) -> None:
        for index in self._indexes:
            index.delete()


class PriorityQueue:
    """The backing queue of a queue with priorities; the methods are those of VariableQueue."""

    def __init__(self, queues: Sequence[VariableQueue], trace: ActorTrace | None) -> None:
        """`queues` by priority, from 0."""
        for priority, queue in enumerate(queues):
            queue.paging_rows.base = queue.index.base = priority << PRIORITY_SHIFT
        self._queues = queues
        self._downwards = tuple(reversed(tuple(enumerate(queues))))
        self.index = PriorityIndex([queue.index for queue in queues], trace)
        self.has_ram_duration = queues[0].has_ram_duration
        self.max_priority = len(queues) - 1

    # -- how many

    @property
    def ready(self) -> int:
        return sum(queue.ready for queue in self._queues)

    @property
    def unacked(self) -> int:
        return sum(queue.unacked for queue in self._queues)

    @property
    def next_seq_id(self) -> int:
        """The sequence id of the next message of priority 0."""
        return self._queues[0].next_seq_id

    @property
    def numbered(self) -> int:
        return sum(self.next_seq_ids)

    @property
    def next_seq_ids(self) -> tuple[int, ...]:
        return tuple(queue.next_seq_id for queue in self._queues)

    @property
    def ready_bytes(self) -> int | None:
        counts = [queue.ready_bytes for queue in self._queues]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def unacked_bytes(self) -> int:
        return sum(queue.unacked_bytes for queue in self._queues)

    @property
    def memory_bytes(self) -> int:
        return sum(queue.memory_bytes for queue in self._queues)

    @property
    def all_stays(self) -> bool:
        return all(queue.all_stays for queue in self._queues)

    @property
    def uses_store(self) -> bool:
        return any(queue.uses_store for queue in self._queues)

    def count_bytes(self) -> None:
        for queue in self._queues:
            queue.count_bytes()

    def memory(self) -> QueueMemory:
        return QueueMemory(*map(sum, zip(*[astuple(queue.memory()) for queue in self._queues], strict=True)))

    # -- in and out

    def publish(self, publications: Sequence[Publication], *, persistent: bool,
                expiries: Sequence[int] | None = None) -> tuple[int, dict[int, bytes]]:  # fmt: skip
        """Publish messages that all have one priority, or one above the highest."""
        priority = min(publications[0].priority, self.max_priority)
        base = priority << PRIORITY_SHIFT
        first, in_store = self._queues[priority].publish(
            publications, persistent=persistent, expiries=expiries
        )
        return base | first, {base | seq: msg_id for seq, msg_id in in_store.items()}

    def taken(self, first: int, count: int) -> Iterator[tuple[int, bytes, bool]]:
        priority = first >> PRIORITY_SHIFT
        for seq, payload, in_store in self._queues[priority].taken(first & _WITHIN, count):
            yield priority << PRIORITY_SHIFT | seq, payload, in_store

    def front(self) -> Sequence[Message]:
        """Their sequence ids are those within their priority."""
        for queue in reversed(self._queues):
            if front := queue.front():
                return front
        return ()

    def fetch(self, most: int, *, ack_required: bool) -> list[Fetched]:
        """Messages of one priority only."""
        for priority, queue in self._downwards:
            if queue.ready:
                base = priority << PRIORITY_SHIFT
                fetched = queue.fetch(most, ack_required=ack_required)
                return [each._replace(seq_id=base | each.seq_id) for each in fetched] if base else fetched
        return []

    def peek(self, most: int) -> list[Fetched]:
        """The highest priority first."""
        seen: list[Fetched] = []
        for priority, queue in self._downwards:
            base = priority << PRIORITY_SHIFT
            seen += [each._replace(seq_id=base | each.seq_id) for each in queue.peek(most - len(seen))]
        return seen

    def drop(self, most: int) -> list[int]:
        """Messages of one priority only."""
        for priority, queue in self._downwards:
            if queue.ready:
                return _outside(priority, queue.drop(most))
        return []

    def purge(self) -> Iterator[list[int]]:
        """Priority by priority."""
        for priority, queue in enumerate(self._queues):
            for seqs in queue.purge():
                yield _outside(priority, seqs)

    def unacked_messages(self, seq_ids: Iterable[int]) -> list[Fetched]:
        return [
            each._replace(seq_id=priority << PRIORITY_SHIFT | each.seq_id)
            for priority, seqs in self._by_priority(seq_ids)
            for each in self._queues[priority].unacked_messages(seqs)
        ]

    @property
    def lost(self) -> list[int]:
        return [seq for queue in self._queues for seq in queue.lost]

    def take_lost(self) -> list[int]:
        return [
            seq
            for priority, queue in enumerate(self._queues)
            for seq in _outside(priority, queue.take_lost())
        ]

    # -- settled

    def ack(self, seq_ids: Iterable[int]) -> list[int]:
        return [
            seq
            for priority, seqs in self._by_priority(seq_ids)
            for seq in _outside(priority, self._queues[priority].ack(seqs))
        ]

    def requeue(self, seq_ids: Iterable[int]) -> list[int]:
        return [
            seq
            for priority, seqs in self._by_priority(seq_ids)
            for seq in _outside(priority, self._queues[priority].requeue(seqs))
        ]

    @property
    def to_remove(self) -> list[bytes]:
        return [msg_id for queue in self._queues for msg_id in queue.to_remove]

    def index_synced(self) -> None:
        for queue in self._queues:
            queue.index_synced()

    def drop_transient_pending(self) -> None:
        for queue in self._queues:
            queue.drop_transient_pending()

    def terminate(self) -> list[Terms]:
        return [terms for queue in self._queues for terms in queue.terminate()]

    def terms(self) -> list[Terms]:
        return [terms for queue in self._queues for terms in queue.terms()]

    def _by_priority(self, seq_ids: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
        """Sequence ids of each priority, as its queue has them; unknown priorities are left out."""
        for priority, group in groupby(sorted(seq_ids), key=lambda seq: seq >> PRIORITY_SHIFT):
            if priority <= self.max_priority:
                yield priority, [seq & _WITHIN for seq in group]

    # -- memory

    @property
    def anything_counted(self) -> bool:
        return any(queue.anything_counted for queue in self._queues)

    @property
    def must_reduce_again(self) -> bool:
        return any(queue.must_reduce_again for queue in self._queues)

    def ram_duration(self) -> float:
        """The shortest."""
        return min(queue.ram_duration() for queue in self._queues)

    def set_ram_duration_target(self, duration: float) -> None:
        for queue in self._queues:
            queue.set_ram_duration_target(duration)

    def reduce_memory_use(self) -> None:
        for queue in self._queues:
            queue.reduce_memory_use()

    def tell_paged(self) -> None:
        for queue in self._queues:
            queue.tell_paged()


def _outside(priority: int, seqs: list[int]) -> list[int]:
    """Sequence ids of one priority, as the whole queue calls them."""
    base = priority << PRIORITY_SHIFT
    return [base | seq for seq in seqs] if base else seqs
