"""Consumer: the iterator that brings a queue's deliveries.

The queue process pushes deliveries into the consumer's channel as far as its prefetch count allows; the
application takes them from there in its own thread.  Acks are casts, from any thread.

When the queue process dies and is restarted, a consumer subscribes again by the queue's name: what it held
unacked comes again, marked redelivered, and acks of the old deliveries are void, as in RabbitMQ.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Iterator
from itertools import count, repeat
from queue import Empty
from typing import Any, Self, TypedDict

from pykka import ActorDeadError

from warrenmq import forks
from warrenmq.broker.delivery import Delivery, Message, Subscription
from warrenmq.broker.engine import CLOSED
from warrenmq.broker.parts import BrokerClient
from warrenmq.checks import flag, of_this_process, seconds, whole
from warrenmq.errors import BrokerClosed, Error, ForkedProcess, PreconditionFailed, ProcessDied
from warrenmq.message.queue_message import Fetched
from warrenmq.queue.messages import AckDeadline, Cancel, Consume, Deliveries, Taken
from warrenmq.runtime import Channel
from warrenmq.settings import Settings

DOWN = object()
"""Stands in a channel for the death of the queue process."""

DEFAULT_PREFETCH = 250
MOST_PREFETCH = (1 << 31) - 1
PRIORITIES = -(1 << 31), (1 << 31) - 1
"""The range of consumer priorities (x-priority): that of the integer in which most clients send it."""


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

    __reduce__ = of_this_process

    def __init__(self, client: BrokerClient, queue: str, prefetch: int, *, no_ack: bool, exclusive: bool, priority: int,
                 channel: Channel | None = None, ack_in_time: bool = True, timeout: float | None = None) -> None:  # fmt: skip
        """`ack_in_time`: consumer_timeout holds.  Empty as in `_subscribe`."""
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
        """The deliveries that were taken out of `_channel` last."""
        self._position = 0
        """The place in `_batch` of the next one for the application."""
        self._first_tag = 1
        """The tag of the first of `_batch`."""
        self._cancelled = True  # until there is something to cancel
        self._requested: Consume | None = None
        """The request that subscribes, as long as its answer is not there."""
        self._ack_deadline = ack_deadline(client.settings, _Holder(self)) if ack_in_time else None
        self._subscription = self._subscribe(timeout)
        self._cancelled = False
        forks.register(self)
        client.engine.consumers[id(self)] = self._channel

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        try:
            delivery = self.get()
        except Exception:
            raise
        except BaseException as why:  # noqa: BLE001  # of a signal's handler
            # its traceback may be kept (sys.last_traceback), and must not keep a consumer that nobody else knows of
            why.__context__ = None
            del self
            raise why.with_traceback(None)  # noqa: B904
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
        delivery = Delivery(self._subscription, self._first_tag + position, self._batch[position])
        self._position = position + 1  # behind all that a signal's handler may interrupt, here and in `take`
        return delivery

    def take(self, most: int, timeout: float | None = None) -> list[Delivery]:
        """Up to `most` deliveries that are there; waits for the first as `get` does."""
        most = whole("most", most, 1, sys.maxsize)
        if (first := self.get(timeout)) is None:
            return []
        self._position -= 1
        position = self._position
        batch = self._batch[position : position + most]
        deliveries = [*map(Delivery, repeat(self._subscription), count(first.tag), batch)]
        self._position = position + len(batch)
        return deliveries

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
        requested = self._requested
        if requested is not None:  # by another thread, which may have been killed in a simulation
            self._client.calls.give_up(self.queue, requested)
        if self._cancelled:
            return
        message = Cancel(self._subscription.consumer_id, self.handed_out)
        try:
            self._cancelled = True
            self._client.engine.consumers.pop(id(self), None)
            self._client.forget(self._subscription.ref, self._death_notice)
            self._drop_untaken()
            self._client.calls.call_actor(self._subscription.ref, message)
            self._drop_untaken()  # deliveries that the queue sent before it handled the cancel came before the reply
        except (Error, ActorDeadError):
            pass  # a dead queue process has no consumers
        except BaseException:  # of a signal's handler: perhaps the queue was told nothing yet
            self._client.settle(self._subscription.ref, message)
            raise
        finally:
            self._channel.put(CLOSED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        # A loop that was left with `break` must not keep the messages it never saw.
        if (
            not getattr(self, "_cancelled", True)
            and self._client.engine.is_open
            and not self._runtime.has_ended
        ):
            try:
                self.cancel_soon()
            except BaseException:  # of a signal's handler, as in `cancel`
                self.cancel_soon()
                raise

    def cancel_soon(self) -> None:
        """Have the consumer cancelled without waiting for that, in any thread."""
        self._client.engine.consumers.pop(id(self), None)
        self._client.settle(self._subscription.ref, Cancel(self._subscription.consumer_id, self.handed_out))

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
        left, end = timeout, 0
        if timeout is not None:
            end = self._runtime.monotonic_ns() + round(timeout * 1e9)
        while True:
            if self._cancelled:
                return False
            try:
                item = self._ahead.popleft() if self._ahead else self._channel.get(timeout=left)
            except Empty:
                return False
            if isinstance(item, Deliveries):
                self._batch, self._position, self._first_tag = item.messages, 0, item.first_tag
                return True
            if item is DOWN:
                try:
                    if timeout is not None:
                        left = max(0.0, (end - self._runtime.monotonic_ns()) / 1e9)
                    self._subscription = self._subscribe(left)
                    self._first_tag = 1
                    if self._cancelled:  # meanwhile, by another thread: the queue process before was told
                        self.cancel_soon()
                except ProcessDied:  # the caller decides whether to ask once more
                    self._channel.put(DOWN)
                    raise
                except Empty:
                    self._channel.put(DOWN)
                    return False
                except Error:  # closed, or the queue was deleted: RabbitMQ cancels the consumer
                    self._cancelled = True
                except BaseException:  # of a signal's handler: the next call asks again
                    self._channel.put(DOWN)
                    raise
            else:
                self._cancelled = True
                if self._subscription.lapsed is not None:
                    raise self._subscription.lapsed

    def _subscribe(self, timeout: float | None = None) -> Subscription:
        """Have the queue deliver; Empty when an owner in another process does not answer within `timeout` seconds."""
        consumer_id = self._client.next_consumer_id()
        channel = self._channel
        self._first_tag = 1
        request = self._requested = Consume(consumer_id, channel, self._prefetch, self._no_ack, self._exclusive, priority=self._priority,
                          ack_deadline=self._ack_deadline, timeout=timeout)  # fmt: skip
        try:
            _, ref = self._client.calls.call_queue(self.queue, request)
            self._death_notice = self._client.on_end(ref, lambda _reason: channel.put(DOWN))
            if not self._client.engine.is_open:
                raise BrokerClosed("the broker is closed")
            return Subscription(self._client, self.queue, ref, consumer_id, no_ack=self._no_ack)
        except Error:
            raise
        except BaseException:  # of a signal's handler, as in QueueHandle.get
            self._client.calls.give_up(self.queue, request)
            raise
        finally:
            self._requested = None


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
