"""Consumers and gets of asyncio that nobody ends: a loop that is left, Ctrl-C, an event loop that is closed.
What no task got goes back.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.limits import LIMIT
from warrenmq import aio

MESSAGES = 10


@contextmanager
def opened(path: Path) -> Iterator[tuple[aio.Broker, aio.Queue]]:
    """A broker, whose loop is closed already, and its queue of ten messages."""

    async def start() -> tuple[aio.Broker, aio.Queue]:
        broker = await aio.open(path).start()
        queue = await broker.declare_queue("q")
        await queue.publish_many([b"%d" % number for number in range(MESSAGES)])
        return broker, queue

    broker, queue = asyncio.run(start())
    try:
        yield broker, queue
    finally:
        broker.sync.close()


def state(broker: aio.Broker) -> tuple[int, int, int]:
    gc.collect()
    info = broker.sync.queue("q").info()
    return info.ready, info.unacked, info.consumers


def test_a_loop_that_is_left_keeps_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as (broker, queue):

        async def main() -> None:
            async for delivery in queue.consume():
                delivery.ack()
                break

        asyncio.run(main())
        assert state(broker) == (MESSAGES - 1, 0, 0)


@pytest.fixture
def _sigint() -> Iterator[None]:
    """Ctrl-C as in a program: the workers of pytest-xdist ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_sigint")
@pytest.mark.parametrize("waiting", [False, True])
def test_a_consumer_that_was_interrupted_keeps_nothing_even_if_the_exception_is_kept(
    tmp_path: Path, waiting: bool
) -> None:
    with opened(tmp_path) as (broker, queue):

        async def main() -> None:
            left = MESSAGES
            async for delivery in queue.consume():
                delivery.ack()
                left -= 1
                if not (waiting and left):
                    # after this task has gone on, to wait for a delivery or for nothing
                    asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
                    if not waiting:
                        await asyncio.sleep(LIMIT)

        with pytest.raises(KeyboardInterrupt) as kept:
            asyncio.run(main())
        broker.sync.queue("q").publish(b"later").result(LIMIT)
        assert state(broker) == ((0 if waiting else MESSAGES - 1) + 1, 0, 0)
        assert kept


async def get(queue: aio.Queue) -> None:
    await queue.get(LIMIT)


async def consume(queue: aio.Queue) -> None:
    async for delivery in queue.consume():
        delivery.ack()


async def take(queue: aio.Queue) -> None:
    async with queue.consume() as consumer:
        await consumer.take(5)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("call", [get, consume, take])
def test_a_task_whose_loop_was_closed_takes_nothing(
    tmp_path: Path, call: Callable[[aio.Queue], Coroutine[Any, Any, None]], kept: bool
) -> None:
    with opened(tmp_path) as (broker, queue):
        sync = broker.sync.queue("q")
        sync.purge()
        loop = asyncio.new_event_loop()
        task = loop.create_task(call(queue))

        async def begun() -> None:
            await asyncio.sleep(0)  # a get is asked for
            while call is not get and not sync.info().consumers:  # noqa: ASYNC110 - a queue tells nobody
                await asyncio.sleep(0.01)

        loop.run_until_complete(asyncio.wait_for(begun(), LIMIT))
        loop.close()
        if not kept:
            del task, loop
            gc.collect()
        sync.publish(b"later").result(LIMIT)
        assert state(broker) == (1, 0, 0)
        delivery = sync.get()
        assert delivery is not None
        assert delivery.body == b"later"


def test_tasks_that_share_a_consumer_miss_no_delivery(tmp_path: Path) -> None:
    """News that one of them has heard is not kept from another that is about to wait."""
    with opened(tmp_path) as (_, queue):

        async def main() -> None:
            consumer, taken = queue.consume(prefetch=3), list[bytes]()

            async def work() -> None:
                while len(taken) < 5 * MESSAGES:
                    if (delivery := await consumer.get(LIMIT)) is not None:
                        taken.append(delivery.body)
                        delivery.ack()
                await consumer.cancel()

            async def publish() -> None:
                for number in range(4 * MESSAGES):
                    await queue.publish(b"%d" % (MESSAGES + number))

            await asyncio.gather(publish(), *(work() for _ in range(3)))
            assert taken == [b"%d" % number for number in range(5 * MESSAGES)]

        asyncio.run(asyncio.wait_for(main(), LIMIT))
