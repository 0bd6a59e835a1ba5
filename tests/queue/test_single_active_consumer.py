"""A queue with x-single-active-consumer: one consumes, the others wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.queue.channels import Holder, TestChannel
from tests.support.simulated import SimulatedHost
from warrenmq.broker.broker import Broker
from warrenmq.errors import AccessRefused
from warrenmq.queue.messages import ListConsumers

SINGLE = {"x-single-active-consumer": True}


class Place:
    def __init__(self, seed: int = 3) -> None:
        self.host = SimulatedHost(seed)
        self.broker: Broker = self.host.open()
        self.broker.declare_queue("q", arguments=SINGLE)
        self.published = 0

    def publish(self, count: int) -> None:
        bodies = [b"%d" % (self.published + i) for i in range(count)]
        self.published += count
        self.broker.publish_many("", "q", bodies).result()
        self.host.sleep(0.1)

    def active(self) -> list[str]:
        """The tags of the consumers that are not waiting."""
        return [
            info.consumer_tag
            for info in self.broker.client.calls.call_queue("q", ListConsumers())[0]
            if info.active
        ]

    def end(self, channels: list[TestChannel]) -> None:
        for channel in channels:
            channel.close()
        self.broker.close()
        self.host.check_trace()


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.host.close()


def numbers(holder: Holder) -> list[int]:
    return [int(body) for body in holder.got]


def test_the_first_consumes_until_it_is_cancelled_and_keeps_what_it_holds(place: Place) -> None:
    one, two = TestChannel(place.broker), TestChannel(place.broker)
    first, second = one.consume("q", prefetch=2, tag="first"), two.consume("q", tag="second", priority=9)
    place.publish(4)
    assert (numbers(first), numbers(second)) == ([0, 1], []), (
        "the one that is active is full: the others wait all the same"
    )
    one.cancel(first)
    place.host.sleep(0.1)
    assert (numbers(first), numbers(second)) == ([0, 1], [2, 3])
    assert len(one.held()) == 2
    assert place.active() == ["second"]
    place.end([one, two])


def test_the_next_is_the_one_of_the_highest_priority_that_has_waited_longest(place: Place) -> None:
    channels = [TestChannel(place.broker) for _ in range(5)]
    for channel, (tag, priority) in zip(
        channels, [("a", 0), ("b", 0), ("c", 5), ("d", 5), ("e", 1)], strict=True
    ):
        channel.consume("q", tag=tag, priority=priority)
    order = [place.active()]
    for dying in (0, 2, 3, 4):
        channels[dying].die()
        place.host.sleep(0.1)
        order.append(place.active())
    assert order == [["a"], ["c"], ["d"], ["e"], ["b"]]
    place.end([channels[1]])


def test_an_exclusive_consumer_is_refused(place: Place) -> None:
    channel = TestChannel(place.broker)
    with pytest.raises(AccessRefused) as refused:
        channel.consume("q", exclusive=True)
    assert refused.value.reply_text == "queue 'q' in vhost '/' in exclusive use"
    place.end([channel])


def test_what_a_dead_one_held_goes_to_the_next_before_what_came_later(place: Place) -> None:
    one, two = TestChannel(place.broker), TestChannel(place.broker)
    one.consume("q")
    heir = two.consume("q")
    place.publish(3)
    one.die()
    place.host.sleep(0.1)
    place.publish(2)
    assert numbers(heir) == [0, 1, 2, 3, 4]
    place.end([two])


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 1 << 32),
    happened=st.lists(
        st.tuples(st.sampled_from(["consume", "consume", "cancel", "die", "publish"]), st.integers(0, 99)),
        max_size=25,
    ),
)
def test_the_rule_of_succession(seed: int, happened: list[tuple[str, int]]) -> None:
    place = Place(seed)
    waiting: list[tuple[str, int, TestChannel, Holder]] = []
    active = ""
    try:
        for number, (what, how) in enumerate(happened):
            if what == "consume":
                channel = TestChannel(place.broker)
                tag, priority = str(number), how % 3
                waiting.append((tag, priority, channel, channel.consume("q", tag=tag, priority=priority)))
            elif what == "publish":
                before = {tag: len(holder.got) for tag, _, _, holder in waiting}
                place.publish(how % 4)
                assert all(tag == active or len(holder.got) == before[tag] for tag, _, _, holder in waiting)
            elif waiting:
                _, _, channel, holder = waiting.pop(how % len(waiting))
                if what == "cancel":
                    channel.cancel(holder)
                channel.die()
                place.host.sleep(0.1)
            if active not in [tag for tag, *_ in waiting]:
                active = max(waiting, key=lambda each: each[1])[0] if waiting else ""
            assert place.active() == ([active] if active else [])
        place.end([channel for _, _, channel, _ in waiting])
    finally:
        place.host.close()
