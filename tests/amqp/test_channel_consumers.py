"""The consumers of a channel: cancels, limits, recover, and what a nack gives back."""

from pamqp.commands import Basic, Confirm, Queue

from tests.amqp.channels import Client, Message


def test_a_cancelled_consumer_gets_what_was_on_its_way_before_cancel_ok(channel):
    channel.declare("q")
    channel.publish("q", *[b"%d" % i for i in range(20)])
    channel.send(Basic.Consume(queue="q", consumer_tag="c"), Basic.Cancel("c"))
    found = channel.all()
    assert isinstance(found[0], Basic.ConsumeOk)
    assert [type(each) for each in found[1:-1]] == [Message] * (len(found) - 2)
    assert isinstance(found[-1], Basic.CancelOk)
    channel.publish("q", b"late")
    assert channel.all() == []
    channel.call(Basic.Cancel("nobody"), Basic.CancelOk)


def test_a_deleted_queue_cancels_its_consumers(channel, client):
    other = client.open(2)
    other.declare("q")
    channel.consume("q", consumer_tag="c")
    other.call(Queue.Delete(queue="q"), Queue.DeleteOk)
    cancel = channel.next(Basic.Cancel)
    assert (cancel.consumer_tag, cancel.nowait) == ("c", True)


def test_clients_that_do_not_know_server_sent_cancels_get_none(broker):
    client = Client(broker, capabilities={"basic.nack": True})
    channel, other = client.open(1), client.open(2)
    other.declare("q")
    channel.consume("q", consumer_tag="c")
    other.call(Queue.Delete(queue="q"), Queue.DeleteOk)
    assert channel.all() == []
    other.declare("q")
    assert channel.consume("q", consumer_tag="c") == "c"


def test_a_consumer_of_a_deleted_queue_is_cancelled_even_if_another_one_has_its_name_by_now(client):
    for number in range(1, 20):
        deleter, consumer = client.open(2 * number - 1), client.open(2 * number)
        deleter.declare("q")
        consumer.consume("q", consumer_tag="c")
        deleter.send(Queue.Delete(queue="q"), Queue.Declare(queue="q"))
        assert consumer.next(Basic.Cancel).consumer_tag == "c"
        deleter.next(Queue.DeleteOk)
        deleter.next(Queue.DeclareOk)
        assert deleter.call(Queue.Delete(queue="q", if_unused=True), Queue.DeleteOk).message_count == 0


def test_a_consumer_survives_a_crash_of_its_queue(channel, broker):
    channel.declare("q", durable=True)
    channel.call(Confirm.Select(), Confirm.SelectOk)
    channel.consume("q", consumer_tag="c")
    broker.runtime.kill(broker.inside.client.calls.address("q"))
    channel.publish("q", b"a", delivery_mode=2)
    found = channel.all()
    while not any(isinstance(each, Message) for each in found):  # a publish into the gap is nacked
        assert [type(each) for each in found] == [Basic.Nack]
        channel.publish("q", b"a", delivery_mode=2)
        found = channel.all()
    assert [each.body for each in found if isinstance(each, Message)] == [b"a"]


def test_qos_counts_for_later_consumers(channel):
    channel.declare("q")
    channel.publish("q", b"a", b"b", b"c")
    channel.call(Basic.Qos(prefetch_count=1), Basic.QosOk)
    channel.consume("q", consumer_tag="one")
    assert [each.body for each in channel.all()] == [b"a"]
    channel.send(Basic.Ack(1))
    assert [each.body for each in channel.all()] == [b"b"]
    channel.call(Basic.Qos(prefetch_count=0), Basic.QosOk)
    channel.consume("q", consumer_tag="two")
    assert [(each.body, each.method.consumer_tag) for each in channel.all()] == [(b"c", "two")]


def test_global_qos_is_shared(channel):
    channel.declare("q")
    channel.publish("q", *[b"%d" % i for i in range(6)])
    channel.call(Basic.Qos(prefetch_count=2, global_=True), Basic.QosOk)
    channel.consume("q", consumer_tag="one")
    channel.consume("q", consumer_tag="two")
    assert len(channel.all()) == 2
    channel.send(Basic.Ack(1))
    assert len(channel.all()) == 1
    assert channel.get("q", no_ack=False) is not None  # gets are not limited, and do not count
    channel.send(Basic.Ack(4))
    assert channel.all() == []
    channel.call(Basic.Qos(prefetch_count=0, global_=True), Basic.QosOk)
    assert len(channel.all()) == 2


def test_recover_requeues_everything(channel):
    channel.declare("q")
    channel.publish("q", b"a", b"b")
    channel.consume("q")
    assert [each.body for each in channel.all()] == [b"a", b"b"]
    channel.send(Basic.Recover(requeue=True))
    found = channel.all()
    assert [type(each) for each in found if not isinstance(each, Message)] == [Basic.RecoverOk]
    again = [each for each in found if isinstance(each, Message)]
    assert [(each.body, each.method.redelivered) for each in again] == [(b"a", True), (b"b", True)]
    assert [each.method.delivery_tag for each in again] == [3, 4]


def test_nack_multiple_and_reject_without_requeue(channel):
    channel.declare("q")
    channel.publish("q", b"a", b"b", b"c", b"d")
    for _ in range(4):
        channel.get("q", no_ack=False)
    channel.send(Basic.Nack(2, multiple=True, requeue=True), Basic.Reject(3, requeue=False), Basic.Nack(4))
    assert channel.bodies("q") == [b"a", b"b", b"d"]


def test_what_was_acked_before_a_nack_of_several_does_not_come_back(channel):
    channel.declare("q")
    channel.publish("q", b"a", b"b", b"c")
    for _ in range(3):
        channel.get("q", no_ack=False)
    channel.send(Basic.Ack(2), Basic.Nack(3, multiple=True, requeue=True))
    assert channel.bodies("q") == [b"a", b"c"]


def test_what_is_rejected_makes_room_for_the_next_in_a_channels_limit(channel):
    channel.declare("q")
    channel.call(Basic.Qos(prefetch_count=2, global_=True), Basic.QosOk)
    channel.publish("q", b"a", b"b", b"c", b"d", b"e")
    channel.consume("q")
    assert [each.body for each in channel.all()] == [b"a", b"b"]
    channel.send(Basic.Reject(1, requeue=False))
    assert [each.body for each in channel.all()] == [b"c"]
    channel.send(Basic.Nack(3, multiple=True, requeue=False))
    assert [each.body for each in channel.all()] == [b"d", b"e"]
