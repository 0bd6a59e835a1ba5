"""Publisher confirms of one channel: outstanding sequence numbers, and coalescing of answers
(rabbit_confirms, rabbit_channel).

Messages that came in one go are a run: consecutive sequence numbers that the queues answer as one.  A queue answers in its
own thread; the last one casts Settled into the channel's mailbox.  Answers are collected until the mailbox is empty, or a
reply goes out, and leave as few basic.acks and basic.nacks as possible.  Every number is answered once.

Source: docs/reference/classic-queue.md#publisher-confirms and #t8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from warrenmq.amqp.channel.messages import Settled
from warrenmq.queue.messages import DELETED

Run: TypeAlias = tuple[int, int]
"""First sequence number, how many."""


class ChannelConfirm:
    """The outstanding answers of the queues for one run.  Its methods are called in their threads, by each queue once."""

    __slots__ = ("_count", "_first", "_send", "_shares")

    def __init__(self, send: Callable[[Settled], object], first: int, count: int, queues: int) -> None:
        self._send = send
        self._first = first
        self._count = count
        self._shares = [None] * queues

    def confirm(self) -> None:
        """Count one queue's confirm of the messages."""
        # As in actors/sending/confirms.py: who pops the last share settles, and each pop is one atomic step.
        try:
            self._shares.pop()
        except IndexError:  # another queue has refused them
            return
        if not self._shares:
            self._send(Settled(self._first, self._count, ok=True))

    def nack(self, why: str) -> None:
        """One queue rejected the messages: nack, whatever the others answer.  A deleted queue counts as confirmed."""
        if why is DELETED:
            self.confirm()
            return
        self._send(Settled(self._first, self._count, ok=False))
        self._shares.clear()

    def fail(self, error: Exception) -> None:
        """Fail the publish: the same as `nack`."""
        self.nack(str(error))

    def parts(self, count: int) -> list[ChannelConfirm]:
        """The promises for a queue that answers each of `count` messages on its own; the client gets one answer.

        Queues that may take some and refuse others get each message with a confirm of its own (amqp/channel/publishing.py).
        """
        self._shares.extend([None] * (count - 1))
        return [self] * count


def coalesce(
    runs: Iterable[Run], negatives: Sequence[Run], smallest_unconfirmed: int | None
) -> list[tuple[int, bool]]:
    """The answers (sequence number, multiple) that cover `runs`; `negatives` get the other kind of answer.

    ============  =========  ===========  ==========================
    runs          negatives  unconfirmed  answers
    ============  =========  ===========  ==========================
    1-3, 5        -          4            3 multiple, 5
    1, 3          2          -            1 multiple, 3
    2             1, 3       -            2
    1-9           -          -            9 multiple
    2             -          1            2
    4             -          -            4 multiple
    ============  =========  ===========  ==========================

    Numbers below both the oldest one without an answer and all negatives go as one.  (A single basic.ack
    is sent without multiple all the same: rabbit_channel:send_confirms, below.)
    """
    ordered = sorted(runs)
    last = ordered[-1][0] + ordered[-1][1] - 1
    cutoff = last + 1 if smallest_unconfirmed is None else smallest_unconfirmed
    cutoff = min([cutoff, *(first for first, _ in negatives)])
    multiple = 0
    single: list[tuple[int, bool]] = []
    for first, count in ordered:
        below = min(count, cutoff - first)
        if below > 0:
            multiple = first + below - 1
        single.extend((seqno, False) for seqno in range(first + max(0, below), first + count))
    return [(multiple, True), *single] if multiple else single


class Confirms:
    """The confirm mode of one channel; it belongs to the channel process."""

    def __init__(self) -> None:
        self.enabled = False
        self.next_seqno = 1
        self.failed = False
        """A publish was nacked since the last `take_failed` (used by transactions)."""
        self.confirmed = 0
        """Messages that queues confirmed."""
        self._unconfirmed: dict[int, int] = {}
        """First sequence number of a run -> how many."""
        self._order: deque[int] = deque()
        """The firsts, oldest first; some of them answered."""
        self._confirmed: list[Run] = []
        self._rejected: list[Run] = []

    @property
    def waiting(self) -> bool:
        """True while answers of queues are outstanding."""
        return bool(self._unconfirmed)

    @property
    def unconfirmed(self) -> int:
        """Messages without an answer of their queues."""
        return sum(self._unconfirmed.values())

    @property
    def pending(self) -> bool:
        """True if there are answers to send."""
        return bool(self._confirmed or self._rejected)

    def take_seqnos(self, count: int) -> int:
        """The first of `count` sequence numbers."""
        first = self.next_seqno
        self.next_seqno = first + count
        return first

    def expect(self, first: int, count: int) -> None:
        """Register a run that queues will answer."""
        self._unconfirmed[first] = count
        self._order.append(first)

    def unroutable(self, first: int, count: int) -> None:
        """Confirm messages that were routed to no queue."""
        self._confirmed.append((first, count))

    def settle(self, settled: Settled) -> None:
        """Take the one answer of a run."""
        if self._unconfirmed.pop(settled.first_seqno, None) is None:
            return
        run = (settled.first_seqno, settled.count)
        if settled.ok:
            self.confirmed += settled.count
            self._confirmed.append(run)
        else:
            self._rejected.append(run)
            self.failed = True

    def take_answers(self) -> tuple[list[tuple[int, bool]], list[tuple[int, bool]]]:
        """The answers to send, as (sequence number, multiple): basic.acks, then basic.nacks."""
        confirmed, rejected = self._confirmed, self._rejected
        self._confirmed, self._rejected = [], []
        smallest = self._smallest_unconfirmed()
        acks = coalesce(confirmed, rejected, smallest) if confirmed else []
        if len(confirmed) == 1 and confirmed[0][1] == 1:
            acks = [(confirmed[0][0], False)]
        return acks, coalesce(rejected, confirmed, smallest) if rejected else []

    def forget_answers(self) -> None:
        """Drop the answers of a completed transaction, which is answered by tx.commit-ok alone."""
        self._confirmed, self._rejected = [], []

    def take_failed(self) -> bool:
        """True if a publish was nacked since the last call."""
        failed, self.failed = self.failed, False
        return failed

    def _smallest_unconfirmed(self) -> int | None:
        order, unconfirmed = self._order, self._unconfirmed
        while order and order[0] not in unconfirmed:
            order.popleft()
        return order[0] if order else None
