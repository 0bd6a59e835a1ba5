"""A queue's consumers as their channels see them: a real broker in simulation, channels that a test steers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.queue.channels import Holder, TestChannel
from tests.support.simulated import SimulatedHost
from warrenmq.broker.broker import Broker
from warrenmq.errors import AccessRefused, NotFound
from warrenmq.queue.channel_record import UNSENT_LIMIT
from warrenmq.queue.messages import ListConsumers


class Place:
    """One broker, and a queue in it."""

    def __init__(self, seed: int = 7) -> None:
        self.host = SimulatedHost(seed)
        self.broker: Broker = self.host.open()
        self.queue = self.broker.declare_queue("q")
        self.channels: list[TestChannel] = []

    def channel(self) -> TestChannel:
        self.channels.append(TestChannel(self.broker))
        return self.channels[-1]

    def publish(self, *numbers: int, queue: str = "q") -> None:
        self.broker.publish_many("", queue, [b"%d" % number for number in numbers]).result()
        self.settle()

    def settle(self) -> None:
        self.host.sleep(0.1)

    def end(self) -> None:
        for channel in self.channels:
            if channel.alive:
                channel.close()
        self.broker.close()
        self.host.check_trace()
        self.host.close()


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.end()


def numbers(holder: Holder) -> list[int]:
    return [int(body) for body in holder.got]


def test_the_consumers_of_one_channel_are_served_in_the_order_of_the_queue(place: Place) -> None:
    order: list[bytes] = []
    channel = TestChannel(place.broker, told=lambda held: order.append(held.body))
    place.channels.append(channel)
    channel.consume("q")
    channel.consume("q")
    place.publish(*range(7))
    assert order == [b"%d" % n for n in range(7)]


def test_an_exclusive_consumer_is_alone_until_it_is_cancelled(place: Place) -> None:
    one, two = place.channel(), place.channel()
    alone = one.consume("q", exclusive=True)
    for exclusive in (False, True):
        with pytest.raises(AccessRefused) as refused:
            two.consume("q", exclusive=exclusive)
        assert refused.value.reply_text == "queue 'q' in vhost '/' in exclusive use"
    place.publish(1)
    one.cancel(alone)
    assert len(one.held()) == 1, "what it holds does not keep the queue"
    two.consume("q")
    with pytest.raises(AccessRefused):
        one.consume("q", exclusive=True)


def test_messages_held_by_a_cancelled_consumer_stay_with_its_channel(place: Place) -> None:
    one, two = place.channel(), place.channel()
    first = one.consume("q")
    place.publish(1, 2, 3)
    one.cancel(first)
    second = two.consume("q")
    place.publish(4)
    assert (numbers(first), numbers(second)) == ([1, 2, 3], [4])
    one.ack(first.held[1])
    one.reject(first.held[2])
    place.settle()
    assert numbers(second) == [4, 2]
    one.close()
    place.settle()
    assert numbers(second) == [4, 2, 3]


@pytest.mark.parametrize("orderly", [True, False])
def test_a_channel_that_ends_gives_everything_back_to_its_old_place(place: Place, orderly: bool) -> None:
    one, two = place.channel(), place.channel()
    consumer = one.consume("q", prefetch=3)
    place.publish(*range(6))
    got = one.get("q")
    assert (got.message.payload[-1:], got.ready) == (b"3", 2)
    one.ack(consumer.held[2])
    place.settle()  # it gets 4 now
    one.close() if orderly else one.die()
    if orderly:
        assert place.queue.info().ready == 5, "before close-ok"
    place.settle()
    info = place.queue.info()
    assert (info.ready, info.unacked, info.consumers) == (5, 0, 0)
    heir = two.consume("q")
    place.settle()
    assert numbers(heir) == [0, 2, 3, 4, 5]
    assert [held.redelivered for held in two.held()] == [True, True, True, True, False]


def test_a_queue_that_is_deleted_automatically_goes_with_its_last_consumer_and_not_with_a_getter(
    place: Place,
) -> None:
    place.broker.declare_queue("auto", auto_delete=True)
    one, two, three = place.channel(), place.channel(), place.channel()
    three.get("auto")
    three.close()
    place.settle()
    consumer = one.consume("auto")
    two.consume("auto")
    one.cancel(consumer)
    place.settle()
    place.broker.queue("auto")
    two.die()
    place.settle()
    with pytest.raises(NotFound):
        place.broker.queue("auto")


def test_basic_get_is_not_limited_and_tells_how_many_are_left(place: Place) -> None:
    channel = place.channel()
    channel.qos(1)
    channel.consume("q")
    place.publish(0, 1, 2, 3)
    got = [channel.get("q", no_ack=no_ack) for no_ack in (False, True, False, False)]
    assert [each and each.ready for each in got] == [2, 1, 0, None]
    assert place.queue.info().unacked == 3


def test_a_limit_stops_what_needs_no_ack_too_but_does_not_count_it(place: Place) -> None:
    channel = place.channel()
    channel.qos(2)
    quiet = channel.consume("q", no_ack=True)
    place.publish(*range(5))
    assert len(quiet.got) == 5
    place.broker.declare_queue("r")
    channel.consume("r")
    place.publish(*range(4), queue="r")
    assert channel.counted() == 2
    place.publish(5)
    assert len(quiet.got) == 5
    channel.ack(channel.held()[0])
    place.settle()
    assert channel.counted() == 2, "r was refused as well, and has taken the room"
    channel.qos(0)
    place.settle()
    assert len(quiet.got) == 6
    assert len(channel.held()) == 3


def test_a_slow_client_is_sent_no_more_than_the_unsent_limit_even_if_it_cancels(place: Place) -> None:
    channel = place.channel()
    channel.slow = True
    first, second = channel.consume("q", no_ack=True), channel.consume("q")
    place.publish(*range(UNSENT_LIMIT + 50))
    assert len(first.got) + len(second.got) == UNSENT_LIMIT
    channel.cancel(first)
    third = channel.consume("q")
    place.settle()
    assert third.got == []
    channel.read()
    place.settle()
    assert place.queue.info().ready == 0
    channel.slow = True
    place.publish(*range(UNSENT_LIMIT + 50))
    assert place.queue.info().ready == 50, "what was sent to the one that was cancelled is forgotten by now"
    channel.read()


def test_a_channel_that_ends_with_unacked_gets_is_use_of_the_queue(place: Place) -> None:
    place.broker.declare_queue("e", arguments={"x-expires": 1_000})
    place.publish(1, queue="e")
    holding, idle = place.channel(), place.channel()
    holding.get("e")
    idle.get("e")
    place.host.sleep(0.7)
    holding.die()
    place.host.sleep(0.7)
    place.broker.queue("e")
    idle.die()
    place.host.sleep(0.7)
    with pytest.raises(NotFound):
        place.broker.queue("e")


def test_a_python_consumer_has_a_priority_too(place: Place) -> None:
    with place.queue.consume() as low, place.queue.consume(prefetch=2, priority=1) as high:
        place.publish(0, 1, 2)
        assert [delivery.body for delivery in high.take(9, 0)] == [b"0", b"1"]
        assert [delivery.body for delivery in low.take(9, 0)] == [b"2"]


def test_consumers_can_be_listed(place: Place) -> None:
    channel = place.channel()
    channel.consume("q", prefetch=3, priority=2, tag="ctag")
    channel.get("q")
    face = place.queue.consume(no_ack=True)
    one, two = place.broker.inside.client.calls.call_queue("q", ListConsumers())[0]
    assert (one.channel, one.consumer_tag, one.ack_required, one.prefetch, one.priority) == (
        channel.ref,
        "ctag",
        True,
        3,
        2,
    )
    assert (two.channel, two.ack_required) == (None, False)
    assert one.active
    assert two.active
    face.cancel()


def test_an_ack_of_many_is_one_message_and_unknown_tags_mean_nothing(place: Place) -> None:
    channel = place.channel()
    consumer = channel.consume("q", prefetch=4)
    place.publish(*range(8))
    held = list(consumer.held.values())
    channel.ack(*held[1:])
    consumer.held.update({each.tag: each for each in held[1:3]})
    channel.ack(*held[:3])
    place.settle()
    assert sorted(numbers(consumer)) == list(range(8))
    assert place.queue.info().unacked == 4
