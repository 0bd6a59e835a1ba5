"""Messages to a channel from queues, other channels, and itself.

Others stand beside the thing that they carry: Delivered and Cancelled in consumers.py, CreditGranted in credit.py, and
what the connection sends in context.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Settled:
    """Queue -> channel: all queues confirmed these messages, or one of them rejected them."""

    first_seqno: int
    count: int
    ok: bool


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
    """Call, channel -> channel: whether there is a consumer of amq.rabbitmq.reply-to with this key."""

    key: str


@dataclass(slots=True)
class Tick:
    """Info: time to look for deliveries that have waited too long for their acks (channel_tick_interval)."""
