"""The consumers of a queue, and the messages that each holds (rabbit_queue_consumers).

Messages go to consumers in turn, as far as there is room (channel_record.py).  Delivery tags are
per consumer, from 1; an ack names a tag, or with `multiple` everything up to a tag.

basic.get is a consumer, too, the getter: nothing is pushed to it, it asks for one message at a time, and may wait.

With a single active consumer the others wait: when it goes, the one of the highest priority that has waited longest
is the next.  It is not replaced while it is there, and what it holds stays with it.

A channel that ends gives back everything that its consumers and getters hold; a consumer that is cancelled keeps it.
"""

from __future__ import annotations

from typing import Any

from pykka import ActorRef

from warrenmq.errors import AccessRefused
from warrenmq.queue.ack_timeout import AckTimeouts, too_late
from warrenmq.queue.channel_record import ChannelRecord, Consumer, ConsumerTurns
from warrenmq.queue.effects import CancelLateConsumer, Demonitor, Effect, Monitor
from warrenmq.queue.limiter import Limiter
from warrenmq.queue.messages import Cancel, Consume, ConsumerInfo, Get, Waiting
from warrenmq.queue.setting import QueueSetting
from warrenmq.trace.events import CHANNEL_ENDED, CONSUMER_CANCELLED, CONSUMER_LAPSED


class QueueConsumers:
    """All consumers of one queue.

    turns       whose turn it is
    getters     gets that wait for a message, oldest first: the caller, what it holds, and its request
    _channels   the ChannelRecord of each channel, by its address
    _members    consumers and getters, and former ones that still hold messages, by id
    _pushed     those that messages are pushed to, oldest first
    _active     the single active consumer, or None
    ack_timeouts   the check for deliveries that are acked too late
    """

    def __init__(self, queue: QueueSetting, effects: list[Effect]) -> None:
        self._queue = queue.name
        self._ref = queue.ref
        self._single_active = queue.arguments.single_active_consumer
        self._in_use = f"queue '{queue.name}' in vhost '{queue.vhost}' in exclusive use"
        """RabbitMQ's text when an exclusive consumer is in the way."""
        self._rows = queue.rows
        self._effects = effects
        self.turns = ConsumerTurns()
        self.getters: list[tuple[Waiting, Consumer, Get]] = []
        self._channels: dict[ActorRef[Any], ChannelRecord] = {}
        self._members: dict[int, Consumer] = {}
        self._pushed: dict[int, Consumer] = {}
        self._active: Consumer | None = None
        self.ack_timeouts = AckTimeouts(effects)

    @property
    def count(self) -> int:
        """Consumers that messages are pushed to."""
        return len(self._pushed)

    @property
    def in_use(self) -> bool:
        """True if a consumer or getter is there, waits for a message or holds one."""
        return bool(self._members or self.getters)

    def infos(self) -> list[ConsumerInfo]:
        """A ConsumerInfo of each, oldest first."""
        return [
            ConsumerInfo(
                consumer.channel.ref, consumer.tag, not consumer.no_ack, consumer.prefetch, consumer.exclusive,
                consumer.priority, self._active in (None, consumer), consumer.arguments,
            )
            for consumer in self._pushed.values()
        ]  # fmt: skip

    # -- consumers come and go

    def consume(self, request: Consume) -> None:
        """Add a consumer; AccessRefused where exclusiveness forbids it.

        =========================  =======  =========
        there are                  shared   exclusive
        =========================  =======  =========
        none                       added    added
        shared ones                added    refused
        an exclusive one           refused  refused
        single active: any, none   added    refused
        =========================  =======  =========
        """
        problem = None
        if request.exclusive and self._single_active:
            problem = "has a single active consumer: none can be exclusive"
        elif any(consumer.exclusive for consumer in self._pushed.values()):
            problem = "has an exclusive consumer"
        elif request.exclusive and self._pushed:
            problem = "has consumers: an exclusive one cannot join them"
        if problem is not None:
            raise AccessRefused(f"queue {self._queue!r} {problem}", reply_text=self._in_use)
        consumer = Consumer.consuming(request, self._channel(request.channel, request.limiter))
        if self._rows is not None:
            self._rows.consumer_added(consumer)
        self._members[consumer.id] = self._pushed[consumer.id] = consumer
        if not self._single_active:
            self.turns.add(consumer)
        elif self._active is None:
            self._activate(consumer)

    def cancel(self, request: Cancel) -> dict[int, int]:
        """Push nothing more to a consumer; returns the sequence ids that it never took -> its id; they go back.

        It is kept while it holds unacked messages.
        """
        consumer = self._pushed.get(request.consumer)
        if consumer is None:
            return {}
        if (rows := self._rows) is not None:
            rows.consumer_gone(consumer, CONSUMER_CANCELLED, request.handed_out)
        untaken = [] if request.handed_out is None else consumer.take_back(request.handed_out)
        self._push_no_more(consumer)
        self._forget_if_done(consumer)
        return dict.fromkeys(untaken, consumer.id)

    def close_channel(self, ref: ActorRef[Any]) -> tuple[dict[int, int], bool]:
        """A channel has ended: returns the sequence ids that it held -> consumer, and True if it had consumers."""
        channel = self._channels.pop(ref, None)
        if channel is None:
            return {}, False
        self._effects.append(Demonitor(ref))
        self.getters = [each for each in self.getters if each[1].channel is not channel]
        before = len(self._pushed)
        for consumer in channel.members.values():
            if self._rows is not None and (consumer.outlet is not None or consumer.unacked):
                self._rows.consumer_gone(consumer, CHANNEL_ENDED, 0)
            self._members.pop(consumer.id)
            if consumer.outlet is not None:
                self._push_no_more(consumer)
        held = {
            seq: consumer.id for consumer in channel.members.values() for seq in consumer.unacked.values()
        }
        return held, len(self._pushed) < before

    def unacked_messages(self) -> list[int]:
        """Sequence ids of all messages that consumers hold, in ascending order."""
        return sorted(seq for consumer in self._members.values() for seq in consumer.unacked.values())

    def _channel(self, ref: ActorRef[Any] | None, limiter: Limiter | None) -> ChannelRecord:
        if ref is None:
            return ChannelRecord(self._ref, None, None)
        channel = self._channels.get(ref)
        if channel is None:
            channel = self._channels[ref] = ChannelRecord(self._ref, ref, limiter)
            self._effects.append(Monitor(ref))
        channel.limiter = channel.limiter or limiter  # a get brings none
        return channel

    def _activate(self, consumer: Consumer) -> None:
        self._active = consumer
        self.turns.add(consumer)

    def _push_no_more(self, consumer: Consumer) -> None:
        consumer.outlet = None
        del self._pushed[consumer.id]
        self.turns.remove(consumer)
        if consumer is self._active:
            self._active = None
            if self._pushed:  # the first of those with the highest priority
                self._activate(max(self._pushed.values(), key=lambda each: each.priority))

    def _forget_if_done(self, consumer: Consumer) -> None:
        """Forget a former consumer or getter that holds nothing, once no Taken can come for it."""
        if (
            consumer.outlet is None
            and not consumer.unacked
            and (not consumer.unsent or consumer.channel.ref is None)
        ):
            if any(waiting is consumer for _, waiting, _ in self.getters):
                return
            self._members.pop(consumer.id, None)
            consumer.channel.members.pop(consumer.id, None)

    # -- messages from consumers and channels

    def taken(self, consumer_id: int, count: int) -> None:
        """Deliveries have arrived at the consumer: there is room for as many more."""
        if (consumer := self._members.get(consumer_id)) is not None:
            consumer.taken(count)
            self._room(consumer)

    def settle(self, consumer_id: int, tag: int, *, multiple: bool) -> list[int]:
        """Remove the deliveries that an ack or reject names; returns their sequence ids, none for unknown
        consumers and tags.
        """
        consumer = self._members.get(consumer_id)
        if consumer is None:
            return []
        seqs = consumer.settle(tag, multiple=multiple)
        self._room(consumer)
        return seqs

    def settle_each(self, consumer_id: int, tags: list[int]) -> dict[int, int]:
        """`settle` of several tags: returns sequence id -> tag."""
        consumer = self._members.get(consumer_id)
        if consumer is None:
            return {}
        pop = consumer.unacked.pop
        seqs = {seq: tag for tag in tags if (seq := pop(tag, None)) is not None}
        self._room(consumer)
        return seqs

    def resume(self, ref: ActorRef[Any]) -> None:
        """Resume came: the channel's limiter may have room."""
        if (channel := self._channels.get(ref)) is not None:
            channel.suspended = False
            self.unblock(channel)

    def lapse(self, now: int) -> tuple[dict[int, int], bool]:
        """Take back deliveries that were not acked in time: returns sequence id -> consumer, and True if a consumer was
        cancelled for it.
        """
        held: dict[int, int] = {}
        cancelled = False
        for consumer, late in self.ack_timeouts.look(list(self._members.values()), now):
            deadline = consumer.ack_deadline
            if deadline is None or deadline.holder is None:
                seqs = [seq for tag in late for seq in consumer.settle(tag, multiple=False)]
            else:
                if self._rows is not None:
                    self._rows.consumer_gone(consumer, CONSUMER_LAPSED, 0)
                seqs = consumer.settle(consumer.next_tag, multiple=True)
                if consumer.outlet is not None:
                    self._push_no_more(consumer)
                    cancelled = True
                self._effects.append(CancelLateConsumer(deadline.holder, too_late(self._queue, deadline)))
            held |= dict.fromkeys(seqs, consumer.id)
            self._forget_if_done(consumer)
        return held, cancelled

    def _room(self, consumer: Consumer) -> None:
        if consumer.outlet is None:
            self._forget_if_done(consumer)
        if consumer.channel.blocked:
            self.unblock(consumer.channel)

    def unblock(self, channel: ChannelRecord) -> None:
        if not channel.is_blocked:
            channel.blocked = self.turns.unblock(channel.blocked)

    def with_room(self) -> int:
        """The number of consumers that a message could be pushed to now, and of gets that wait for one."""
        pushed = self._pushed.values() if self._active is None else (self._active,)
        return len(self.getters) + sum(consumer.has_room for consumer in pushed)

    # -- basic.get

    def get(self, request: Get, sender: Waiting) -> None:
        """Add a get that waits for a message."""
        consumer = self._members.get(request.consumer)
        if consumer is None:
            channel = self._channel(request.channel, None)
            consumer = self._members[request.consumer] = Consumer(
                request.consumer, channel, no_ack=request.no_ack
            )
        consumer.no_ack = request.no_ack
        consumer.ack_deadline = request.ack_deadline
        self.getters.append((sender, consumer, request))

    def answered_first(self) -> None:
        """The get that waited first has its answer; a getter that holds nothing is forgotten."""
        _, consumer, _ = self.getters.pop(0)
        self._forget_if_done(consumer)

    def stop_waiting(self, sender: Waiting) -> bool:
        """Forget a get that waits; False if it has its message."""
        for place, (waiting, consumer, _) in enumerate(self.getters):
            if waiting is sender:
                del self.getters[place]
                self._forget_if_done(consumer)
                return True
        return False

    def give_up(self, request: Get) -> dict[int, int]:
        """Forget a get whose answer nobody will see; returns the sequence id of the message that it took ->
        its getter, if that is still unacked.
        """
        for sender, _, waiting in self.getters:
            if waiting is request:
                self.stop_waiting(sender)
                return {}
        if (consumer := self._members.get(request.consumer)) is not None:
            for tag, seq in consumer.unacked.items():
                if seq == request.taken:
                    consumer.settle(tag, multiple=False)
                    self._forget_if_done(consumer)
                    return {seq: consumer.id}
        return {}
