"""The state that a queue keeps of a channel and of each of its consumers (the records cr and consumer of
rabbit_queue_consumers), and whose turn it is.

A consumer may be sent a message while

    it holds fewer unacked messages than its prefetch count      does not concern consumers without acks
    fewer than `unsent_limit` are on their way in its channel    a Taken reports their arrival
    its channel's limiter has room                               basic.qos with global=true; see limiter.py

It claims messages before they are fetched, and takes them when they have been.  A getter (basic.get) is a consumer,
too, to which nothing is pushed and to which none of these limits applies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

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
        """The channel's consumers and getters, and former ones that still hold messages, by id."""
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
        """The number of messages, `most` at the most, that the channel has room for; they count as on their
        way from now on.
        """
        granted = min(most, self.unsent_limit - self.unsent)
        if self.suspended or granted <= 0:
            return 0
        if self.limiter is not None:
            asked, granted = (granted, self.limiter.reserve(self._queue, granted, ack_required=ack_required))
            self.suspended = granted < asked
        self.unsent += granted
        return granted

    def give_back(self, count: int, *, ack_required: bool) -> list[ActorRef[Any]]:
        """Return the claim on messages that were not there after all; returns the queues that the limiter has
        room for again.
        """
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
        """Return the claim on messages that were not there after all; returns the queues that the channel's
        limiter has room for again.
        """
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


class ConsumerTurns:
    """The order of turns: consumers with room, by priority, round robin in each (priority_queue in rabbit_queue_consumers).

    One message a turn: a consumer that had one goes to the back of its round.  A lower priority has a turn
    only when no consumer above has room.  A consumer without room leaves the round for its channel's
    `blocked`, and later joins at the back.

    ====================================  ==============================
    messages 0 to 5, and consumers        dealt
    ====================================  ==============================
    a and b, room enough                  a 0 2 4, b 1 3 5
    a with room for 1, b                  a 0, b 1 2 3 4 5
    a of priority 1 with room for 2, b    a 0 1, b 2 3 4 5
    none                                  nothing
    ====================================  ==============================

    Each consumer in a round had room when it was last checked.
    """

    def __init__(self) -> None:
        self._rounds: dict[int, deque[Consumer]] = {}
        """Rounds of consumers by priority, the highest first."""

    def add(self, consumer: Consumer) -> None:
        """Add a consumer to the back of its round."""
        if consumer.priority not in self._rounds:
            self._rounds[consumer.priority] = deque()
            self._rounds = dict(sorted(self._rounds.items(), reverse=True))
        self._rounds[consumer.priority].append(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer from its round, or from its channel's `blocked`."""
        round_ = self._rounds.get(consumer.priority, ())
        if consumer in round_:
            self._rounds[consumer.priority].remove(consumer)
        elif consumer in consumer.channel.blocked:
            consumer.channel.blocked.remove(consumer)
        if not round_:
            self._rounds.pop(consumer.priority, None)

    def deal(self, count: int) -> list[tuple[Consumer, int]]:
        """Claim the next `count` messages for consumers: (consumer, how many in a row), in the order of the queue."""
        dealt: list[tuple[Consumer, int]] = []
        for round_ in self._rounds.values():
            while count and round_:
                consumer = round_.popleft()
                claimed = consumer.claim(1 if round_ else count)
                if claimed:
                    dealt.append((consumer, claimed))
                    count -= claimed
                    round_.append(consumer)
                else:
                    consumer.channel.blocked.append(consumer)
        return dealt

    def unblock(self, consumers: list[Consumer]) -> list[Consumer]:
        """Add the consumers that have room again to their rounds; returns the others."""
        without = []
        for consumer in consumers:
            if consumer.credit(1) > 0:
                self.add(consumer)
            else:
                without.append(consumer)
        return without
