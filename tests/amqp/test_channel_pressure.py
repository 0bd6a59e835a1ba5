"""A channel whose queue grants no credit or dies, and one whose client reads slowly or goes away."""

from pamqp.commands import Basic, Confirm, Queue

from tests.amqp.channels import Client
from warrenmq.amqp.channel.context import ChannelBlocked, ConnectionClosing, Writable


def test_a_channel_without_credit_tells_its_connection(channel, client, broker):
    channel.declare("q", durable=True)
    broker.inside.client.calls.address("q")  # its process starts
    stop, go_on = broker.runtime.event(), broker.runtime.event()

    def hold(op, path):
        if not stop.is_set():
            stop.set()
            go_on.wait()

    broker.inside.vhost.disk.before_op = hold
    channel.publish("q", b"first", delivery_mode=2)
    for _ in range(5):
        channel.publish("q", *[b"x" * 100] * 200, delivery_mode=2)
    stop.wait()
    client.runtime.event().wait(1.0)
    assert [each.blocked for each in client.told()] == [True]
    go_on.set()
    client.runtime.event().wait(5.0)
    assert [each for each in client.told() if isinstance(each, ChannelBlocked)][-1].blocked is False


def test_a_channel_does_not_wait_for_the_credit_of_a_dead_queue(channel, client, broker):
    channel.declare("q", durable=True)
    queue = broker.inside.client.calls.address("q")
    channel.publish("q", b"first", delivery_mode=2)
    client.runtime.event().wait(1.0)
    channel.publish("q", *[b"x"] * 1000, delivery_mode=2)
    broker.runtime.kill(queue)
    client.runtime.event().wait(1.0)
    told = [each.blocked for each in client.told()]
    assert told[-1:] in ([], [False])


def test_a_crash_of_a_queue_nacks_what_it_had_not_made_safe(channel, client, broker):
    channel.declare("q", durable=True)
    channel.call(Confirm.Select(), Confirm.SelectOk)
    channel.publish("q", b"safe", delivery_mode=2)
    assert channel.next(Basic.Ack).delivery_tag == 1
    channel.publish("q", b"a", b"b", delivery_mode=2)
    broker.runtime.kill(broker.inside.client.calls.address("q"))
    answers = channel.all()
    assert [type(each) for each in answers] in ([Basic.Nack], [Basic.Ack])
    assert answers[0].delivery_tag == 3


def test_a_connection_that_closes_takes_back_what_its_channels_hold(client, broker):
    channel = client.open(1)
    channel.declare("q")
    channel.publish("q", b"a", b"b")
    channel.consume("q")
    assert len(channel.all()) == 2
    client.runtime.call(channel.ref, ConnectionClosing())
    other = Client(broker).open(1)
    assert other.declare("q").message_count == 2


def test_a_channel_that_dies_leaves_nothing_behind(client, broker):
    channel = client.open(1)
    channel.declare("q")
    channel.publish("q", b"a")
    channel.consume("q")
    channel.consume("amq.rabbitmq.reply-to", no_ack=True)
    channel.next(Basic.Deliver)
    broker.runtime.kill(channel.ref)
    other = client.open(2)
    client.runtime.event().wait(1.0)
    declared = other.declare("q")
    assert (declared.message_count, declared.consumer_count) == (1, 0)
    assert other.get("q").method.redelivered


def test_a_slow_reader_has_at_most_200_messages_on_their_way(channel, client):
    channel.declare("q")
    channel.publish("q", *[b"%d" % i for i in range(1000)])
    client.transport.full = True
    channel.consume("q", no_ack=True)
    assert len(channel.all()) <= 200
    client.transport.full = False
    client.runtime.cast(channel.ref, Writable())
    assert len(channel.all()) >= 800


def test_requests_wait_while_the_client_does_not_read_the_answers(channel, client):
    channel.declare("q")
    channel.publish("q", b"a", b"b")
    client.transport.unread = True
    for _ in range(2):
        channel.send(Basic.Get(queue="q", no_ack=True))
    assert channel.all() == []
    client.transport.unread = False
    client.runtime.cast(channel.ref, Writable())
    assert [each.body for each in channel.all()] == [b"a", b"b"]


def test_an_auto_delete_queue_is_gone_when_its_last_consumer_was_cancelled(client):
    for number in range(1, 30):
        channel = client.open(number)
        channel.declare("q", auto_delete=True)
        for tag in "ab":
            channel.consume("q", consumer_tag=tag)
        channel.call(Basic.Cancel("a"), Basic.CancelOk)
        assert channel.call(Queue.Declare(queue="q", passive=True), Queue.DeclareOk).consumer_count == 1
        channel.call(Basic.Cancel("b"), Basic.CancelOk)
        channel.send(Queue.Declare(queue="q", passive=True))
        channel.closed(404, "NOT_FOUND - no queue 'q' in vhost '/'")
