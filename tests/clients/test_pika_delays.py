"""Delayed exchanges and delivery limits, as RabbitMQ's clients use them."""

from contextlib import suppress

import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker

LONG_ENOUGH = 30
"""Seconds in which what is due must come."""


@pytest.fixture
def channel(server):
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        yield connection.channel()


def received(channel, queue, count):
    """The next messages of a queue: (body, properties)."""
    found = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=LONG_ENOUGH):
        assert method is not None, "nothing came"
        channel.basic_ack(method.delivery_tag)
        found.append((body, properties))
        if len(found) == count:
            break
    channel.cancel()
    return found


def test_messages_come_in_the_order_of_their_delays(channel):
    channel.exchange_declare(
        "delays", "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"}
    )
    channel.queue_declare("delayed", durable=True)
    channel.queue_bind("delayed", "delays", "a.*")
    channel.confirm_delivery()
    for delay in (400, 200, 0):
        properties = pika.BasicProperties(
            delivery_mode=2, headers={"x-delay": delay, "mine": "x"}, priority=1
        )
        channel.basic_publish("delays", "a.b", b"%d" % delay, properties, mandatory=True)
    found = received(channel, "delayed", 3)
    assert [(body, properties.headers["x-delay"]) for body, properties in found] == [
        (b"0", 0), (b"200", -200), (b"400", -400),
    ]  # fmt: skip
    assert {properties.headers["mine"] for _, properties in found} == {"x"}
    assert {(properties.priority, properties.delivery_mode) for _, properties in found} == {(1, 2)}


def test_a_confirmed_delayed_message_survives_the_server(own_server):
    with suppress(AMQPError), pika.BlockingConnection(pika.URLParameters(own_server.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(
            "x", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
        )
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "x")
        channel.confirm_delivery()
        for number in range(20):
            properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 1_000})
            channel.basic_publish("x", "", b"%d" % number, properties)
        own_server.kill()
    own_server.start()
    with pika.BlockingConnection(pika.URLParameters(own_server.url)) as connection:
        found = received(connection.channel(), "q", 20)
    assert [int(body) for body, _ in found] == list(range(20))


@pytest.mark.parametrize("arguments", [{}, {"x-delayed-type": "nothing"}])
def test_a_delayed_exchange_without_a_type_is_refused(channel, arguments):
    with pytest.raises(ChannelClosedByBroker, match="x-delayed-type") as refused:
        channel.exchange_declare("wrong", "x-delayed-message", arguments=arguments)
    assert refused.value.reply_code == 406


def test_a_message_beyond_its_delivery_limit_is_dead_lettered(channel):
    arguments = {
        "x-delivery-limit": 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "limit-dead",
    }
    channel.queue_declare("limit", durable=True, arguments=arguments)
    channel.queue_declare("limit-dead", durable=True)
    channel.basic_publish("", "limit", b"1", pika.BasicProperties(headers={"mine": 1}))
    counts = []
    for method, properties, _ in channel.consume("limit", inactivity_timeout=LONG_ENOUGH):
        counts.append(properties.headers.get("x-delivery-count"))
        channel.basic_nack(method.delivery_tag)
        if len(counts) == 2:
            break
    channel.cancel()
    assert counts == [None, 1]
    [(body, properties)] = received(channel, "limit-dead", 1)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"1", "delivery_limit")


def test_the_queue_in_which_messages_wait_cannot_be_reached(server):
    for attempt in (
        lambda channel: channel.queue_declare("amq.delayed.mine", passive=True),
        lambda channel: channel.basic_get("amq.delayed.mine"),
        lambda channel: channel.queue_bind("amq.delayed.mine", "amq.fanout"),
        lambda channel: channel.queue_purge("amq.delayed.mine"),
    ):
        with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
            channel = connection.channel()
            arguments = {"x-delayed-type": "direct"}
            channel.exchange_declare("mine", "x-delayed-message", durable=True, arguments=arguments)
            with pytest.raises(ChannelClosedByBroker) as refused:
                attempt(channel)
            assert refused.value.reply_code == 404


def test_a_message_of_a_transaction_is_delayed_from_its_commit(channel):
    channel.exchange_declare(
        "tx-delays", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    channel.queue_declare("tx-delayed", durable=True)
    channel.queue_bind("tx-delayed", "tx-delays")
    channel.tx_select()
    properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 50})
    channel.basic_publish("tx-delays", "", b"1", properties)
    channel.tx_commit()
    [(body, _)] = received(channel, "tx-delayed", 1)
    channel.tx_commit()
    assert body == b"1"
