"""The process of one channel (rabbit_channel): assembles methods and hands each to the part that handles it.

    connection ─Frames─► content ─┬─ basic.publish ──► publishing ─Publish─► queues
                                  ├─ tx.* ───────────► transaction
                                  ├─ basic.ack ... ──► settling ────Acks───► queues
                                  ├─ basic.consume ..► consuming ──Consume─► queues
                                  └─ exchange.*, queue.* ► declarations ───► vhost process
    queues ─Delivered─► consuming ──┐
           ─Settled───► confirms ───┴► writer ─► socket

An error of the client closes the channel: it gives back what is unacked, sends channel.close, and ignores everything until
channel.close-ok; an error that RabbitMQ calls hard closes the connection.  A channel waits for queues and the vhost
process where it calls them, and never for credit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from pamqp import commands
from pamqp.base import Frame as Method
from pykka import ActorRef

from warrenmq.amqp.channel.access import ChannelAccess
from warrenmq.amqp.channel.consumers import Cancelled, Delivered
from warrenmq.amqp.channel.consuming import ChannelConsuming
from warrenmq.amqp.channel.content import ContentAssembler
from warrenmq.amqp.channel.context import (
    ChannelBlocked,
    ChannelClosed,
    ConnectionClosing,
    ConnectionContext,
    Frames,
    StopConsuming,
    Writable,
)
from warrenmq.amqp.channel.credit import ChannelCredit, CreditGranted
from warrenmq.amqp.channel.declarations import ChannelDeclarations
from warrenmq.amqp.channel.message import Envelope
from warrenmq.amqp.channel.messages import DeliverReply, IsReplyConsumer, Settled, Tick
from warrenmq.amqp.channel.methods import ChannelMethods, error_of
from warrenmq.amqp.channel.publishing import ChannelPublishing
from warrenmq.amqp.channel.reply_to import ReplyTo
from warrenmq.amqp.channel.rpc import ChannelRpc
from warrenmq.amqp.channel.settling import Settling
from warrenmq.amqp.channel.transaction import Transaction
from warrenmq.amqp.channel.writer import ChannelWriter
from warrenmq.amqp.statistics import ChannelInfo, Describe
from warrenmq.amqp.wire import batch
from warrenmq.amqp.wire.codec import PUBLISH, ids, start_of
from warrenmq.amqp.wire.errors import PRECONDITION_FAILED, AmqpError
from warrenmq.amqp.wire.frames import METHOD, Frame
from warrenmq.broker.calls import ActorCalls
from warrenmq.errors import Error
from warrenmq.log import Log
from warrenmq.queue.limiter import Limiter
from warrenmq.runtime import From, Server, Stop
from warrenmq.runtime.messages import Down
from warrenmq.runtime.reasons import NORMAL, SHUTDOWN

_CLOSE, _CLOSE_OK = start_of(commands.Channel.Close), start_of(commands.Channel.CloseOk)
_NS_IN_MS = 1_000_000
"""Nanoseconds in a millisecond."""


class ChannelProcess(Server):
    """One channel (the state record `ch`).

    _content       frames that are not whole methods yet
    _publishing    publishes and their confirms
    _consuming     consumers, getters, deliveries
    _settling      deliveries that wait for acks
    _transaction   what waits for tx.commit
    _methods       which part handles which method
    _writer        what goes to the client
    """

    helpable = True

    def init(self, number: int, connection: ActorRef[Any], context: ConnectionContext) -> None:
        """Begin in the state `starting`: the first method is channel.open."""
        self._number = number
        self._connection = connection
        self._context = context
        self._log = Log("warrenmq.channel", connection=context.name, channel=number)
        self._method = (0, 0)
        """The method being handled: class id, method id."""
        self._tick_armed = False
        self._unhandled: deque[Frames] = deque()
        settings = context.broker.settings
        self._tick_interval = settings.channel_tick_interval / 1000
        self._consumer_timeout = settings.consumer_timeout
        access = ChannelAccess(context)
        calls = ActorCalls(
            self.runtime, context.broker.inside.vhost, context.broker.check_open, lambda: self.trace
        )
        limiter = Limiter(self.runtime.lock())
        self._counters = counters = context.statistics.channel_created(
            context.user.name, context.broker.inside.vhost.name
        )
        self.actor_inbox.on_close(lambda _reason: context.statistics.channel_closed(counters))
        self._limiter = limiter
        self._blocked = False
        self._credit = ChannelCredit(self.actor_inbox.send, self._tell_blocked, self.trace)
        self._writer = ChannelWriter(number, context)
        self._reply_to = ReplyTo(self)
        self._settling = Settling(self, limiter, self._counters)
        self._consuming = ChannelConsuming(self, context, calls, access, self._writer, self._settling, limiter,
                                           self._reply_to, self._counters)  # fmt: skip
        rpc = ChannelRpc(context, calls, self._reply_to)
        self._publishing = ChannelPublishing(
            self, context, calls, access, self._writer, self._reply_to, rpc, self._credit, self._counters
        )
        self._transaction = Transaction(self._publishing, self._settling)
        declarations = ChannelDeclarations(self.runtime, context, calls, access, self._writer, self._reply_to)
        self._content = ContentAssembler(self, settings.max_message_size)
        self._methods = ChannelMethods(self._writer, self._publishing, self._consuming, self._settling, self._transaction,
                                       declarations, self._close)  # fmt: skip

    # -- what arrives

    def handle_cast(self, message: Any) -> None:
        """One message of the connection, a queue, another channel, or of this one to itself."""
        match message:
            case Frames():
                self._unhandled.append(message)
                self._go_on()
            case CreditGranted():
                self._credit.granted(message.flow)
            case Writable():
                self._consuming.notices.tell()
                self._go_on()
            case _ if self._closing:
                return
            case Settled():
                self._publishing.confirms.settle(message)
                self._counters.confirm = self._publishing.confirms.confirmed
                self._guarded(self._methods.complete_commit)
            case Delivered():
                self._consuming.delivered(message)
                self._arm_tick()
            case Cancelled():
                self._consuming.cancelled(message)
            case DeliverReply():
                self._deliver_reply(message)
            case _:
                raise TypeError(message)

    def handle_call(self, request: Any, sender: From) -> Any:
        """A call of the connection (it closes) or of another channel (direct reply-to)."""
        self._drop_unasked()
        match request:
            case StopConsuming():
                self._consuming.stop()
                return None
            case ConnectionClosing():
                self._release()
                sender.reply(None)
                raise Stop
            case Describe():
                return self._info()
            case IsReplyConsumer():
                return not self._writer.closing and self._reply_to.accepts(request.key)
            case _:
                raise TypeError(request)

    def handle_info(self, message: Any) -> None:
        """A queue that is consumed from has ended, or time has passed."""
        match message:
            case Down() if message.ref is not None and not self._closing:
                self._consuming.queue_down(message.ref, deleted=message.reason == NORMAL)
            case Tick():
                self._tick_armed = False
                self._guarded(self._check_timeout)

    def mailbox_empty(self) -> None:
        """The mailbox is empty: answer publishers and flush the writer."""
        self._drop_unasked()
        if not self._closing:
            self._answer_publishers()
        self._writer.flush()
        self._consuming.notices.tell()

    def terminate(self, reason: Any) -> None:  # noqa: ARG002  # OTP's signature
        """Flush the writer; queues see the end of the process by their monitors."""
        self._credit.end()
        self._writer.flush()

    @property
    def _closing(self) -> bool:
        """True while the channel or its connection closes: only answers are sent."""
        return self._writer.closing or self._context.closing.begun

    def _drop_unasked(self) -> None:
        """Discard what the writer holds besides answers, which were flushed with their requests."""
        if self._context.closing.begun:
            self._writer.discard()

    # -- frames

    def _go_on(self) -> None:
        """Handle waiting frames, unless the client does not read its answers."""
        while self._unhandled and not self._context.transport.overfull():
            self._frames(self._unhandled.popleft())

    def _frames(self, message: Frames) -> None:
        self._drop_unasked()
        frames = iter(message.frames)
        try:
            if not self._writer.closing:
                self._guarded(lambda: self._content.take(frames))
            if self._writer.closing:
                self._ignore(self._content.rest(frames))
            self._settling.flush()
            self._answer_publishers()
            self._writer.flush()
            self._arm_tick()
        finally:
            message.intake.handled(message.size)

    def method(self, method: Method) -> None:
        """A method without content."""
        self._method = ids(method)
        self._methods.handle(method)
        self._method = (0, 0)

    def publish(self, method: bytes, raw_properties: bytes, bodies: list[bytes]) -> None:
        """A run of basic.publish, or of batches of them."""
        if method == batch.METHOD:
            for each in batch.runs(map(batch.split, bodies)):
                self._content.check_sizes(each.bodies)
                self.publish(*each)
            return
        self._method = PUBLISH
        transaction = self._transaction
        transaction.check_idle()
        numbered = transaction.selected or self._publishing.confirms.enabled
        routed = self._publishing.check(method, raw_properties, bodies, numbered=numbered)
        if transaction.selected:
            transaction.publish(routed)
        else:
            self._publishing.deliver(routed)
        self._method = (0, 0)

    def _ignore(self, frames: Iterator[Frame]) -> None:
        """While closing, all but channel.close and channel.close-ok is ignored."""
        for kind, _, payload in frames:
            if kind == METHOD and payload.startswith(_CLOSE_OK):
                raise Stop
            if kind == METHOD and payload.startswith(_CLOSE):
                self._writer.close_ok()

    # -- errors and the end

    def _guarded(self, action: Callable[[], object]) -> None:
        """Run a handler; an error of the client closes the channel or connection."""
        try:
            action()
        except AmqpError as error:
            self._failed(error.of(self._method))
        except Error as error:
            self._failed(error_of(error, self._method))

    def _failed(self, error: AmqpError) -> None:
        self._settling.flush()
        self._release()
        self._log.error("channel error", code=error.code, text=error.reply_text, user=self._context.user.name)
        if error.closes == "connection":
            self._writer.flush()
            raise Stop((SHUTDOWN, error))
        self._writer.close(error)

    def _close(self) -> None:
        """channel.close: close-ok goes out when the queues have back what was unacked."""
        self._answer_publishers()  # of what was sent before; later answers are not sent
        self._release()
        self.cast(self._connection, ChannelClosed(self._number, self.actor_ref))
        self._writer.close_ok()
        raise Stop

    def _release(self) -> None:
        """Give everything back to the queues."""
        if not self._writer.closing:
            self._settling.flush()
            self._writer.flush()  # deliveries of this channel are written before the same messages go to others
            if self._transaction.selected:
                self._transaction.rollback()
            self._consuming.release()
            self._reply_to.cancel()

    def _info(self) -> ChannelInfo:
        context, confirms = self._context, self._publishing.confirms
        return ChannelInfo(
            number=self._number, connection=context.name, user=context.user.name, vhost=context.broker.inside.vhost.name,
            confirm=confirms.enabled, transactional=self._transaction.selected, consumers=self._consuming.consumers,
            unacked=len(self._settling.unacked), unconfirmed=confirms.unconfirmed, uncommitted=self._transaction.uncommitted,
            prefetch=self._consuming.prefetch, global_prefetch=self._limiter.prefetch_count, blocked=self._blocked,
            counters=self._counters.as_dict(), serial=self._counters.serial,
        )  # fmt: skip

    def _tell_blocked(self, blocked: bool) -> None:
        self._blocked = blocked
        self.cast(self._connection, ChannelBlocked(self._number, self.actor_ref, blocked))

    # -- what follows from time and answers

    def _answer_publishers(self) -> None:
        """Send confirms and nacks."""
        confirms = self._publishing.confirms
        if not confirms.pending or self._transaction.selected:
            return
        for kind, answers in zip(
            (commands.Basic.Ack, commands.Basic.Nack), confirms.take_answers(), strict=True
        ):
            for delivery_tag, multiple in answers:
                self._writer.send(kind, delivery_tag=delivery_tag, multiple=multiple)

    def _deliver_reply(self, message: DeliverReply) -> None:
        if self._reply_to.accepts(message.key) and self._reply_to.consumer_tag is not None:
            envelope = Envelope(message.exchange, message.routing_key, message.raw_properties)
            tag = self._settling.unacked.next_tag  # of the next delivery: an answer uses none up
            self._writer.deliver(self._reply_to.consumer_tag, tag, False, envelope, message.body)

    def _arm_tick(self) -> None:
        """Start the tick timer if there are unacked deliveries and it is not running."""
        if not self._tick_armed and len(self._settling.unacked):
            self._tick_armed = True
            self.send_after(self._tick_interval, Tick())

    def _check_timeout(self) -> None:
        """Close the channel if its oldest delivery is unacked for longer than consumer_timeout."""
        oldest, timeout = self._settling.unacked.oldest(), self._consumer_timeout
        now = self.runtime.monotonic_ns()
        if timeout and oldest is not None and now - oldest.delivered_at > timeout * _NS_IN_MS:
            why = (
                f"delivery acknowledgement on channel {self._number} timed out. Timeout value used: {timeout} ms. "
                "This timeout value can be configured, see consumers doc guide to learn more"
            )
            raise AmqpError(PRECONDITION_FAILED, why)
        self._arm_tick()
