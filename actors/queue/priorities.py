"""Priorities of messages in a queue's mailbox (rabbit_amqqueue_process: prioritise_call, prioritise_cast,
prioritise_info).
"""

from __future__ import annotations

from collections.abc import Mapping

from warrenmq.actors.store.messages import BumpCredit
from warrenmq.queue.collected import OpenAcks
from warrenmq.queue.messages import (
    Ack,
    Acks,
    Answered,
    BumpReduceMemoryUse,
    Cancel,
    Consume,
    DropExpired,
    ListConsumers,
    MaybeExpire,
    MsgsOnDisk,
    Resume,
    SetRamDurationTarget,
    SyncTimeout,
    Taken,
    UpdateRamDuration,
)

PRIORITIES: Mapping[type, int] = {
    ListConsumers: 9, SetRamDurationTarget: 8, UpdateRamDuration: 8, MsgsOnDisk: 6, Answered: 6,
    SyncTimeout: 6, DropExpired: 8, MaybeExpire: 8, Ack: 4, Acks: 4, OpenAcks: 4, BumpCredit: 4, Resume: 3, Consume: 2, Cancel: 2, Taken: 2, BumpReduceMemoryUse: 1,
}  # fmt: skip
"""An ack may overtake a publish, a reject may not, nor an ack of several (AckUpTo): RabbitMQ's channel says
which deliveries these are.  RabbitMQ ranks consume, cancel and notify_sent at 2 only while the queue is
filled faster than half as fast again as it is emptied (CONSUMER_BIAS_RATIO), and else at 0, when there is
little that they could overtake.  Its stat (7) and info (9) are ranked 0 here, below everything: an
application that publishes or acks and then asks how many messages there are counts on what it has done, and
RabbitMQ's clients ask over a channel, behind their own acks.
"""
