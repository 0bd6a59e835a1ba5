"""Restarts in the statistics: a queue that was declared again is another one, a queue that died is the same."""

import pytest

from tests.support.simulated import SimulatedHost
from warrenmq.actors.vhost.vhost import queue_name


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_restarts_count_since_the_queue_was_declared(deaths):
    with SimulatedHost(seed=3) as host:
        broker = host.open()

        def restarts():
            [found] = [each.restarts for each in broker.stats().actors if each.name == queue_name("q")]
            return found

        for _ in range(3):
            queue = broker.declare_queue("q")
            queue.get()  # its process starts
            assert restarts() == 0
            for before in range(deaths):
                host.sim.kill(host.sim.whereis(queue_name("q")))
                host.sleep(1)
                assert restarts() == before + 1
            queue.delete()
        broker.close()
