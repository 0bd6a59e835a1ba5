"""Files that cannot be read: for a while everything waits and nothing is lost; a bad sector costs what is in
it, which is told, and no process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from tests.support.simulated import EVERY_KIND, SMALL, SimulatedHost, take_all
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.broker import Broker
from warrenmq.errors import Error, ResourceError
from warrenmq.queue.messages import CountBytes
from warrenmq.replay.drive.engine import replay_memory

QUEUES = [f"q{number}" for number in range(4)]


class Life:
    """Three tasks that publish, get and consume until each had its turns; `fault` is called beside them."""

    def __init__(self, host: SimulatedHost, draw: Random, broker: Broker) -> None:
        self.host, self.draw, self.broker = host, draw, broker
        self.numbers = count()
        self.published: list[tuple[str, bytes, Confirm]] = []
        self.taken: set[bytes] = set()
        self.working = 0

    def run(self) -> None:
        for queue in QUEUES:
            self.broker.declare_queue(queue)
        for _ in range(3):
            self.working = 3
            for _task in range(3):
                self.host.sim.spawn(self.work)
            while self.working:
                self.fault()
                self.host.sleep(0.5)
            self.host.disk.reads_fail = False
            self.host.sleep(5)
            assert [(queue, body) for queue, body, confirm in self.published if not confirm.done()] == []

    def fault(self) -> None:
        raise NotImplementedError

    def work(self) -> None:
        for _ in range(self.draw.randrange(10, 40)):
            with suppress(Error, TimeoutError):
                self.step(self.draw.choice(QUEUES))
        self.working -= 1

    def step(self, queue: str) -> None:
        draw, handle = self.draw, self.broker.queue(queue)
        act = draw.randrange(9)
        if act < 6:
            for _ in range(draw.choice([1, 1, 10])):
                body = b"%d" % next(self.numbers) + b"." * draw.choice([1, 60, 300, 1500])
                self.published.append((queue, body, handle.publish(body)))
        elif act == 6:
            with handle.consume(prefetch=2) as consumer:
                if (delivery := consumer.get(timeout=0.2)) is not None:
                    delivery.nack()
        else:
            for _ in range(draw.randrange(1, 6)):
                if (delivery := handle.get()) is None:
                    break
                self.taken.add(delivery.body)
                (delivery.ack if draw.random() < 0.7 else delivery.nack)()

    def missing(self, broker: Broker) -> list[bytes]:
        """The confirmed messages that a broker has not, and nobody took; it has no others, and none twice.

        A queue is gone if neither the definitions nor its folder's name could be read.
        """
        ready = {queue.name: take_all(broker.queue(queue.name)) for queue in broker.stats().queues}
        for queue, bodies in ready.items():
            assert {*bodies} <= {body for name, body, _ in self.published if name == queue}
            assert len({*bodies}) == len(bodies)
        confirmed = [(queue, body) for queue, body, confirm in self.published if confirm.exception() is None]
        return [
            body for queue, body in confirmed if body not in ready.get(queue, ()) and body not in self.taken
        ]


class ReadsFail(Life):
    def fault(self) -> None:
        self.host.disk.reads_fail = self.draw.random() < 0.5


class SectorsBreak(Life):
    def fault(self) -> None:
        if self.draw.random() < 0.4:
            self.break_one()

    def break_one(self) -> None:
        disk = self.host.disk
        path = self.draw.choice(
            [path for path in disk.paths() if disk.size(path) and "quarantine" not in path]
        )
        disk.break_sector(path, self.draw.randrange(disk.size(path)))


def restarted(broker: Broker) -> list[str]:
    return [each.name for each in broker.stats().actors if each.restarts]


@contextmanager
def lived(kind: type[Life], seed: int) -> Iterator[Life]:
    """A life on a host of its own, over which no process was restarted."""
    draw = Random(seed)
    settings = replace(EVERY_KIND[seed % len(EVERY_KIND)], queue_sleep_after=draw.choice([0, 20, 1000]))
    with SimulatedHost(seed, settings, traced=False) as host:
        life = kind(host, draw, host.open())
        host.sim.run(life.run)
        assert restarted(life.broker) == []
        yield life


@pytest.mark.parametrize("seed", range(24))
def test_while_nothing_can_be_read_all_is_answered_and_afterwards_all_is_there(seed: int) -> None:
    with lived(ReadsFail, seed) as life:
        host, draw = life.host, life.draw
        host.crash(power_cut=draw.random() < 0.5)
        host.disk.reads_fail = True
        with pytest.raises(OSError, match="Input/output error: '/data"):
            host.open()
        host.crash(power_cut=True)
        host.disk.reads_fail = False
        broker = host.open()
        assert life.missing(broker) == []
        assert not broker.stats().damage
        broker.close()


@pytest.mark.parametrize("seed", range(24))
def test_bad_sectors_stop_no_process_and_no_start_and_what_they_cost_is_told(seed: int) -> None:
    with lived(SectorsBreak, seed) as life:
        host, draw = life.host, life.draw
        told = len(life.broker.stats().damage)
        if draw.random() < 0.3:
            life.broker.close()
        else:
            host.crash(power_cut=draw.random() < 0.5)
        for _ in range(draw.choice([0, 1, 3, 8])):
            life.break_one()
        broker = host.open()
        missing = life.missing(broker)
        assert not missing or told + len(broker.stats().damage)
        assert restarted(broker) == []
        broker.close()


def test_bytes_of_priorities_are_counted_all_or_not_at_all() -> None:
    with SimulatedHost(1, SMALL) as host:
        broker = host.open()
        queue = broker.declare_queue("q", arguments={"x-max-priority": 1})
        for priority in (0, 1):
            queue.publish(b"12345", priority=priority).result()
        highest = broker.inside.vhost.directory.folders("q", 1)[-1]

        def before_op(op: str, path: str) -> None:
            host.disk.reads_fail |= op == "pread" and path.startswith(highest)

        host.disk.before_op = before_op
        call = broker.inside.client.calls.call_queue
        with pytest.raises(ResourceError):
            call("q", CountBytes())
        assert broker.inside.vhost.figures["q"]().ready_bytes is None
        host.disk.before_op, host.disk.reads_fail = host.before_op, False
        call("q", CountBytes())
        assert broker.inside.vhost.figures["q"]().ready_bytes == 10
        broker.close()


def test_a_get_says_what_cannot_be_read_and_the_next_one_succeeds() -> None:
    with SimulatedHost(1, traced=False) as host:
        broker = host.open()
        queue = broker.declare_queue("q")
        for number in range(20):
            queue.publish(b"%d" % number + b"." * 300).result()
        broker.close()
        queue = host.open().queue("q")
        queue.info()
        host.disk.reads_fail = True
        with pytest.raises(ResourceError, match=r"cannot be (read|opened) \(.*Input/output error: '/data/"):
            queue.get()
        host.disk.reads_fail = False
        assert [body.partition(b".")[0] for body in take_all(queue)] == [b"%d" % n for n in range(20)]


def test_messages_that_cannot_be_read_are_not_called_stuck() -> None:
    """A consumer has room for them all the while."""
    with SimulatedHost(1) as host:
        host.open().declare_queue("q").publish_many([b"." * 300] * 20).result()
        host.broker.close()
        broker = host.open()
        queue = broker.queue("q")
        queue.info()
        host.disk.reads_fail = True
        with queue.consume(prefetch=5) as consumer:
            assert consumer.get(timeout=2) is None
            host.disk.reads_fail = False
            assert consumer.get(timeout=60) is not None
        broker.close()
        assert host.sink is not None
        assert replay_memory(host.sink.files()).violations == []


def test_a_message_that_came_back_too_often_and_is_damaged_is_not_told_as_a_dead_letter() -> None:
    with SimulatedHost(1) as host:
        arguments = {"x-delivery-limit": 0, "x-dead-letter-exchange": ""}
        host.open().declare_queue("q", arguments=arguments).publish(b"." * 9000).result()
        host.broker.close()
        broker = host.open()
        delivery = broker.queue("q").get(timeout=5)
        assert delivery is not None
        for path in host.disk.paths():
            if path.endswith(".rdq") and host.disk.size(path):
                host.disk.break_sector(path, 600)
        delivery.nack()
        broker.queue("q").info()
        broker.close()
        assert host.sink is not None
        assert replay_memory(host.sink.files()).violations == []


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_consumer_goes_on_behind_a_bad_sector(kind) -> None:
    """The other messages of the queue come in their order."""
    with SimulatedHost(1, replace(kind, queue_ram_bytes=0), traced=False) as host:
        queue = host.open().declare_queue("q")
        for number in range(40):
            queue.publish(b"%d" % number + b"." * 1500).result()
        host.crash(power_cut=True)
        broker = host.open()
        path = next(path for path in host.disk.paths() if path.endswith(".rdq") and host.disk.size(path))
        host.disk.break_sector(path, 600)
        numbers = [int(body.split(b".")[0]) for body in take_all(broker.queue("q"))]
        assert len(numbers) == 39
        assert numbers == sorted(numbers)
        assert len(broker.stats().damage) == 1
