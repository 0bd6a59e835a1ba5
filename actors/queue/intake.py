"""How publishes enter a queue: collected, taken in together, and owed an answer (rabbit_amqqueue_process:deliver).

A publish that arrives alone costs as much as fifty that arrive together, so the process collects them until there
are BATCH messages or anything else is to be done.  All that are collected at one time go to the disk, or none.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from warrenmq.actors.queue.sync import OVERHEAD
from warrenmq.backing_queue.priority_queue import PriorityQueue
from warrenmq.errors import Blocked
from warrenmq.queue.unconfirmed import UNANSWERED
from warrenmq.runtime import CreditFlow, CreditSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from warrenmq.actors.queue.head import QueueHead
    from warrenmq.actors.queue.trace import QueueTrace
    from warrenmq.backing_queue.protocol import BackingQueue
    from warrenmq.queue.messages import Publish, Publisher
    from warrenmq.queue.unconfirmed import Unconfirmed

BATCH = 64
"""Messages that are taken in at once while mail keeps coming; fewer wait for the empty mailbox."""


class QueueIntake:
    """The entrance of one queue; it belongs to the queue process, only `nack_all` may come from any thread.

    arrived   publishes not yet taken in; count their messages, durable whether they go to the disk, answered whether
              anybody wants to know
    credit    what publishers are owed for messages taken in (credit_flow)
    """

    def __init__(self, queue: str, *, durable: bool, vq: BackingQueue, head: QueueHead, unconfirmed: Unconfirmed,
                 rows: QueueTrace | None, credit: CreditSpec) -> None:  # fmt: skip
        self._queue = queue
        self._durable_queue = durable
        self._vq = vq
        self._head = head
        self._unconfirmed = unconfirmed
        self._rows = rows
        self._credit = CreditFlow(credit, weak_senders=True)
        self._behind: dict[str, int] = {}
        """Stores that grant no credit, with their trace ids."""
        self._arrived: list[Publish] = []
        self.count = 0
        """Messages collected."""
        self._durable = self._answered = True
        self._max_priority = vq.max_priority if isinstance(vq, PriorityQueue) else None
        self._priority = 0
        self._timed = head.ttl is not None
        """Whether any message collected has a time to live."""

    def add(self, message: Publish) -> bool:
        """Collect a publish; False when those before it must be taken in first."""
        durable = message.publication.persistent and self._durable_queue
        answered = message.confirm is not UNANSWERED
        if self._arrived and (durable is not self._durable or answered is not self._answered):
            return False
        if self._max_priority is not None:
            priority = min(message.publication.priority, self._max_priority)
            if self._arrived and priority != self._priority:
                return False
            self._priority = priority
        self._durable, self._answered = durable, answered
        if message.publication.expiration is not None:
            self._timed = True
        self._arrived.append(message)
        self.count += len(message.publication.bodies)
        return True

    def take_in(self) -> bool:
        """Give what was collected to the variable queue; returns whether it has to be synced, sooner or later."""
        arrived, durable, answered = self._arrived, self._durable, self._answered
        publications = [message.publication for message in arrived]
        expiries = None
        if self._timed:
            expiries = self._head.expiries(publications)
            self._timed = self._head.ttl is not None
        seq, in_store = self._vq.publish(publications, persistent=durable, expiries=expiries)
        if (rows := self._rows) is not None:
            tell = _tell_each if in_store else _tell_runs
            tell(partial(rows.published, answered=answered), arrived, seq, in_store, durable)
            if expiries is not None:
                rows.expire(seq, publications, expiries)
        ack = self._credit.ack
        for message in arrived:
            publication = message.publication
            count = len(publication.bodies)
            owed = (seq, count, publication.first_id, message.confirm)
            if not answered:
                pass
            elif durable:
                self._unconfirmed.add(owed, _bodies(in_store, seq, count))
            else:  # confirmed at once: RabbitMQ's rule for what will not survive a restart
                if rows is not None:
                    rows.confirmed_at_once(owed)
                message.confirm.confirm()
            if credit := ack(message.publisher, count):
                message.publisher.bump(credit)
            seq += count
        self._vq.tell_paged()
        # Only now: until somebody else owes the answers, a crash has to find them here.
        self._arrived, self.count = [], 0
        return durable

    def size(self) -> int:
        """Bytes of what was collected, bodies and what goes with them."""
        return sum(
            sum(map(len, publication.bodies)) + len(publication.bodies) * (len(publication.head) + OVERHEAD)
            for publication in (message.publication for message in self._arrived)
        )

    def refuse(self) -> None:
        """The disk is full: give what was collected back, as if it had never been sent."""
        for message in self._arrived:
            message.confirm.fail(
                Blocked(f"the disk is full, queue {self._queue!r} takes no messages until there is room")
            )
            message.publisher.bump(len(message.publication.bodies))
            if self._rows is not None:
                self._rows.received(message.sender, message.sent_seq)
        self._arrived, self.count = [], 0

    def block(self, store: str, trace_id: int) -> None:
        """A store is behind: publishers get no more credit."""
        if store not in self._behind:
            self._behind[store] = trace_id
            self._credit.block(store)
            if self._rows is not None:
                self._rows.blocked(trace_id)

    def unblock(self, store: str) -> None:
        """A store is not, or no longer, behind: what credit was held back is due, unless another one is."""
        if store in self._behind:
            trace_id = self._behind.pop(store)
            if self._rows is not None:
                self._rows.unblocked(trace_id)
            for publisher, credit in self._credit.unblock(store):
                cast("Publisher", publisher).bump(credit)

    def nack_all(self, why: str) -> None:
        """The queue process is dead."""
        for message in self._arrived:
            message.confirm.nack(why)


def _bodies(in_store: dict[int, bytes], first: int, count: int) -> list[bytes]:
    """The ids among a run of sequence ids."""
    if not in_store:
        return []
    return [in_store[seq] for seq in range(first, first + count) if seq in in_store]


Tell: TypeAlias = "Callable[[int, int, int, int, int, int, int, bool, bool], None]"
"""QueueTrace.published."""


def _tell_runs(
    tell: Tell, arrived: list[Publish], seq: int, _in_store: dict[int, bytes], durable: bool
) -> None:
    """Publishes that one thread sent one after the other share a row: with tracing on, this is per message."""
    first, count, msg, sender, pseq, sends, t = seq, 0, 0, 0, 0, 0, 0
    for message in arrived:
        publication = message.publication
        row = message.sent_seq
        if (
            sends
            and row
            and row == pseq + sends
            and publication.first_id == msg + count
            and message.sender == sender
        ):
            sends += 1
        else:
            if sends:
                tell(first, count, msg, sender, pseq, sends, t, durable, False)
            first, count, msg, sender, pseq, sends = (
                first + count,
                0,
                publication.first_id,
                message.sender,
                row,
                1,
            )
        count += len(publication.bodies)
        t = message.sent_t
    tell(first, count, msg, sender, pseq, sends, t, durable, False)


def _tell_each(
    tell: Tell, arrived: list[Publish], seq: int, in_store: dict[int, bytes], durable: bool
) -> None:
    """A row for each run of equal placement in each publish; the first is the receive of its SEND."""
    for message in arrived:
        publication = message.publication
        end = seq + len(publication.bodies)
        sender, pseq = message.sender, message.sent_seq
        first, stored = seq, seq in in_store
        for each in range(seq, end + 1):
            if each == end or (each in in_store) is not stored:
                msg = publication.first_id + first - seq
                tell(first, each - first, msg, sender, pseq, 1, message.sent_t, durable, stored)
                first, stored, sender, pseq = each, not stored, 0, 0
        seq = end
