"""Who gets the next message of a queue, and who holds which (rabbit_queue_consumers).

Messages go round robin over the consumers that have room.  A consumer has room while it holds fewer unacked
messages than its prefetch count and fewer than UNSENT_LIMIT messages wait for its application to take them.
Delivery tags are per consumer, from 1; an ack names a tag, or with `multiple` everything up to a tag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warrenmq.storage.variable_queue import Fetched

UNSENT_LIMIT = 2_048
"""RabbitMQ's is 200 frames on a socket; in one process a message on its way costs nothing but the switch of
threads, which this many share."""


class Outlet(Protocol):
    """Where a consumer's deliveries go: the blocking end of a channel."""

    def put(self, item: object, /) -> None: ...


class Consumer:
    """One consumer, as its queue sees it."""

    def __init__(self, consumer_id: int, outlet: Outlet | None, prefetch: int, *, no_ack: bool) -> None:
        self.id = consumer_id
        self.outlet = outlet
        """None for the getter: basic.get takes one message at a time and is never pushed to."""
        self.prefetch = prefetch
        """0 = no limit."""
        self.no_ack = no_ack
        self.unsent = 0
        """Delivered, not yet taken by the application."""
        self.next_tag = 1
        self.unacked: dict[int, int] = {}
        """Delivery tag -> sequence id, oldest first."""

    def room(self) -> int:
        """Messages that may be delivered now."""
        unsent = UNSENT_LIMIT - self.unsent
        return min(unsent, self.prefetch - len(self.unacked)) if self.prefetch and not self.no_ack else unsent

    def take(self, fetched: Sequence[Fetched]) -> int:
        """Note deliveries to this consumer; returns the tag of the first."""
        first = self.next_tag
        self.next_tag = first + len(fetched)
        if not self.no_ack:
            self.unacked.update(zip(range(first, self.next_tag), [each.seq_id for each in fetched], strict=True))
        return first

    def settle(self, tag: int, *, multiple: bool) -> list[int]:
        """Sequence ids that an ack, nack or reject names, oldest first; empty when it names none (any more)."""
        unacked = self.unacked
        if not multiple:
            seq = unacked.pop(tag, None)
            return [] if seq is None else [seq]
        tags = []
        for each in unacked:
            if each > tag:
                break
            tags.append(each)
        return [unacked.pop(each) for each in tags]


def share_out(count: int, rooms: Sequence[int]) -> list[int]:
    """How many of `count` messages each consumer gets: one each in turn, while it has room.

    ==========  ==========  =========
    count       rooms       shares
    ==========  ==========  =========
    5           [10]        [5]
    5           [10, 10]    [3, 2]
    5           [1, 10]     [1, 4]
    5           [1, 2]      [1, 2]
    5           []          []
    ==========  ==========  =========
    """
    shares = [0] * len(rooms)
    open_ = list(range(len(rooms)))
    left = min(count, sum(rooms))
    while left:
        each = max(1, left // len(open_))
        for i in list(open_):
            give = min(each, rooms[i] - shares[i], left)
            shares[i] += give
            left -= give
            if shares[i] == rooms[i]:
                open_.remove(i)
            if not left:
                break
    return shares
