"""basic.publish: checks, routing, delivery to the queues, returns (rabbit_channel:deliver_to_queues).

    1  immediate                     540
    2  size                          406, in amqp/channel/content.py
    3  write permission              403
    4  the exchange is there         404
    5  it is not internal            403
    6  user-id, expiration, headers  406
       topic permission              403
    7  a sequence number, in confirm mode or a transaction
    8  routed: to queues, which confirm; to no queue: returned if mandatory, and confirmed

Steps 3 to 6 are done once for a run of equal publishes.  Source:
docs/reference/classic-queue.md#checks-of-a-publish.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pykka import ActorDeadError, ActorRef

from warrenmq.actors.sending.message_sender import MessageSender
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.amqp.channel.access import ChannelAccess
from warrenmq.amqp.channel.confirms import ChannelConfirm, Confirms
from warrenmq.amqp.channel.context import ConnectionContext
from warrenmq.amqp.channel.credit import ChannelCredit
from warrenmq.amqp.channel.message import PLAIN, REPLY_TO, Template, Templates
from warrenmq.amqp.channel.reply_to import ReplyTo, is_address
from warrenmq.amqp.channel.rpc import RPC, ChannelRpc
from warrenmq.amqp.channel.writer import ChannelWriter
from warrenmq.amqp.statistics import ChannelCounters
from warrenmq.amqp.wire.codec import PUBLISH, decode_method
from warrenmq.amqp.wire.errors import NOT_IMPLEMENTED, AmqpError, of_caller_error
from warrenmq.broker.calls import ActorCalls
from warrenmq.errors import CallerError
from warrenmq.queue.unconfirmed import UNANSWERED
from warrenmq.routing import Router
from warrenmq.runtime import Server

_IMMEDIATE = 0x02
"""The bit of the last octet of a basic.publish."""


class Routed(NamedTuple):
    """A run of publishes that has been checked, and the queues that it goes to."""

    template: Template
    bodies: list[bytes]
    queues: tuple[str, ...]
    first_seqno: int
    """0 without confirm mode or transaction."""
    late: bool = False
    """It was routed a while ago."""


class ChannelPublishing:
    """The publishing side of one channel; it belongs to the channel process."""

    def __init__(self, server: Server, context: ConnectionContext, calls: ActorCalls, access: ChannelAccess,
                 writer: ChannelWriter, reply_to: ReplyTo, rpc: ChannelRpc, credit: ChannelCredit, counters: ChannelCounters) -> None:  # fmt: skip
        broker = context.broker
        self.confirms = Confirms()
        self._access = access
        self._writer = writer
        self._reply_to = reply_to
        self._counters = counters
        self._rpc = rpc
        self._router: Router = broker.inside.vhost.router
        self._vhost = broker.inside.vhost
        self._send_to_channel = server.actor_inbox.send
        self._has_calls = not context.can(PLAIN)
        self._templates = Templates(context.user, reply_to.address if self._has_calls else lambda: REPLY_TO)

        def address(queue: str) -> ActorRef[Any]:
            calls.wake(queue)
            try:
                return server.runtime.whereis(queue_name(queue))
            except ActorDeadError:
                # deleted since the message was routed, or being restarted
                if self._vhost.record(queue) is None:
                    raise self._vhost.no_queue(queue) from None
                raise

        self._sender = MessageSender(server.runtime, broker.inside.vhost.ids, credit.flow,
                                     broker.settings.credit_flow_default_credit[0], server.trace, address)  # fmt: skip

    def check(self, method: bytes, raw_properties: bytes, bodies: list[bytes], *, numbered: bool) -> Routed:
        """Check and route a run of publishes; AmqpError for what RabbitMQ refuses.  Nothing is sent.

        `numbered`: the publisher is in a transaction, or in confirm mode, and each message has its number.
        """
        if method[-1] & _IMMEDIATE:
            raise AmqpError(NOT_IMPLEMENTED, "immediate=true", *PUBLISH)
        exchange: str = decode_method(method).exchange  # type: ignore[attr-defined]
        self._access.write("exchange", exchange)
        try:
            self._router.check_publish(exchange)
            template = self._templates.of(method, raw_properties)
            self._access.write_topics(exchange, (template.routing_key, *template.more_keys))
            first = self.confirms.take_seqnos(len(bodies)) if numbered else 0
            queues = self._router.route(exchange, template.routing_key, template.headers, template.more_keys)
        except CallerError as error:
            raise of_caller_error(error, PUBLISH) from error
        if not exchange and self._has_calls:
            for key in dict.fromkeys((template.routing_key, *template.more_keys)):
                if is_address(key):
                    self._reply_to.answer(key, template, bodies)
                elif key == RPC:
                    self._rpc.answer(template, bodies)
        return Routed(template, bodies, queues, first)

    def deliver(self, routed: Routed) -> None:
        """Send a run to its queues."""
        template, bodies, queues, first, late = routed
        self._counters.published(template.exchange, len(bodies), len(queues))
        if not queues:
            self._sender.unrouted(
                len(bodies), template.envelope.exchange, template.envelope.routing_key, late=late
            )
            if not template.mandatory:
                self._counters.drop_unroutable += len(bodies)
            else:
                self._counters.return_unroutable += len(bodies)
                self._writer.returned(template.envelope, bodies)
            if first:
                self.confirms.unroutable(first, len(bodies))
            return
        if len(bodies) > 1 and self._may_refuse_some(queues):
            for i, body in enumerate(bodies):
                self._send(template, [body], queues, first and first + i, late=late)
            return
        self._send(template, bodies, queues, first, late=late)

    def deliver_late(self, routed: Routed) -> None:
        """Send a run that was routed a while ago; queues deleted since then do not count (rabbit_amqqueue:lookup)."""
        self.deliver(
            routed._replace(
                queues=tuple(name for name in routed.queues if self._vhost.record(name) is not None),
                late=True,
            )
        )

    def _send(
        self, template: Template, bodies: list[bytes], queues: tuple[str, ...], first: int, *, late: bool
    ) -> None:
        publication = self._sender.publication(
            template.exchange, (template.routing_key, *template.more_keys), bodies, template.raw_properties,
            persistent=template.persistent, expiration=template.expiration, priority=template.priority,
            queues=0 if late or template.more_keys else len(queues),
        )  # fmt: skip
        if not first:
            self._sender.send(queues, publication, UNANSWERED)
            return
        count = len(bodies)
        self.confirms.expect(first, count)
        self._sender.send(
            queues, publication, ChannelConfirm(self._send_to_channel, first, count, len(queues))
        )

    def _may_refuse_some(self, queues: tuple[str, ...]) -> bool:
        """True if one of these queues may accept part of a run and reject the rest: then each message needs a
        confirm of its own.
        """
        rejecting = self._vhost.rejecting
        return bool(rejecting) and not rejecting.isdisjoint(queues)
