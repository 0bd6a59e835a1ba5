"""Traces of brokers in simulation, by seed, as rows that a test may change: all is well in them.

A life has three runs of one directory: one that is killed, two that stop.  Its queues share messages, drop and expire some, lose
their processes, and come with consumers and gets that ack, reject and leave; the store rolls its files over and collects garbage;
senders wait for credit and for alarms.
"""

from __future__ import annotations

import pickle
import random
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from operator import itemgetter
from pathlib import Path

from pamqp.commands import Basic
from structlog.testing import capture_logs

import warrenmq
from tests.amqp.channels import Client
from tests.support.made_once import made_once
from tests.support.simulated import SMALL, SimulatedHost, hold_disk
from tests.support.trace_writer import SEQ, Actor, RunRows, T
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.broker.delivery import Delivery
from warrenmq.broker.handles import QueueHandle
from warrenmq.message.properties import Properties
from warrenmq.trace.reader import Trace, open_memory

LIMIT, BUFFER = 6_000, 4_096
"""Bytes of a store's file, and of what it writes at once."""
DEAD_LETTERS = {"x-max-length": 12, "x-dead-letter-exchange": "nowhere"}
ROOM = 1000
"""Nanoseconds between two rows: room for another one."""


class Life:
    """The clients of one directory's brokers; `accidents` are crashes, and channels that leave: each makes new actors."""

    def __init__(self, seed: int, *, accidents: bool = True) -> None:
        self.choose = random.Random(f"life {seed}")
        collector, version = ("compact", 2) if seed % 2 else ("combine", 1)
        settings = replace(
            SMALL, msg_store_gc=collector, queue_version=version, msg_store_file_size_limit=LIMIT,
            msg_store_write_buffer=BUFFER, msg_store_credit_disc_bound=(20, 5), credit_flow_default_credit=(8, 8),
            consumer_timeout=6_000,
        )  # fmt: skip
        self.host = SimulatedHost(seed, settings)
        self.host.memory.total_bytes = 10_000
        self.accidents, self.crashes = accidents, 2

    def begin(self, *names: str) -> None:
        """Open a broker; every second queue is short and gives up dead letters."""
        self.broker = self.host.open()
        self.broker.declare_exchange("both", "fanout")
        self.broker.declare_exchange("nowhere", "fanout")
        self.queues = [
            self.declare(name, DEAD_LETTERS if number % 2 else {"x-max-length": 40})
            for number, name in enumerate(names)
        ]
        self.held: list[Delivery] = []

    def run(self, steps: int, *, kill: bool) -> None:
        """One run of the broker."""
        self.begin("a", "b")
        self.work(steps)
        if kill:
            self.host.crash(power_cut=self.choose.random() < 0.5)
        else:
            self.broker.close()

    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.step(self.choose.choice(self.queues))

    def declare(self, name: str, arguments: dict[str, object]) -> QueueHandle:
        queue = self.broker.declare_queue(name, arguments=arguments)
        self.broker.bind(queue, "both")
        return queue

    def step(self, queue: QueueHandle) -> None:
        works = {
            self.publish: 12, self.consume: 4, self.get: 6, self.settle: 6, self.pause: 3, self.purge: 1, self.hold_up: 2,
            self.channel: 1 if self.accidents else 0, self.crash: 1 if self.accidents and self.crashes else 0,
        }  # fmt: skip
        self.choose.choices([*works], [*works.values()])[0](queue)

    def publish(self, queue: QueueHandle) -> None:
        """A few messages to one queue or to both."""
        body = b"." * self.choose.choice((20, 20, 300, 700, 1500))
        exchange, key = ("both", "") if self.choose.random() < 0.3 else ("", queue.name)
        ttl = Properties(expiration=self.choose.choice((None, None, None, "300")))
        confirm = self.broker.publish_many(
            exchange,
            key,
            [body] * self.choose.randrange(1, 5),
            properties=ttl,
            persistent=self.choose.random() < 0.8,
        )
        if self.choose.random() < 0.3:
            self.broker.publish("nowhere", "", body)
            with suppress(warrenmq.Nacked):
                confirm.result()

    def get(self, queue: QueueHandle) -> None:
        if (delivery := queue.get(no_ack=self.choose.random() < 0.2)) is not None:
            self.held.append(delivery)

    def consume(self, queue: QueueHandle) -> None:
        """A consumer that takes some deliveries, settles some, and leaves."""
        with queue.consume(self.choose.choice((0, 3, 8)), self.choose.random() < 0.2) as consumer:
            got = [
                each
                for _ in range(self.choose.randrange(5))
                if (each := consumer.get(timeout=0.1)) is not None
            ]
            for delivery in got:
                if self.choose.random() < 0.6:
                    self.end(delivery)

    def settle(self, _queue: QueueHandle) -> None:
        for _ in range(min(len(self.held), self.choose.randrange(1, 4))):
            self.end(self.held.pop(self.choose.randrange(len(self.held))))

    def end(self, delivery: Delivery) -> None:
        """Ack, reject or requeue it, some with all before it."""
        multiple = self.choose.random() < 0.25
        with suppress(warrenmq.Error):
            match self.choose.randrange(6):
                case 0:
                    delivery.nack(multiple=multiple, requeue=True)
                case 1:
                    delivery.nack(multiple=multiple, requeue=False)
                case _:
                    delivery.ack(multiple=multiple)

    def pause(self, _queue: QueueHandle) -> None:
        self.host.sleep(self.choose.choice((0.01, 0.3, 1.5)))

    def purge(self, queue: QueueHandle) -> None:
        queue.purge()

    def hold_up(self, queue: QueueHandle) -> None:
        """The client waits for an alarm to clear; or for a queue, whose store has a slow disk."""
        host = self.host
        if self.choose.random() < 0.3:
            host.memory.used_bytes = 5_000
            host.sleep(1.1)
            host.sim.spawn(lambda: (host.sleep(2.0), setattr(host.memory, "used_bytes", 0)))
            queue.publish(b"when it has cleared")
        else:
            for _ in range(2):
                hold_disk(host, 1.0)
                with suppress(warrenmq.Blocked):
                    queue.publish_many([b"." * 300] * 25, timeout=self.choose.choice((None, 0.3)))

    def channel(self, queue: QueueHandle) -> None:
        """A channel with a limit for all of its consumers leaves with what its consumer held."""
        client = Client(self.broker)
        channel = client.open(1)
        channel.call(Basic.Qos(prefetch_count=3, global_=True), Basic.QosOk)
        channel.consume(queue.name)
        self.host.sleep(0.1)
        client.close()

    def crash(self, queue: QueueHandle) -> None:
        """A queue's process dies, perhaps while the client waits for it, and is restarted."""
        self.crashes -= 1
        name, sim = queue_name(queue.name), self.host.sim
        process = self.broker.inside.local_client.calls.address(queue.name)
        if self.choose.random() < 0.5:
            hold_disk(self.host, 1.0)
            sim.spawn(lambda: (self.host.sleep(0.3), sim.kill(process)))
            for _ in range(2):
                queue.publish_many([b"." * 300] * 25)
        sim.kill(process)
        self.host.wait_until(lambda: sim.is_registered(name) and sim.whereis(name) is not process)
        self.held = [each for each in self.held if each._subscription.queue != queue.name]

    def trace(self) -> Trace:
        assert self.host.sink is not None
        return open_memory(self.host.sink.files())

    def rows(self) -> list[RunRows]:
        """All rows, with room between their times."""
        trace = self.trace()
        runs = [
            RunRows(
                run.name,
                run.boot,
                [Actor(number, *each) for number, each in sorted(run.actors.items())],
                texts=run.texts,
            )
            for run in trace.catalog.runs
        ]
        for piece in trace.catalog.chunks:
            runs[piece.run].actors[piece.actor - 1].rows += map(list, trace.rows(piece))
        actors = [actor for run in runs for actor in run.actors]
        for actor in actors:
            actor.rows.sort(key=itemgetter(SEQ))
            actor.last = len(actor.rows)
        for rank, row in enumerate(
            sorted((row for actor in actors for row in actor.rows), key=itemgetter(T))
        ):
            row[T] += rank * ROOM
        runs[0].closed = False
        return runs


@cache
def _lived(seed: int, steps: int) -> bytes:
    def live() -> bytes:
        with capture_logs(), closing((life := Life(seed)).host):
            life.run(steps, kill=True)
            life.run(steps, kill=False)
            life.run(steps // 2, kill=False)
            return pickle.dumps(life.rows())

    return made_once(f"life of seed {seed} and {steps} steps", live)


def consistent_trace(seed: int, steps: int = 50) -> list[RunRows]:
    """The rows of three runs of one directory: one that is killed, two that stop."""
    runs: list[RunRows] = pickle.loads(_lived(seed, steps))
    return runs


def write_large(folder: Path, events: int, seed: int = 1, queues: int = 2) -> int:
    """Write a trace of one run with at least `events` rows into a new folder; returns how many it has."""
    with capture_logs(), closing((life := Life(seed, accidents=False)).host):
        life.begin(*(f"q{number}" for number in range(queues)))
        while (missing := events - life.trace().catalog.rows) > 0:
            life.work(100 + missing // 40)
        life.broker.close()
        life.host.save_trace(folder)
        return life.trace().catalog.rows
