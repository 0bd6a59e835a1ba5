"""The async Consumer: deliveries for `async for`."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from queue import Empty
from types import TracebackType
from typing import Self, TypeVar

from warrenmq.aio.cancellable import in_thread, to_the_end
from warrenmq.aio.waking import WakingChannel
from warrenmq.broker import consumer as consumer_
from warrenmq.broker.broker import Broker
from warrenmq.broker.consumer import ConsumeOptions
from warrenmq.broker.delivery import Delivery
from warrenmq.checks import of_this_process, seconds, whole
from warrenmq.errors import Error

T = TypeVar("T")


async def _taken(consumer: consumer_.Consumer, channel: WakingChannel, take: Callable[[consumer_.Consumer], T],
                 give_back: Callable[[T], object]) -> T:  # fmt: skip
    """Take what is there; in a worker thread if the consumer has to subscribe again for that."""
    if not channel.subscribe_again:
        return take(consumer)
    channel.subscribe_again = False
    try:
        return await in_thread(partial(take, consumer), give_back)
    except BaseException:
        channel.subscribe_again = True
        raise


def requeue(delivery: Delivery | None) -> None:
    if delivery is not None:
        with suppress(Error):  # it is not to be acked, or its queue is gone
            delivery.nack()


def requeue_all(deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        requeue(delivery)


class Consumer:
    """Deliveries for `async for`; acks are ordinary methods of the delivery, they never wait, but for `retry` and `dead_letter`.

    A delivery stays with the synchronous consumer until a task asks for it, so that all others go back when
    this one is dropped.
    """

    __reduce__ = of_this_process

    def __init__(self, broker: Broker, queue: str, options: ConsumeOptions) -> None:
        self._broker = broker
        self._queue, self._options = queue, options
        self._consumer: consumer_.Consumer | None = None
        self._channel: WakingChannel | None = None
        self._news = asyncio.Event()
        """Set when there may be something in the channel."""
        self._at_work = asyncio.Lock()
        """Held by the task that subscribes or takes: several may wait for deliveries of one consumer."""

    async def _started(self, limit: float | None = None) -> tuple[consumer_.Consumer, WakingChannel]:
        """Subscribe once; Empty when an owner in another process does not answer within so many seconds."""
        if self._consumer is None or self._channel is None:
            async with self._at_work:
                return await self._start(limit)
        return self._consumer, self._channel

    async def _start(self, limit: float | None) -> tuple[consumer_.Consumer, WakingChannel]:
        if self._consumer is None or self._channel is None:
            broker = self._broker
            cancel = partial(_cancel, weakref.ref(self))
            channel = self._channel = WakingChannel(broker.runtime.channel(), self._news, cancel)
            subscribe = partial(
                consumer_.Consumer,
                broker.inside.client,
                self._queue,
                **self._options,
                channel=channel,
                timeout=limit,
            )
            self._consumer = await in_thread(subscribe, consumer_.Consumer.cancel)
        return self._consumer, self._channel

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        try:
            delivery = self._at_hand() or await self.get()
        except Exception:
            raise
        except BaseException as why:  # noqa: BLE001  # the task is cancelled
            # its traceback may be kept, as in the synchronous consumer
            why.__context__ = None
            del self
            raise why.with_traceback(None)  # noqa: B904
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    def _at_hand(self) -> Delivery | None:
        """The next delivery, if it is here and no task is busy with the consumer."""
        consumer, channel = self._consumer, self._channel
        if consumer is None or channel is None or channel.subscribe_again or self._at_work.locked():
            return None
        return consumer.get(0)

    @property
    def ended(self) -> bool:
        """True if there will be no more deliveries: cancelled, the queue deleted, or the broker closed."""
        return self._consumer is not None and self._consumer.ended

    async def get(self, timeout: float | None = None) -> Delivery | None:  # noqa: ASYNC109  # the face's own signature
        """The next delivery; None when none came within `timeout` seconds, or when there will be no more."""
        return await self._next(lambda consumer: consumer.get(0), requeue, seconds("timeout", timeout))

    async def take(self, most: int, timeout: float | None = None) -> list[Delivery]:  # noqa: ASYNC109
        """Up to `most` deliveries that are there; waits for the first as `get` does."""
        most = whole("most", most, 1, sys.maxsize)
        limit = seconds("timeout", timeout)
        return await self._next(lambda consumer: consumer.take(most, 0), requeue_all, limit) or []

    async def _next(self, take: Callable[[consumer_.Consumer], T], give_back: Callable[[T], object],
                    limit: float | None) -> T | None:  # fmt: skip
        """Wait until there is something to take; None when there will be nothing, or after so many seconds."""
        clock = asyncio.get_running_loop().time
        deadline = None if limit is None else clock() + limit
        try:
            consumer, channel = await self._started(limit)
        except Empty:
            return None
        self._broker.runtime.check_process()
        while True:
            self._news.clear()
            async with self._at_work:
                is_late = channel.subscribe_again
                if taken := await _taken(consumer, channel, take, give_back):
                    return taken
            left = None if deadline is None else deadline - clock()
            if consumer.ended or (left is not None and left <= 0):
                return None
            if is_late:
                # there may be news since that thread looked, which another task has cleared
                continue
            # not wait_for: its task would begin to wait later
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._news.wait()

    async def cancel(self) -> None:
        """Cancel the consumer; deliveries not yet handed out are requeued."""
        if self._consumer is not None and self._broker.runtime.forked_from is None:
            await to_the_end(self._consumer.cancel)

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:  # fmt: skip
        if kind is GeneratorExit:  # the task is collected, as its loop is closed: nothing can be waited for
            if self._consumer is not None:
                self._consumer.cancel_soon()
        else:
            await self.cancel()


def _cancel(this: weakref.ref[Consumer]) -> None:
    """Cancel a consumer whose loop is closed; called in another thread."""
    this_one = this()
    if this_one is not None and this_one._consumer is not None:  # noqa: SLF001
        this_one._consumer.cancel_soon()  # noqa: SLF001
