"""Channels for tests of queues, without AMQP: an actor that a test steers, and an account of the deliveries that each
holds.

The account is written where a queue hands a message out (in its thread, or greenlet), and where a channel says what
becomes of it, so that it knows at each moment who has which message.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pykka import ActorDeadError, ActorRef

from warrenmq.amqp.channel.settling import resume
from warrenmq.broker.broker import Broker
from warrenmq.message.queue_message import Fetched
from warrenmq.message.stored import body_of
from warrenmq.queue.limiter import Limiter
from warrenmq.queue.messages import Acks, Cancel, ChannelClosed, Consume, Deliveries, Get, Got, Reject, Taken
from warrenmq.runtime import Runtime, Server


class ChannelActor(Server):
    """Runs what it is called with; the channel whose death a queue sees."""

    def handle_call(self, request: Callable[[ChannelActor], Any], sender: Any) -> Any:
        return request(self)


class Held:
    """A delivery that waits for its ack."""

    def __init__(self, holder: Holder, tag: int, message: Fetched) -> None:
        self.holder = holder
        self.tag = tag
        self.seq = message.seq_id
        self.body = body_of(message.payload, message.size)
        self.redelivered = message.redelivered
        self.no_ack = holder.no_ack


class Holder:
    """A consumer or a getter of a channel; a consumer is its own outlet."""

    def __init__(self, channel: TestChannel, queue: str, number: int, *, no_ack: bool, prefetch: int = 0,
                 priority: int = 0, exclusive: bool = False, getter: bool = False) -> None:  # fmt: skip
        self.channel = channel
        self.queue = queue
        self.number = number
        self.no_ack = no_ack
        self.prefetch = prefetch
        self.priority = priority
        self.exclusive = exclusive
        self.getter = getter
        self.cancelled = False
        self.held: dict[int, Held] = {}
        self.got: list[bytes] = []
        """Bodies of everything that it was ever given."""
        self.untaken = 0
        self.ref: ActorRef[Any] = channel.broker.inside.client.calls.address(queue)

    def put(self, item: object, /) -> None:
        """Called by the queue."""
        assert isinstance(item, Deliveries)
        self.untaken += len(item.messages)
        for i, message in enumerate(item.messages):
            self.take(Held(self, item.first_tag + i, message))
        self.channel.delivered(self)

    def take(self, held: Held) -> None:
        self.got.append(held.body)
        if not self.no_ack:
            self.held[held.tag] = held
        self.channel.told(held)


class TestChannel:
    """One channel of a broker: what a client can make it do."""

    __test__ = False

    def __init__(self, broker: Broker, *, told: Callable[[Held], None] = lambda _held: None) -> None:
        self.broker = broker
        self.runtime: Runtime = broker.runtime
        self.ref = self.runtime.start(ChannelActor)
        self.limiter = Limiter(self.runtime.lock())
        self.alive = True
        self.slow = False
        """Its client does not read: nothing is taken."""
        self.told = told
        """Is told of every message that a queue hands out."""
        self.holders: list[Holder] = []
        self._getters: dict[str, Holder] = {}

    def consume(self, queue: str, prefetch: int = 0, *, no_ack: bool = False, exclusive: bool = False,
                priority: int = 0, tag: str = "") -> Holder:  # fmt: skip
        """basic.consume; raises what the queue refuses."""
        number = self.broker.inside.client.next_consumer_id()
        holder = Holder(self, queue, number, no_ack=no_ack, prefetch=prefetch, priority=priority,
                        exclusive=exclusive)  # fmt: skip
        request = Consume(number, holder, prefetch, no_ack, exclusive, self.ref, tag, priority, self.limiter)
        self._do(lambda me: me.call(holder.ref, request, None))
        self.holders.append(holder)
        return holder

    def cancel(self, holder: Holder) -> None:
        """basic.cancel: what it holds stays here."""
        self._do(lambda me: me.call(holder.ref, Cancel(holder.number), None))
        holder.cancelled = True

    def get(self, queue: str, *, no_ack: bool = False) -> Got | None:
        """basic.get."""
        if queue not in self._getters:
            number = self.broker.inside.client.next_consumer_id()
            self._getters[queue] = Holder(self, queue, number, no_ack=False, getter=True)
            self.holders.append(self._getters[queue])
        holder = self._getters[queue]
        got: Got | None = self._do(
            lambda me: me.call(holder.ref, Get(holder.number, no_ack, 0.0, self.ref), None)
        )
        if got is not None:
            held = Held(holder, got.tag, got.message)
            held.no_ack = no_ack
            self.told(held)
            if not no_ack:
                holder.held[got.tag] = held
        return got

    def qos(self, prefetch_count: int) -> None:
        """basic.qos with global=true."""
        self._do(lambda me: resume(me, self.limiter.limit(prefetch_count)))

    def unsent(self, queue: str) -> int:
        """Messages of a queue that its client has not read."""
        return sum(holder.untaken for holder in self.holders if holder.queue == queue)

    def held(self) -> list[Held]:
        """The deliveries that wait for an ack here."""
        return [held for holder in self.holders for held in holder.held.values()]

    def counted(self) -> int:
        """Number of deliveries that count against the channel's limit."""
        return sum(len(holder.held) for holder in self.holders if not holder.getter)

    def ack(self, *settled: Held) -> None:
        """basic.ack of each."""
        self._settle(settled, lambda holder, tags: [Acks(holder.number, tags)])

    def reject(self, *settled: Held, requeue: bool = True) -> None:
        """basic.reject of each."""
        self._settle(settled, lambda holder, tags: [
            Reject(holder.number, tag, multiple=False, requeue=requeue) for tag in tags
        ])  # fmt: skip

    def _settle(self, settled: tuple[Held, ...], messages: Callable[[Holder, list[int]], list[Any]]) -> None:
        tags: dict[Holder, list[int]] = {}
        for held in settled:
            del held.holder.held[held.tag]
            tags.setdefault(held.holder, []).append(held.tag)

        def tell(me: ChannelActor) -> None:
            for holder, its in tags.items():
                for message in messages(holder, its):
                    me.cast(holder.ref, message)
            resume(me, self.limiter.ack(sum(not held.holder.getter for held in settled)))

        self._do(tell)

    def read(self) -> None:
        """Its client reads again."""
        self.slow = False
        for holder in self.holders:
            self.delivered(holder)

    def delivered(self, holder: Holder) -> None:
        """Called by the queue: have it know, in this channel's own time, that the messages are through."""
        if not self.slow and holder.untaken:
            taken, holder.untaken = holder.untaken, 0
            self.runtime.cast(holder.ref, Taken(holder.number, taken))

    def close(self) -> None:
        """channel.close: when this returns, everything is back."""

        def tell(me: ChannelActor) -> None:
            for queue in dict.fromkeys(holder.ref for holder in self.holders):
                with suppress(ActorDeadError):
                    me.call(queue, ChannelClosed(self.ref), None)

        self.alive = False  # a queue may hand on what it gets back before it has answered
        self._do(tell)
        self.runtime.stop_actor(self.ref)
        self._forget()

    def die(self) -> None:
        """Kill its process, which tells no queue."""
        self._forget()
        self.runtime.kill(self.ref)

    def _forget(self) -> None:
        self.alive = False
        for holder in self.holders:
            holder.held.clear()

    def _do(self, what: Callable[[ChannelActor], Any]) -> Any:
        return self.runtime.call(self.ref, what, None)
