"""The real broker under simulation against a plain model, with kills, crashes and power cuts as rules.

The model knows for each message whether it must be there after a crash (persistent, confirmed, not acked), or may be
(unconfirmed, or acked but perhaps not yet on disk).  After every crash the queues are read whole: what must be there
is there, in order; what was never published, or is known to be gone, is not.  The trace of every run is replayed.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import warrenmq
from tests.support.simulated import EVERY_KIND, SimulatedHost
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.settings import Settings

QUEUES = ("a", "b")
VICTIMS = (
    queue_name("a"), queue_name("b"), "msg_store_persistent", "msg_store_transient", "queue_sup", "vhost_process",
    "vhost_sup",
)  # fmt: skip


class Item(NamedTuple):
    """A message of one queue, as the model sees it."""

    number: int
    body: bytes
    persistent: bool
    confirm: Confirm | None
    """None once it was found on disk after a crash."""


class Queue:
    """The model's state of one queue."""

    def __init__(self) -> None:
        self.ready: list[Item] = []
        self.held: list[tuple[Item, warrenmq.Delivery]] = []
        self.acked: list[Item] = []
        """Acked since the last time that everything was known to be on disk: may come back after a crash."""

    def after_a_crash(self, found: list[bytes]) -> None:
        """Compare with what recovery gave back, and go on from there."""
        held = [item for item, _ in self.held]
        candidates = sorted([*self.ready, *held, *self.acked], key=_age)
        must = [
            item.body
            for item in sorted([*self.ready, *held], key=_age)
            if item.persistent and _confirmed(item)
        ]
        by_body = {item.body: item for item in candidates if item.persistent}
        unknown = [body for body in found if body not in by_body]
        assert not unknown, f"never published, transient, or known to be gone: {unknown}"
        back = [by_body[body] for body in found]
        assert back == sorted(back, key=_age), "recovered messages keep their order"
        assert len(set(found)) == len(found), "no message is recovered twice"
        missing = [body for body in must if body not in found]
        assert not missing, f"confirmed and lost: {missing}"
        self.ready, self.held, self.acked = [item._replace(confirm=None) for item in back], [], []


def _age(item: Item) -> int:
    return item.number


def _confirmed(item: Item) -> bool:
    return item.confirm is None or (item.confirm.done() and item.confirm.exception() is None)


kinds = st.sampled_from(EVERY_KIND)
"""A directory is opened as any kind after any other."""


class BrokerMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 32), settings=kinds)
    def begin(self, seed: int, settings: Settings) -> None:
        self.host = SimulatedHost(seed, settings)
        self.random = random.Random(seed)
        self.number = 0
        self.model = {name: Queue() for name in QUEUES}
        self.broker = self.host.open()
        for name in QUEUES:
            self.broker.declare_queue(name)
        self.broker.declare_exchange("both", "fanout")
        for name in QUEUES:
            self.broker.bind(name, "both")

    def teardown(self) -> None:
        if hasattr(self, "host"):
            try:
                self.broker.close()
                self.host.check_trace()
            finally:
                self.host.close()

    # -- rules

    @rule(
        to=st.sampled_from([*QUEUES, "both"]),
        size=st.sampled_from([0, 10, 60, 150, 900]),
        persistent=st.booleans(),
        wait=st.booleans(),
    )
    def publish(self, to: str, size: int, persistent: bool, wait: bool) -> None:
        self.number += 1
        body = b"%d " % self.number + b"." * size
        exchange, key = ("both", "") if to == "both" else ("", to)
        confirm = self.broker.publish(exchange, key, body, persistent=persistent)
        for name in QUEUES if to == "both" else (to,):
            self.model[name].ready.append(Item(self.number, body, persistent, confirm))
        if wait:
            confirm.result()

    @rule(name=st.sampled_from(QUEUES))
    def get(self, name: str) -> None:
        queue = self.model[name]
        delivery = self.broker.queue(name).get()
        if not queue.ready:
            assert delivery is None
            return
        assert delivery is not None
        assert delivery.body == queue.ready[0].body
        queue.held.append((queue.ready.pop(0), delivery))

    @rule(name=st.sampled_from(QUEUES), multiple=st.booleans(), data=st.data())
    def ack(self, name: str, multiple: bool, data: st.DataObject) -> None:
        queue = self.model[name]
        if queue.held:
            index = data.draw(st.integers(0, len(queue.held) - 1))
            _, delivery = queue.held[index]
            if multiple:
                # Each get is a subscription of its own to the face, but tags are the queue handle's.
                multiple = False
            delivery.ack(multiple)
            queue.acked.append(queue.held.pop(index)[0])

    @rule(name=st.sampled_from(QUEUES), requeue=st.booleans(), data=st.data())
    def nack(self, name: str, requeue: bool, data: st.DataObject) -> None:
        queue = self.model[name]
        if queue.held:
            index = data.draw(st.integers(0, len(queue.held) - 1))
            item, delivery = queue.held.pop(index)
            delivery.nack(requeue)
            if requeue:
                queue.ready = sorted([*queue.ready, item], key=_age)
            else:
                queue.acked.append(item)

    @rule(name=st.sampled_from(QUEUES))
    def purge(self, name: str) -> None:
        queue = self.model[name]
        assert self.broker.purge(name) == len(queue.ready)
        queue.acked += queue.ready
        queue.ready = []

    @rule(seconds=st.sampled_from([0.001, 0.03, 0.5, 16.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.host.sleep(seconds)

    @rule(victim=st.sampled_from(VICTIMS))
    def kill(self, victim: str) -> None:
        runtime = self.host.sim
        everything = victim not in (queue_name("a"), queue_name("b"))
        last = "vhost_process" if everything else victim
        before = runtime.whereis(last)
        runtime.kill(runtime.whereis(victim))
        self.host.wait_until(lambda: runtime.is_registered(last) and runtime.whereis(last) is not before)
        for name in QUEUES if everything else (victim.removeprefix("queue:"),):
            self._read_all(name)

    @rule(power_cut=st.booleans(), settings=kinds)
    def crash(self, power_cut: bool, settings: Settings) -> None:
        self.host.crash(power_cut=power_cut)
        self.host.settings = settings
        self.broker = self.host.open()
        for name in QUEUES:
            self._read_all(name)

    @rule(settings=kinds)
    def restart_cleanly(self, settings: Settings) -> None:
        self.broker.close()
        self.host.settings = settings
        for queue in self.model.values():
            kept = sorted([*queue.ready, *(item for item, _ in queue.held)], key=_age)
            queue.ready = [item for item in kept if item.persistent and _confirmed(item)]
            queue.held, queue.acked = [], []
        self.broker = self.host.open()
        for name in QUEUES:
            expected = [item.body for item in self.model[name].ready]
            assert self._contents(name) == expected

    # -- looking

    def _contents(self, name: str) -> list[bytes]:
        """Every ready message, put back afterwards."""
        queue = self.broker.queue(name)
        deliveries = list(iter(queue.get, None))
        for delivery in reversed(deliveries):
            delivery.nack()
        return [delivery.body for delivery in deliveries]

    def _read_all(self, name: str) -> None:
        self.model[name].after_a_crash(self._contents(name))


TestBroker = BrokerMachine.TestCase
TestBroker.settings = hypothesis_settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
