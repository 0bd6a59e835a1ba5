"""Messages that leave a queue without a consumer: dropped, or copied to the dead-letter exchange first (rabbit_dead_letter).

    rejected          a consumer refused them for good
    expired           their time to live is over (queue/expiry_and_limits.py)
    maxlen            the queue is too long (the same), or was when they came (reject-publish-dlx: queue/overflow.py)
    delivery_limit    they came back too often (queue/returns.py)
    purged, deleted, damaged: never dead-lettered

At most once, as in RabbitMQ's classic queues: the original is gone as soon as its copy was sent, and the copy's confirm is
not waited for.  Without a dead-letter exchange, or while it is missing, messages are only dropped.

Source: docs/reference/classic-queue.md#dead-lettering.
"""

from __future__ import annotations

from warrenmq.backing_queue.protocol import BackingQueue
from warrenmq.message.queue_message import Fetched
from warrenmq.queue.effects import DeadLetter, Effect
from warrenmq.queue.index_sync import IndexSync
from warrenmq.queue.returns import Returns
from warrenmq.queue.setting import QueueSetting
from warrenmq.queue.x_death import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from warrenmq.queue_index.record import HEADER_BYTES
from warrenmq.trace.events import (
    DEAD_LETTERED,
    DROP_DELETED,
    DROP_DELIVERY_LIMIT,
    DROP_EXPIRED,
    DROP_LOST,
    DROP_MAXLEN,
    DROP_REJECTED,
    DROP_RELEASED,
)

MOST_DROPPED_AT_ONCE = 256
"""Messages that are fetched, sent on and acked together."""

_FLAGS = {REJECTED: DROP_REJECTED, EXPIRED: DROP_EXPIRED, MAXLEN: DROP_MAXLEN}


class QueueDrops:
    """Drops messages, each with a row in the trace.

    damaged    messages found damaged, at recovery or later
    """

    def __init__(self, queue: QueueSetting, vq: BackingQueue, index_sync: IndexSync, returns: Returns,
                 effects: list[Effect]) -> None:  # fmt: skip
        self._vq = vq
        self._index_sync = index_sync
        self._has_exchange = queue.has_dead_letter_exchange
        self._returns = returns
        self._rows = queue.rows
        self._effects = effects
        self.damaged = 0

    def drop_head(self, count: int, reason: str, now: int = 0) -> None:
        """Drop `count` messages at the front, MOST_DROPPED_AT_ONCE at most; `now` is the time at which they
        were found to have expired.
        """
        flag = _FLAGS[reason]
        if self._has_exchange():
            fetched = self._vq.fetch(count, ack_required=True)
            self._send_on(fetched, reason)
            gone = self._vq.ack([message.seq_id for message in fetched])
            flag |= DEAD_LETTERED
        else:
            gone = self._vq.drop(count)
        self.note_lost()
        self._note(gone, flag, now)

    def reject(self, seqs: list[int]) -> list[tuple[list[int], int]]:
        """Drop delivered messages that were rejected; returns those that left the queue, with the flags of their DROP rows.

        A message whose body is damaged by now is dropped without being dead-lettered.  After a MemoryError or
        an OSError, of bodies that cannot be read for now, nothing has changed.
        """
        fetched = self._vq.unacked_messages(seqs) if (dead_letters := self._has_exchange()) else []
        self._index_sync.unsynced = True
        self._returns.forget(seqs)
        if not dead_letters:
            return [(self._vq.ack(seqs), DROP_REJECTED)]
        self._send_on(fetched, REJECTED)
        whole = {message.seq_id for message in fetched}
        damaged = [seq for seq in seqs if seq not in whole]
        return [(self._vq.ack(whole), DROP_REJECTED | DEAD_LETTERED), (self._vq.ack(damaged), DROP_REJECTED)]

    def came_back_too_often(self, seqs: list[int]) -> None:
        """Drop delivered messages that were to be requeued; the trace says already that they were.  Errors
        are those of `reject`.
        """
        if self._has_exchange():
            whole = self._vq.unacked_messages(seqs)
            self._send_on(whole, DELIVERY_LIMIT)
            sent_on = self._vq.ack([message.seq_id for message in whole])
            self._note(sent_on, DROP_DELIVERY_LIMIT | DEAD_LETTERED)
        self._note(self._vq.ack(seqs), DROP_DELIVERY_LIMIT)

    def release(self, seqs: list[int], due_at: int) -> None:
        """Ack delayed messages that have arrived where they were to go; `due_at`: the time at which they were found due."""
        self._note(self._vq.ack(seqs), DROP_RELEASED, due_at)

    def purge(self, flag: int) -> int:
        """Drop every ready message; returns how many."""
        count = 0
        for dropped in self._vq.purge():
            self._note(dropped, flag)
            count += len(dropped)
        self.note_lost()
        return count

    def note_deleted(self, seqs: list[int]) -> None:
        """Trace unacked messages that go with their queue."""
        if seqs:
            self._note(seqs, DROP_DELETED)

    def note_lost(self) -> None:
        """Count and trace messages that left the queue because their bodies were found damaged."""
        if self._vq.lost and (lost := self.take_lost()):
            self._note(lost, DROP_LOST)

    def take_lost(self) -> list[int]:
        """Count messages that were found damaged since the last call; returns their sequence ids."""
        lost = self._vq.take_lost()
        self.damaged += len(lost)
        return lost

    def _note(self, seqs: list[int], flag: int, now: int = 0) -> None:
        self._index_sync.unsynced = True
        self._returns.forget(seqs)
        if self._rows is not None:
            self._rows.dropped(seqs, flag, now)

    def _send_on(self, fetched: list[Fetched], reason: str) -> None:
        stored = [
            message.payload if message.in_store else message.payload[HEADER_BYTES:] for message in fetched
        ]
        if stored:
            self._effects.append(DeadLetter(stored, reason))
