"""The state that a queue keeps of a channel and of each of its consumers (the records cr and consumer of rabbit_queue_consumers).

A consumer may be sent a message while

    it holds fewer unacked messages than its prefetch count      does not concern consumers without acks
    fewer than `unsent_limit` are on their way in its channel    a Taken reports their arrival
    its channel's limiter has room                               basic.qos with global=true; see limiter.py

It claims messages before they are fetched, and takes them when they have been.  A getter (basic.get) is a consumer,
too, to which nothing is pushed and to which none of these limits applies.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykka import ActorRef

    from warrenmq.message.queue_message import Fetched
    from warrenmq.queue.limiter import Limiter
    from warrenmq.queue.messages import AckDeadline, Consume, DeliveryChannel

UNSENT_LIMIT = 200
"""Messages of one queue on their way to one client (UNSENT_MESSAGE_LIMIT)."""
UNSENT_IN_PROCESS = 2_048
"""The same for the embedded face: without a socket a message on its way costs only the switch of threads, which this many
share."""


_seq_id = itemgetter(0)  # of a Fetched; faster than by name


class ChannelRecord:
    """One channel in one queue; a consumer of the embedded face has one for itself."""

    def __init__(self, queue: ActorRef[Any], ref: ActorRef[Any] | None, limiter: Limiter | None) -> None:
        """`queue` identifies this queue to the limiter."""
        self._queue = queue
        self.ref = ref
        self.limiter = limiter
        self.members: dict[int, Consumer] = {}
        """Its consumers and getters, and former ones that still hold messages, by id."""
        self.blocked: list[Consumer] = []
        """Consumers that were found without room; they are checked again when there may be some."""
        self.unsent = 0
        """Delivered, not yet taken."""
        self.unsent_limit = UNSENT_IN_PROCESS if ref is None else UNSENT_LIMIT
        self.suspended = False
        """The limiter refused a delivery, and no Resume has come since."""

    @property
    def is_blocked(self) -> bool:
        """True if none of its consumers may be sent anything."""
        return self.suspended or self.unsent >= self.unsent_limit

    def claim(self, most: int, *, ack_required: bool) -> int:
        """The number of messages, `most` at the most, that the channel has room for; they count as on their way from now on."""
        granted = min(most, self.unsent_limit - self.unsent)
        if self.suspended or granted <= 0:
            return 0
        if self.limiter is not None:
            asked, granted = (
                granted,
                self.limiter.reserve(self._queue, granted, ack_required=ack_required),
            )
            self.suspended = granted < asked
        self.unsent += granted
        return granted

    def give_back(self, count: int, *, ack_required: bool) -> list[ActorRef[Any]]:
        """Return the claim on messages that were not there after all; returns the queues that the limiter has room for again."""
        self.unsent -= count
        return self.limiter.ack(count) if self.limiter is not None and ack_required else []


class Consumer:
    """One consumer of a queue: its limits, and the messages that it holds."""

    def __init__(self, consumer_id: int, channel: ChannelRecord, *, no_ack: bool) -> None:
        """A getter; `consuming` makes it a consumer that messages are pushed to."""
        self.id = consumer_id
        self.channel = channel
        self.no_ack = no_ack
        self.outlet: DeliveryChannel | None = None
        """None for a getter and for a cancelled consumer: nothing is pushed to it."""
        self.tag = ""
        self.prefetch = 0
        """0 = no limit."""
        self.priority = 0
        self.exclusive = False
        self.arguments: Mapping[str, Any] = {}
        self.unsent = 0
        """Delivered to it, not yet taken by its channel."""
        self.claimed = 0
        """Claimed, not yet fetched."""
        self.next_tag = 1
        self.unacked: dict[int, int] = {}
        """Delivery tag -> sequence id, oldest first."""
        self._lowest = 1
        """No tag below this is unacked."""
        self.ack_deadline: AckDeadline | None = None
        self.marks: list[tuple[int, int]] = []
        """(time, largest tag handed out by then) at each check for late acks (ack_timeout.py)."""
        channel.members[consumer_id] = self

    @classmethod
    def consuming(cls, request: Consume, channel: ChannelRecord) -> Consumer:
        """The consumer that a Consume asks for."""
        consumer = cls(request.consumer, channel, no_ack=request.no_ack)
        consumer.outlet = request.outlet
        consumer.tag = request.consumer_tag
        consumer.prefetch = request.prefetch
        consumer.priority = request.priority
        consumer.exclusive = request.exclusive
        consumer.arguments = {} if request.arguments is None else request.arguments
        consumer.ack_deadline = request.ack_deadline
        return consumer

    def credit(self, most: int) -> int:
        """The number of messages, `most` at the most, that its own prefetch count allows.

        ========  ======  =======  ====  ======
        prefetch  acks    unacked  most  credit
        ========  ======  =======  ====  ======
        0         yes     7        5     5
        10        yes     7        5     3
        10        yes     10       5     0
        10        no      0        50    50
        ========  ======  =======  ====  ======
        """
        if not self.prefetch or self.no_ack:
            return most
        return min(most, self.prefetch - len(self.unacked) - self.claimed)

    def claim(self, most: int) -> int:
        """Claim up to `most` messages, as many as it may have now; returns how many.

        Every message passes here, so `credit` and, without a limiter, `ChannelRecord.claim` are written out: a test holds
        them equal.
        """
        channel = self.channel
        granted = most
        if self.prefetch and not self.no_ack:
            granted = min(most, self.prefetch - len(self.unacked) - self.claimed)
        if granted <= 0:
            return 0
        if channel.limiter is None:
            granted = min(granted, channel.unsent_limit - channel.unsent)
            if granted <= 0:
                return 0
            channel.unsent += granted
        else:
            granted = channel.claim(granted, ack_required=not self.no_ack)
        self.claimed += granted
        self.unsent += granted
        return granted

    def give_back(self, count: int) -> list[ActorRef[Any]]:
        """Return the claim on messages that were not there after all; returns the queues that the channel's limiter has room for again."""
        self.claimed -= count
        self.unsent -= count
        return self.channel.give_back(count, ack_required=not self.no_ack)

    def take(self, fetched: Sequence[Fetched]) -> int:
        """Record deliveries to this consumer; returns the tag of the first."""
        first = self.next_tag
        self.next_tag = first + len(fetched)
        if not self.no_ack:
            self.unacked.update(zip(range(first, self.next_tag), map(_seq_id, fetched), strict=True))
        return first

    def take_back(self, above: int) -> list[int]:
        """Remove the unacked deliveries with tags above this one; returns their sequence ids, oldest first."""
        return [self.unacked.pop(tag) for tag in [tag for tag in self.unacked if tag > above]]

    def taken(self, count: int) -> None:
        """Deliveries have arrived."""
        self.unsent -= count
        self.channel.unsent -= count

    def settle(self, tag: int, *, multiple: bool) -> list[int]:
        """Remove the deliveries that an ack, nack or reject names; returns their sequence ids, oldest first."""
        unacked = self.unacked
        if not multiple:
            seq = unacked.pop(tag, None)
            return [] if seq is None else [seq]
        # Walking over the dict would skip the entries deleted at its front again each time.
        named = range(self._lowest, min(tag + 1, self.next_tag))
        if len(unacked) == self.next_tag - self._lowest:  # no tag from the lowest on is missing
            seqs = [*map(unacked.pop, named)]
        else:
            seqs = [unacked.pop(each) for each in named if each in unacked]
        self._lowest = max(self._lowest, named.stop)
        return seqs

    @property
    def has_room(self) -> bool:
        """True if a message could be pushed to it now, as far as its queue knows."""
        return not self.channel.is_blocked and self.credit(1) > 0
