"""No file can be opened at times: each publish is answered all the same, nothing confirmed is lost; more
queues are used than have room for their files.
"""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import warrenmq
from tests.support.simulated import EVERY_KIND, SimulatedHost, take_all
from tests.support.source_tree import ROOT
from warrenmq.actors.sending.confirms import Confirm


class Shortage:
    """The descriptors of a simulated machine: opening a file may fail, in a share of all cases, and then queues are asked to sleep."""

    def __init__(self, host: SimulatedHost, draw: Random) -> None:
        self._draw = draw
        self.share = 0.0
        host.disk.descriptors = self
        for name in ("open", "open_read", "read", "listdir", "replace", "sync_dir", "sync_many"):
            setattr(host.disk, name, self._limited(getattr(host.disk, name)))

    def _limited(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def limited(*args: Any, **options: Any) -> Any:
            if self.share and self._draw.random() < self.share:
                raise OSError(errno.EMFILE, "Too many open files")
            return operation(*args, **options)

        return limited

    def lowest_free(self) -> int | None:
        return None if self.share else 0

    def are_short(self, promised: int) -> bool:
        return self.share > 0


QUEUES = [f"q{number}" for number in range(6)]


class Life:
    """Three tasks that publish and get while descriptors are short at times."""

    def __init__(
        self, host: SimulatedHost, draw: Random, broker: warrenmq.Broker, shortage: Shortage
    ) -> None:
        self.host, self.draw, self.broker, self.shortage = host, draw, broker, shortage
        self.published: list[tuple[str, bytes, Confirm]] = []
        self.taken: set[bytes] = set()

    def run(self) -> None:
        for queue in QUEUES:
            self.broker.declare_queue(queue)
        for _ in range(4):
            self.shortage.share = share = self.draw.choice([0.05, 0.3, 0.8, 1.0])
            self.working = 3
            for _task in range(3):
                self.host.sim.spawn(self.work)
            while self.working:
                self.host.sleep(0.5)
                self.shortage.share = self.draw.choice([0.0, share])
            self.shortage.share = 0.0
            self.host.sleep(5)
            assert [(queue, body) for queue, body, confirm in self.published if not confirm.done()] == []

    def work(self) -> None:
        for _ in range(self.draw.randrange(5, 25)):
            with suppress(warrenmq.errors.Error, TimeoutError):
                self.step(self.draw.choice(QUEUES))
        self.working -= 1

    def step(self, queue: str) -> None:
        draw, handle = self.draw, self.broker.queue(queue)
        act = draw.randrange(10)
        if act < 7:
            body = b"%d" % len(self.published) + b"." * draw.choice([1, 1, 300, 5000])
            confirm = handle.publish(body, timeout=draw.choice([None, 0]))
            self.published.append((queue, body, confirm))
            if draw.random() < 0.2:
                confirm.result(1)
        elif act == 7:
            with handle.consume(prefetch=2) as consumer:
                if (delivery := consumer.get(timeout=0.2)) is not None:
                    delivery.nack()
        elif act == 8:
            if (delivery := handle.get()) is not None:
                self.taken.add(delivery.body)
                delivery.ack()
        else:
            self.host.sleep(draw.random() / 3)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_cannot_be_opened_for_a_while_all_is_confirmed_or_refused_and_nothing_confirmed_is_lost(
    seed: int,
) -> None:
    draw = Random(seed)
    settings = replace(EVERY_KIND[seed % len(EVERY_KIND)], queue_sleep_after=draw.choice([0, 20, 1000]))
    with SimulatedHost(seed, settings, traced=False) as host:
        shortage = Shortage(host, draw)
        broker = host.open()
        life = Life(host, draw, broker, shortage)
        host.sim.run(life.run)
        assert [each.name for each in broker.stats().actors if each.restarts] == []
        host.crash(power_cut=True)
        broker = host.open()
        ready = {queue: take_all(broker.queue(queue)) for queue in QUEUES}
        for queue, body, confirm in life.published:
            if confirm.exception() is None:
                assert body in ready[queue] or body in life.taken
        broker.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_publish_that_may_not_wait_comes_to_its_end_where_each_queue_that_wakes_puts_another_to_sleep(
    seed: int,
) -> None:
    with SimulatedHost(seed, EVERY_KIND[seed], traced=False) as host:
        shortage = Shortage(host, Random(seed))
        broker = host.open()
        broker.declare_exchange("all", "fanout")
        for queue in QUEUES:
            broker.bind(broker.declare_queue(queue), "all")
        shortage.share = 1e-9
        confirms = [broker.publish("all", "", b"%d" % number, timeout=0) for number in range(3)]
        for confirm in confirms:
            confirm.result(10)
        for queue in QUEUES:
            assert take_all(broker.queue(queue)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("seed", range(8))
def test_a_store_without_a_descriptor_for_its_next_file_goes_on_in_the_one_that_it_has(seed: int) -> None:
    draw, lacks = Random(seed), True
    with SimulatedHost(seed, EVERY_KIND[seed], traced=False) as host:
        disk_open = host.disk.open

        def limited(path: str, *, create: bool = False) -> Any:
            if lacks and path.endswith(".rdq") and not host.disk.exists(path):
                raise OSError(errno.EMFILE, "Too many open files", path)
            return disk_open(path, create=create)

        queue = host.open().declare_queue("q")
        host.disk.open = limited  # type: ignore[method-assign]
        bodies = [b"%d" % number + b"." * draw.choice([2_000, 6_000, 100_000]) for number in range(30)]
        for body in bodies[:20]:
            queue.publish(body).result(10)
        assert (
            len([path for path in host.disk.paths() if "persistent" in path and path.endswith(".rdq")]) == 1
        )
        lacks = False
        for body in bodies[20:]:
            queue.publish(body).result(10)
        assert len([path for path in host.disk.paths() if "persistent" in path and path.endswith(".rdq")]) > 1
        host.crash(power_cut=True)
        assert take_all(host.open().queue("q")) == bodies


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("why", ["expired", "rejected", "came back too often", "due"])
def test_what_cannot_be_read_when_it_is_to_go_to_another_queue_goes_later(why: str, seed: int) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "there"}
    more: dict[str, dict[str, Any]] = {
        "expired": {"x-message-ttl": 500},
        "came back too often": {"x-delivery-limit": 0},
    }
    lacks = False
    with SimulatedHost(seed, replace(EVERY_KIND[seed], queue_sleep_after=0)) as host:
        disk_read = host.disk.open_read

        def limited(path: str) -> Any:
            if lacks and path.endswith(".rdq"):
                raise OSError(errno.EMFILE, "Too many open files", path)
            return disk_read(path)

        host.disk.open_read = limited  # type: ignore[method-assign]
        broker = host.open()
        there = broker.declare_queue("there")
        queue = broker.declare_queue("q", arguments=arguments | more.get(why, {}))
        bodies = [b"%d" % number + b"." * 5_000 for number in range(9)]
        for body in bodies:
            target, delay = ("there", 0.5) if why == "due" else ("q", None)
            broker.publish("", target, body, delay=delay).result(10)
        again = why == "came back too often"
        if why in {"rejected", "came back too often"}:
            for delivery in [queue.get() for _ in bodies]:
                assert delivery is not None
                lacks = True
                delivery.nack(requeue=again)
        lacks = True
        host.sleep(1)
        lacks = False
        host.sleep(2)
        while (delivery := queue.get()) is not None:
            delivery.nack(requeue=again)
        assert [each.name for each in broker.stats().actors if each.restarts] == []
        assert sorted(take_all(there)) == sorted(bodies)
        broker.close()


@pytest.mark.parametrize("seed", range(8))
def test_counts_of_returns_that_cannot_be_written_are_written_later(seed: int) -> None:
    with SimulatedHost(seed, replace(EVERY_KIND[seed], queue_sleep_after=0)) as host:
        shortage = Shortage(host, Random(seed))
        broker = host.open()
        queue = broker.declare_queue("q", arguments={"x-delivery-limit": 2})
        queue.publish(b"x").result(10)
        for lacks in (0.0, 1.0, 0.0):
            delivery = queue.get()
            assert delivery is not None
            shortage.share = lacks
            delivery.nack()
            host.sleep(1)
            shortage.share = 0.0
        assert (queue.get(), [each.name for each in broker.stats().actors if each.restarts]) == (None, [])
        broker.close()


MANY_QUEUES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[3]),) * 2)
import warrenmq

with warrenmq.open(sys.argv[1], settings={"scheduler": sys.argv[2]}) as broker:
    queues = [broker.declare_queue(f"q{i}") for i in range(100)]
    for _ in range(2):
        for confirm in [queue.publish(b"x") for queue in queues]:
            confirm.result(20)
    with queues[0].consume(prefetch=1) as consumer:
        consumer.get(20).ack()
        for confirm in [queue.publish(b"x") for queue in queues[1:]]:
            confirm.result(20)
    assert [queue.info().ready for queue in queues] == [1] + [3] * 99
"""


@pytest.mark.parametrize(("scheduler", "limit"), [("threads", 60), ("pool", 100)])
def test_more_queues_are_used_than_have_room_for_their_files(
    tmp_path: Path, scheduler: str, limit: int
) -> None:
    command = [sys.executable, "-c", MANY_QUEUES, str(tmp_path), scheduler, str(limit)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
