"""A queue against RabbitMQ's rule that no message is ready while a consumer has room for it (assert_invariant).

One sender publishes, gets, counts, purges and acks in one go.  The model handles one request after the other and
hands each message out the moment that it comes; the queue collects publishes, and must never let that be seen.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.queue.channels import Held, TestChannel
from tests.support.simulated import EVERY_KIND, SimulatedHost
from warrenmq.errors import PreconditionFailed
from warrenmq.queue.messages import Purge, Stat
from warrenmq.settings import Settings

LIMITS: dict[str, dict[str, Any]] = {
    "none": {},
    "drop-head": {"x-max-length": 2},
    "reject-publish": {"x-max-length": 2, "x-overflow": "reject-publish"},
    "ttl": {"x-message-ttl": 0},
}


class World:
    """The queue and its model; each method with three arguments is something that can happen."""

    def __init__(self, seed: int, settings: Settings, limit: str) -> None:
        self.host = SimulatedHost(seed, settings)
        self.broker = self.host.open()
        self.limit = limit
        self.broker.declare_queue("dead")
        dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        self.queue = self.broker.declare_queue("q", arguments=LIMITS[limit] | dead_letters)
        self.held: list[Held] = []
        self.taken: list[bytes] = []
        self.channel = TestChannel(self.broker, told=self.handed_out)
        self.number = 0
        # the model
        self.ready: list[bytes] = []
        self.expected: list[bytes] = []
        """Messages that consumers have been given, in order."""
        self.dead = 0
        self.prefetch = 0
        self.room = 0

    def handed_out(self, held: Held) -> None:
        if not held.holder.getter:
            self.taken.append(held.body)
            self.held.append(held)

    def call(self, request: Any) -> Any:
        return self.broker.runtime.call(self.broker.inside.client.calls.address("q"), request)

    # -- what happens

    def publish(self, count: int) -> None:
        bodies = [b"%06d" % (self.number + i) for i in range(1 + count % 80)]
        self.number += len(bodies)
        self.broker.publish_many("", "q", bodies)
        for body in bodies:
            if self.limit == "reject-publish" and len(self.ready) >= 2:
                continue
            self.ready.append(body)
            self.deliver()
            if self.limit == "ttl":
                self.drop(len(self.ready))
            elif self.limit == "drop-head":
                self.drop(len(self.ready) - 2)

    def publish_one_by_one(self, count: int) -> None:
        for _ in range(1 + count % 5):
            self.publish(0)

    def consume(self, prefetch: int) -> None:
        # basic.consume and acks have a higher priority than publishes, and may be handled before them
        self.count(0)
        prefetch = 1 + prefetch % 9
        self.room += prefetch
        self.channel.consume("q", prefetch)
        self.deliver()

    def get(self, how: int) -> None:
        if how % 2:
            delivery = self.queue.get(timeout=0)
            got = None if delivery is None else delivery.body
        else:
            reply = self.channel.get("q", no_ack=True)
            got = None if reply is None else reply.message.payload[-6:]
        assert got == (self.ready.pop(0) if self.ready else None)

    def count(self, _: int) -> None:
        assert self.call(Stat()).ready == len(self.ready)

    def purge(self, _: int) -> None:
        assert self.call(Purge()) == len(self.ready)
        self.ready.clear()

    def delete_if_empty(self, _: int) -> None:
        if self.ready:
            with pytest.raises(PreconditionFailed):
                self.broker.delete_queue("q", if_empty=True)

    def ack(self, which: int) -> None:
        self.count(0)
        if self.held:
            self.channel.ack(self.held.pop(which % len(self.held)))
            self.room += 1
            self.deliver()

    # -- the model

    def deliver(self) -> None:
        while self.room and self.ready:
            self.room -= 1
            self.expected.append(self.ready.pop(0))

    def drop(self, count: int) -> None:
        for _ in range(count):
            self.ready.pop(0)
            self.dead += 1

    def end(self) -> None:
        self.count(0)
        assert self.taken == self.expected
        self.host.sleep(1.0)
        assert self.broker.queue("dead").info().ready == self.dead
        assert self.broker.delete_queue("q") == len(self.ready)
        self.broker.close()
        self.host.check_trace()


HAPPENINGS = ["publish", "publish_one_by_one", "consume", "get", "count", "purge", "delete_if_empty", "ack"]
happenings = st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 1000)), min_size=10, max_size=40)


@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 32), st.sampled_from(EVERY_KIND), st.sampled_from(sorted(LIMITS)), happenings)
def test_no_request_finds_a_message_that_a_consumer_had_room_for(
    seed: int, settings: Settings, limit: str, happened: list[tuple[str, int]]
) -> None:
    world = World(seed, settings, limit)
    try:
        for what, number in happened:
            getattr(world, what)(number)
        world.end()
    finally:
        world.host.close()
