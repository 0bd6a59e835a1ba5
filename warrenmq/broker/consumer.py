"""The consuming side of the face: deliveries, and the iterator that brings them.

The queue process pushes deliveries into the consumer's channel as far as its prefetch count allows; the
application takes them from there in its own thread.  Acks are casts, from any thread.

When the queue process dies and is restarted, a consumer subscribes again by the queue's name: what it held
unacked comes again, marked redelivered, and acks of the old deliveries are void, as in RabbitMQ.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any, Self, TypedDict

from pykka import ActorDeadError

from warrenmq import forks
from warrenmq.broker.engine import CLOSED
from warrenmq.broker.message_options import seconds_of
from warrenmq.broker.retry import attempts
from warrenmq.checks import flag, seconds, whole
from warrenmq.errors import BrokerClosed, Error, ForkedProcess, NotFound, PreconditionFailed, ProcessDied
from warrenmq.message.properties import Properties
from warrenmq.message.stored import StoredMessage, body_of
from warrenmq.queue.collected import OpenAcks
from warrenmq.queue.failure import after_failure
from warrenmq.queue.messages import Ack, AckDeadline, Cancel, Consume, Deliveries, Reject, Taken
from warrenmq.routing.delayed import LATER, X_DELAYED_TO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from types import TracebackType

    from pykka import ActorRef

    from warrenmq.actors.sending.confirms import Confirm
    from warrenmq.broker.parts import BrokerClient
    from warrenmq.broker.retry import RetryPolicy
    from warrenmq.message.queue_message import Fetched
    from warrenmq.runtime import Channel
    from warrenmq.settings import Settings

DOWN = object()
"""Stands in a channel for the death of the queue process."""

DEFAULT_PREFETCH = 250
MOST_PREFETCH = (1 << 31) - 1
PRIORITIES = -(1 << 31), (1 << 31) - 1
"""The range of consumer priorities (x-priority): that of the integer in which most clients send it."""


class Subscription:
    """One incarnation of a consumer in one incarnation of its queue process: where its acks go."""

    __slots__ = (
        "_acks",
        "client",
        "consumer_id",
        "lapsed",
        "no_ack",
        "queue",
        "ref",
        "runtime",
        "settled_up_to",
    )

    def __init__(
        self, client: BrokerClient, queue: str, ref: ActorRef[Any], consumer_id: int, *, no_ack: bool
    ) -> None:
        self.client = client
        self.runtime = client.runtime
        self.queue = queue
        self.ref = ref
        self.consumer_id = consumer_id
        self.no_ack = no_ack
        self.settled_up_to = 0
        """The largest tag of an ack, nack or reject with multiple."""
        self.lapsed: PreconditionFailed | ForkedProcess | None = None
        """The error of each settle from now on: the deliveries went back to the queue (consumer_timeout), or belong to the parent process."""
        self._acks = OpenAcks(consumer_id)

    def ack_one(self, tag: int) -> None:
        """Send the ack of one delivery; raises as `settle` does."""
        self.check(tag)
        self.client.ack_one(self.ref, self._acks, tag)

    def settle(self, tag: int, message: Ack | Reject) -> None:
        """Send an ack of several, or a reject; PreconditionFailed when this delivery cannot be settled any more."""
        self.check(tag)
        if message.multiple:
            self.settled_up_to = tag
        self.client.settle(self.ref, message)

    def check(self, tag: int) -> None:
        """PreconditionFailed when this delivery cannot be settled any more."""
        if self.runtime.forked_from is not None:
            self.runtime.check_process()
        if not self.client.engine.is_open:
            self.client.engine.check_open()
        if self.lapsed is not None:
            raise self.lapsed
        if self.no_ack:
            msg = f"a delivery of queue {self.queue!r} was consumed with no_ack: there is nothing to ack"
            raise PreconditionFailed(msg)
        if tag <= self.settled_up_to:
            msg = f"delivery {tag} of queue {self.queue!r} was settled already, by one with multiple=True"
            raise PreconditionFailed(msg)

    def copy(self, message: StoredMessage, seconds: float | None, policy: RetryPolicy | None) -> Confirm:
        """Publish a message that failed: back to this queue after so many seconds, or where the policy sends dead letters."""
        client = self.client
        publishing, now = client.publishing.own, client.runtime.wall_ns() // 1_000
        if publishing.pending is not None:
            raise PreconditionFailed(
                "a delivery cannot be retried inside a transaction; retry it outside, or nack it"
            )
        back = {} if seconds is None else {X_DELAYED_TO: self.queue}
        properties, persistent = after_failure(message, self.queue, now // 1_000_000, back)
        if seconds is not None:
            client.have_later()
            due = now + round(seconds * 1_000_000)
            return publishing.publish_copy((LATER,), message, properties, persistent=persistent, due=due)
        assert policy is not None
        assert policy.dead_letter_exchange is not None
        key = policy.dead_letter_routing_key
        queues = publishing.queues_of(
            policy.dead_letter_exchange,
            message.routing_keys[0] if key is None else key,
            message.properties.headers,
        )
        if not queues:
            to = policy.dead_letter_exchange or f"queue {key!r}"
            raise NotFound(
                f"the last attempt failed, and no queue takes the dead letter: {to} leads nowhere; declare or bind one"
            )
        return publishing.publish_copy(queues, message, properties, persistent=persistent)

    def follow(self, tag: int, confirm: Confirm) -> None:
        """A copy is safe, so its original is acked; or it is not, so the original goes back.  Called in any thread."""
        if confirm.exception() is None:
            self.client.cast(self.ref, Ack(self.consumer_id, tag, multiple=False))
        else:
            self.client.cast(self.ref, Reject(self.consumer_id, tag, multiple=False, requeue=True))


class Delivery:
    """One message as a consumer gets it; settle it with `ack`, `nack` or `reject`."""

    __slots__ = ("_decoded", "_fetched", "_settled", "_subscription", "body", "tag")

    def __init__(self, subscription: Subscription, tag: int, fetched: Fetched) -> None:
        self._subscription = subscription
        self._fetched = fetched
        self._decoded: StoredMessage | None = None
        self._settled = False
        self.tag = tag
        """Delivery tag, from 1, for each consumer."""
        payload = fetched.payload
        self.body: bytes = payload[len(payload) - fetched.size :]  # as body_of has it

    @property
    def redelivered(self) -> bool:
        """True if it may have been delivered before."""
        return self._fetched.redelivered

    @property
    def exchange(self) -> str:
        """The exchange it was published to ("" = default)."""
        return self._stored().exchange

    @property
    def routing_key(self) -> str:
        """The routing key it was published with."""
        return self._stored().routing_keys[0]

    @property
    def properties(self) -> Properties:
        """AMQP's basic properties; all None when the publisher gave none."""
        return self._stored().properties

    def ack(self, multiple: bool = False) -> None:  # the promised signature
        """Settle it, and with `multiple` all older ones of this consumer: they will not come again.

        From any thread.  Raises PreconditionFailed when it was settled before, BrokerClosed after close.
        """
        if flag("multiple", multiple):
            self._settle(Ack(self._subscription.consumer_id, self.tag, multiple=True), "acked")
            return
        if self._settled:
            self._check_unsettled("acked")
        self._subscription.ack_one(self.tag)
        self._settled = True

    def nack(self, requeue: bool = True, multiple: bool = False) -> None:
        """Put it back to its old place in the queue, or with requeue=False drop or dead-letter it."""
        many, back = flag("multiple", multiple), flag("requeue", requeue)
        self._settle(Reject(self._subscription.consumer_id, self.tag, many, back), "nacked")

    def reject(self, requeue: bool = True) -> None:
        """Reject one delivery (basic.reject, AMQP's older form of `nack`)."""
        back = flag("requeue", requeue)
        self._settle(
            Reject(self._subscription.consumer_id, self.tag, multiple=False, requeue=back), "rejected"
        )

    @property
    def attempt(self) -> int:
        """The number of this attempt: 1 plus the earlier retries and rejections of the message in this queue."""
        return attempts(self.properties.headers, self._subscription.queue)

    def retry(self, delay: float | timedelta | None = None) -> bool:
        """Publish a delayed copy, so that it is delivered again later; returns at once, and acks it when its copy is on disk.

        After `delay` seconds, else as the queue's `retry_policy` says, else at once; behind the messages that are in the
        queue then.  False if this was the last attempt: then it is dead-lettered as the policy says, after which it is acked.
        Raises as `ack` does, and inside a transaction.
        """
        self._check_unsettled("given back")
        policy = self._policy
        again = policy is None or self.attempt < policy.max_attempts
        if delay is not None:
            seconds = seconds_of("delay", delay)
        else:
            seconds = policy.seconds_after(self.attempt) if policy is not None and again else 0.0
        if again:
            self._copy(seconds)
        else:
            self.dead_letter()
        return again

    def dead_letter(self) -> None:
        """Send it where the queue's `retry_policy` says, as after the last attempt, or reject it; acked when it is there.

        NotFound, when no queue takes it: then it is not settled.
        """
        self._check_unsettled("dead-lettered")
        if self._policy is None or self._policy.dead_letter_exchange is None:
            self.reject(requeue=False)
        else:
            self._copy(None)

    @property
    def _policy(self) -> RetryPolicy | None:
        return self._subscription.client.retry_policies.get(self._subscription.queue)

    def _copy(self, seconds: float | None) -> None:
        subscription = self._subscription
        subscription.check(self.tag)
        confirm = subscription.copy(self._stored(), seconds, self._policy)
        self._settled = True
        confirm.on_settled(partial(subscription.follow, self.tag, confirm))

    def _settle(self, message: Ack | Reject, how: str) -> None:
        self._check_unsettled(how)
        self._subscription.settle(self.tag, message)
        self._settled = True

    def _check_unsettled(self, how: str) -> None:
        if self._settled:
            msg = f"delivery {self.tag} of queue {self._subscription.queue!r} cannot be {how}: it was settled already"
            raise PreconditionFailed(msg)

    def _stored(self) -> StoredMessage:
        if self._decoded is None:
            self._decoded = self._fetched.decoded()
        return self._decoded

    def __repr__(self) -> str:
        return f"<Delivery {self.tag} of {self._subscription.queue!r}, {len(self.body)} bytes>"


class Message:
    """One message as `QueueHandle.peek` shows it, without taking it off the queue."""

    __slots__ = ("body", "exchange", "properties", "redelivered", "routing_key")

    def __init__(self, fetched: Fetched) -> None:
        stored = fetched.decoded()
        self.body: bytes = body_of(fetched.payload, fetched.size)
        self.exchange = stored.exchange
        """The exchange it was published to ("" = default)."""
        self.routing_key = stored.routing_keys[0] if stored.routing_keys else ""
        self.properties: Properties = stored.properties
        """AMQP's basic properties; all None when the publisher gave none."""
        self.redelivered = fetched.redelivered
        """True if it may have been delivered before."""

    def __repr__(self) -> str:
        return f"<Message to {self.routing_key!r}, {len(self.body)} bytes>"


class _Holder:
    """A queue's reference to a Consumer; weak, so that a Consumer that is dropped is cancelled by its `__del__`."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = weakref.ref(consumer)

    def handed_out(self) -> int:
        """See queue/messages.py."""
        consumer = self._consumer()
        return 0 if consumer is None else consumer.handed_out

    def lapsed(self, error: PreconditionFailed) -> None:
        """See queue/messages.py."""
        if (consumer := self._consumer()) is not None:
            consumer.lapse(error)


class Consumer:
    """An iterator over deliveries, and a context manager; ends when it is cancelled or the broker closes.

    Raises PreconditionFailed, from then on, when a delivery was not acked within `consumer_timeout`: all that it held
    went back to the queue (queue/ack_timeout.py).
    """

    def __init__(self, client: BrokerClient, queue: str, prefetch: int, *, no_ack: bool, exclusive: bool, priority: int,
                 channel: Channel | None = None, ack_in_time: bool = True) -> None:  # fmt: skip
        """`ack_in_time`: consumer_timeout holds."""
        self._client = client
        self._runtime = client.runtime
        """The runtime of the process that made the consumer."""
        self.queue = queue
        self._prefetch = prefetch
        self._no_ack = no_ack
        self._exclusive = exclusive
        self._priority = priority
        self._channel = channel or client.runtime.channel()
        """Deliveries, DOWN or CLOSED, from the queue's thread to the application's."""
        self._ahead: deque[Any] = deque()
        """Deliveries that `ahead` took out of the channel."""
        self._batch: list[Fetched] = []
        self._position = 0
        self._first_tag = 1
        self._cancelled = True  # until there is something to cancel
        self._ack_deadline = ack_deadline(client.settings, _Holder(self)) if ack_in_time else None
        self._subscription = self._subscribe()
        self._cancelled = False
        forks.register(self)
        client.engine.consumers[id(self)] = self._channel

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        delivery = self.get()
        if delivery is None:
            raise StopIteration
        return delivery

    @property
    def ended(self) -> bool:
        """True if there will be no more deliveries: cancelled, the queue deleted, or the broker closed."""
        return self._cancelled

    @property
    def handed_out(self) -> int:
        """The tag of the last delivery that the application got; read from the queue's thread perhaps less, never more."""
        return self._first_tag + self._position - 1

    def lapse(self, error: PreconditionFailed) -> None:
        """The queue took everything back; called in its thread."""
        self._subscription.lapsed = error
        self._client.engine.consumers.pop(id(self), None)
        self._channel.put(CLOSED)

    def after_fork(self) -> None:
        """See forks.py: nothing comes into a child."""
        try:
            self._runtime.check_process()
        except ForkedProcess as error:
            self._subscription.lapsed = error

    def get(self, timeout: float | None = None) -> Delivery | None:
        """The next delivery; None when none came within `timeout` seconds, or when there will be no more.

        ProcessDied when the queue's process died while it took this consumer on again; the next call tries once more.
        """
        if timeout is not None:
            timeout = seconds("timeout", timeout)
        if self._subscription.lapsed is not None:
            self._cancelled = True
            raise self._subscription.lapsed
        position = self._position
        if position >= len(self._batch):
            if not self._next_batch(timeout):
                return None
            position = 0
        self._position = position + 1
        return Delivery(self._subscription, self._first_tag + position, self._batch[position])

    def take(self, most: int, timeout: float | None = None) -> list[Delivery]:
        """Up to `most` deliveries that are there; waits for the first as `get` does."""
        most = whole("most", most, 1, sys.maxsize)
        first = self.get(timeout)
        if first is None:
            return []
        position = self._position
        rest = self._batch[position : position + most - 1]
        self._position = position + len(rest)
        subscription, tag = self._subscription, self._first_tag + position
        return [first, *[Delivery(subscription, tag + i, fetched) for i, fetched in enumerate(rest)]]

    def ahead(self, n: int) -> list[Message]:
        """The next deliveries that are here already, up to `n`, without taking them; for the thread that takes."""
        while not self._channel.empty():
            self._ahead.append(self._channel.get_nowait())
        here = self._batch[self._position : self._position + n]
        for item in self._ahead:
            if isinstance(item, Deliveries):
                here += item.messages[: n - len(here)]
        return [Message(fetched) for fetched in here]

    def cancel(self) -> None:
        """Cancel the consumer: untaken deliveries are requeued, taken ones may still be acked."""
        if self._cancelled:
            return
        self._cancelled = True
        self._client.engine.consumers.pop(id(self), None)
        self._client.forget(self._subscription.ref, self._death_notice)
        try:
            message = Cancel(self._subscription.consumer_id, self.handed_out)
            self._drop_untaken()
            self._client.calls.call_actor(self._subscription.ref, message)
            self._drop_untaken()  # deliveries that the queue sent before it handled the cancel came before the reply
        except (Error, ActorDeadError):
            pass  # a dead queue process has no consumers
        self._channel.put(CLOSED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        self.cancel()

    def __del__(self) -> None:
        # A loop that was left with `break` must not keep the messages it never saw.
        if not getattr(self, "_cancelled", True) and self._client.engine.is_open:
            self._client.engine.consumers.pop(id(self), None)
            self._client.settle(
                self._subscription.ref, Cancel(self._subscription.consumer_id, self.handed_out)
            )

    def _drop_untaken(self) -> None:
        """Deliveries that are here go back: another thread that waits for one must not get them."""
        self._position = len(self._batch)
        self._ahead.clear()
        while not self._channel.empty():
            self._channel.get_nowait()

    def _next_batch(self, timeout: float | None) -> bool:
        if self._batch:
            count = len(self._batch)
            self._client.settle(self._subscription.ref, Taken(self._subscription.consumer_id, count))
            self._batch, self._position = [], 0
            self._first_tag += count
        while True:
            if self._cancelled:
                return False
            try:
                item = self._ahead.popleft() if self._ahead else self._channel.get(timeout=timeout)
            except Empty:
                return False
            if isinstance(item, Deliveries):
                self._batch, self._position, self._first_tag = item.messages, 0, item.first_tag
                return True
            if item is DOWN:
                try:
                    self._subscription = self._subscribe()
                    self._first_tag = 1
                except ProcessDied:  # the caller decides whether to ask once more
                    self._channel.put(DOWN)
                    raise
                except Error:  # closed, or the queue was deleted: RabbitMQ cancels the consumer
                    self._cancelled = True
            else:
                self._cancelled = True
                if self._subscription.lapsed is not None:
                    raise self._subscription.lapsed

    def _subscribe(self) -> Subscription:
        consumer_id = self._client.next_consumer_id()
        channel = self._channel
        self._first_tag = 1
        request = Consume(consumer_id, channel, self._prefetch, self._no_ack, self._exclusive, priority=self._priority,
                          ack_deadline=self._ack_deadline)  # fmt: skip
        _, ref = self._client.calls.call_queue(self.queue, request)
        self._death_notice = self._client.on_end(ref, lambda _reason: channel.put(DOWN))
        if not self._client.engine.is_open:
            msg = "the broker is closed"
            raise BrokerClosed(msg)
        return Subscription(self._client, self.queue, ref, consumer_id, no_ack=self._no_ack)


def ack_deadline(settings: Settings, holder: _Holder | None = None) -> AckDeadline | None:
    """consumer_timeout as a queue needs it; None when it is 0, which means for ever."""
    if not settings.consumer_timeout:
        return None
    return AckDeadline(settings.consumer_timeout / 1000, settings.channel_tick_interval / 1000, holder)


class ConsumeOptions(TypedDict):
    """The options of a consumer."""

    prefetch: int
    no_ack: bool
    exclusive: bool
    priority: int


def consume_options(prefetch: object, no_ack: object, exclusive: object, priority: object) -> ConsumeOptions:
    """The options of a consumer, checked."""
    return {
        "prefetch": whole("prefetch", prefetch, 0, MOST_PREFETCH),
        "no_ack": flag("no_ack", no_ack),
        "exclusive": flag("exclusive", exclusive),
        "priority": whole("priority", priority, *PRIORITIES),
    }
