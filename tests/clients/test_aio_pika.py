"""aio-pika, with connections that come back by themselves."""

import asyncio

import pytest

aio_pika = pytest.importorskip("aio_pika")

from aio_pika import DeliveryMode, ExchangeType, Message  # noqa: E402
from aio_pika.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed, DeliveryError  # noqa: E402
from aio_pika.patterns import RPC  # noqa: E402

from tests.support.limits import LIMIT  # noqa: E402


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, LIMIT))


async def bodies(queue, count):
    found = []
    async with queue.iterator() as messages:
        async for message in messages:
            async with message.process():
                found.append(message.body)
            if len(found) == count:
                return found
    raise AssertionError(found)


def test_a_topic_exchange_sends_each_message_where_it_is_wanted(server):
    async def scenario():
        async with await aio_pika.connect_robust(server.url) as connection:
            channel = await connection.channel()
            logs = await channel.declare_exchange("aio-logs", ExchangeType.TOPIC, auto_delete=True)
            errors = await channel.declare_queue(exclusive=True)
            everything = await channel.declare_queue(exclusive=True)
            await errors.bind(logs, "*.error")
            await everything.bind(logs, "#")
            for key in ("disk.error", "disk.info", "net.error", "a.b.error"):
                await logs.publish(Message(key.encode()), key)
            assert await bodies(errors, 2) == [b"disk.error", b"net.error"]
            assert await bodies(everything, 4) == [b"disk.error", b"disk.info", b"net.error", b"a.b.error"]

    run(scenario())


def test_many_publishes_at_once_are_each_confirmed(server):
    async def scenario():
        async with await aio_pika.connect(server.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("aio-many", durable=True)
            messages = (
                Message(b"%d" % number, delivery_mode=DeliveryMode.PERSISTENT) for number in range(1000)
            )
            await asyncio.gather(*(channel.default_exchange.publish(each, queue.name) for each in messages))
            assert (await queue.purge()).message_count == 1000
            await queue.delete()

    run(scenario())


def test_an_undeliverable_message_raises(server):
    async def scenario():
        async with await aio_pika.connect(server.url) as connection:
            channel = await connection.channel(on_return_raises=True)
            with pytest.raises(DeliveryError):
                await channel.default_exchange.publish(Message(b"lost"), "no-such-queue")
            with pytest.raises(ChannelNotFoundEntity):
                await channel.declare_queue("no-such-queue", passive=True)
            other = await connection.channel()
            short = {"exclusive": True, "arguments": {"x-max-length": 2}}
            await other.declare_queue("aio-short", **short)
            with pytest.raises(
                ChannelPreconditionFailed, match=r"inequivalent arg 'x-max-length' for queue 'aio-short'"
            ):
                await other.declare_queue("aio-short", **short | {"arguments": {"x-max-length": 3}})

    run(scenario())


def test_calls_and_answers_over_queues(server):
    async def scenario():
        async with await aio_pika.connect_robust(server.url) as connection:
            rpc = await RPC.create(await connection.channel())

            async def double(number):
                return number * 2

            await rpc.register("aio-double", double, auto_delete=True)
            assert await asyncio.gather(*(rpc.call("aio-double", {"number": n}) for n in range(20))) == list(
                range(0, 40, 2)
            )

    run(scenario())


def test_a_direct_reply_needs_no_queue(server):
    async def scenario():
        async with await aio_pika.connect(server.url) as connection:
            channel = await connection.channel()
            answers = asyncio.Queue()
            replies = await channel.get_queue("amq.rabbitmq.reply-to")
            await replies.consume(answers.put, no_ack=True)
            questions = await channel.declare_queue(exclusive=True)
            ask = Message(b"2+2", reply_to="amq.rabbitmq.reply-to", correlation_id="1")
            await channel.default_exchange.publish(ask, questions.name)
            question = await questions.get(no_ack=True)
            reply = Message(b"4", correlation_id=question.correlation_id)
            await channel.default_exchange.publish(reply, question.reply_to, mandatory=False)
            answer = await answers.get()
            assert (answer.body, answer.correlation_id) == (b"4", "1")

    run(scenario())


def test_a_transaction_that_fails_publishes_nothing(server):
    async def scenario():
        async with await aio_pika.connect(server.url) as connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue(exclusive=True)
            with pytest.raises(ZeroDivisionError):
                async with channel.transaction():
                    await channel.default_exchange.publish(Message(b"no"), queue.name)
                    raise ZeroDivisionError
            async with channel.transaction():
                await channel.default_exchange.publish(Message(b"yes"), queue.name)
            assert (await queue.get(no_ack=True)).body == b"yes"
            assert await queue.get(fail=False) is None

    run(scenario())


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_consumer_goes_on_after_the_server_came_back_and_no_confirmed_message_is_lost(own_server, end):
    async def scenario():
        connection = await aio_pika.connect_robust(own_server.url, reconnect_interval=0.1)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("jobs", durable=True)
            for number in range(20):
                await channel.default_exchange.publish(
                    Message(b"%d" % number, delivery_mode=DeliveryMode.PERSISTENT), "jobs"
                )
            await asyncio.to_thread(getattr(own_server, end))
            back = asyncio.Event()
            connection.reconnect_callbacks.add(lambda *_: back.set())
            await asyncio.to_thread(own_server.start)
            await back.wait()
            assert await bodies(queue, 20) == [b"%d" % number for number in range(20)]

    run(scenario())
