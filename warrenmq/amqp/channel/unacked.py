"""Deliveries of one channel that wait for an ack (unacked_message_q of rabbit_channel).

Delivery tags are counted per channel, from 1, over basic.deliver and basic.get-ok; those that need no ack use
one up, too.  Settled deliveries leave in the order of delivery.  Acks of a tag that is not outstanding are
errors: 406, unknown delivery tag.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from warrenmq.amqp.channel.consumers import Holder
from warrenmq.amqp.wire.errors import PRECONDITION_FAILED, AmqpError


class Pending(NamedTuple):
    """One delivery that waits for its ack (a pending_ack record)."""

    delivery_tag: int
    holder: Holder
    """The consumer or getter that holds it."""
    queue_tag: int
    """The delivery's tag at the queue."""
    delivered_at: int
    """Nanoseconds of the runtime's monotonic clock."""


class Unacked:
    """The outstanding deliveries; it belongs to the channel process."""

    def __init__(self) -> None:
        self.next_tag = 1
        self._pending: dict[int, Pending] = {}
        """Deliveries that wait for their ack, by delivery tag, oldest first."""
        self._lowest = 1
        """No delivery tag below this is outstanding."""

    def __len__(self) -> int:
        return len(self._pending)

    def take_tags(self, count: int) -> int:
        """The first of `count` delivery tags."""
        first = self.next_tag
        self.next_tag = first + count
        return first

    def note(self, first: int, count: int, holder: Holder, first_queue_tag: int, now: int) -> None:
        """Add deliveries that need an ack."""
        pending = self._pending
        for i in range(count):
            pending[first + i] = Pending(first + i, holder, first_queue_tag + i, now)

    def take(self, delivery_tag: int, *, multiple: bool) -> list[Pending]:
        """Remove and return what an ack, nack or reject names, oldest first; AmqpError for a tag that is not outstanding.

        ===========  ===============  ========
        outstanding  tag, multiple    taken
        ===========  ===============  ========
        5, 6, 8      6                6
        5, 6, 8      6, multiple      5, 6
        5, 6, 8      0, multiple      5, 6, 8
        -            0, multiple      -
        5, 6, 8      7, multiple      406
        5, 6, 8      7                406
        5, 6, 8      0                406
        ===========  ===============  ========
        """
        pending = self._pending
        if multiple and delivery_tag == 0:
            return self.take_all()
        if delivery_tag not in pending:
            raise AmqpError(PRECONDITION_FAILED, f"unknown delivery tag {delivery_tag}")
        if not multiple:
            return [pending.pop(delivery_tag)]
        # Not by iterating over the dict, whose deleted entries at the front would be gone over again each time.
        found = [pending.pop(tag) for tag in range(self._lowest, delivery_tag + 1) if tag in pending]
        self._lowest = delivery_tag + 1
        return found

    def take_all(self) -> list[Pending]:
        """Remove and return all outstanding deliveries, oldest first."""
        found = list(self._pending.values())
        self._pending = {}
        self._lowest = self.next_tag
        return found

    def put_back(self, settled: Iterable[Pending]) -> None:
        """Make deliveries outstanding again, after a rollback."""
        outstanding = sorted([*settled, *self._pending.values()], key=lambda pending: pending.delivery_tag)
        self._pending = {pending.delivery_tag: pending for pending in outstanding}
        self._lowest = outstanding[0].delivery_tag if outstanding else self.next_tag

    def oldest(self) -> Pending | None:
        """The delivery that has waited longest."""
        pending = self._pending
        if not pending:
            return None
        while self._lowest not in pending:
            self._lowest += 1
        return pending[self._lowest]
