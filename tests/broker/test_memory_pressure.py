"""A simulated broker whose memory runs short: queues page out, and stop when there is enough again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.simulated import SMALL, SimulatedHost
from warrenmq.backing_queue.parts import QueueMemory
from warrenmq.broker.broker import Broker
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.settings import Settings

PLENTY = replace(SMALL, queue_ram_bytes=1 << 40, msg_store_credit_disc_bound=(20, 10))
"""Only the memory monitor has queues page."""


@pytest.fixture(params=["memory_target", "read_ahead"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return replace(PLENTY, queue_paging=request.param)


@pytest.fixture
def host() -> Iterator[SimulatedHost]:
    host = SimulatedHost(3, replace(PLENTY, queue_paging="memory_target"))
    yield host
    host.close()


def memory(broker: Broker) -> QueueMemory:
    return broker.stats().queues[0].memory


def fill(broker: Broker, messages: int = 200, *, persistent: bool = True, size: int = 150) -> None:
    """Bodies of this size belong in the store."""
    for number in range(messages):
        broker.publish("", "q", b"%d " % number + b"." * size, persistent=persistent)


def drain(broker: Broker) -> list[int]:
    numbers = []
    while (delivery := broker.queue("q").get()) is not None:
        numbers.append(int(delivery.body.split()[0]))
        delivery.ack()
    return numbers


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("size", [10, 150])
def test_memory_pressure_pages_out_and_relief_stops_it(
    host: SimulatedHost, persistent: bool, size: int
) -> None:
    broker = host.open()
    broker.declare_queue("q")
    fill(broker, persistent=persistent, size=size)
    host.sleep(6)  # the queue has reported what it has
    before = memory(broker)
    assert (before.alpha, before.delta) == (200, 0)
    host.memory.used_bytes = host.memory.total_bytes // 4  # over half of the watermark
    host.sleep(30)
    short = memory(broker)
    assert short.alpha + short.beta + short.gamma + short.delta == 200
    assert short.delta > 0
    assert short.target_ram_count < 200
    if size == 150:
        assert short.alpha < 200
    host.memory.used_bytes = 0
    host.sleep(12)  # the monitor has looked, and the queue has reported once more
    fill(broker, persistent=persistent, size=size)
    host.sleep(30)
    relieved = memory(broker)
    assert relieved.target_ram_count == float("inf")
    assert relieved.alpha >= 200, "what came after the relief stays in memory"
    assert drain(broker) == [*range(200), *range(200)]
    broker.close()
    host.check_trace()
    assert host.sink is not None
    rows = replay_memory(host.sink.files()).figures["events_of"]
    assert rows["PAGE_OUT"]
    assert rows["PAGE_IN"]
    assert rows["RAM_TARGET"]


def test_paged_out_memory_is_returned_to_the_system_before_more_is_paged_out(host: SimulatedHost) -> None:
    """Freed messages stay in the allocator; who pages by the process's size has to ask for their pages first."""
    broker = host.open()
    broker.declare_queue("q")
    fill(broker)
    host.sleep(6)
    host.memory.used_bytes = host.memory.total_bytes // 4  # over half of the watermark
    host.memory.releasable_bytes = host.memory.used_bytes // 2
    host.sleep(30)
    assert host.memory.releasable_bytes == 0
    assert memory(broker).alpha == 200
    assert memory(broker).target_ram_count == float("inf")
    broker.close()


def test_a_disk_alarm_keeps_queues_from_paging(host: SimulatedHost) -> None:
    broker = host.open()
    broker.declare_queue("q")
    fill(broker)
    broker.set_disk_free_limit(1 << 62)
    host.memory.used_bytes = host.memory.total_bytes // 4
    host.sleep(30)
    assert memory(broker).alpha == 200
    broker.close()


def test_the_memory_monitor_is_started_again_alone_and_hears_of_queues_by_their_reports(
    host: SimulatedHost,
) -> None:
    broker = host.open()
    broker.declare_queue("q")
    fill(broker)
    host.sleep(6)
    monitor, queue = host.sim.whereis("rabbit_memory_monitor"), host.sim.whereis("queue:q")
    host.sim.kill(monitor)
    host.wait_until(lambda: host.sim.is_registered("rabbit_memory_monitor"))
    assert host.sim.whereis("queue:q") is queue
    host.memory.used_bytes = host.memory.total_bytes // 4
    host.sleep(30)
    assert memory(broker).delta > 0
    host.sim.kill(queue)
    host.sleep(30)
    assert drain(broker) == list(range(200))
    broker.close()
    host.check_trace()


def test_an_idle_queue_stops_reporting(host: SimulatedHost) -> None:
    broker = host.open()
    broker.declare_queue("q")
    fill(broker, 3)
    host.sleep(1_000)
    assert host.sink is not None
    sent = replay_memory(host.sink.files()).figures["events_of"]["SEND"]
    host.sleep(1_000)
    assert replay_memory(host.sink.files()).figures["events_of"]["SEND"] == sent
    broker.close()


def test_a_queue_keeps_to_its_own_bound_whatever_memory_there_is(settings: Settings) -> None:
    with SimulatedHost(5, replace(settings, queue_ram_bytes=5_000, msg_store_io_batch_size=2)) as host:
        broker = host.open()
        broker.declare_queue("q")
        fill(broker, 400, size=50)
        host.sleep(1)
        assert memory(broker).ram_bytes < 3 * 5_000
        assert memory(broker).delta > 300
        assert drain(broker) == list(range(400))
        broker.close()
        host.check_trace()
