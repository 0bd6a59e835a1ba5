"""pika, as its users use it: blocking, with callbacks, and in asyncio."""

import asyncio

import pytest

pika = pytest.importorskip("pika")

from pika.adapters.asyncio_connection import AsyncioConnection  # noqa: E402
from pika.exceptions import (  # noqa: E402
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    NackError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    UnroutableError,
)

from tests.support.limits import LIMIT  # noqa: E402


@pytest.fixture
def connection(server):
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        yield connection


@pytest.fixture
def channel(connection):
    return connection.channel()


def declared(channel, **arguments):
    return channel.queue_declare("", exclusive=True, arguments=arguments).method.queue


def texts(channel, queue):
    """Take all messages off a queue."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2].decode())
    return found


def test_a_message_comes_back_with_all_its_properties(channel):
    channel.confirm_delivery()
    queue = declared(channel)
    properties = pika.BasicProperties(
        content_type="text/plain", content_encoding="utf-8", delivery_mode=2, priority=3, correlation_id="c", reply_to="r",
        expiration="60000", message_id="m", timestamp=1_600_000_000, type="t", user_id="guest", app_id="a",
        headers={"n": 1, "big": 1 << 40, "text": "ü", "yes": True, "none": None, "list": [1, "two", [3]], "table": {"k": {"deep": -1}}},
    )  # fmt: skip
    channel.basic_publish("", queue, b"body", properties)
    method, got, body = channel.basic_get(queue)
    assert (method.delivery_tag, method.redelivered, method.exchange, method.routing_key) == (
        1,
        False,
        "",
        queue,
    )
    assert got == properties
    assert body == b"body"


@pytest.mark.parametrize("size", [0, 1, 131064, 131065, 3_000_000])
def test_a_body_of_any_size_comes_back_whole(channel, size):
    queue = declared(channel)
    body = bytes(range(256)) * (size // 256) + b"." * (size % 256)
    channel.basic_publish("", queue, body)
    assert channel.basic_get(queue, auto_ack=True)[2] == body


def test_an_unroutable_message_is_returned_before_it_is_confirmed(channel):
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as raised:
        channel.basic_publish("", "no-such-queue", b"lost", mandatory=True)
    (returned,) = raised.value.messages
    assert (returned.method.reply_code, returned.method.reply_text, returned.body) == (
        312,
        "NO_ROUTE",
        b"lost",
    )


def test_a_full_queue_that_rejects_nacks(channel):
    channel.confirm_delivery()
    queue = declared(channel, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", queue, b"first")
    with pytest.raises(NackError):
        channel.basic_publish("", queue, b"second")


def test_a_consumer_gets_what_its_prefetch_allows_and_the_rest_as_it_acks(channel):
    queue = declared(channel)
    for number in range(10):
        channel.basic_publish("", queue, str(number))
    channel.basic_qos(prefetch_count=3)
    seen = []
    for method, _, body in channel.consume(queue, inactivity_timeout=0.3):
        if method is not None:
            seen.append(body.decode())
        elif len(seen) >= 3:
            break
    assert seen == ["0", "1", "2"]
    channel.basic_ack(2, multiple=True)
    assert [next(channel.consume(queue))[2] for _ in range(2)] == [b"3", b"4"]
    assert channel.cancel() == 0
    channel.basic_nack(0, multiple=True, requeue=True)
    assert texts(channel, queue) == ["2", "3", "4", "5", "6", "7", "8", "9"]


def test_a_rejected_message_tells_its_death(channel):
    dead = declared(channel)
    queue = declared(channel, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    channel.basic_publish("", queue, b"bad")
    channel.basic_reject(channel.basic_get(queue)[0].delivery_tag, requeue=False)
    channel.queue_declare(queue, passive=True)
    for method, properties, body in channel.consume(dead, auto_ack=True):
        (death,) = properties.headers["x-death"]
        assert (body, method.routing_key) == (b"bad", dead)
        assert (death["reason"], death["queue"], death["count"], death["routing-keys"]) == (
            "rejected",
            queue,
            1,
            [queue],
        )
        break


def test_a_consumer_is_cancelled_when_its_queue_is_deleted(connection, channel):
    queue = declared(channel)
    cancelled = []
    channel.add_on_cancel_callback(cancelled.append)
    tag = channel.basic_consume(queue, lambda *_: None)
    connection.channel().queue_delete(queue)
    while not cancelled:
        connection.process_data_events(time_limit=0.1)
    assert cancelled[0].method.consumer_tag == tag


def test_a_transaction_takes_effect_at_its_commit(connection, channel):
    queue = declared(channel)
    transacted = connection.channel()
    transacted.tx_select()
    transacted.basic_publish("", queue, b"rolled back")
    transacted.tx_rollback()
    transacted.basic_publish("", queue, b"committed")
    assert texts(channel, queue) == []
    transacted.tx_commit()
    assert texts(channel, queue) == ["committed"]


@pytest.mark.parametrize(
    ("wrong", "code", "text"),
    [
        (lambda ch: ch.queue_declare("no-such-queue", passive=True), 404, "NOT_FOUND - no queue 'no-such-queue' in vhost '/'"),
        (lambda ch: ch.queue_declare("amq.mine"), 403,
         "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"),
        (lambda ch: ch.basic_consume("no-such-queue", print), 404, "NOT_FOUND - no queue 'no-such-queue' in vhost '/'"),
        (lambda ch: ch.exchange_declare("amq.direct", "fanout", durable=True), 406,
         "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': "
         "received 'fanout' but current is 'direct'"),
        (lambda ch: ch.queue_declare("x", arguments={"x-message-ttl": -1}), 406,
         "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'x' in vhost '/': {value_negative,-1}"),
        (lambda ch: (ch.basic_ack(17), ch.queue_declare("", exclusive=True)), 406, "PRECONDITION_FAILED - unknown delivery tag 17"),
    ],
)  # fmt: skip
def test_a_mistake_closes_the_channel_with_rabbitmqs_words_and_nothing_else(connection, wrong, code, text):
    channel = connection.channel()
    with pytest.raises(ChannelClosedByBroker) as raised:
        wrong(channel)
    assert (raised.value.reply_code, raised.value.reply_text) == (code, text)
    assert connection.channel().is_open


def test_an_exclusive_queue_is_its_connections_alone(server, channel):
    queue = declared(channel)
    with pika.BlockingConnection(pika.URLParameters(server.url)) as other:
        with pytest.raises(ChannelClosedByBroker) as raised:
            other.channel().basic_get(queue)
        assert raised.value.reply_code == 405
        channel.connection.close()
        with pytest.raises(ChannelClosedByBroker) as raised:
            other.channel().queue_declare(queue, passive=True)
        assert raised.value.reply_code == 404


def test_a_wrong_password_and_a_missing_virtual_host_are_refused(server):
    parameters = pika.URLParameters(server.url)
    parameters.credentials = pika.PlainCredentials("guest", "wrong")
    with pytest.raises(ProbableAuthenticationError):
        pika.BlockingConnection(parameters)
    with pytest.raises(
        (ProbableAccessDeniedError, ConnectionClosedByBroker), match="vhost nowhere not found"
    ):
        pika.BlockingConnection(pika.URLParameters(f"{server.url}/nowhere"))


def test_heartbeats_keep_a_connection_and_their_absence_ends_it(server):
    parameters = pika.URLParameters(server.url)
    parameters.heartbeat = 1
    with pika.BlockingConnection(parameters) as kept, pika.BlockingConnection(parameters) as silent:
        kept.process_data_events(time_limit=3.5)  # meanwhile the other one says nothing
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            silent.channel()
        assert kept.channel().is_open


def test_a_thousand_confirms_outstanding_in_asyncio(server):
    """The asynchronous adapter: confirms come for all, some of them many in one."""

    async def publish(count):
        done, confirmed = asyncio.get_running_loop().create_future(), set()

        def on_confirm(frame):
            tag = frame.method.delivery_tag
            confirmed.update(range(1, tag + 1) if frame.method.multiple else [tag])
            if len(confirmed) == count and not done.done():
                done.set_result(None)

        def on_channel(channel):
            def publish_all(_frame):
                for _ in range(count):
                    channel.basic_publish(
                        "", "asyncio-jobs", b"x" * 1024, pika.BasicProperties(delivery_mode=2)
                    )

            channel.confirm_delivery(on_confirm)
            channel.queue_declare("asyncio-jobs", durable=True, callback=publish_all)

        closed = asyncio.get_running_loop().create_future()
        connection = AsyncioConnection(
            pika.URLParameters(server.url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=on_channel),
            on_close_callback=lambda _connection, _why: closed.set_result(None),
        )
        await asyncio.wait_for(done, LIMIT)
        connection.close()
        await closed

    asyncio.run(publish(1000))
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        assert connection.channel().queue_delete("asyncio-jobs").method.message_count == 1000
