"""Who gets the next message of a queue, and who holds which (rabbit_queue_consumers).

Messages go round robin over the consumers that have room.  A consumer has room while it holds fewer unacked
messages than its prefetch count and fewer than UNSENT_LIMIT messages wait for its application to take them.
Delivery tags are per consumer, from 1; an ack names a tag, or with `multiple` everything up to a tag.

basic.get is a consumer, too, the getter: nothing is pushed to it, it asks for one message at a time, and may wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from warrenmq.actors.queue_messages import Deliveries
from warrenmq.errors import AccessRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warrenmq.actors.queue_messages import Cancel, Consume, Get
    from warrenmq.runtime import From
    from warrenmq.storage.queue_message import Fetched
    from warrenmq.storage.variable_queue import VariableQueue

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


class QueueConsumers:
    """All consumers of one queue; it belongs to the queue process.

    `noted` is told of every delivery before it leaves: (consumer, messages, first tag).
    """

    def __init__(self, queue: str, vq: VariableQueue, noted: Callable[[Consumer, list[Fetched], int], None]) -> None:
        self._queue = queue
        self._vq = vq
        self._noted = noted
        self._consumers: dict[int, Consumer] = {}
        self._turn = 0
        """Who is first in the next round."""
        self._getters: list[tuple[From, Consumer]] = []
        """Gets that wait for a message, oldest first."""
        self._exclusive: int | None = None
        """The consumer that shares with nobody."""

    def pushed(self) -> list[Consumer]:
        """Consumers that messages are pushed to: all but getters and cancelled ones."""
        return [consumer for consumer in self._consumers.values() if consumer.outlet is not None]

    def consume(self, request: Consume) -> None:
        """Add a consumer; AccessRefused where exclusiveness forbids it."""
        if self._exclusive in self._consumers:
            msg = f"queue {self._queue!r} has an exclusive consumer"
            raise AccessRefused(msg)
        if request.exclusive and self.pushed():
            msg = f"queue {self._queue!r} has consumers: an exclusive one cannot join them"
            raise AccessRefused(msg)
        self._exclusive = request.consumer if request.exclusive else None
        self._consumers[request.consumer] = Consumer(
            request.consumer, request.outlet, request.prefetch, no_ack=request.no_ack
        )

    def cancel(self, request: Cancel) -> list[int]:
        """Push nothing more to a consumer; returns the sequence ids that it never took, which go back.

        It is kept while it holds unacked messages.
        """
        consumer = self._consumers.get(request.consumer)
        if consumer is None:
            return []
        untaken = [seq for tag in request.untaken for seq in consumer.settle(tag, multiple=False)]
        consumer.outlet = None
        self._forget_if_done(consumer)
        return untaken

    def taken(self, consumer_id: int, count: int) -> None:
        """The application took deliveries: there is room for as many."""
        if (consumer := self._consumers.get(consumer_id)) is not None:
            consumer.unsent -= count

    def settle(self, consumer_id: int, tag: int, *, multiple: bool) -> list[int]:
        """The sequence ids that an ack or reject names; none for consumers and tags that are not known."""
        consumer = self._consumers.get(consumer_id)
        if consumer is None:
            return []
        seqs = consumer.settle(tag, multiple=multiple)
        if consumer.outlet is None:
            self._forget_if_done(consumer)
        return seqs

    def get(self, request: Get, sender: From) -> bool:
        """Answer a get now if there is a message; otherwise it waits, and False is returned."""
        consumer = self._consumers.get(request.consumer)
        if consumer is None:
            consumer = self._consumers[request.consumer] = Consumer(request.consumer, None, 0, no_ack=False)
        consumer.no_ack = request.no_ack
        self._getters.append((sender, consumer))
        self.deliver()
        return all(waiting is not sender for waiting, _ in self._getters)

    def stop_waiting(self, sender: From) -> bool:
        """Forget a get that waits; False if it has its message."""
        before = len(self._getters)
        self._getters = [each for each in self._getters if each[0] is not sender]
        return len(self._getters) < before

    def deliver(self) -> None:
        """Send ready messages to whoever has room: gets first, then consumers in turn."""
        vq = self._vq
        while self._getters and vq.ready:
            self._answer_getter()
        while vq.ready:
            open_ = self.pushed()
            rooms = [max(0, consumer.room()) for consumer in open_]
            if not (wanted := min(vq.ready, sum(rooms))):
                return
            if len(open_) > 1:  # whoever was served first last time is last now
                self._turn = (self._turn + 1) % len(open_)
                open_ = open_[self._turn :] + open_[: self._turn]
                rooms = rooms[self._turn :] + rooms[: self._turn]
            for consumer, share in zip(open_, share_out(wanted, rooms), strict=True):
                if share:
                    self._push(consumer, vq.fetch(share, ack_required=not consumer.no_ack))

    def _push(self, consumer: Consumer, fetched: list[Fetched]) -> None:
        if fetched and consumer.outlet is not None:
            consumer.unsent += len(fetched)
            consumer.outlet.put(self._deliveries(consumer, fetched))

    def _answer_getter(self) -> None:
        sender, consumer = self._getters[0]
        fetched = self._vq.fetch(1, ack_required=not consumer.no_ack)
        if fetched:  # else its body was lost, and there may be another
            del self._getters[0]
            sender.reply(self._deliveries(consumer, fetched))

    def _deliveries(self, consumer: Consumer, fetched: list[Fetched]) -> Deliveries:
        first_tag = consumer.take(fetched)
        self._noted(consumer, fetched, first_tag)
        return Deliveries(first_tag, fetched)

    def _forget_if_done(self, consumer: Consumer) -> None:
        if not consumer.unacked and all(waiting is not consumer for _, waiting in self._getters):
            self._consumers.pop(consumer.id, None)
