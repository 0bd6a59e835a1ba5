"""What arrives at a channel besides what its connection sends (context.py): from queues, other channels, and itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warrenmq.amqp.channel.consumers import ChannelConsumer
    from warrenmq.amqp.channel.credit import ChannelFlow
    from warrenmq.queue.messages import Deliveries


@dataclass(slots=True)
class Settled:
    """Queue -> channel: all queues have these messages safe, or one of them will not have them."""

    first_seqno: int
    count: int
    ok: bool


@dataclass(slots=True)
class Delivered:
    """Queue -> channel: messages for a consumer of it."""

    consumer: ChannelConsumer
    deliveries: Deliveries


@dataclass(slots=True)
class CreditGranted:
    """Queue -> channel: the flow that had no credit has some, or its queue is gone."""

    flow: ChannelFlow


@dataclass(slots=True)
class Cancelled:
    """Channel -> itself, behind what a queue had sent to a consumer before it was cancelled."""

    consumer: ChannelConsumer
    no_wait: bool


@dataclass(slots=True)
class DeliverReply:
    """Channel -> channel: a message for the consumer of amq.rabbitmq.reply-to that has this key."""

    key: str
    exchange: str
    routing_key: str
    raw_properties: bytes
    body: bytes


@dataclass(slots=True)
class IsReplyConsumer:
    """Call, channel -> channel: whether the consumer of amq.rabbitmq.reply-to with this key is there."""

    key: str


@dataclass(slots=True)
class Tick:
    """Info: time to look for deliveries that have waited too long for their acks (channel_tick_interval)."""
