"""The garbage collector, with syncs that fail, processes that end and a power that fails, all in one life:
nothing confirmed is lost, nothing comes back.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from tests.support.simulated import EVERY_KIND, SimulatedHost
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.broker import Broker
from warrenmq.errors import Error

QUEUES = "a", "b"
SIZES = 120, 300, 300, 900, 2_500
"""Most bodies are in the store, in files that are full after some of them."""


class Lives:
    """Lives of a broker on one machine.

    sure   bodies that have to be there at the next start
    gone   bodies that were not there at a start, and must not be at a later one
    left   operations of the disk until one fails; 0 = none will
    """

    def __init__(self, host: SimulatedHost, draw: Random) -> None:
        self.host, self.draw = host, draw
        self.published: set[bytes] = set()
        self.sure: set[bytes] = set()
        self.gone: set[bytes] = set()
        self.left = 0
        self._run = host.before_op
        host.before_op = self._before_op  # type: ignore[method-assign]

    def _before_op(self, op: str, path: str) -> None:
        if self.left and (self.is_collector(op) or self.draw.random() < 0.2):
            self.left -= 1
            if not self.left:
                self.left = self.draw.choice([0, 0, 3, 10])
                code = self.draw.choice([errno.EIO, errno.ENOSPC]) if "sync" in op else errno.EIO
                raise OSError(code, "of the test", path)
        self._run(op, path)

    def is_collector(self, _op: str) -> bool:
        return self.host.sim.running.endswith("_gc")

    def open(self) -> Broker:
        """A broker, at whose starts the process or the power may end, too; it has what it must have."""
        host, draw = self.host, self.draw
        commit_log, sleep_after = draw.random() < 0.5, draw.choice([0, 20, 1000])
        host.settings = replace(draw.choice(EVERY_KIND), commit_log=commit_log, queue_sleep_after=sleep_after)
        while draw.random() < 0.15:
            with host.crash_at(draw.randrange(1, 60), power_cut=draw.random() < 0.6) as outage:
                host.open()
            if not outage.came:
                host.crash(power_cut=True)
        broker = host.open()
        found: list[bytes] = []
        for queue in QUEUES:
            handle = broker.declare_queue(queue)
            held = [*iter(handle.get, None)]
            found += [delivery.body for delivery in held]
            for delivery in held:
                delivery.nack()
        assert self.sure <= {*found} <= self.published - self.gone
        assert len({*found}) == len(found)
        self.sure = {*found}
        self.gone |= self.published - self.sure
        return broker

    def live(self, broker: Broker) -> None:
        draw = self.draw
        waiting: list[tuple[bytes, Confirm]] = []
        acked: set[bytes] = set()

        def publish(queue: str) -> None:
            for _ in range(draw.randrange(1, 12)):
                body = b"%d " % len(self.published) + b"." * draw.choice(SIZES)
                self.published.add(body)
                waiting.append((body, broker.queue(queue).publish(body)))
            if draw.random() < 0.7:
                waiting[-1][1].result(5)

        def take(queue: str) -> None:
            handle = broker.queue(queue)
            for delivery in [handle.get() for _ in range(draw.randrange(1, 14))]:
                if delivery is None:
                    return
                if draw.random() < 0.75:
                    acked.add(delivery.body)
                    self.sure.discard(delivery.body)
                    delivery.ack()
                else:
                    delivery.nack()

        def work() -> None:
            for _ in range(draw.randrange(3, 14)):
                with suppress(Error, TimeoutError):
                    act = draw.random()
                    if act < 0.85:
                        (publish if act < 0.45 else take)(draw.choice(QUEUES))
                    else:
                        self.host.sleep(draw.choice([0.05, 1, 5, 20]))

        self.left = draw.choice([0, 1, 5, 20, 60])
        counts = self.is_collector if draw.random() < 0.8 else lambda _op: True
        operation = draw.choice([1 << 30, draw.randrange(1, 40)])
        cut = draw.random() < 0.6
        with self.host.crash_at(operation, power_cut=cut, counts=counts) as outage:
            self.host.sim.run(work)
            self.host.sleep(draw.choice([0, 6, 30]))
        self.left = 0
        self.sure |= {
            body for body, confirm in waiting if confirm.done() and confirm.exception() is None
        } - acked
        if outage.came:
            return
        if draw.random() < 0.6:
            self.host.crash(power_cut=draw.random() < 0.6)
        else:
            with suppress(Error):
                broker.close()


def lives(seed: int) -> None:
    draw = Random(seed)
    with SimulatedHost(seed, traced=False) as host:
        host.disk.in_order = draw.random() < 0.6
        each = Lives(host, draw)
        for _ in range(draw.randrange(2, 5)):
            each.live(each.open())
        each.open().close()


@pytest.mark.parametrize("seed", range(40))
def test_nothing_confirmed_is_lost_in_a_collection_whatever_fails(seed: int) -> None:
    lives(seed)
