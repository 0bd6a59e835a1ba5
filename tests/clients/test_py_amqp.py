"""py-amqp, on which kombu stands."""

import pytest

from tests.support.limits import LIMIT

amqp = pytest.importorskip("amqp")


@pytest.fixture
def channel(server):
    with amqp.Connection(f"{server.host}:{server.port}", confirm_publish=True) as connection:
        yield connection.channel()


def test_a_message_goes_in_and_comes_back(channel):
    queue, *counts = channel.queue_declare(exclusive=True)
    assert counts == [0, 0]
    headers = {"n": 1, "list": [1, "two"], "table": {"deep": True}}
    channel.basic_publish(
        amqp.Message("text", application_headers=headers, priority=3, delivery_mode=2), routing_key=queue
    )
    message = channel.basic_get(queue)
    assert (message.body, message.headers, message.priority, message.delivery_info["redelivered"]) == (
        "text",
        headers,
        3,
        False,
    )
    channel.basic_reject(message.delivery_tag, requeue=True)
    assert channel.basic_get(queue, no_ack=True).delivery_info["redelivered"]
    assert channel.basic_get(queue) is None


def test_consumers_are_called_and_cancelled(channel):
    queue = channel.queue_declare(exclusive=True).queue
    seen, cancelled = [], []
    channel.basic_qos(0, 2, a_global=False)
    channel.basic_consume(
        queue, callback=lambda message: seen.append(message.body), on_cancel=cancelled.append
    )
    for text in ("a", "b", "c"):
        channel.basic_publish(amqp.Message(text), routing_key=queue)
    while len(seen) < 2:
        channel.connection.drain_events(timeout=LIMIT)
    channel.basic_ack(0, multiple=True)
    while len(seen) < 3:
        channel.connection.drain_events(timeout=LIMIT)
    assert seen == ["a", "b", "c"]
    channel.connection.channel().queue_delete(queue)
    while not cancelled:
        channel.connection.drain_events(timeout=LIMIT)


def test_errors_have_their_classes(channel):
    with pytest.raises(amqp.exceptions.NotFound, match="no queue 'py-amqp-none' in vhost '/'"):
        channel.queue_declare("py-amqp-none", passive=True)
    other = channel.connection.channel()
    with pytest.raises(
        amqp.exceptions.PreconditionFailed, match=r"inequivalent arg 'type' for exchange 'amq\.topic'"
    ):
        other.exchange_declare("amq.topic", "direct", durable=True, auto_delete=False)
    assert channel.connection.channel().is_open
