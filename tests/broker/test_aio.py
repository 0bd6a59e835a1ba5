"""The same broker, awaited."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import warrenmq
from tests.support.limits import LIMIT
from warrenmq import aio
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.aio.broker import GRACE
from warrenmq.broker.calls import ActorCalls


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


def test_a_transaction_publishes_what_was_there_when_it_was_told(tmp_path: Path) -> None:
    """Buffers and headers that were used again came with their last contents."""

    async def main() -> None:
        async with aio.open(tmp_path) as broker:
            jobs = await broker.declare_queue("jobs")
            body, headers = bytearray(1), {"n": 0}
            async with broker.tx() as tx:
                for number in range(3):
                    body[0] = headers["n"] = number
                    tx.publish("", "jobs", body, headers=headers)
            found = await jobs.peek(5)
            assert [(each.body[0], each.properties.headers) for each in found] == [
                (number, {"n": number}) for number in range(3)
            ]

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
        with warrenmq.open(tmp_path, shared=True):
            broker = await aio.open(tmp_path, shared=True).start()
            queue = await broker.declare_queue("q")
            for body in (None, b"1"):
                if body is not None:
                    await queue.publish(body)
                for _ in range(100):  # on a busy machine a message takes longer than that
                    begin = loop.time()
                    delivery = await queue.get(0.05)
                    assert begin < ends.pop() <= loop.time() + GRACE
                    if body is None or delivery is not None:
                        break
                assert (delivery and delivery.body) == body
            assert not ends
            await broker.close()

    asyncio.run(main())


def test_gets_of_the_owner_need_no_thread(tmp_path: Path) -> None:
    """One took a thread of the executor, or a consumer that needed two."""
    go = threading.Event()

    async def main() -> None:
        async with aio.open(tmp_path) as broker:
            queue = await broker.declare_queue("q")
            await queue.publish(b"")
            loop = asyncio.get_running_loop()
            loop.set_default_executor(ThreadPoolExecutor(1))
            loop.run_in_executor(None, go.wait, LIMIT)
            assert await queue.get(no_ack=True) is not None
            assert await queue.get() is None
            assert await queue.get(0.01) is None
            waiting = asyncio.gather(*(queue.get(LIMIT, no_ack=True) for _ in range(100)))
            await asyncio.sleep(0)
            await queue.publish_many([b"%d" % number for number in range(100)])
            assert [delivery and int(delivery.body) for delivery in await waiting] == list(range(100))
            go.set()

    asyncio.run(main())


def test_a_get_that_waits_outlives_its_queues_process_and_ends_with_the_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path, settings={"vhost_restart_intensity": (1000, 1)}) as broker:
            queue, runtime = await broker.declare_queue("q"), broker.sync.runtime
            assert await queue.get() is None  # that wakes it
            for _ in range(5):
                waiting = asyncio.gather(*(queue.get(LIMIT) for _ in range(10)))
                await asyncio.sleep(0)
                runtime.kill(runtime.whereis(queue_name("q")))
                await queue.publish_many([b"%d" % number for number in range(10)])
                for delivery in await waiting:
                    assert delivery is not None
                    delivery.ack()
                await queue.purge()
            last = asyncio.create_task(queue.get(LIMIT))
            await asyncio.sleep(0)
        with pytest.raises(warrenmq.BrokerClosed):
            await last

    asyncio.run(main())


def test_a_get_whose_queue_dies_waits_only_for_the_rest_of_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest: list[float] = []

    async def get_later(_queue: aio.Queue, timeout: float, _no_ack: bool) -> None:  # noqa: ASYNC109
        rest.append(timeout)

    async def main() -> None:
        async with aio.open(tmp_path) as broker:
            queue, runtime = await broker.declare_queue("q"), broker.sync.runtime
            await queue.get()  # that wakes it
            waiting = asyncio.create_task(queue.get(LIMIT))
            await asyncio.sleep(0.05)
            runtime.kill(runtime.whereis(queue_name("q")))
            await waiting

    monkeypatch.setattr(aio.Queue, "_get_later", get_later)
    asyncio.run(main())
    assert 0 < rest[0] < LIMIT - 0.04


def test_a_publish_that_must_not_wait_starts_a_queue_that_sleeps_outside_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    woke: list[threading.Thread] = []
    wake = ActorCalls.wake

    def noted(calls: ActorCalls, queue: str) -> bool:
        if began := wake(calls, queue):
            woke.append(threading.current_thread())
        return began

    async def main() -> None:
        monkeypatch.setattr(ActorCalls, "wake", noted)
        async with aio.open(tmp_path) as broker:
            queue = await broker.declare_queue("q")
            await queue.publish(b"m", timeout=0)
            assert await queue.length() == 1

    asyncio.run(main())
    assert woke
    assert threading.current_thread() not in woke


def test_a_message_that_comes_as_its_get_is_given_up_is_in_the_queue(tmp_path: Path) -> None:
    broker = warrenmq.open(tmp_path)
    sync = broker.declare_queue("q")
    assert sync.get() is None  # that wakes it
    tasks: list[asyncio.Task[object]] = []

    async def main(published: int) -> None:
        queue = await (await aio.Broker(lambda: broker).start()).queue("q")
        tasks[:] = [asyncio.create_task(queue.get(LIMIT)) for _ in range(3)]
        await asyncio.sleep(0)
        # the answers wait for the loop, which does not run before its end, when it cancels all tasks
        sync.publish_many([b"%d" % number for number in range(published)]).result(LIMIT)

    for published in range(4):
        asyncio.run(main(published))
        assert sync.info().unacked == 0
        assert [message.body for message in sync.peek(4)] == [b"%d" % number for number in range(published)]
        sync.purge()
    loop = asyncio.new_event_loop()  # and one that is closed under its tasks harms nobody
    loop.run_until_complete(main(0))
    loop.close()
    sync.publish_many([b"1"] * 4).result(LIMIT)
    assert sync.get() is not None
    broker.close()


def test_several_loops_get_from_one_broker(tmp_path: Path) -> None:
    broker = warrenmq.open(tmp_path)
    sync = broker.declare_queue("q")
    got: list[bytes] = []

    async def take() -> None:
        queue = await (await aio.Broker(lambda: broker).start()).queue("q")
        while (delivery := await queue.get(LIMIT)).body:
            got.append(delivery.body)
            delivery.ack()
        delivery.ack()

    loops = [threading.Thread(target=lambda: asyncio.run(take())) for _ in range(3)]
    for loop in loops:
        loop.start()
    sync.publish_many([b"%d" % number for number in range(300)]).result(LIMIT)
    sync.publish_many([b""] * 3).result(LIMIT)
    for loop in loops:
        loop.join(LIMIT)
    assert sorted(map(int, got)) == list(range(300))
    broker.close()


@pytest.mark.parametrize("shared", [False, True])
def test_a_get_without_acks_takes_one_message(tmp_path: Path, shared: bool) -> None:
    """With a timeout it was a consumer without acks, which took all, and then could not give them back."""

    async def main() -> None:
        with warrenmq.open(tmp_path, shared=shared) as owner:
            broker = await (aio.open(tmp_path, shared=True) if shared else aio.Broker(lambda: owner)).start()
            queue = await broker.declare_queue("q")
            await queue.publish_many([b"%d" % number for number in range(10)])
            for number in range(3):
                delivery = await queue.get(LIMIT if number else None, no_ack=True)
                assert delivery is not None
                assert delivery.body == b"%d" % number
            info = await queue.info()
            assert (info.ready, info.unacked) == (7, 0)
            consumer = queue.consume(no_ack=True)
            assert await consumer.get(LIMIT) is not None
            await consumer.cancel()  # what it did not hand out is gone, as RabbitMQ has it
            await broker.close()

    asyncio.run(main())
