"""Delivery to consumers, acks, rejects and requeues (rabbit_amqqueue_process).

The other end of queue/publish_buffer.py.  queue/consumers.py decides on turns and keeps the messages of each consumer;
messages that leave without a consumer go through queue/drops.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykka import ActorRef

from warrenmq.backing_queue.protocol import BackingQueue
from warrenmq.message.queue_message import Fetched
from warrenmq.queue.channel_record import ChannelRecord, Consumer
from warrenmq.queue.consumers import QueueConsumers
from warrenmq.queue.drops import QueueDrops
from warrenmq.queue.effects import (
    Deliver,
    Effect,
    LastConsumerGone,
    RefuseCall,
    Reply,
    ResumeQueues,
    SendAfter,
)
from warrenmq.queue.expiry_and_limits import ExpiryAndLimits
from warrenmq.queue.index_sync import IndexSync
from warrenmq.queue.messages import (
    Ack,
    Acks,
    Cancel,
    Consume,
    Deliveries,
    Get,
    GetTimeout,
    Got,
    Reject,
    Waiting,
)
from warrenmq.queue.queue_expiry import QueueExpiry
from warrenmq.queue.returns import Returns
from warrenmq.queue.setting import QueueSetting


class QueueOutput:
    """Delivers, acks and requeues messages.

    _consumers    the queue's consumers, and the messages that each holds
    _front        drops expired and surplus messages
    _drops        drops messages that leave without a consumer
    _expiry       the timer of x-expires
    """

    def __init__(self, queue: QueueSetting, vq: BackingQueue, consumers: QueueConsumers, front: ExpiryAndLimits,
                 drops: QueueDrops, expiry: QueueExpiry, index_sync: IndexSync, returns: Returns,
                 effects: list[Effect]) -> None:  # fmt: skip
        self._vq = vq
        self._consumers = consumers
        self._front = front
        self._drops = drops
        self._expiry = expiry
        self._index_sync = index_sync
        self._returns = returns
        self._rows = queue.rows
        self._effects = effects
        self.delivered = [*queue.before.delivered]
        """Messages by the way they went (QueueFigures)."""
        self.acked = queue.before.acked

    # -- deliver

    def deliver(self) -> None:
        """Send ready messages as far as there is room: to consumers in turn, then to waiting gets."""
        vq, consumers = self._vq, self._consumers
        while (ready := vq.ready) and (dealt := consumers.turns.deal(ready)):
            if self._hand_out(dealt):
                break
        while consumers.getters and vq.ready:
            self._answer_getter()
        if vq.lost:
            self._drops.note_lost()

    def _hand_out(self, dealt: list[tuple[Consumer, int]]) -> bool:
        """Fetch the messages that were dealt, and deliver them; False if there were fewer: some have expired,
        or bodies were lost.

        Messages that cannot be read for now stay ready.
        Each consumer gets them in as few pieces as keep the order of the queue in every channel.
        """
        last: dict[ChannelRecord, tuple[Consumer, list[Fetched]]] = {}
        complete = True
        at = 0
        while at < len(dealt):
            end, wanted, no_ack = at, 0, dealt[at][0].no_ack
            while end < len(dealt) and dealt[end][0].no_ack is no_ack:
                wanted += dealt[end][1]
                end += 1
            source = self._front if self._front.may_expire else self._vq
            try:
                messages = source.fetch(wanted, ack_required=not no_ack)
            except (MemoryError, OSError) as error:
                self._index_sync.deliveries_wait(error)
                for consumer, count in dealt[at:]:
                    self._give_back(consumer, count)
                return True
            self._index_sync.reads_wait = False
            if self._returns.counts:
                messages = self._told(messages, no_ack=no_ack)
            position = 0
            for consumer, count in dealt[at:end]:
                hand = messages if count == wanted else messages[position : position + count]
                position += count
                consumer.claimed -= len(hand)
                if len(hand) < count:
                    complete = False
                    self._give_back(consumer, count - len(hand))
                if not hand:
                    continue
                first_tag = self._take(consumer, hand)
                before = last.get(consumer.channel)
                if before is not None and before[0] is consumer:
                    before[1].extend(hand)
                elif consumer.outlet is not None:
                    last[consumer.channel] = consumer, hand
                    self._effects.append(Deliver(consumer.outlet, Deliveries(first_tag, hand)))
            at = end
        return complete

    def _told(self, messages: list[Fetched], *, no_ack: bool) -> list[Fetched]:
        """Messages on their way to a consumer, with the counts of those that came back; with `no_ack` they are gone."""
        told = self._returns.told(messages)
        if no_ack:
            self._returns.forget(message.seq_id for message in messages)
        return told

    def _give_back(self, consumer: Consumer, count: int) -> None:
        """Return a consumer's claim on messages that were not there after all."""
        channel = consumer.channel
        if (queues := consumer.give_back(count)) and channel.ref is not None:
            self._effects.append(ResumeQueues(queues, channel.ref))
        self._consumers.unblock(channel)  # it may have been found full because of the claim

    def _take(self, consumer: Consumer, fetched: list[Fetched]) -> int:
        """Record that messages leave for a consumer; returns the tag of the first."""
        first_tag = consumer.take(fetched)
        self.delivered[2 * (consumer.outlet is None) + consumer.no_ack] += len(fetched)
        deadline, timeouts = consumer.ack_deadline, self._consumers.ack_timeouts
        if deadline is not None and not consumer.no_ack and not timeouts.armed:
            timeouts.arm(deadline)
        if self._vq.lost:
            self._drops.note_lost()
        if consumer.no_ack:
            self._index_sync.unsynced = True
        if self._rows is not None:
            self._rows.delivered(consumer, fetched, first_tag, get=consumer.outlet is None)
        return first_tag

    def get(self, request: Get, sender: Waiting) -> bool:
        """Answer a get now if there is a message, or have it wait; False when it may not wait."""
        self._expiry.renew()
        self._consumers.get(request, sender)
        self.deliver()
        if all(waiting is not sender for waiting, _, _ in self._consumers.getters):
            return True
        if request.timeout <= 0:
            self._consumers.stop_waiting(sender)
            return False
        self._effects.append(SendAfter(request.timeout, GetTimeout(sender)))
        return True

    def get_timeout(self, sender: Waiting) -> None:
        """GetTimeout came."""
        if self._consumers.stop_waiting(sender):
            self._effects.append(Reply(sender, None))

    def give_up(self, request: Get | Consume) -> None:
        """Take back what a request took whose caller was interrupted."""
        if isinstance(request, Consume):
            self.cancel(Cancel(request.consumer, handed_out=0))
            return
        self.deliver()  # as in `reject`
        self._put_back(self._consumers.give_up(request), taken=False)

    def _answer_getter(self) -> None:
        sender, consumer, request = self._consumers.getters[0]
        sender.begin()
        try:
            fetched = self._front.fetch(1, ack_required=not consumer.no_ack)
        except (MemoryError, OSError) as error:
            self._consumers.answered_first()
            self._effects.append(RefuseCall(sender, self._index_sync.cannot_read("the next message", error)))
            return
        if not fetched:  # it had expired, or its body was lost, and there may be another
            sender.park()
            return
        if self._returns.counts:
            fetched = self._told(fetched, no_ack=consumer.no_ack)
        tag = self._take(consumer, fetched)
        self._consumers.answered_first()
        request.taken = fetched[0].seq_id
        self._effects.append(Reply(sender, Got(tag, fetched[0], self._front.ready_behind())))

    def rest(self) -> None:
        """Trace the messages that remain ready after all possible deliveries; not of those that cannot be read."""
        if self._rows is not None and (ready := self._vq.ready) and not self._index_sync.reads_wait:
            self._rows.rests(ready, self._consumers.with_room(), self._consumers.count)

    # -- settle

    def ack(self, message: Ack | Acks, sender: int, pseq: int) -> None:
        """Settle acked deliveries; `sender` and `pseq` name the ack's SEND row in the trace."""
        consumers, rows = self._consumers, self._rows
        if isinstance(message, Acks):
            tags = consumers.settle_each(message.consumer, message.tags)
            acked = self._vq.ack(tags)
            if rows is not None:
                rows.acked_each(acked, message.consumer, tags, sender, pseq)
        else:
            acked = self._vq.ack(consumers.settle(message.consumer, message.tag, multiple=message.multiple))
            if rows is not None:
                rows.acked(acked, message, sender, pseq)
        self.acked += len(acked)
        self._returns.forget(acked)
        self._index_sync.unsynced = True

    def reject(self, message: Reject) -> None:
        """Requeue or drop what a consumer rejected; what cannot be read for its dead letter is requeued."""
        self.deliver()  # messages that are ready now come before those that come back
        seqs = self._consumers.settle(message.consumer, message.tag, multiple=message.multiple)
        rejected: list[tuple[list[int], int]] | None = None
        if not message.requeue:
            try:
                rejected = self._drops.reject(seqs)
            except (MemoryError, OSError) as error:
                self._index_sync.deliveries_wait(error)
        if rejected is None:
            too_often = self._returns.came_back(seqs)
            back = self._vq.requeue(set(seqs).difference(too_often))
            if self._rows is not None:
                self._rows.requeued(sorted([*back, *too_often]), message)
            self._are_back(too_often)
            return
        for gone, flag in rejected:
            if self._rows is not None:
                self._rows.rejected(gone, flag, message)

    def _put_back(self, held: Mapping[int, int], *, taken: bool = True) -> None:
        """Requeue the messages of consumers that are gone; `held`: sequence id -> consumer.  They count as having come back
        if they were `taken`.
        """
        too_often = self._returns.came_back(held) if taken else []
        back = self._vq.requeue(held.keys() - set(too_often))
        if self._rows is not None:
            self._rows.returned(sorted([*back, *too_often]), held)
        self._are_back(too_often)

    def _are_back(self, too_often: list[int]) -> None:
        if too_often:
            try:
                self._drops.came_back_too_often(too_often)
            except (MemoryError, OSError) as error:  # it stays, and goes when it comes back again
                self._index_sync.deliveries_wait(error)
                self._vq.requeue(too_often)
        if self._front.active:
            self._front.trim()

    # -- consumers that go

    def cancel(self, request: Cancel) -> None:
        """Cancel a consumer and requeue what it never took."""
        self.deliver()
        self._put_back(self._consumers.cancel(request), taken=False)
        self._expiry.renew()
        self._consumers_left()

    def lapse(self, now: int) -> None:
        """Requeue deliveries that were not acked in time."""
        held, cancelled = self._consumers.lapse(now)
        if held:
            self._put_back(held)
            self._expiry.renew()
        if cancelled:
            self._consumers_left()

    def channel_ended(self, channel: ActorRef[Any]) -> None:
        """A channel closed or died: requeue all that it held, and remove its consumers."""
        held, consumed = self._consumers.close_channel(channel)
        self._put_back(held)
        if held or consumed:
            self._expiry.renew()
        if consumed:
            self._consumers_left()

    def _consumers_left(self) -> None:
        if not self._consumers.count:
            self._effects.append(LastConsumerGone())
