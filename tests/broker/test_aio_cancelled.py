"""Tasks that are cancelled: nothing that they were about to get is kept from others."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

import warrenmq
from tests.support.limits import LIMIT
from warrenmq import aio
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.aio.cancellable import in_thread


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT):
        while not await condition():  # noqa: ASYNC110 - a queue tells nobody
            await asyncio.sleep(0.01)


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("returns_first", [False, True])
def test_a_result_that_nobody_waits_for_any_more_is_given_back_once(returns_first: bool) -> None:
    entered, go = threading.Event(), threading.Event()
    given_back: list[str] = []

    def call() -> str:
        entered.set()
        go.wait(LIMIT)
        return "result"

    async def main() -> None:
        task = asyncio.create_task(in_thread(call, given_back.append))
        await asyncio.to_thread(entered.wait, LIMIT)
        if returns_first:
            go.set()
            time.sleep(0.05)  # noqa: ASYNC251 - its result is on its way to the task, which does not run meanwhile
        await cancelled(task)
        go.set()

    asyncio.run(main())
    assert given_back == ["result"]


def test_a_result_that_is_waited_for_is_not_given_back() -> None:
    assert asyncio.run(in_thread(lambda: 7, pytest.fail)) == 7
    with pytest.raises(KeyError):
        asyncio.run(in_thread(lambda: {}["missing"], pytest.fail))


def test_a_start_that_is_cancelled_leaves_the_directory_to_others(tmp_path: Path) -> None:
    entered, go = threading.Event(), threading.Event()

    def start() -> warrenmq.Broker:
        entered.set()
        go.wait(LIMIT)
        return warrenmq.open(tmp_path)

    async def main() -> None:
        task = asyncio.create_task(aio.Broker(start).start())
        await asyncio.to_thread(entered.wait, LIMIT)
        await cancelled(task)
        go.set()

    asyncio.run(main())
    warrenmq.open(tmp_path).close()


@pytest.mark.parametrize("seed", range(3))
def test_messages_that_cancelled_tasks_were_about_to_get_are_in_the_queue(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)

    async def take(queue: aio.Queue, way: int) -> None:
        if way == 2:
            async with queue.consume(3) as consumer:
                (await anext(consumer)).nack()
        else:
            delivery = await queue.get(LIMIT if way else None)
            assert delivery is not None
            delivery.nack()

    async def main() -> None:
        async with aio.open(tmp_path) as broker:
            queue = await broker.declare_queue("q")
            await queue.publish_many([b"%d" % number for number in range(100)])
            for number in range(150):
                task = asyncio.create_task(take(queue, number % 3))
                for _ in range(rng.randrange(12)):
                    await asyncio.sleep(rng.choice([0, 0, 0.0002]))
                task.cancel()
                await asyncio.wait([task])

            async def all_back() -> bool:
                info = await queue.info()
                return (info.ready, info.unacked, info.consumers) == (100, 0, 0)

            await until(all_back)

    asyncio.run(main())


@pytest.mark.parametrize("what", ["consumer", "broker"])
def test_what_a_cancelled_task_was_about_to_end_ends(tmp_path: Path, what: str) -> None:
    """No thread has begun with it when the task is cancelled."""
    go = threading.Event()

    async def main() -> None:
        broker = await aio.open(tmp_path).start()
        queue = await broker.declare_queue("q")
        consumer = queue.consume(3)
        await consumer.get(0)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        loop.run_in_executor(None, go.wait, LIMIT)
        task = asyncio.create_task(consumer.cancel() if what == "consumer" else broker.close())
        await asyncio.sleep(0)
        await cancelled(task)
        go.set()
        if what == "consumer":

            async def is_cancelled() -> bool:
                return (await queue.info()).consumers == 0

            await until(is_cancelled)
            await broker.close()

    asyncio.run(main())
    warrenmq.open(tmp_path).close()


def test_tasks_that_share_a_consumer_subscribe_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path) as broker:
            queue = await broker.declare_queue("q")
            await queue.publish_many([b"%d" % number for number in range(100)])
            consumer = queue.consume(5)
            deliveries = await asyncio.gather(*(consumer.get(LIMIT) for _ in range(3)))
            assert sorted(each.body for each in deliveries if each is not None) == [b"0", b"1", b"2"]
            info = await queue.info()
            assert (info.consumers, info.unacked) == (1, 5)
            await consumer.cancel()

    asyncio.run(main())


def test_a_consumer_whose_task_was_cancelled_while_its_queue_came_back_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path, settings={"vhost_restart_intensity": (1000, 1)}) as broker:
            queue, runtime = await broker.declare_queue("q"), broker.sync.runtime
            consumer = queue.consume(5)
            assert await consumer.get(0.01) is None
            for number in range(8):
                runtime.kill(runtime.whereis(queue_name("q")))
                task = asyncio.create_task(consumer.get(LIMIT))
                for _ in range(number):
                    await asyncio.sleep(0.0005)
                task.cancel()
                await asyncio.wait([task])
                await queue.publish(b"%d" % number)
                async with asyncio.timeout(LIMIT):
                    while (delivery := await anext(consumer)).body != b"%d" % number:
                        delivery.ack()
                delivery.ack()
            await consumer.cancel()

    asyncio.run(main())
