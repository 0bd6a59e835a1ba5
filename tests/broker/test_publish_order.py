"""Messages leave a queue in the order in which they were published, whoever published them and whatever else was sent.

Single publishes that are on their way together are one message to the queue.  That must not show: a publish that returned before
another one began, in any thread, stands before it in the queue.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from warrenmq.broker.client import Client
from warrenmq.message.properties import Properties
from warrenmq.settings import Settings

PUBLISHERS = 3


class Published(NamedTuple):
    """The bodies of one call, and when it began and had returned."""

    began: int
    ended: int
    bodies: list[bytes]
    exchange: str = ""


KINDS = (
    *["one"] * 6, "same key", "many", "properties", "transient", "both", "other", "many to other", "large", "get", "info", "wait",
)  # fmt: skip


class Publishers:
    """Threads, or tasks of a simulation, that publish to one queue in all ways and do other things with it in between."""

    def __init__(self, broker: warrenmq.Broker, operations: int) -> None:
        self.broker = broker
        self.queue, self.other = broker.declare_queue("q"), broker.declare_queue("other")
        broker.declare_exchange("both", "fanout")
        for queue in (self.queue, self.other):
            broker.bind(queue, "both")
        broker.declare_exchange("direct")
        broker.bind(self.queue, "direct", "q")
        self.operations = operations
        self.ticks = count()
        self.log: list[Published] = []
        self.confirms: list[warrenmq.Confirm] = []

    def run(self, seed: str) -> None:
        """One publisher's life."""
        choose = Random(seed)
        broker = object.__new__(type(self.broker))
        vars(broker).update(vars(self.broker))
        # tasks of a simulation share a thread, and would share its sender
        broker.inside.client = Client(broker.inside.client.engine)
        for number in range(self.operations):
            self.step(broker, choose, b"%s %d " % (seed.encode(), number))
            self.broker.runtime.checkpoint()  # another publisher may go on, whether or not the queue does

    def step(self, broker: warrenmq.Broker, choose: Random, name: bytes) -> None:
        """Do one thing."""
        kind = choose.choice(KINDS)
        body = name + b"." * choose.randrange(40)
        queue, other = broker.queue("q"), broker.queue("other")
        publish = queue.publish
        began = next(self.ticks)
        bodies, exchange = [body], ""
        if kind == "one":
            confirm = publish(body)
        elif kind == "same key":
            exchange = "direct"
            confirm = broker.publish(exchange, "q", body)
        elif kind == "many":
            bodies = [body + b"%d" % i for i in range(choose.randrange(1, 4))]
            confirm = queue.publish_many(bodies)
        elif kind == "properties":
            confirm = publish(body, properties=Properties(message_id="m"))
        elif kind == "transient":
            confirm = publish(body, persistent=False)
        elif kind == "both":
            exchange = "both"
            confirm = broker.publish(exchange, "", body)
        elif kind == "large":
            bodies = [body + b"." * 5_000]
            confirm = publish(bodies[0])
        else:
            if kind == "other":
                other.publish(body)
            elif kind == "many to other":
                other.publish_many([body, body])
            elif kind == "get" and (delivery := other.get()) is not None:
                delivery.ack() if choose.random() < 0.5 else delivery.nack()
            elif kind == "info":
                queue.info()
            elif kind == "wait" and self.confirms:
                self.confirms[-1].result(LIMIT)
            return
        self.log.append(Published(began, next(self.ticks), bodies, exchange))
        self.confirms.append(confirm)

    def check(self) -> None:
        """Check that each message is there once, in an order that the calls allow."""
        for confirm in self.confirms:
            confirm.result(LIMIT)
        found: list[bytes] = []
        exchanges = {body: each.exchange for each in self.log for body in each.bodies}
        with self.queue.consume(prefetch=0) as consumer:
            expected = sum(len(each.bodies) for each in self.log)
            while len(found) < expected:
                delivery = consumer.get(LIMIT)
                delivery.ack()
                found.append(delivery.body)
                assert delivery.exchange == exchanges[delivery.body]
        info = self.queue.info()
        assert (info.ready, info.unacked) == (0, 0)
        place = {body: i for i, body in enumerate(found)}
        assert len(place) == expected
        calls = sorted(self.log, key=lambda each: each.ended)
        latest = -1
        waiting: Iterator[Published] = iter(calls)
        ended = next(waiting, None)
        for call in sorted(self.log, key=lambda each: each.began):
            while ended is not None and ended.ended < call.began:
                latest = max([latest, *(place[body] for body in ended.bodies)])
                ended = next(waiting, None)
            places = [place[body] for body in call.bodies]
            assert all(each > latest for each in places), "it overtook one that was published before"
            assert places == sorted(places)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("settings", BOTH_PROFILES.values(), ids=BOTH_PROFILES)
def test_no_publish_overtakes_another_in_any_simulated_order(settings: Settings, seed: int) -> None:
    traced = seed % 3 == 0  # then tasks that share a thread share its rows, which keeps their messages apart
    host = SimulatedHost(seed, settings, traced=traced)
    with host.open() as broker:
        publishers = Publishers(broker, 25)
        left = [f"{seed} {number}" for number in range(PUBLISHERS)]

        def life(name: str) -> None:
            publishers.run(name)
            left.remove(name)

        for name in list(left):
            host.sim.spawn(partial(life, name), name)
        host.wait_until(lambda: not left)
        publishers.check()
    if traced:
        host.check_trace()
    host.close()


def test_messages_to_two_queues_in_turn_keep_ids_of_their_own() -> None:
    for seed in range(10):
        host = SimulatedHost(seed, traced=False)
        with host.open() as broker:
            queues = broker.declare_queue("q"), broker.declare_queue("other")
            sent: list[list[bytes]] = [[], []]
            for number in range(12):
                bodies = [b"%d %d" % (number, i) + b"." * 500 for i in range(1 + number % 2)]
                queue, those = queues[number % 2], sent[number % 2]
                confirm = queue.publish(bodies[0]) if len(bodies) == 1 else queue.publish_many(bodies)
                those += bodies
            confirm.result(LIMIT)
            for queue, those in zip(queues, sent, strict=True):
                got = [queue.get(LIMIT) for _ in those]
                assert [each.body for each in got if each is not None] == those
        host.close()


@pytest.mark.parametrize("scheduler", ["threads", "pool"])
def test_no_publish_overtakes_another_under_threads(tmp_path: Path, scheduler: str) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with warrenmq.open(tmp_path, settings={"scheduler": scheduler, "durability": "os"}) as broker:
            publishers = Publishers(broker, 250)
            threads = [threading.Thread(target=publishers.run, args=(f"t {n}",)) for n in range(PUBLISHERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            publishers.check()
    finally:
        sys.setswitchinterval(before)
