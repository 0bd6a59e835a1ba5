"""Attached brokers and their owner under random use and faults, against an account of all messages.

Workers publish, consume, settle, transact and declare by two or three brokers of one directory, each in a thread of its own, while brokers
are closed by two threads at once and opened again, connections are cut within a frame, and an alarm comes and goes.  A seed decides what
each of them does, and the system in which order.  Throughout and in the end

- every call and every confirm ends, with nothing but what these faults explain
- what was confirmed and not acked is there, nothing that was not published is, nor what was refused
- without a fault nothing comes twice but marked as redelivered, nor after its ack, and the messages of a worker stay in order
- no thread and no descriptor is left

`run` is meant for thousands of seeds by hand, with FAULTS; here is one without, so that the account stays true.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import warrenmq
from tests.support.limits import LIMIT
from tests.support.shared_directory import opened, wait_until
from warrenmq.broker.consumer import Consumer
from warrenmq.broker.delivery import Delivery
from warrenmq.shared.attachment import Attachment
from warrenmq.shared.broker import SharedBroker

QUEUES = {"one": None, "two": None, "ranked": {"x-max-priority": 4}}
FAULTS = ("close", "cut")
NO_ROOM = 10**15
_PART_OF_A_FRAME = b"\x03\0\1\0\0\1\0abc"


@dataclass
class Sent:
    """A message: `number` counts up, `fate` is "confirmed", "refused", or "" while it is not known."""

    queue: str
    worker: int
    number: int
    fate: str = ""
    acked: bool = False
    delivered: bool = False
    moved: bool = False
    """It was published by a transaction or again by a retry, so its place is not known."""


@dataclass
class World:
    """The account, and the faults so far."""

    sent: dict[bytes, Sent] = field(default_factory=dict)
    upsets: int = 0
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def new(self, queue: str, worker: int, rng: Random) -> bytes:
        with self.lock:
            number = len(self.sent)
            body = b"%d-" % number + b"." * rng.choice([0, 20, 20, 3_000, 150_000])
            self.sent[body] = Sent(queue, worker, number)
            return body

    def delivered(self, delivery: Delivery, queue: str) -> Sent:
        sent = self.sent[delivery.body]
        assert sent.queue == queue
        assert sent.fate != "refused"
        if not self.upsets:
            assert not sent.acked or sent.moved, "it was acked"
            assert not sent.delivered or delivery.redelivered or sent.moved
        sent.delivered = True
        return sent


class Place:
    """A broker that is closed and opened again."""

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        self._open = lambda: opened(path, **options)
        self.broker: SharedBroker = self._open()
        self.reopened = 0

    def reopen(self) -> None:
        self.reopened += 1
        other = threading.Thread(target=self.broker.close)
        other.start()
        self.broker.close()
        other.join(LIMIT)
        assert not other.is_alive()
        self.broker = self._open()

    def cut(self, rng: Random) -> None:
        link = self.broker.inside.client.links.current  # type: ignore[attr-defined]
        if isinstance(link, Attachment):
            connection = rng.choice(link._connections)
            with suppress(OSError), connection._lock:
                if not connection._pending:
                    connection._socket.send(_PART_OF_A_FRAME)
                connection._socket.shutdown(rng.choice([socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR]))


class Worker:
    """One thread; its methods that begin with `step_` are what it may do."""

    def __init__(self, world: World, number: int, place: Place, seed: int) -> None:
        self.world, self.number, self.place = world, number, place
        self.rng = Random(f"{seed} {number}")
        self.confirms: list[tuple[list[bytes], Any]] = []
        self.held: list[tuple[Delivery, Sent]] = []
        self.consumers: list[Consumer] = []
        self.step = ""
        self.thread = threading.Thread(target=self.work, name=f"worker {number}", daemon=True)

    @property
    def broker(self) -> SharedBroker:
        return self.place.broker

    def work(self) -> None:
        try:
            for _ in range(60):
                self.step = self.rng.choice(STEPS)
                self.excused(getattr(self, self.step))
            self.step = "end"
            for consumer in self.consumers:
                consumer.cancel()
            for delivery, _ in self.held:
                self.excused(delivery.nack)
            while self.confirms:
                self.step_wait()
        except BaseException as why:  # the test says it
            self.world.wrong.append(f"worker {self.number}, {self.step}: {why!r}")
        self.consumers.clear()

    def excused(self, step: Callable[[], Any]) -> None:
        """Do something; an error must have one of the causes that there were."""
        try:
            step()
        except warrenmq.PreconditionFailed as why:
            if "settled already" not in str(why):
                raise
        except warrenmq.Blocked:
            pass
        except warrenmq.ProcessDied:
            assert self.world.upsets
        except warrenmq.BrokerClosed:
            if not self.place.reopened:
                raise
            self.held = [each for each in self.held if each[0]._subscription.client.engine.is_open]
            self.consumers = [each for each in self.consumers if each._client.engine.is_open]

    def queue(self) -> warrenmq.QueueHandle:
        return warrenmq.QueueHandle(self.broker, self.rng.choice([*QUEUES]))

    def publish(self, bodies: list[bytes], publish: Callable[[], Any]) -> None:
        try:
            self.confirms.append((bodies, publish()))
        except (warrenmq.Blocked, warrenmq.BrokerClosed):
            self.tell(bodies, "refused")
            raise

    def tell(self, bodies: list[bytes], fate: str) -> None:
        for body in bodies:
            self.world.sent[body].fate = fate

    def step_publish(self) -> None:
        queue, timeout = self.queue(), self.rng.choice([None, None, 0, 5])
        body = self.world.new(queue.name, self.number, self.rng)
        priority = self.rng.randrange(4) if queue.name == "ranked" else None
        self.publish([body], lambda: queue.publish(body, priority=priority, timeout=timeout))

    def step_publish_many(self) -> None:
        queue = self.queue()
        bodies = [
            self.world.new(queue.name, self.number, self.rng) for _ in range(self.rng.choice([0, 2, 60]))
        ]
        self.publish(bodies, lambda: queue.publish_many(bodies))

    def step_wait(self) -> None:
        while self.confirms:
            bodies, confirm = self.confirms.pop(0)
            try:
                confirm.result(LIMIT)
                self.tell(bodies, "confirmed")
            except (warrenmq.Nacked, warrenmq.BrokerClosed):
                assert self.world.upsets

    def step_transact(self) -> None:
        queue = self.queue()
        bodies = [self.world.new(queue.name, self.number, self.rng) for _ in range(3)]
        for body in bodies:
            self.world.sent[body].moved = True
        acked = self.held.pop() if self.held else None
        try:
            with self.broker.tx():
                for body in bodies:
                    queue.publish(body)
                if acked is not None:
                    acked[1].acked = True
                    acked[0].ack()
            self.tell(bodies, "confirmed")
        except warrenmq.Nacked:
            assert self.world.upsets

    def step_get(self) -> None:
        queue = self.queue()
        if (delivery := queue.get(self.rng.choice([None, 0.003]))) is not None:
            self.held.append((delivery, self.world.delivered(delivery, queue.name)))

    def step_consume(self) -> None:
        if len(self.consumers) < 3:
            prefetch, priority = self.rng.choice([0, 1, 20]), self.rng.choice([0, 1])
            self.consumers.append(self.queue().consume(prefetch, priority=priority))

    def step_take(self) -> None:
        if self.consumers:
            consumer = self.rng.choice(self.consumers)
            for delivery in consumer.take(self.rng.choice([1, 50]), 0.003):
                self.held.append((delivery, self.world.delivered(delivery, consumer.queue)))

    step_take_again = step_take

    def step_cancel(self) -> None:
        if self.consumers:
            consumer = self.consumers.pop()
            if self.rng.random() < 0.5:
                other = threading.Thread(target=consumer.cancel)
                other.start()
                consumer.cancel()
                other.join(LIMIT)

    def step_settle(self) -> None:
        if not self.held:
            return
        chosen, _ = self.rng.choice(self.held)
        multiple, acks = self.rng.random() < 0.3, self.rng.random() < 0.7
        mine = [
            each
            for each in self.held
            if each[0] is chosen
            or (multiple and each[0]._subscription is chosen._subscription and each[0].tag < chosen.tag)
        ]
        self.held = [each for each in self.held if each not in mine]
        for _, sent in mine if acks else ():
            sent.acked = True
        if acks:
            chosen.ack(multiple)
        else:
            chosen.nack(multiple=multiple)

    step_settle_again = step_settle

    def step_look(self) -> None:
        queue = self.queue()
        queue.info()
        assert all(each.body in self.world.sent for each in queue.peek(20))
        self.broker.stats()
        self.broker.declare_queue(queue.name, arguments=QUEUES[queue.name])

    def step_policy(self) -> None:
        self.broker.set_policy("a", "^none$", {"max-length": 1})
        assert self.broker.policies()[0].name == "a"

    def step_exclusive(self) -> None:
        with suppress(warrenmq.NotFound, warrenmq.ResourceLocked):  # after a cut
            queue = self.broker.declare_queue(exclusive=True)
            assert len(queue) == 0
            queue.delete()

    def step_alarm(self) -> None:
        if self.rng.random() < 0.3:
            try:
                self.broker.set_disk_free_limit(NO_ROOM)
            finally:
                wait_until(self.has_room)

    def has_room(self) -> bool:
        with suppress(warrenmq.ProcessDied, warrenmq.BrokerClosed):
            self.broker.set_disk_free_limit(1_000)
            return True
        return False


STEPS = [name for name in dir(Worker) if name.startswith("step_")]


def left() -> tuple[int, int]:
    gc.collect()  # what an actor held that was stopped as it began
    return len(os.listdir("/proc/self/fd")), threading.active_count()


@contextmanager
def nothing_left() -> Iterator[None]:
    descriptors, threads = left()
    yield
    wait_until(lambda: threading.active_count() <= threads)
    assert left()[0] <= descriptors


def run(path: Path, seed: int, faults: tuple[str, ...]) -> None:
    rng, world = Random(seed), World()
    options = {
        "settings": {"durability": "os", "frame_max": rng.choice([4096, 131_072]),
                     "credit_flow_default_credit": rng.choice([(2, 1), (20, 10), (400, 200)])},
        "unconfirmed": "fail",
    }  # fmt: skip
    places = [Place(path, options) for _ in range(rng.choice([2, 3]))]
    try:
        for name, arguments in QUEUES.items():
            places[0].broker.declare_queue(name, arguments=arguments)
        workers = [Worker(world, number, rng.choice(places), seed) for number in range(3)]
        for worker in workers:
            worker.thread.start()
        while any(worker.thread.is_alive() for worker in workers):
            threading.Event().wait(rng.choice([0.005, 0.03]))
            if faults and rng.random() < 0.2:
                world.upsets += 1
                place = rng.choice(places)
                place.reopen() if rng.choice(faults) == "close" else place.cut(rng)
        assert not world.wrong, (seed, world.wrong)
        check(world, places)
    finally:
        for place in places:
            place.broker.close()


def check(world: World, places: list[Place]) -> None:
    for place in places:
        place.broker.queue("one").info()  # comes behind the acks of its process
    broker = places[-1].broker
    wait_until(lambda: not any(each.unacked for each in broker.stats().queues))
    there: set[bytes] = set()
    for name in QUEUES:
        queue, last = broker.queue(name), dict.fromkeys(range(3), -1)
        while (delivery := queue.get()) is not None:
            sent = world.delivered(delivery, name)
            assert delivery.body not in there
            there.add(delivery.body)
            if name != "ranked" and not sent.moved and not world.upsets:
                assert last[sent.worker] < sent.number
                last[sent.worker] = sent.number
            delivery.ack()
    kept = {body for body, sent in world.sent.items() if sent.fate == "confirmed" and not sent.acked}
    assert not kept - there


def test_brokers_of_one_directory_keep_the_account(tmp_path: Path) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads meet more often
    try:
        with nothing_left():
            run(tmp_path, 1, ())
    finally:
        sys.setswitchinterval(before)
