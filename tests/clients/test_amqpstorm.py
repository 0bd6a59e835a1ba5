"""amqpstorm."""

import pytest

amqpstorm = pytest.importorskip("amqpstorm")


@pytest.fixture
def channel(server):
    with (
        amqpstorm.Connection(server.host, "guest", "guest", port=server.port) as connection,
        connection.channel() as channel,
    ):
        yield channel


def test_messages_are_confirmed_consumed_and_acknowledged(channel):
    channel.confirm_deliveries()
    queue = channel.queue.declare(exclusive=True)["queue"]
    for number in range(20):
        message = amqpstorm.Message.create(
            channel, str(number), {"headers": {"n": number}, "delivery_mode": 2}
        )
        assert message.publish(queue, mandatory=True)
    channel.basic.qos(5)
    channel.basic.consume(queue=queue)
    seen = []
    for message in channel.build_inbound_messages(break_on_empty=False):
        assert message.properties["headers"] == {"n": len(seen)}
        seen.append(int(message.body))
        message.ack()
        if len(seen) == 20:
            break
    assert seen == list(range(20))


def test_returned_and_refused_messages_raise(channel):
    channel.confirm_deliveries()
    with pytest.raises(amqpstorm.AMQPMessageError, match="Message not delivered: NO_ROUTE"):
        channel.basic.publish("lost", "storm-no-such-queue", mandatory=True)
    with pytest.raises(amqpstorm.AMQPChannelError, match="no queue 'storm-no-such-queue' in vhost '/'"):
        channel.queue.declare("storm-no-such-queue", passive=True)


def test_a_transaction_takes_effect_at_its_commit(channel):
    queue = channel.queue.declare(exclusive=True)["queue"]
    channel.tx.select()
    channel.basic.publish("no", queue)
    channel.tx.rollback()
    channel.basic.publish("yes", queue)
    channel.tx.commit()
    message = channel.basic.get(queue)
    assert message.body == "yes"
    message.ack()
    channel.tx.commit()
