"""Queues with limits, times to live, priorities and dead letters against a plain model, under virtual time.

The model drops one message at a time, as rabbit_amqqueue_process does; the broker drops them in batches.  Everything is
confirmed before the next step, so a crash loses nothing but what was not acked, and what had not expired before it
has not expired after it, nor the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import warrenmq
from tests.support.simulated import EVERY_KIND, SimulatedHost
from warrenmq import Properties
from warrenmq.settings import Settings

SETTLED = 0.005
"""Seconds after which everything that is going on has come to rest."""


@dataclass(order=True)
class Message:
    """A message of the model, ordered as messages leave the queue."""

    rank: int
    """Minus its priority."""
    number: int
    body: bytes = field(compare=False)
    expires: float | None = field(compare=False)
    """Milliseconds on the simulation's clock."""
    lives_not: bool = field(compare=False)


def _number(body: bytes) -> int:
    return int(body.split()[0])


class Limited(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 1 << 32),
        settings=st.sampled_from(EVERY_KIND),
        ttl=st.sampled_from([None, None, 0, 50, 400]),
        max_length=st.sampled_from([None, 0, 1, 4]),
        max_bytes=st.sampled_from([None, None, 0, 1_000]),
        overflow=st.sampled_from(["drop-head", "drop-head", "reject-publish", "reject-publish-dlx"]),
        max_priority=st.sampled_from([None, None, 0, 2]),
        letters=st.booleans(),
    )
    def begin(self, seed: int, settings: Settings, ttl: int | None, max_length: int | None, max_bytes: int | None,
              overflow: str, max_priority: int | None, letters: bool) -> None:  # fmt: skip
        self.host = SimulatedHost(seed, settings)
        self.ttl, self.max_length, self.max_bytes, self.overflow = ttl, max_length, max_bytes, overflow
        self.max_priority, self.letters = max_priority, letters
        self.number = 0
        self.ready: list[Message] = []
        self.held: list[tuple[Message, warrenmq.Delivery]] = []
        self.dead: list[tuple[bytes, tuple[str, ...]]] = []
        """Dead letters to come, with the reasons that they may give."""
        given = {
            "x-message-ttl": ttl, "x-max-length": max_length, "x-max-length-bytes": max_bytes, "x-overflow": overflow,
            "x-max-priority": max_priority, "x-dead-letter-exchange": "dlx" if letters else None,
        }  # fmt: skip
        self.broker = self.host.open()
        self.broker.declare_exchange("dlx", "fanout")
        self.broker.declare_queue("dead")
        self.broker.bind("dead", "dlx")
        arguments = {name: value for name, value in given.items() if value is not None}
        self.queue = self.broker.declare_queue("q", arguments=arguments)

    def teardown(self) -> None:
        if hasattr(self, "host"):
            try:
                self.look()
                self.broker.close()
                self.host.check_trace()
            finally:
                self.host.close()

    # -- the model

    def now(self) -> float:
        return self.host.sim.wall_ns() / 1e6

    def over(self, messages: list[Message]) -> bool:
        too_long = self.max_length is not None and len(messages) > self.max_length
        return too_long or (
            self.max_bytes is not None and sum(len(each.body) for each in messages) > self.max_bytes
        )

    def die(self, message: Message, reason: str) -> None:
        if self.letters:
            # which of both comes first, if it lives 0 ms, depends on how many came with it
            both = message.lives_not and reason != "rejected"
            self.dead.append((message.body, ("expired", "maxlen") if both else (reason,)))

    def trim(self) -> None:
        self.ready.sort()
        while self.overflow == "drop-head" and self.ready and self.over(self.ready):
            self.die(self.ready.pop(0), "maxlen")
        self.expire()

    def expire(self) -> None:
        while self.ready and (expires := self.ready[0].expires) is not None and expires <= self.now():
            self.die(self.ready.pop(0), "expired")

    def near(self) -> bool:
        """True if some message is about to expire."""
        return any(each.expires is not None and abs(each.expires - self.now()) < 10 for each in self.ready)

    def look(self) -> None:
        """The broker is at rest and has what the model has."""
        letters = []
        known = len(self.ready) + 1
        # each step takes some time, and timers count whole milliseconds
        while known != len(self.ready) or self.near():
            known = len(self.ready)
            self.host.sleep(SETTLED)
            self.expire()
            for delivery in iter(self.broker.queue("dead").get, None):
                headers = delivery.properties.headers
                letters.append((delivery.body, headers["x-death"][0]["reason"]))
                delivery.ack()
            self.expire()
        assert self.queue.info().ready == len(self.ready)
        assert [_number(body) for body, _ in letters] == [_number(body) for body, _ in self.dead]
        assert all(said in known for (_, said), (_, known) in zip(letters, self.dead, strict=True))
        self.dead = []

    # -- rules

    @rule(
        sizes=st.lists(st.sampled_from([0, 30, 400, 1_100]), min_size=1, max_size=6),
        priority=st.sampled_from([None, 0, 1, 9]),
        own=st.sampled_from([None, None, 0, 70, 1_000]),
        batch=st.booleans(),
    )
    def publish(self, sizes: list[int], priority: int | None, own: int | None, batch: bool) -> None:
        self.look()
        properties = Properties(priority=priority, expiration=None if own is None else str(own))
        bodies = []
        for size in sizes:
            self.number += 1
            bodies.append(b"%d " % self.number + b"." * size)
        at = self.now()
        if batch:
            confirms = [self.queue.publish_many(bodies, properties=properties)]
        else:
            confirms = [self.queue.publish(body, properties=properties) for body in bodies]
        refused = 0
        for confirm in confirms:
            try:
                confirm.result()
            except warrenmq.Nacked:
                refused += 1
        expected = 0
        rank = -min(priority or 0, self.max_priority or 0)
        times = [each for each in (self.ttl, own) if each is not None]
        for number, body in enumerate(bodies, self.number - len(bodies) + 1):
            message = Message(rank, number, body, at + min(times) if times else None, 0 in times)
            if self.overflow != "drop-head" and self.over([*self.ready, message]):
                expected += 1
                if self.overflow == "reject-publish-dlx":
                    self.die(message, "maxlen")
                continue
            self.ready.append(message)
            self.trim()
        assert refused == min(expected, len(confirms))
        self.look()

    @rule()
    def get(self) -> None:
        self.look()
        delivery = self.queue.get()
        assert (delivery is None) is not bool(self.ready)
        if delivery is not None:
            message = self.ready.pop(0)
            assert delivery.body == message.body
            self.held.append((message, delivery))

    @rule(data=st.data(), how=st.sampled_from(["ack", "requeue", "reject"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        self.look()
        if not self.held:
            return
        message, delivery = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        if how == "ack":
            delivery.ack()
        elif how == "reject":
            delivery.reject(requeue=False)
            self.die(message, "rejected")
        else:
            delivery.reject()
            self.ready.append(message)
            self.trim()
        self.look()

    @rule(milliseconds=st.sampled_from([5, 60, 300]))
    def wait(self, milliseconds: int) -> None:
        for _ in range(milliseconds // 5):  # what expires is told in the order in which it does
            self.host.sleep(0.005)
            self.expire()
        self.look()

    @rule(how=st.sampled_from(["close", "crash", "power cut"]), milliseconds=st.sampled_from([0, 80]))
    def restart(self, how: str, milliseconds: int) -> None:
        self.look()
        self.host.sleep(2)
        self.expire()  # all that can; a letter that was sent just before a crash may come twice
        self.look()
        self.host.sleep(1)  # the acks are on disk
        if how == "close":
            self.broker.close()
        else:
            self.host.crash(power_cut=how == "power cut")
        self.host.sleep(milliseconds / 1_000)
        self.broker = self.host.open()
        self.queue = self.broker.queue("q")
        self.ready += [message for message, _ in self.held]
        self.held.clear()
        self.trim()
        self.look()


TestLimited = Limited.TestCase
TestLimited.settings = hypothesis_settings(
    max_examples=40, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
