"""Direct reply-to: answers that go from channel to channel, through no queue (rabbit_direct_reply_to).

A requester consumes from amq.rabbitmq.reply-to, and publishes with that as reply_to; in the message it becomes the
requester's address, amq.rabbitmq.reply-to.CHANNEL.KEY.  An answer is published to the default exchange with the
address as routing key.  An answer that comes too late finds no channel, or none with this key, and is dropped.

Channels are found by a registered name, which goes with them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pykka import ActorDeadError, Timeout

from warrenmq.actors.sending.guid import token
from warrenmq.amqp.channel.message import REPLY_TO, Envelope, Template
from warrenmq.amqp.channel.messages import DeliverReply, IsReplyConsumer
from warrenmq.amqp.wire.errors import PRECONDITION_FAILED, AmqpError
from warrenmq.runtime import Server

PREFIX = REPLY_TO + "."
_CALL_TIMEOUT = 5.0
"""Seconds to wait for another channel's answer; two channels that call each other must not wait for ever."""


def channel_name(channel: str) -> tuple[str, str]:
    """The registered name of a channel with a reply consumer."""
    return (REPLY_TO, channel)


def is_address(routing_key: str) -> bool:
    """True if a routing key is the address of a requester, not a queue's name."""
    return routing_key.startswith(PREFIX)


def parse(address: str) -> tuple[str, str] | None:
    """Channel and key of an address; None if it is malformed."""
    parts = address.removeprefix(PREFIX).split(".")
    return (parts[0], parts[1]) if len(parts) == 2 and address.startswith(PREFIX) else None


class ReplyTo:
    """The reply consumer of one channel, and its way to those of others; it belongs to the channel process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._channel = ""
        self.consumer_tag: str | None = None
        """The reply consumer's tag; None without one."""
        self._key = ""

    def consume(self, consumer_tag: str, *, no_ack: bool) -> None:
        """Become a requester; AmqpError 406 for one that wants to ack, and for a second one."""
        if not no_ack:
            raise AmqpError(PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if self.consumer_tag is not None:
            raise AmqpError(PRECONDITION_FAILED, "reply consumer already set")
        if not self._channel:
            self._channel = token(self._server.runtime)
            self._server.runtime.register(channel_name(self._channel), self._server.actor_ref)
        self.consumer_tag = consumer_tag
        self._key = token(self._server.runtime)

    def cancel(self) -> None:
        """Remove the reply consumer."""
        self.consumer_tag = None

    def address(self) -> str:
        """The address that replaces amq.rabbitmq.reply-to in a request; AmqpError 406 without a consumer."""
        if self.consumer_tag is None:
            raise AmqpError(PRECONDITION_FAILED, "fast reply consumer does not exist")
        return f"{PREFIX}{self._channel}.{self._key}"

    def accepts(self, key: str) -> bool:
        """True if an answer with this key belongs to the present reply consumer."""
        return self.consumer_tag is not None and key == self._key

    def answer(self, address: str, template: Template | Envelope, bodies: list[bytes]) -> None:
        """Send messages to the requester with this address; dropped if it is gone."""
        if (found := parse(address)) is not None:
            channel, key = found
            for body in bodies:
                reply = DeliverReply(
                    key, template.exchange, template.routing_key, template.raw_properties, body
                )
                self._server.cast(channel_name(channel), reply)

    def exists(self, address: str) -> bool:
        """True if there is a requester with this address (queue.declare of it)."""
        if address == REPLY_TO:
            return True
        if (found := parse(address)) is None:
            return False
        channel, key = found
        if channel == self._channel:
            return self.accepts(key)
        answer: Any = False
        with suppress(ActorDeadError, Timeout):
            answer = self._server.call(channel_name(channel), IsReplyConsumer(key), _CALL_TIMEOUT)
        return bool(answer)
