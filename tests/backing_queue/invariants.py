"""Invariants of a backing queue after every operation (docs/reference/classic-queue.md#five-queues and #head-and-tail)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warrenmq.backing_queue.memory_target import MemoryTargetQueue
from warrenmq.backing_queue.read_ahead import ReadAheadQueue
from warrenmq.backing_queue.variable_queue import VariableQueue
from warrenmq.message.queue_message import APART, IN_STORE, INDEXED, PERSISTENT, Message, in_memory


def check_invariants(queue: VariableQueue) -> None:
    """Check the invariants of one backing queue's behaviour, and those of both."""
    if isinstance(queue, MemoryTargetQueue):
        ready = _check_memory_target(queue)
    else:
        assert isinstance(queue, ReadAheadQueue)
        ready = _check_read_ahead(queue)
    pending = list(queue._pending.values())
    assert queue.ram_msg_count == in_memory(ready)[0]
    assert queue.ram_bytes == in_memory([*ready, *pending])[1]
    assert queue.ram_msg_count <= queue.ready
    there = {message[0] for message in (*ready, *pending)}
    start, end = _range_on_disk(queue)
    assert all(seq in there or start <= seq < end for seq in queue._requeued), "of no message that is gone"
    for message in (*ready, *pending):
        _check_message(message)
    memory = queue.memory()
    assert memory.alpha + memory.beta + memory.gamma + memory.delta == queue.ready
    assert memory.ram_msg_count == queue.ram_msg_count


def _check_memory_target(queue: MemoryTargetQueue) -> list[Message]:
    q1, q2, q3, q4 = queue.q1, queue.q2, queue.q3, queue.q4
    assert not q1 or q3
    assert not q2 or queue.delta_count > 0
    assert not queue.delta_count or q3
    assert (queue.ready == 0) == (not q3 and not q4)
    assert queue.delta_count >= 0
    ranges = [*map(_range, (q4, q3)), *map(_range, (q2, q1))]
    if queue.delta_count:
        assert queue.delta_start + queue.delta_count <= queue.delta_end
        ranges.insert(2, (queue.delta_start, queue.delta_end))
    _check_ascend(each for each in ranges if each is not None)
    for message in (*q2, *q3):
        assert message[3] is None, "a beta has its body on disk, if it is apart"
    pageable = [seq for seq, message in queue._pending.items() if message[3] is not None]
    assert sorted(queue._ram_pending_ack) == sorted(pageable)
    return [*q4, *q3, *q2, *q1]


def _check_read_ahead(queue: ReadAheadQueue) -> list[Message]:
    head = list(queue.q_head)
    _check_ascend([each for each in [_range(head)] if each is not None])
    assert queue.tail_count >= 0
    if queue.tail_count:
        assert queue.tail_start + queue.tail_count <= queue.tail_end
        assert all(message[0] < queue.tail_start for message in (*head, *queue._pending.values()))
    return head


def _range_on_disk(queue: VariableQueue) -> tuple[int, int]:
    if isinstance(queue, MemoryTargetQueue):
        return queue.delta_start, queue.delta_end if queue.delta_count else queue.delta_start
    return 0, 0  # what came back is in the head


def _range(queue: Sequence[Message]) -> tuple[int, int] | None:
    seqs = [message[0] for message in queue]
    assert seqs == sorted(set(seqs))
    return (seqs[0], seqs[-1] + 1) if seqs else None


def _check_ascend(ranges: Iterable[tuple[int, int]]) -> None:
    end = -1
    for first, last in ranges:
        assert first >= end
        end = last


def _check_message(message: Message) -> None:
    _seq, _record, flags, stored = message
    assert not flags & PERSISTENT or flags & INDEXED, "a persistent message has its index entry"
    assert not flags & PERSISTENT or not flags & APART or flags & IN_STORE
    assert not flags & APART or stored is not None or flags & IN_STORE, "a body is in memory or on disk"
