"""How messages leave a queue: delivered, got, acked, rejected, dropped; and how they come back (rabbit_amqqueue_process).

The other end of actors/queue/intake.py.  Who gets what is decided in actors/queue/consumers.py; here it is done, and told the trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warrenmq.actors.queue.consumers import QueueConsumers
from warrenmq.actors.queue.dead_letter import DeadLetters
from warrenmq.actors.queue.head import QueueHead
from warrenmq.actors.queue.lease import QueueLease
from warrenmq.queue.messages import Ack, Acks, GetTimeout, QueueInfo, Reject
from warrenmq.runtime import NO_REPLY
from warrenmq.trace.events import DROP_LOST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykka import ActorRef

    from warrenmq.actors.queue.recovery import QueueSpec
    from warrenmq.actors.queue.sync import QueueSync
    from warrenmq.actors.queue.trace import QueueTrace
    from warrenmq.backing_queue.protocol import BackingQueue
    from warrenmq.log import Log
    from warrenmq.message.queue_message import Fetched
    from warrenmq.queue.channel_record import Consumer
    from warrenmq.queue.messages import Cancel, Get
    from warrenmq.runtime import From, Server


class QueueDepartures:
    """The exit of one queue; it belongs to the queue process.

    consumers   who gets the next message, and who holds which (rabbit_queue_consumers)
    letters     where those go that nobody consumed
    head        which of them leave by themselves
    lease       how long the queue may be unused
    lost        how many messages were found damaged, at recovery or later
    """

    def __init__(self, process: Server, spec: QueueSpec, vq: BackingQueue, rows: QueueTrace | None,
                 safety: QueueSync, log: Log) -> None:  # fmt: skip
        self._process = process
        self._spec = spec
        self._vq = vq
        self._rows = rows
        self._safety = safety
        self.lost = 0
        self.letters = DeadLetters(process, spec, vq, log, self._gone)
        self.head = QueueHead(process, spec.arguments, vq, self.letters, go_ahead=spec.is_up())
        self.consumers = QueueConsumers(
            spec.name, process, self.head, self._noted, rows=rows, single_active=spec.arguments.single_active_consumer,
            in_use=f"queue '{spec.name}' in vhost '{spec.vhost}' in exclusive use",
        )  # fmt: skip
        self.lease = QueueLease(
            process, spec.arguments.expires, lambda: self.consumers.count, spec.unused_too_long
        )

    def info(self, *, unconfirmed: bool) -> QueueInfo:
        """The figures of the queue (see QueueInfo)."""
        vq = self._vq
        return QueueInfo(
            vq.ready, vq.unacked, self.consumers.count, vq.memory(), unconfirmed, vq.next_seq_id, self.lost
        )

    # -- deliver

    def deliver(self) -> None:
        """Send ready messages to whoever has room."""
        self.consumers.deliver()
        self.tell_lost()

    def rest(self) -> None:
        """Everything was delivered that could be: tell the trace of what is ready all the same."""
        if self._rows is not None and (ready := self._vq.ready):
            self._rows.rests(ready, self.consumers.with_room(), self.consumers.count)

    def tell_lost(self) -> None:
        """Messages whose bodies were damaged left the queue before those behind them."""
        if lost := self.take_lost():
            self.drop(lost, DROP_LOST)

    def take_lost(self) -> list[int]:
        """Sequence ids of messages that were found damaged since the last time; counts them."""
        lost = self._vq.take_lost()
        self.lost += len(lost)
        return lost

    def get(self, request: Get, sender: From) -> Any:
        """Answer a get now, or when a message comes, or when its time is over."""
        self.lease.renew()
        if not self.consumers.get(request, sender):
            if request.timeout <= 0:
                self.consumers.stop_waiting(sender)
                return None
            self._process.send_after(request.timeout, GetTimeout(sender))
        return NO_REPLY

    def _noted(self, consumer: Consumer, fetched: list[Fetched], first_tag: int) -> None:
        self.tell_lost()
        self._safety.unsynced |= consumer.no_ack
        if self._rows is not None:
            self._rows.delivered(consumer, fetched, first_tag, get=consumer.outlet is None)

    # -- settle

    def ack(self, message: Ack | Acks, sender: int, pseq: int) -> None:
        """Consumers are done with these; `sender` and `pseq` say where the trace has the ack."""
        if isinstance(message, Acks):
            tags = self.consumers.settle_each(message.consumer, message.tags)
            acked = self._vq.ack(tags)
            if self._rows is not None:
                self._rows.acked_each(acked, message.consumer, tags, sender, pseq)
        else:
            acked = self._vq.ack(
                self.consumers.settle(message.consumer, message.tag, multiple=message.multiple)
            )
            if self._rows is not None:
                self._rows.acked(acked, message, sender, pseq)
        self._safety.unsynced = True

    def reject(self, message: Reject) -> None:
        """A consumer gives these back, or wants nobody to have them."""
        self.deliver()  # what is ready now is not behind what comes back
        seqs = self.consumers.settle(message.consumer, message.tag, multiple=message.multiple)
        if message.requeue:
            back = self._vq.requeue(seqs)
            if self._rows is not None:
                self._rows.requeued(back, message)
            if self.head.active:
                self.head.trim()
            return
        rejected = self.letters.reject(seqs)
        self._safety.unsynced = True
        if self._rows is not None:
            for gone, flag in rejected:
                self._rows.rejected(gone, flag, message)

    def purge(self, flag: int) -> int:
        """Drop every ready message; returns how many."""
        count = 0
        for dropped in self._vq.purge():
            self.drop(dropped, flag)
            count += len(dropped)
        self.tell_lost()
        return count

    def drop(self, seqs: list[int], flag: int, now: int = 0) -> None:
        """These have left the queue without a consumer; `now` is when they were found to have expired."""
        self._safety.unsynced = True
        if self._rows is not None:
            self._rows.dropped(seqs, flag, now)

    def _gone(self, seqs: list[int], flag: int, now: int) -> None:
        self.tell_lost()
        self.drop(seqs, flag, now)

    def _put_back(self, held: Mapping[int, int]) -> None:
        """Messages of consumers that are gone: sequence id -> consumer."""
        back = self._vq.requeue(held)
        if self._rows is not None:
            self._rows.returned(back, held)
        if self.head.active:
            self.head.trim()

    # -- who consumes

    def cancel(self, request: Cancel) -> None:
        """A consumer wants no more; what it never took comes back."""
        self.deliver()
        self._put_back(self.consumers.cancel(request))
        self.lease.renew()
        self._consumers_left()

    def lapse(self) -> None:
        """Deliveries that were not acked in time come back."""
        held, cancelled = self.consumers.lapse()
        if held:
            self._put_back(held)
            self.lease.renew()
        if cancelled:
            self._consumers_left()

    def channel_ended(self, channel: ActorRef[Any]) -> None:
        """A channel closed or died: all that it held comes back, and its consumers are gone."""
        held, consumed = self.consumers.close_channel(channel)
        self._put_back(held)
        if held or consumed:
            self.lease.renew()
        if consumed:
            self._consumers_left()

    def _consumers_left(self) -> None:
        if self._spec.last_consumer_gone is not None and not self.consumers.count:
            self._spec.last_consumer_gone()
