"""One channel with one client: methods, answers, errors and their texts, as of RabbitMQ 3.10.8."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue, Tx

from tests.amqp.channels import Client, Message
from warrenmq.message.properties import Properties


def test_a_message_goes_in_and_comes_out_with_its_properties(channel):
    channel.declare("q")
    channel.publish("q", b"one", content_type="text/plain", headers={"n": 1}, delivery_mode=2, message_id="m")
    message = channel.get("q")
    assert message.body == b"one"
    assert message.properties.content_type == "text/plain"
    assert message.properties.headers == {"n": 1}
    assert message.properties.message_id == "m"
    assert (message.method.delivery_tag, message.method.redelivered, message.method.message_count) == (
        1,
        False,
        0,
    )
    assert (message.method.exchange, message.method.routing_key) == ("", "q")


def test_the_transport_learns_how_many_bytes_were_handled(channel, client):
    before = client.transport.handled_bytes
    data = channel.published("nowhere", b"x" * 1000)
    client.send(1, data)
    channel.all()
    assert client.transport.handled_bytes - before == len(data)


def test_consumer_gets_what_is_there_and_what_comes(channel):
    channel.declare("q")
    channel.publish("q", b"a", b"b")
    assert channel.consume("q", consumer_tag="c") == "c"
    first, second = channel.next(Basic.Deliver), channel.next(Basic.Deliver)
    channel.publish("q", b"c")
    third = channel.next(Basic.Deliver)
    assert [(each.body, each.method.delivery_tag) for each in (first, second, third)] == [
        (b"a", 1),
        (b"b", 2),
        (b"c", 3),
    ]
    assert channel.get("q") is None
    channel.send(Basic.Ack(3, multiple=True))
    assert channel.call(Queue.Declare(queue="q", passive=True), Queue.DeclareOk).message_count == 0
    channel.call(Channel.Close(200, "", 0, 0), Channel.CloseOk)


def test_close_ok_comes_after_the_requeue(client):
    one, two = client.open(1), client.open(2)
    one.declare("q")
    one.publish("q", b"a", b"b", b"c")
    one.consume("q", no_ack=False)
    for _ in range(3):
        one.next(Basic.Deliver)
    one.send(Basic.Ack(1))
    one.call(Channel.Close(200, "", 0, 0), Channel.CloseOk)
    got = [two.get("q") for _ in range(3)]
    assert [message and (message.body, message.method.redelivered) for message in got] == [
        (b"b", True),
        (b"c", True),
        None,
    ]


def test_large_bodies_take_many_frames_both_ways(broker):
    channel = Client(broker, frame_max=4096).open(1)
    channel.declare("q")
    body = bytes(range(256)) * 100
    channel.publish("q", body)
    assert channel.get("q").body == body


def test_messages_published_from_python_arrive_as_far_as_amqp_can_express_them(channel, broker):
    queue = broker.declare_queue("q")
    broker.bind("q", "amq.fanout")
    queue.publish(b"a", properties=Properties(headers={"n": 1}, message_id="m"))
    broker.publish("amq.fanout", "k" * 300, b"b")
    broker.publish("amq.fanout", "k", b"c", properties=Properties(message_id="m" * 300, headers={"n": 2}))
    first, second, third = (channel.get("q") for _ in range(3))
    assert (first.body, first.properties.headers, first.properties.message_id) == (b"a", {"n": 1}, "m")
    assert (second.body, second.method.exchange, second.method.routing_key) == (b"b", "amq.fanout", "k" * 255)
    assert (third.body, third.method.exchange, third.method.routing_key) == (b"c", "amq.fanout", "k")
    assert (third.properties.headers, third.properties.message_id) == ({"n": 2}, None)


def test_empty_bodies(channel):
    channel.declare("q")
    channel.publish("q", b"", b"")
    assert channel.bodies("q") == [b"", b""]


def test_confirms_count_from_the_first_publish_after_select(channel):
    channel.declare("q", durable=True)
    channel.publish("q", b"before", delivery_mode=2)
    channel.call(Confirm.Select(), Confirm.SelectOk)
    channel.publish("q", b"a", delivery_mode=2)
    ack = channel.next(Basic.Ack)
    assert (ack.delivery_tag, ack.multiple) == (1, False)
    channel.publish("q", b"b", b"c", b"d", delivery_mode=2)
    ack = channel.next(Basic.Ack)
    assert (ack.delivery_tag, ack.multiple) == (4, True)


def test_mandatory_is_returned_before_it_is_confirmed(channel):
    channel.call(Confirm.Select(), Confirm.SelectOk)
    channel.publish("nowhere", b"a", mandatory=True, message_id="m")
    returned = channel.next(Basic.Return)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.body, returned.properties.message_id, returned.method.routing_key) == (
        b"a",
        "m",
        "nowhere",
    )
    assert channel.next(Basic.Ack).delivery_tag == 1
    channel.publish("nowhere", b"b")
    assert channel.next(Basic.Ack).delivery_tag == 2
    assert channel.all() == []


def test_cc_and_bcc(channel):
    for queue in ("a", "b", "c"):
        channel.declare(queue)
    channel.publish("a", b"x", headers={"CC": ["b"], "BCC": ["c"], "n": 1})
    for queue in ("a", "b", "c"):
        message = channel.get(queue)
        assert message.properties.headers == {"CC": ["b"], "n": 1}
        assert message.method.routing_key == "a"


def test_transactions(channel, client):
    other = client.open(2)
    channel.declare("q")
    other.publish("q", b"given")
    channel.call(Tx.Select(), Tx.SelectOk)
    channel.consume("q")
    given = channel.next(Basic.Deliver)
    channel.publish("q2", b"a")
    other.declare("q2")
    channel.publish("q2", b"b")
    channel.send(Basic.Ack(given.method.delivery_tag))
    assert other.bodies("q2") == []
    channel.call(Tx.Rollback(), Tx.RollbackOk)
    channel.send(Basic.Ack(given.method.delivery_tag))  # outstanding again
    channel.publish("q2", b"c", b"d")
    channel.call(Tx.Commit(), Tx.CommitOk)
    assert other.bodies("q2") == [b"c", b"d"]
    channel.send(Confirm.Select())
    channel.closed(406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode")
    assert other.call(Queue.Declare(queue="q", passive=True), Queue.DeclareOk).message_count == 0


def test_what_was_acked_and_not_committed_goes_back_at_an_error(channel, client):
    channel.declare("q")
    channel.publish("q", b"x")
    channel.call(Tx.Select(), Tx.SelectOk)
    channel.consume("q", consumer_tag="c")
    channel.next(Basic.Deliver)
    channel.send(Basic.Ack(1))
    channel.call(Basic.Cancel("c"), Basic.CancelOk)
    channel.send(Queue.Purge(queue="no"))
    channel.next(Channel.Close)
    assert client.open(2).bodies("q") == [b"x"]


def test_tx_after_confirm(channel):
    channel.call(Confirm.Select(), Confirm.SelectOk)
    channel.send(Tx.Select())
    channel.closed(406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode")


def test_declare_ok_counts_messages_and_consumers(channel):
    ok = channel.declare("q")
    assert (ok.queue, ok.message_count, ok.consumer_count) == ("q", 0, 0)
    channel.publish("q", b"a", b"b")
    channel.send(Basic.Qos(prefetch_count=1), Basic.Consume(queue="q"))
    channel.all()
    ok = channel.declare("q")
    assert (ok.message_count, ok.consumer_count) == (1, 1)
    assert channel.call(Queue.Purge(queue="q"), Queue.PurgeOk).message_count == 1
    assert channel.call(Queue.Delete(queue="q"), Queue.DeleteOk).message_count == 0
    assert channel.call(Queue.Delete(queue="q"), Queue.DeleteOk).message_count == 0


def test_an_empty_name_is_the_last_declared_queue(channel):
    name = channel.declare("").queue
    assert name.startswith("amq.gen-")
    assert len(name) == len("amq.gen-") + 22
    channel.call(Queue.Bind(queue="", exchange="amq.direct", routing_key=""), Queue.BindOk)
    channel.publish(name, b"a", exchange="amq.direct")
    assert channel.get("").body == b"a"
    channel.call(Queue.Unbind(queue="", exchange="amq.direct", routing_key=""), Queue.UnbindOk)
    channel.publish(name, b"b", exchange="amq.direct")
    assert channel.get("") is None


def test_no_wait_says_nothing(channel):
    channel.send(
        Queue.Declare(queue="q", nowait=True),
        Exchange.Declare(exchange="x", nowait=True),
        Queue.Bind(queue="q", exchange="x", routing_key="k", nowait=True),
        Confirm.Select(nowait=True),
        Basic.Consume(queue="q", consumer_tag="c", nowait=True),
        Basic.Cancel("c", nowait=True),
        Queue.Purge(queue="q", nowait=True),
        Queue.Delete(queue="q", nowait=True),
        Exchange.Delete(exchange="x", nowait=True),
    )
    assert channel.all() == []
    assert channel.ref.is_alive()


def test_direct_reply_to(client):
    requester, server = client.open(1), client.open(2)
    server.declare("rpc")
    server.consume("rpc", no_ack=True)
    tag = requester.consume("amq.rabbitmq.reply-to", no_ack=True)
    requester.publish("rpc", b"question", reply_to="amq.rabbitmq.reply-to", correlation_id="1")
    question = server.next(Basic.Deliver)
    address = question.properties.reply_to
    assert address.startswith("amq.rabbitmq.reply-to.")
    assert server.call(Queue.Declare(queue=address, passive=True), Queue.DeclareOk).consumer_count == 1
    server.publish(address, b"answer", correlation_id="1")
    answer = requester.next(Basic.Deliver)
    assert (answer.body, answer.method.consumer_tag, answer.properties.correlation_id) == (
        b"answer",
        tag,
        "1",
    )
    assert (answer.method.exchange, answer.method.routing_key) == ("", address)
    requester.call(Basic.Cancel(tag), Basic.CancelOk)
    server.publish(address, b"too late")
    assert requester.all() == []
    server.publish(address, b"too late", mandatory=True)
    assert server.next(Basic.Return).body == b"too late"
    server.send(Queue.Declare(queue=address, passive=True))
    server.closed(404, f"NOT_FOUND - no queue '{address}' in vhost '/'")
    requester.consume("amq.rabbitmq.reply-to", no_ack=True)
    client.open(3).publish(address, b"of the consumer before")
    assert requester.all() == []


def test_a_second_reply_consumer_is_refused(channel):
    channel.consume("amq.rabbitmq.reply-to", no_ack=True)
    channel.send(Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True))
    channel.closed(406, "PRECONDITION_FAILED - reply consumer already set")


@pytest.mark.parametrize("method", [Basic.Consume(queue="q", nowait=True), Basic.Get(queue="q")])
def test_a_consumer_that_never_acks_is_taken_for_dead(channel, client, method):
    channel.declare("q")
    channel.publish("q", b"a")
    channel.send(method)
    assert isinstance(channel.next(), Message)
    client.runtime.event().wait(1700)
    assert channel.all() == []
    client.runtime.event().wait(161)
    text = (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 1800000 ms. "
        "This timeout value can be configured, see consumers doc guide to learn more"
    )
    close = channel.closed(406, text)
    assert (close.class_id, close.method_id) == (0, 0)
    assert client.open(2).bodies("q") == [b"a"]


def test_after_its_close_a_channel_answers_nothing_but_close(channel):
    channel.send(
        Basic.Ack(1), Queue.Declare(queue="q"), Channel.Close(200, "", 0, 0), Queue.Declare(queue="q")
    )
    channel.next(Channel.Close)
    channel.next(Channel.CloseOk)
    channel.publish("q", b"x", mandatory=True)
    channel.send(Queue.Declare(queue="q"))
    assert channel.all() == []
    channel.send(Channel.CloseOk())
    assert channel.all() == []
    assert not channel.ref.is_alive()


def test_frames_out_of_turn(channel, client):
    client.send(1, channel.published("q", b"abc")[:-11] + channel.published("q", b""))
    channel.failed(505, "UNEXPECTED_FRAME - expected content body, got non content body frame instead")


def test_a_message_that_is_too_large_is_refused_at_its_header(broker):
    small = Client(broker)
    channel = small.open(1)
    header = channel.published("q", b"x" * 9)
    size = (134_217_729).to_bytes(8, "big")
    small.send(1, header.replace((9).to_bytes(8, "big"), size))
    channel.closed(
        406, "PRECONDITION_FAILED - message size 134217729 is larger than configured max size 134217728"
    )


def test_worked_trace_12_a_cycle_of_exchanges_gives_one_copy(channel):
    channel.declare("q")
    for exchange in ("x1", "x2"):
        channel.call(Exchange.Declare(exchange=exchange, exchange_type="fanout"), Exchange.DeclareOk)
        channel.call(Queue.Bind(queue="q", exchange=exchange), Queue.BindOk)
    channel.call(Exchange.Bind(destination="x2", source="x1"), Exchange.BindOk)
    channel.call(Exchange.Bind(destination="x1", source="x2"), Exchange.BindOk)
    channel.publish("", b"once", exchange="x1")
    assert channel.bodies("q") == [b"once"]


def test_worked_trace_12_an_alternate_is_not_used_when_the_type_matched_something(channel):
    channel.declare("y")
    for exchange, arguments in (("Y", {}), ("Z", {}), ("X", {"alternate-exchange": "Y"})):
        channel.call(
            Exchange.Declare(exchange=exchange, exchange_type="fanout", arguments=arguments),
            Exchange.DeclareOk,
        )
    channel.call(Queue.Bind(queue="y", exchange="Y"), Queue.BindOk)
    channel.publish("", b"to the alternate", exchange="X", mandatory=True)
    assert channel.bodies("y") == [b"to the alternate"]
    channel.call(Exchange.Bind(destination="Z", source="X"), Exchange.BindOk)
    channel.publish("", b"to Z", exchange="X", mandatory=True)
    assert channel.next(Basic.Return).body == b"to Z"
    assert channel.bodies("y") == []


def test_worked_trace_13_a_full_queue_refuses_even_in_one_run(channel):
    channel.declare("q", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.call(Basic.Qos(prefetch_count=1), Basic.QosOk)
    channel.consume("q")
    channel.call(Confirm.Select(), Confirm.SelectOk)
    channel.publish("q", b"held", b"ready", b"refused", b"refused", delivery_mode=2)
    answers: dict[int, type] = {}
    for answer in channel.all():
        if isinstance(answer, Basic.Ack | Basic.Nack):
            first = 1 if answer.multiple else answer.delivery_tag
            for seqno in range(first, answer.delivery_tag + 1):
                answers.setdefault(seqno, type(answer))
    assert dict(sorted(answers.items())) == {1: Basic.Ack, 2: Basic.Ack, 3: Basic.Nack, 4: Basic.Nack}


def test_worked_trace_13_drop_head_takes_the_new_one(channel):
    channel.declare("q", durable=True, arguments={"x-max-length": 1})
    channel.call(Confirm.Select(), Confirm.SelectOk)
    channel.publish("q", b"old", delivery_mode=2)
    channel.publish("q", b"new", delivery_mode=2)
    assert {type(each) for each in channel.all()} == {Basic.Ack}
    assert channel.bodies("q") == [b"new"]


def test_a_transaction_that_a_queue_refuses_closes_the_channel(channel):
    channel.declare("q", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.call(Tx.Select(), Tx.SelectOk)
    channel.publish("q", b"a", b"b", delivery_mode=2)
    channel.send(Tx.Commit())
    close = channel.closed(406, "PRECONDITION_FAILED - partial tx completion")
    assert (close.class_id, close.method_id) == (90, 20)


def test_a_commit_does_not_wait_for_a_queue_that_was_deleted_since_the_publish(channel, client):
    for queue in ("q", "gone"):
        channel.declare(queue, durable=True)
    channel.call(Tx.Select(), Tx.SelectOk)
    for queue in ("q", "gone"):
        channel.publish(queue, b"a", delivery_mode=2)
    assert channel.all() == []
    client.open(2).call(Queue.Delete(queue="gone"), Queue.DeleteOk)
    channel.call(Tx.Commit(), Tx.CommitOk)
    assert channel.bodies("q") == [b"a"]


LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be originally declared on "
    "another connection or the exclusive property value does not match that of the original declaration."
)


@pytest.mark.parametrize(
    "method",
    [
        Queue.Declare(queue="mine", passive=True),
        Queue.Declare(queue="mine", exclusive=True),
        Queue.Declare(queue="mine"),
        Queue.Bind(queue="mine", exchange="amq.direct", routing_key="k"),
        Queue.Purge(queue="mine"),
        Queue.Delete(queue="mine"),
        Basic.Get(queue="mine"),
        Basic.Consume(queue="mine"),
    ],
)
def test_an_exclusive_queue_is_its_connections(channel, broker, method):
    channel.declare("mine", exclusive=True)
    channel.client.open(2).declare("mine", exclusive=True)
    stranger = Client(broker).open(1)
    stranger.publish("mine", b"anybody may publish")
    assert stranger.all() == []
    assert channel.get("mine").body == b"anybody may publish"
    stranger.send(method)
    stranger.closed(405, LOCKED)
