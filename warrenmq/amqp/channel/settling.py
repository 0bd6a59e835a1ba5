"""basic.ack, nack, reject and recover (rabbit_channel: collect_acks, settle_acks, internal_reject).

Acks that a client sends together go to a queue in one message: they are collected until the channel has handled its
batch of frames, or until a method that must follow them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykka import ActorRef

from warrenmq.amqp.channel.consumers import Holder
from warrenmq.amqp.channel.unacked import Pending, Unacked
from warrenmq.amqp.statistics import ChannelCounters
from warrenmq.queue.limiter import Limiter
from warrenmq.queue.messages import Ack, Acks, Reject, Resume
from warrenmq.runtime import Server


def resume(channel: Server, queues: Iterable[ActorRef[Any]]) -> None:
    """Notify queues that the channel's limiter has room again."""
    for queue in queues:
        channel.cast(queue, Resume(channel.actor_ref))


class Settling:
    """The acks, nacks and rejects of one channel; belongs to the channel process."""

    def __init__(self, server: Server, limiter: Limiter, counters: ChannelCounters) -> None:
        self.unacked = Unacked()
        self._counters = counters
        self._server = server
        self._limiter = limiter
        self._acked: dict[Holder, list[int]] = {}
        """Queue tags of acks not yet sent, by holder."""

    def ack(self, acked: Iterable[Pending]) -> None:
        """Ack deliveries."""
        for pending in acked:
            tags = self._acked.get(pending.holder)
            if tags is None:
                tags = self._acked[pending.holder] = []
            tags.append(pending.queue_tag)

    def flush(self) -> None:
        """Send the collected acks to the queues."""
        if not self._acked:
            return
        acked, self._acked = self._acked, {}
        limited = 0
        for holder, tags in acked.items():
            self._counters.ack += len(tags)
            if holder.limited:
                limited += len(tags)
            message: Any = Acks(holder.id, tags) if len(tags) > 1 else Ack(holder.id, tags[0])
            self._server.cast(holder.ref, message)
        if limited:
            resume(self._server, self._limiter.ack(limited))

    def reject(self, rejected: Iterable[Pending], *, requeue: bool, prefix: bool) -> None:
        """Reject or requeue deliveries; with `prefix` they are all that each holder has up to the last of them."""
        self.flush()
        by_holder: dict[Holder, list[int]] = {}
        for pending in rejected:
            by_holder.setdefault(pending.holder, []).append(pending.queue_tag)
        limited = 0
        for holder, tags in by_holder.items():
            if holder.limited:
                limited += len(tags)
            if prefix:
                self._server.cast(holder.ref, Reject(holder.id, tags[-1], multiple=True, requeue=requeue))
                continue
            for tag in tags:
                self._server.cast(holder.ref, Reject(holder.id, tag, multiple=False, requeue=requeue))
        if limited:
            resume(self._server, self._limiter.ack(limited))

    def recover(self, *, prefix: bool) -> None:
        """basic.recover: requeue everything."""
        self.reject(self.unacked.take_all(), requeue=True, prefix=prefix)
