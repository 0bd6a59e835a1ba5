"""Errors of a channel with their codes and texts, as of RabbitMQ 3.10.8, permissions included."""

import pytest
from pamqp import frame
from pamqp.commands import Basic, Channel, Exchange, Queue, Tx

from tests.amqp.channels import Client, NamedUser


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        (Basic.Get(queue="no"), 404, "NOT_FOUND - no queue 'no' in vhost '/'"),
        (Basic.Consume(queue="no"), 404, "NOT_FOUND - no queue 'no' in vhost '/'"),
        (Queue.Declare(queue="no", passive=True), 404, "NOT_FOUND - no queue 'no' in vhost '/'"),
        (Queue.Purge(queue="no"), 404, "NOT_FOUND - no queue 'no' in vhost '/'"),
        (Queue.Purge(queue=""), 404, "NOT_FOUND - no previously declared queue"),
        (Exchange.Declare(exchange="no", passive=True), 404, "NOT_FOUND - no exchange 'no' in vhost '/'"),
        (Queue.Declare(queue="amq.mine"), 403, "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"),
        (Exchange.Declare(exchange="amq.mine"), 403, "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"),
        (Exchange.Declare(exchange=""), 403, "ACCESS_REFUSED - operation not permitted on the default exchange"),
        (Exchange.Delete(exchange="amq.topic"), 403, "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed"),
        (Basic.Ack(7), 406, "PRECONDITION_FAILED - unknown delivery tag 7"),
        (Basic.Nack(1), 406, "PRECONDITION_FAILED - unknown delivery tag 1"),
        (Basic.Reject(2), 406, "PRECONDITION_FAILED - unknown delivery tag 2"),
        (Tx.Commit(), 406, "PRECONDITION_FAILED - channel is not transactional"),
        (Tx.Rollback(), 406, "PRECONDITION_FAILED - channel is not transactional"),
        (Queue.Declare(queue="amq.rabbitmq.reply-to.a.b", passive=True), 404, "NOT_FOUND - no queue 'amq.rabbitmq.reply-to.a.b' in vhost '/'"),
        (Basic.Consume(queue="amq.rabbitmq.reply-to"), 406, "PRECONDITION_FAILED - reply consumer cannot acknowledge"),
    ],
)  # fmt: skip
def test_errors_that_close_the_channel(channel, method, code, text):
    channel.send(method)
    close = channel.closed(code, text)
    assert (close.class_id << 16 | close.method_id) == method.index
    assert channel.all() == []
    assert not channel.ref.is_alive()


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        (Channel.Open(), 504, "CHANNEL_ERROR - second 'channel.open' seen"),
        (Channel.Flow(active=False), 540, "NOT_IMPLEMENTED - active=false"),
        (Basic.Recover(requeue=False), 540, "NOT_IMPLEMENTED - requeue=false"),
        (Basic.Qos(prefetch_size=10), 540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)"),
        (Basic.GetEmpty(), 503, "COMMAND_INVALID - unimplemented method"),
    ],
)
def test_errors_that_close_the_connection(channel, method, code, text):
    channel.send(method)
    channel.failed(code, text)


def test_a_consumer_tag_is_used_once(channel):
    channel.declare("q")
    channel.consume("q", consumer_tag="c")
    channel.send(Basic.Consume(queue="q", consumer_tag="c"))
    channel.failed(530, "NOT_ALLOWED - attempt to reuse consumer tag 'c'")


@pytest.mark.parametrize(
    ("publish", "code", "text"),
    [
        ({"exchange": "no"}, 404, "NOT_FOUND - no exchange 'no' in vhost '/'"),
        ({"exchange": "amq.rabbitmq.trace"}, 403, "ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'"),
        ({"user_id": "else"}, 406, "PRECONDITION_FAILED - user_id property set to 'else' but authenticated user was 'guest'"),
        ({"expiration": "soon"}, 406, "PRECONDITION_FAILED - invalid expiration 'soon': no_integer"),
        ({"headers": {"CC": "x"}}, 406, 'PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"CC",longstr}'),
        ({"reply_to": "amq.rabbitmq.reply-to"}, 406, "PRECONDITION_FAILED - fast reply consumer does not exist"),
    ],
)  # fmt: skip
def test_publishes_that_are_refused(channel, publish, code, text):
    channel.declare("q")
    channel.publish("q", b"x", **publish)
    close = channel.closed(code, text)
    assert (close.class_id, close.method_id) == (60, 40)


def test_an_invalid_delivery_mode(channel, client):
    client.send(1, channel.published("q", b"x", delivery_mode=2).replace(b"\x10\0\x02", b"\x10\0\x03"))
    channel.closed(406, "PRECONDITION_FAILED - invalid message: {delivery_mode_unknown,3}")


def test_immediate_is_not_implemented(channel):
    channel.publish("q", b"x", immediate=True)
    channel.failed(540, "NOT_IMPLEMENTED - immediate=true")


def test_publishes_before_a_refused_one_in_the_same_read_are_done(channel, client):
    other = client.open(2)
    other.declare("q")
    client.send(
        1,
        channel.published("q", b"a")
        + channel.published("q", b"b", exchange="no")
        + channel.published("q", b"c"),
    )
    channel.closed(404, "NOT_FOUND - no exchange 'no' in vhost '/'")
    assert other.bodies("q") == [b"a"]


def test_a_close_behind_a_refused_publish_in_the_same_read_is_answered(channel, client):
    """pika waits for that, whatever else it gets."""
    client.send(
        1, channel.published("q", b"x", exchange="no") + frame.marshal(Channel.Close(200, "", 0, 0), 1)
    )
    channel.next(Channel.Close)
    channel.next(Channel.CloseOk)
    channel.send(Channel.CloseOk())
    assert channel.all() == []
    assert not channel.ref.is_alive()


def test_permissions(broker):
    user = NamedUser(
        "bob", frozenset(), {("configure", "q"), ("write", "amq.default"), ("read", "r"), ("write", "r")}
    )
    client = Client(broker, user=user)
    for number, (method, kind, name) in enumerate(
        [
            (Queue.Declare(queue="q"), "queue", "q"),
            (Queue.Delete(queue="q"), "queue", "q"),
            (Basic.Get(queue="r"), "queue", "r"),
            (Basic.Consume(queue="r"), "queue", "r"),
            (Queue.Bind(queue="r", exchange="amq.direct"), "queue", "r"),
            (Queue.Purge(queue="r"), "queue", "r"),
        ],
        start=1,
    ):
        channel = client.open(number)
        channel.send(method)
        channel.closed(403, f"ACCESS_REFUSED - access to {kind} '{name}' in vhost '/' refused for user 'bob'")
    channel = client.open(99)
    channel.publish("r", b"x")
    channel.closed(
        403, "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'bob'"
    )


def test_topic_permissions(broker):
    user = NamedUser("bob", frozenset(), {(f"{verb} topic", "amq.topic b") for verb in ("read", "write")})
    client = Client(broker, user=user)
    first = client.open(1)
    first.declare("q")
    first.call(Queue.Bind(queue="q", exchange="amq.topic", routing_key="a"), Queue.BindOk)
    first.call(Queue.Bind(queue="q", exchange="amq.direct", routing_key="b"), Queue.BindOk)
    first.publish("b", b"1", exchange="amq.direct")
    first.publish("a", b"2", exchange="amq.topic")
    first.call(Queue.Unbind(queue="q", exchange="amq.topic", routing_key="a"), Queue.UnbindOk)
    first.publish("a", b"x", exchange="amq.topic", headers={"CC": ["b"]})
    said = "ACCESS_REFUSED - access to topic 'b' in exchange 'amq.topic' in vhost '/' refused for user 'bob'"
    first.closed(403, said)
    for number, method in enumerate((Queue.Bind, Queue.Unbind), 2):
        channel = client.open(number)
        channel.send(method(queue="q", exchange="amq.topic", routing_key="b"))
        channel.closed(403, said)
    assert len(broker.queue("q")) == 2
