"""Queues with several channels against an account of who holds what, in simulation.

Channels consume, get, ack, reject, stall, change their limits, close and die at any moment; actors run in the order
that a seed decides.  Whenever a queue hands a message out: nobody else holds it, it is marked redelivered if somebody
had it before, and no limit is exceeded.  When all is quiet: nothing is lost, and where messages wait every consumer
is at one of its limits.  In the end what was not acked is there, in order, and the trace replays.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.queue.channels import Held, Holder, TestChannel
from tests.support.simulated import EVERY_KIND, SimulatedHost
from warrenmq.errors import AccessRefused
from warrenmq.queue.channel_record import UNSENT_LIMIT
from warrenmq.settings import Settings

QUEUES = ("q", "r")


class World:
    """The queues, their channels, and the account; each method but the last few is something that can happen, and
    takes three numbers that say to whom, and how."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self.host = SimulatedHost(seed, settings)
        self.broker = self.host.open()
        for name in QUEUES:
            self.broker.declare_queue(name)
        self.channels: list[TestChannel] = []
        self.limits: dict[TestChannel, list[int]] = {}
        """The limits in force since all was quiet last, the present one last; 0 = none."""
        self.number = 0
        self.published: dict[str, list[bytes]] = {name: [] for name in QUEUES}
        self.seen: set[tuple[str, bytes]] = set()
        self.gone: set[tuple[str, bytes]] = set()
        self.held: dict[tuple[str, bytes], Held] = {}
        self.open(0, 0, 0)
        self.open(0, 0, 0)

    # -- what a queue does

    def handed_out(self, held: Held) -> None:
        holder = held.holder
        channel, message = holder.channel, (holder.queue, held.body)
        assert message not in self.gone, "it was acked"
        assert message not in self.held or not self.held[message].holder.channel.alive, "somebody holds it"
        assert held.redelivered or message not in self.seen
        self.seen.add(message)
        if held.no_ack:
            self.gone.add(message)
        else:
            self.held[message] = held
        if holder.getter:
            return
        assert not holder.cancelled
        assert channel.unsent(holder.queue) <= UNSENT_LIMIT
        if not held.no_ack:
            assert not holder.prefetch or len(holder.held) <= holder.prefetch
            limits = self.limits[channel]
            assert 0 in limits or channel.counted() <= max(limits)

    # -- what happens

    def publish(self, at: int, how: int, wait: int) -> None:
        name, count = QUEUES[at % 2], (1, 3, 20, 120)[how % 4]
        bodies = [b"%06d" % (self.number + i) for i in range(count)]
        self.number += count
        self.published[name] += bodies
        confirm = self.broker.publish_many("", name, bodies)
        if wait % 2:
            confirm.result()

    def open(self, *_: int) -> None:
        if len(self.channels) < 4:
            channel = TestChannel(self.broker, told=self.handed_out)
            self.channels.append(channel)
            self.limits[channel] = [0]

    def consume(self, at: int, how: int, prefetch: int) -> None:
        if (channel := self.one(at)) is not None:
            try:
                channel.consume(QUEUES[how % 2], (0, 1, 2, 7)[prefetch % 4], no_ack=how % 5 == 0,
                                priority=how % 3 - 1, exclusive=how % 11 == 0)  # fmt: skip
            except AccessRefused:
                assert how % 11 == 0 or any(each.exclusive for each in self.consuming(QUEUES[how % 2]))

    def cancel(self, at: int, which: int, _: int) -> None:
        if (channel := self.one(at)) is not None:
            consuming = [each for each in channel.holders if not each.getter and not each.cancelled]
            if consuming:
                channel.cancel(consuming[which % len(consuming)])

    def get(self, at: int, how: int, _: int) -> None:
        if (channel := self.one(at)) is not None:
            channel.get(QUEUES[how % 2], no_ack=how % 3 == 0)

    def ack(self, at: int, first: int, how: int) -> None:
        if (channel := self.one(at)) is not None and (
            chosen := self.settled(channel, first, how, requeue=False)
        ):
            channel.ack(*chosen)

    def reject(self, at: int, first: int, how: int) -> None:
        requeue = how % 5 > 0
        if (channel := self.one(at)) is not None and (
            chosen := self.settled(channel, first, how, requeue=requeue)
        ):
            channel.reject(*chosen, requeue=requeue)

    def qos(self, at: int, how: int, _: int) -> None:
        if (channel := self.one(at)) is not None:
            prefetch_count = (0, 1, 3, 8)[how % 4]
            self.limits[channel].append(prefetch_count)
            channel.qos(prefetch_count)

    def stall(self, at: int, *_: int) -> None:
        if (channel := self.one(at)) is not None:
            channel.slow = True

    def read(self, at: int, *_: int) -> None:
        if (channel := self.one(at)) is not None:
            channel.read()

    def close(self, at: int, *_: int) -> None:
        if (channel := self.one(at)) is not None:
            self.channels.remove(channel)
            channel.close()

    def die(self, at: int, *_: int) -> None:
        if (channel := self.one(at)) is not None:
            self.channels.remove(channel)
            channel.die()
            self.host.sleep(0.1)  # the queues hear of it: until then its consumers are there

    def quiet(self, *_: int) -> None:
        self.host.sleep(1.0)
        for name in QUEUES:
            info = self.broker.queue(name).info()
            held = [each for channel in self.channels for each in channel.held() if each.holder.queue == name]
            gone = sum(queue == name for queue, _ in self.gone)
            assert info.unacked == len(held)
            assert info.ready == len(self.published[name]) - len(held) - gone
            assert info.consumers == len(self.consuming(name))
            if info.ready:
                assert all(self.is_full(holder) for holder in self.consuming(name))
        for limits in self.limits.values():
            del limits[:-1]

    # --

    def one(self, at: int) -> TestChannel | None:
        return self.channels[at % len(self.channels)] if self.channels else None

    def consuming(self, name: str) -> list[Holder]:
        return [
            holder for channel in self.channels for holder in channel.holders
            if holder.queue == name and not holder.getter and not holder.cancelled
        ]  # fmt: skip

    def settled(self, channel: TestChannel, first: int, how: int, *, requeue: bool) -> list[Held]:
        if not (held := channel.held()):
            return []
        first %= len(held)
        chosen = held[first : first + (1, 2, 5, 200)[how % 4]]
        for each in chosen:
            message = each.holder.queue, each.body
            del self.held[message]
            if not requeue:
                self.gone.add(message)
        return chosen

    def is_full(self, holder: Holder) -> bool:
        channel, limit = holder.channel, self.limits[holder.channel][-1]
        own = bool(holder.prefetch) and not holder.no_ack and len(holder.held) >= holder.prefetch
        return (
            own
            or (bool(limit) and channel.counted() >= limit)
            or channel.unsent(holder.queue) >= UNSENT_LIMIT
        )

    def end(self) -> None:
        self.quiet()
        for channel in self.channels:
            channel.close()
        for name in QUEUES:
            found = [delivery.body for delivery in iter(self.broker.queue(name).get, None)]
            assert found == [body for body in self.published[name] if (name, body) not in self.gone]
        self.broker.close()
        self.host.check_trace()


OFTEN = ["publish", "consume", "ack", "publish", "consume", "ack", "reject", "quiet", "qos"]
SELDOM = ["open", "cancel", "get", "stall", "read", "close", "die"]
numbers = st.integers(0, 1000)
happenings = st.lists(
    st.tuples(st.sampled_from(OFTEN + SELDOM), numbers, numbers, numbers), min_size=50, max_size=80
)


@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 32), settings=st.sampled_from(EVERY_KIND), happened=happenings)
def test_nothing_is_lost_or_held_twice_no_limit_exceeded_and_no_consumer_starves(
    seed: int, settings: Settings, happened: list[tuple[str, int, int, int]]
) -> None:
    world = World(seed, settings)
    try:
        for what, *numbers in happened:
            getattr(world, what)(*numbers)
        world.end()
    finally:
        world.host.close()
