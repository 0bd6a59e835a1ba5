"""The async Consumer: deliveries for `async for`."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from queue import Empty
from types import TracebackType
from typing import Self

from warrenmq.aio.cancellable import in_thread, to_the_end
from warrenmq.aio.waking import WakingChannel
from warrenmq.broker import consumer as consumer_
from warrenmq.broker.broker import Broker
from warrenmq.broker.consumer import ConsumeOptions
from warrenmq.broker.delivery import Delivery
from warrenmq.checks import of_this_process, seconds, whole
from warrenmq.errors import Error

DELIVERIES_PER_TAKE = 128
"""Deliveries that one trip to the consumer's channel brings."""


async def _taken(consumer: consumer_.Consumer, channel: WakingChannel) -> list[Delivery]:
    """Take what is there; in a worker thread if the consumer has to subscribe again for that."""
    if not channel.subscribe_again:
        return consumer.take(DELIVERIES_PER_TAKE, 0)
    channel.subscribe_again = False
    try:
        return await in_thread(partial(consumer.take, DELIVERIES_PER_TAKE, 0), requeue_all)
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
    """Deliveries for `async for`; acks are ordinary methods of the delivery, they never wait."""

    __reduce__ = of_this_process

    def __init__(self, broker: Broker, queue: str, options: ConsumeOptions) -> None:
        self._broker = broker
        self._queue, self._options = queue, options
        self._consumer: consumer_.Consumer | None = None
        self._channel: WakingChannel | None = None
        self._ready: deque[Delivery] = deque()
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
            channel = self._channel = WakingChannel(broker.runtime.channel())
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
        if not await self._arrived(None):
            raise StopAsyncIteration
        return self._ready.popleft()

    @property
    def ended(self) -> bool:
        """True if there will be no more deliveries: cancelled, the queue deleted, or the broker closed."""
        return not self._ready and self._consumer is not None and self._consumer.ended

    async def get(self, timeout: float | None = None) -> Delivery | None:  # noqa: ASYNC109  # the face's own signature
        """The next delivery; None when none came within `timeout` seconds, or when there will be no more."""
        return self._ready.popleft() if await self._arrived(seconds("timeout", timeout)) else None

    async def take(self, most: int, timeout: float | None = None) -> list[Delivery]:  # noqa: ASYNC109
        """Up to `most` deliveries that are there; waits for the first as `get` does."""
        most = whole("most", most, 1, sys.maxsize)
        await self._arrived(seconds("timeout", timeout))
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    async def _arrived(self, limit: float | None) -> bool:
        """Wait until there is a delivery; False when there will be none, or after so many seconds."""
        clock = asyncio.get_running_loop().time
        deadline = None if limit is None else clock() + limit
        try:
            consumer, channel = await self._started(limit)
        except Empty:
            return False
        self._broker.runtime.check_process()
        while not self._ready:
            channel.news.clear()
            async with self._at_work:
                self._ready.extend(await _taken(consumer, channel))
            if not self._ready:
                left = None if deadline is None else deadline - clock()
                if consumer.ended or (left is not None and left <= 0):
                    return False
                with suppress(TimeoutError):
                    await asyncio.wait_for(channel.news.wait(), left)
        return True

    async def cancel(self) -> None:
        """Cancel the consumer; deliveries not yet handed out are requeued."""
        if self._consumer is not None and self._broker.runtime.forked_from is None:
            while self._ready:
                requeue(self._ready.pop())
            await to_the_end(self._consumer.cancel)

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:  # fmt: skip
        await self.cancel()
