"""basic.consume, cancel, deliver, get and qos (rabbit_channel).

A consumer is known to the client by its tag, to its queue by a number.  When the queue's process has crashed,
its consumers are made again with the one that was restarted; where there is no such queue, or it refuses the
consumer, or where the queue was deleted, the client gets basic.cancel, if it said that it knows this method.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from pamqp import commands
from pykka import ActorDeadError, ActorRef

from warrenmq.actors.sending.guid import OF_CONSUMER, token
from warrenmq.actors.vhost.messages import Sync
from warrenmq.amqp.channel.access import ChannelAccess
from warrenmq.amqp.channel.consumers import (
    Cancelled,
    ChannelConsumer,
    ConsumeParameters,
    Delivered,
    Holder,
    SentNotices,
)
from warrenmq.amqp.channel.context import ConnectionContext
from warrenmq.amqp.channel.message import REPLY_TO, opened
from warrenmq.amqp.channel.reply_to import ReplyTo
from warrenmq.amqp.channel.settling import Settling, resume
from warrenmq.amqp.channel.writer import ChannelWriter
from warrenmq.amqp.statistics import ChannelCounters
from warrenmq.amqp.wire.errors import NOT_ALLOWED, NOT_IMPLEMENTED, PRECONDITION_FAILED, AmqpError
from warrenmq.broker.calls import ActorCalls
from warrenmq.errors import Error, ProcessDied
from warrenmq.queue.arguments import check_boolean, check_integer
from warrenmq.queue.limiter import Limiter
from warrenmq.queue.messages import Cancel, ChannelClosed, Consume, Get, Got
from warrenmq.runtime import Server
from warrenmq.supervisors.broker_sup import VHOST_PROCESS
from warrenmq.trace.events import OF_CHANNEL, OF_CONSUMERS_TO_COME, ChannelLimit
from warrenmq.trace.writers import writer

_write_limit = writer(ChannelLimit)

_CHECKS = {"x-priority": check_integer, "x-cancel-on-ha-failover": check_boolean}
_OF_STREAMS = ("x-stream-offset",)


class ChannelConsuming:
    """The consuming side of one channel; it belongs to the channel process."""

    def __init__(self, server: Server, context: ConnectionContext, calls: ActorCalls, access: ChannelAccess,
                 writer: ChannelWriter, settling: Settling, limiter: Limiter, reply_to: ReplyTo,
                 counters: ChannelCounters) -> None:  # fmt: skip
        self.notices = SentNotices(server, context.transport.writable)
        self._server = server
        self._broker = context.broker
        self._cancel_notify = context.can("consumer_cancel_notify")
        self._calls = calls
        self._access = access
        self._writer = writer
        self._settling = settling
        self._limiter = limiter
        self._reply_to = reply_to
        self._counters = counters
        self._prefetch = 0
        """The prefetch count of consumers to come."""
        self._consumers: dict[str, ChannelConsumer] = {}
        self._getters: dict[str, Holder] = {}
        """Getters of basic.get, by queue."""
        self._monitors: dict[ActorRef[Any], int] = {}
        """Monitors of queue processes that have consumers of this channel."""

    @property
    def prefetch(self) -> int:
        """The prefetch count of consumers to come."""
        return self._prefetch

    @property
    def consumers(self) -> int:
        """The number of the channel's consumers."""
        return len(self._consumers)

    # -- consume and cancel

    def consume(self, method: commands.Basic.Consume) -> None:
        """basic.consume."""
        queue = self._access.queue_or_last(method.queue)
        tag = method.consumer_tag
        if tag in self._consumers:
            raise AmqpError(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
        tag = tag or OF_CONSUMER + token(self._server.runtime)
        if queue == REPLY_TO:
            self._reply_to.consume(tag, no_ack=method.no_ack)
        else:
            self._access.read("queue", queue)
            self._access.queue(queue)
            priority = consumer_priority(self._access.name("queue", queue), method.arguments)
            self._subscribe(queue, ConsumeParameters(tag, method.no_ack, method.exclusive, self._prefetch, priority,
                                                     method.arguments))  # fmt: skip
        if not method.nowait:
            self._writer.send(commands.Basic.ConsumeOk, consumer_tag=tag)

    def _subscribe(self, queue: str, parameters: ConsumeParameters) -> None:
        number = self._broker.inside.client.next_consumer_id()
        # The queue has it as its outlet before it is known whose process that is.
        consumer = ChannelConsumer(
            number, queue, self._server.actor_ref, parameters, self._server.actor_inbox.send
        )
        request = Consume(
            number, consumer, parameters.prefetch, parameters.no_ack, parameters.exclusive,
            channel=self._server.actor_ref, consumer_tag=parameters.tag, priority=parameters.priority,
            limiter=self._limiter, arguments=parameters.arguments,
        )  # fmt: skip
        _, consumer.ref = self._calls.call_queue(queue, request)
        self._consumers[parameters.tag] = consumer
        if consumer.ref not in self._monitors:
            self._monitors[consumer.ref] = self._server.monitor(consumer.ref)

    def cancel(self, method: commands.Basic.Cancel) -> None:
        """basic.cancel; an unknown tag is no error."""
        tag = method.consumer_tag or ""
        if tag == self._reply_to.consumer_tag:
            self._reply_to.cancel()
        elif (consumer := self._consumers.pop(tag, None)) is not None:
            self._forget(consumer)
            with suppress(ActorDeadError, ProcessDied):  # a dead process has no consumers
                self._calls.call_actor(consumer.ref, Cancel(consumer.id))
            self._wait_for_deletion([consumer.queue])
            # Earlier deliveries of the queue are in the mailbox: the client gets them first.
            self._server.actor_inbox.send(Cancelled(consumer, method.nowait))
            return
        if not method.nowait:
            self._writer.send(commands.Basic.CancelOk, consumer_tag=tag)

    def _wait_for_deletion(self, queues: Iterable[str]) -> None:
        """Have those of these queues gone that went with their last consumer: a client may count on it."""
        records = map(self._broker.inside.vhost.queue, queues)
        if any(record is not None and record.auto_delete for record in records):
            self._calls.call_named(VHOST_PROCESS, Sync())

    def cancelled(self, message: Cancelled) -> None:
        """Answer cancel-ok: all deliveries to the cancelled consumer have been sent."""
        if not message.no_wait:
            self._writer.send(commands.Basic.CancelOk, consumer_tag=message.consumer.tag)

    def _forget(self, consumer: ChannelConsumer) -> None:
        if all(each.ref is not consumer.ref for each in self._consumers.values()):
            self._server.demonitor(self._monitors.pop(consumer.ref))

    def queue_down(self, queue: ActorRef[Any], *, deleted: bool) -> None:
        """A queue's process has ended; a deleted queue has no successor, even if its name is in use again."""
        if self._monitors.pop(queue, None) is None:
            return
        for consumer in [each for each in self._consumers.values() if each.ref is queue]:
            del self._consumers[consumer.tag]
            try:
                if deleted or consumer.parameters.arguments.get("x-cancel-on-ha-failover") is True:
                    raise self._access.not_found("queue", consumer.queue)
                self._access.queue(consumer.queue)
                self._subscribe(consumer.queue, consumer.parameters)
            except (AmqpError, Error):
                if self._cancel_notify:
                    self._writer.send(commands.Basic.Cancel, consumer_tag=consumer.tag, nowait=True)

    # -- deliveries

    def delivered(self, message: Delivered) -> None:
        """Send delivered messages to the client."""
        consumer, deliveries = message.consumer, message.deliveries
        messages = deliveries.messages
        unacked = self._settling.unacked
        count = len(messages)
        first = unacked.take_tags(count)
        if consumer.parameters.no_ack:
            self._counters.deliver_no_ack += count
        else:
            self._counters.deliver += count
            unacked.note(first, count, consumer, deliveries.first_tag, self._server.runtime.monotonic_ns())
        deliver, tag = self._writer.deliver, consumer.tag
        redelivered = 0
        for delivery_tag, fetched in enumerate(messages, first):
            envelope, body = opened(fetched)
            redelivered += fetched.redelivered
            deliver(tag, delivery_tag, fetched.redelivered, envelope, body)
        self._counters.redeliver += redelivered
        self.notices.sent(consumer, count)

    def get(self, method: commands.Basic.Get) -> None:
        """basic.get."""
        queue = self._access.queue_or_last(method.queue)
        self._access.read("queue", queue)
        self._access.queue(queue)
        getter = self._getters.get(queue)
        number = self._broker.inside.client.next_consumer_id() if getter is None else getter.id
        request = Get(number, method.no_ack, 0, self._server.actor_ref)
        got, ref = self._calls.call_queue(queue, request)
        if getter is None or getter.ref is not ref:
            self._getters = {name: each for name, each in self._getters.items() if each.ref.is_alive()}
            getter = self._getters[queue] = Holder(number, queue, ref, limited=False)
        if not isinstance(got, Got):
            self._counters.get_empty += 1
            self._writer.send(commands.Basic.GetEmpty)
            return
        unacked = self._settling.unacked
        delivery_tag = unacked.take_tags(1)
        if method.no_ack:
            self._counters.get_no_ack += 1
        else:
            self._counters.get += 1
            unacked.note(delivery_tag, 1, getter, got.tag, self._server.runtime.monotonic_ns())
        envelope, body = opened(got.message)
        self._writer.get_ok(delivery_tag, got.message.redelivered, got.ready, envelope, body)

    def qos(self, method: commands.Basic.Qos) -> None:
        """basic.qos: of consumers to come, or of the whole channel."""
        if method.prefetch_size:
            raise AmqpError(NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
        if (trace := self._server.trace) is not None:
            scope = OF_CHANNEL if method.global_ else OF_CONSUMERS_TO_COME
            _write_limit(trace, scope, method.prefetch_count)
        if method.global_:
            limit = method.prefetch_count
        else:
            self._prefetch = method.prefetch_count
            limit = 0
        resume(self._server, self._limiter.limit(limit))
        self._writer.send(commands.Basic.QosOk)

    # -- the end

    def stop(self) -> None:
        """Make the queues stop delivering."""
        for consumer in self._consumers.values():
            with suppress(ActorDeadError):
                self._server.call(consumer.ref, Cancel(consumer.id), timeout=None)

    def release(self) -> None:
        """Requeue what is unacked and remove the consumers at all queues; synchronous."""
        consumed = [consumer.queue for consumer in self._consumers.values()]
        holders = [*self._consumers.values(), *self._getters.values(),
                   *(pending.holder for pending in self._settling.unacked.take_all())]  # fmt: skip
        for key in self._monitors.values():
            self._server.demonitor(key)
        self._consumers.clear()
        self._getters.clear()
        self._monitors.clear()
        for queue in dict.fromkeys(holder.ref for holder in holders):
            with suppress(ActorDeadError):
                self._server.call(queue, ChannelClosed(self._server.actor_ref), timeout=None)
        with suppress(ActorDeadError, Error):  # the broker is being closed
            self._wait_for_deletion(consumed)


def consumer_priority(queue: str, arguments: Mapping[str, Any]) -> int:
    """x-priority of a consumer; AmqpError 406 for arguments that a classic queue does not take.

    | argument                | must be    | otherwise                             |
    | ----------------------- | ---------- | ------------------------------------- |
    | x-priority              | an integer | "expected integer, got longstr"       |
    | x-cancel-on-ha-failover | a boolean  | {unacceptable_type,longstr}           |
    | x-stream-offset         | absent     | of queue type rabbit_classic_queue    |
    | anything else           | anything   |                                       |
    """
    for name, check in _CHECKS.items():
        if name in arguments and (why := check(name, arguments)) is not None:
            raise AmqpError(PRECONDITION_FAILED, f"invalid arg '{name}' for {queue}: {why}")
    for name in _OF_STREAMS:
        if name in arguments:
            raise AmqpError(
                PRECONDITION_FAILED, f"invalid arg '{name}' for {queue} of queue type rabbit_classic_queue"
            )
    priority: int = arguments.get("x-priority", 0)
    return priority
