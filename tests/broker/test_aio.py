"""The same broker, awaited."""

import asyncio
from pathlib import Path

import pytest

import warrenmq
from tests.support.limits import LIMIT
from warrenmq import aio
from warrenmq.actors.vhost.vhost import queue_name


def test_publish_consume_and_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path) as broker:
            jobs = await broker.declare_queue("jobs")
            await jobs.publish(b"1")
            await jobs.publish_many([b"2", b"L" * 9000])
            got = []
            async with jobs.consume(prefetch=2) as consumer:
                async for delivery in consumer:
                    got.append(delivery.body)
                    delivery.ack()
                    if len(got) == 3:
                        break
            assert got == [b"1", b"2", b"L" * 9000]
            assert await jobs.get() is None
            assert await jobs.get(timeout=0.01) is None
            await jobs.publish(b"stays")
        async with aio.open(tmp_path) as broker:
            delivery = await (await broker.declare_queue("jobs")).get(timeout=LIMIT)
            assert delivery.body == b"stays"
            assert (await broker.stats()).queues[0].unacked == 1

    asyncio.run(main())


def test_many_consumers_wait_without_a_thread_each_and_the_loop_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path) as broker:
            queues = [await broker.declare_queue(f"q{i}") for i in range(20)]

            async def first(queue: aio.Queue) -> bytes:
                async for delivery in queue.consume():
                    delivery.ack()
                    return delivery.body
                return b""

            waiting = [asyncio.create_task(first(queue)) for queue in queues]
            await asyncio.gather(*(queue.publish(queue.name.encode()) for queue in queues))
            assert await asyncio.wait_for(asyncio.gather(*waiting), LIMIT) == [
                queue.name.encode() for queue in queues
            ]

    asyncio.run(main())


def test_a_consumer_goes_on_after_its_queue_was_killed_and_ends_with_the_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path) as broker:
            queue = await broker.declare_queue("q")
            consumer = queue.consume()
            await queue.publish(b"1")
            (await anext(consumer)).ack()
            broker.sync.runtime.kill(broker.sync.runtime.whereis(queue_name("q")))
            await queue.publish(b"2")
            while (delivery := await asyncio.wait_for(anext(consumer), LIMIT)).body != b"2":
                delivery.ack()
            delivery.ack()
            rest = asyncio.create_task(_rest(consumer))
        assert await asyncio.wait_for(rest, LIMIT) == []

    asyncio.run(main())


async def _rest(consumer: aio.Consumer) -> list[bytes]:
    return [delivery.body async for delivery in consumer]


def test_errors_are_those_of_the_face(tmp_path: Path) -> None:
    async def main() -> None:
        broker = aio.open(tmp_path)
        with pytest.raises(warrenmq.BrokerClosed, match="async with"):
            await broker.declare_queue("q")
        async with broker:
            with pytest.raises(warrenmq.NotFound):
                await broker.publish("nowhere", "", b"")
            await broker.declare_exchange("e", "fanout")
            with pytest.raises(warrenmq.Returned):
                await broker.publish("e", "", b"", mandatory=True)

    asyncio.run(main())


def test_any_number_of_publishers_that_wait_for_an_alarm_keep_no_thread_from_the_others(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with aio.open(tmp_path) as broker:
            jobs = await broker.declare_queue("jobs")
            await jobs.publish_many([b"1", b"2"])
            assert await broker.set_vm_memory_high_watermark(0.0) == 0
            assert await broker.set_disk_free_limit("1kB") == 1000
            publishers = [asyncio.create_task(jobs.publish(b"x"), name=f"p{n}") for n in range(100)]
            await asyncio.sleep(0)
            with pytest.raises(warrenmq.Blocked, match="memory alarm is set"):
                await jobs.publish(b"refused", timeout=0)
            with pytest.raises(warrenmq.Blocked, match="memory alarm is set"):
                await jobs.publish_many([b"refused"], timeout=0.01)
            waiting = (await broker.stats()).blocked_publishers
            assert [each.name for each in waiting] == [f"p{n}" for n in range(100)]
            for body in (b"1", b"2"):
                delivery = await jobs.get()
                assert delivery.body == body
                delivery.ack()
            await broker.declare_queue("another")
            publishers.pop().cancel()
            await broker.set_vm_memory_high_watermark(1.0)
            await asyncio.gather(*publishers)
            stats = await broker.stats()
            assert stats.blocked_publishers == ()
            assert {queue.name: queue.ready for queue in stats.queues} == {"jobs": 99, "another": 0}

    asyncio.run(main())


def test_a_consumer_can_be_asked_for_some_and_with_a_timeout(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path) as broker:
            jobs = await broker.declare_queue("jobs")
            async with jobs.consume() as consumer:
                assert broker.would_block("", "jobs") is False
                assert await consumer.get(timeout=0.01) is None
                await jobs.publish_many([b"1", b"2", b"3"])
                first = await consumer.get()
                assert first is not None
                rest = []
                while len(rest) < 2:
                    rest += await consumer.take(5, timeout=LIMIT)
                assert [each.body for each in (first, *rest)] == [b"1", b"2", b"3"]
                for each in (first, *rest):
                    each.ack()
                assert await consumer.take(5, timeout=0) == []
                assert not consumer.ended
                await consumer.cancel()
                assert consumer.ended
                assert await consumer.get() is None
            exchange = await broker.declare_exchange("e", "fanout")
            await broker.bind(jobs, exchange)
            await broker.publish(exchange, "", b"by its handle")
            async with broker.tx() as tx:
                tx.publish(exchange, "", b"in a transaction", priority=1)
            assert [each.body for each in await jobs.peek(5)] == [b"by its handle", b"in a transaction"]

    asyncio.run(main())


def test_publishers_that_wait_fail_when_the_broker_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await aio.open(tmp_path, settings={"vm_memory_high_watermark": 0.0}).start()
        jobs = await broker.declare_queue("jobs")
        publisher = asyncio.create_task(jobs.publish(b"never"))
        await asyncio.sleep(0)  # its turn: it comes as far as the alarm
        assert len((await broker.stats()).blocked_publishers) == 1
        await broker.close()
        with pytest.raises(warrenmq.BrokerClosed):
            await publisher

    asyncio.run(main())


def test_a_get_leaves_no_more_than_its_grace_for_the_end_of_its_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited a second more for an owner that is stopped."""

    async def main() -> None:
        loop, ends = asyncio.get_running_loop(), []
        real = asyncio.timeout_at
        monkeypatch.setattr(asyncio, "timeout_at", lambda end: ends.append(end) or real(end))
        async with aio.open(tmp_path) as broker:
            queue = await broker.declare_queue("q")
            for body in (None, b"1"):
                begin = loop.time()
                if body is not None:
                    await queue.publish(body)
                delivery = await queue.get(0.05)
                assert (delivery and delivery.body) == body
                assert begin < ends.pop() <= loop.time() + aio.GRACE
            assert not ends

    asyncio.run(main())
