"""Alarms, seen from an application: publishers wait and go on, the others never notice."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import warrenmq
from tests.broker.lives import digest
from tests.support.limits import LIMIT
from tests.support.simulated import SMALL, SimulatedHost
from warrenmq.broker.broker import Broker
from warrenmq.node.alarms import Source
from warrenmq.runtime import Deadlock
from warrenmq.testing.disk import PLENTY
from warrenmq.trace.events import ALARM_DISK, ALARM_MEMORY, Ev
from warrenmq.trace.reader import open_memory

if TYPE_CHECKING:
    from pathlib import Path
import itertools

from warrenmq.broker.handles import QueueHandle

TOTAL = 10_000
SETTINGS = replace(SMALL, disk_free_limit=20_000)
"""With 10,000 bytes of memory the watermark of 0.4 is at 4,000."""
ROOM = 1_000_000


@pytest.fixture
def host() -> Iterator[SimulatedHost]:
    made = SimulatedHost(3, SETTINGS)
    made.memory.total_bytes = TOTAL
    yield made
    made.close()


def set_alarms(broker: Broker) -> list[Source]:
    return [alarm.source for alarm in broker.stats().alarms if alarm.is_set]


def publish_beside(host: SimulatedHost, queue: QueueHandle, count: int) -> list[int]:
    """Publish in a task of its own; what is returned grows as its messages are confirmed."""
    done: list[int] = []

    def publisher() -> None:
        for number in range(count):
            queue.publish(b"beside %d" % number).result()
            done.append(number)

    host.sim.spawn(publisher)
    return done


def gaps(times: list[float]) -> list[float]:
    return [round(later - earlier, 1) for earlier, later in itertools.pairwise(times)]


def test_publishers_wait_consumers_drain_the_alarm_clears_and_they_go_on(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"%d" % number for number in range(20)]).result()
    host.memory.used_bytes = 4_001
    host.sleep(1.1)
    memory, disk = broker.stats().alarms
    assert (memory.source, memory.is_set, memory.measured, memory.limit) == ("memory", True, 4_001, 4_000)
    assert memory.since_ns is not None
    assert host.sim.wall_ns() - 1.2e9 < memory.since_ns <= host.sim.wall_ns()
    assert (disk.source, disk.is_set, disk.measured, disk.limit) == ("disk", False, PLENTY, 20_000)
    assert disk.since_ns is None
    done = publish_beside(host, queue, 5)
    host.sleep(30)
    assert done == []
    (blocked,) = broker.stats().blocked_publishers
    assert (blocked.exchange, blocked.routing_key) == ("", "q")
    with queue.consume(prefetch=3) as consumer:
        for number in range(20):
            delivery = next(consumer)
            assert delivery.body == b"%d" % number
            delivery.ack()
            host.memory.used_bytes -= 1
    host.sleep(1.1)
    host.wait_until(lambda: len(done) == 5)
    assert set_alarms(broker) == []
    assert broker.stats().blocked_publishers == ()
    assert queue.info().ready == 5
    broker.close()
    host.check_trace()


def test_a_transaction_an_ack_a_get_and_a_declaration_go_on(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"1", b"2", b"3"]).result()
    with broker.tx():
        queue.publish(b"taken before the alarm")
        host.memory.used_bytes = TOTAL
        host.sleep(1.1)
        assert set_alarms(broker) == ["memory"]
    with pytest.raises(warrenmq.Blocked, match="memory alarm"), broker.tx():
        queue.get().ack()
        queue.publish(b"refused", timeout=0.5)
    assert queue.info().unacked == 1, "an exception undoes the ack, too"
    for body in (b"2", b"3", b"taken before the alarm"):
        delivery = queue.get()
        assert delivery.body == body
        delivery.ack()
    broker.declare_queue("another")
    assert queue.purge() == 0
    broker.close()
    host.check_trace()


def test_a_publish_that_does_not_wait_names_the_alarm_and_what_to_do(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"without an alarm a timeout changes nothing", timeout=0).result()
    host.memory.used_bytes = 5_000
    host.sleep(1.1)
    before = host.sim.monotonic_ns()
    with pytest.raises(
        warrenmq.Blocked, match=r"5,000 bytes were in use, vm_memory_high_watermark allows 4,000"
    ):
        queue.publish(b"refused", timeout=0)
    with pytest.raises(warrenmq.Blocked, match="memory alarm is set"):
        queue.publish_many([b"refused", b"too"], timeout=0)
    assert host.sim.monotonic_ns() - before < 0.1e9
    with pytest.raises(warrenmq.Blocked):
        broker.declare_exchange("x").publish("k", b"refused", timeout=2.5)
    assert host.sim.monotonic_ns() - before >= 2.5e9
    assert broker.stats().blocked_publishers == ()
    host.memory.used_bytes = 0
    queue.publish(b"taken in time", timeout=2).result()
    assert queue.info().ready == 2


def test_a_timeout_counts_for_credit_and_for_a_queue_that_is_being_restarted_too(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    credit = SETTINGS.credit_flow_default_credit[0]
    queue.publish_many([b"x"] * credit, timeout=0)
    with pytest.raises(warrenmq.Blocked, match="queue 'q' is behind"):
        queue.publish(b"refused", timeout=0)
    queue.publish(b"taken in time", timeout=5).result()
    host.sim.kill(host.sim.whereis("queue:q"))
    queue.publish(b"to the successor", timeout=5).result()
    assert queue.info().ready == credit + 2


def test_a_timeout_counts_for_queues_that_a_header_names_too(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"x"] * SETTINGS.credit_flow_default_credit[0], timeout=0)
    copied = warrenmq.Properties(headers={"CC": ["q"]})
    assert broker.would_block("", "nobody", copied)
    with pytest.raises(warrenmq.Blocked, match="queue 'q' is behind"):
        broker.publish("", "nobody", b"refused", properties=copied, timeout=0)


def test_publishers_go_on_when_neither_alarm_is_set(host: SimulatedHost) -> None:
    host.disk.free_bytes = ROOM
    broker = host.open()
    queue = broker.declare_queue("q")
    host.memory.used_bytes = TOTAL
    host.disk.free_bytes = 10_000
    host.sleep(11)
    assert set_alarms(broker) == ["memory", "disk"]
    with pytest.raises(warrenmq.Blocked, match="memory alarm is set") as blocked:
        queue.publish(b"refused", timeout=0)
    assert "disk alarm is set (10,000 bytes were free" in str(blocked.value)
    done = publish_beside(host, queue, 1)
    host.memory.used_bytes = 0
    host.sleep(2)
    assert (set_alarms(broker), done) == (["disk"], [])
    host.memory.used_bytes = TOTAL
    host.sleep(2)
    host.disk.free_bytes = ROOM
    host.sleep(11)
    assert (set_alarms(broker), done) == (["memory"], [])
    host.memory.used_bytes = 0
    host.wait_until(lambda: done == [0])
    broker.close()
    host.check_trace()


def test_the_memory_is_looked_at_every_second_and_first_before_anybody_can_publish(
    host: SimulatedHost,
) -> None:
    host.memory.used_bytes = 4_001
    broker = host.open()
    assert set_alarms(broker) == ["memory"]
    broker.close()
    times: list[float] = []

    class Watched(type(host.memory)):  # type: ignore[misc]
        def used(self) -> int:
            times.append(host.sim.monotonic_ns() / 1e9)
            return 0

    host.memory = Watched()
    broker = host.open()
    assert len(times) == 1
    host.sleep(5.5)
    assert gaps(times) == [1.0] * 5
    broker.close()


@pytest.mark.parametrize(
    ("above_limit", "gap"), [(0, 0.1), (100_000_000, 0.8), (10**12, 10.0), (-1, 10.0)]
)  # fmt: skip
def test_the_disk_is_looked_at_the_more_often_the_fuller_it_is(
    host: SimulatedHost, above_limit: int, gap: float
) -> None:
    times: list[float] = []

    def look(path: str) -> int:
        times.append(host.sim.monotonic_ns() / 1e9)
        return ROOM + above_limit

    host.disk.free_space = look  # type: ignore[method-assign]
    host.settings = replace(SETTINGS, disk_free_limit=ROOM)
    host.open()
    assert len(times) == 1
    host.sleep(50.5)
    assert set(gaps(times)) == {gap}


def test_limits_change_at_run_time_at_once_and_are_the_settings_again_after_a_restart(
    host: SimulatedHost,
) -> None:
    host.memory.used_bytes = 3_000
    host.disk.free_bytes = ROOM
    broker = host.open()
    queue = broker.declare_queue("q")
    assert set_alarms(broker) == []
    assert broker.set_vm_memory_high_watermark(0.2) == 2_000
    with pytest.raises(warrenmq.Blocked, match="allows 2,000"):
        queue.publish(b"refused", timeout=0)
    assert broker.set_vm_memory_high_watermark(("absolute", "3kB")) == 3_000
    queue.publish(b"taken", timeout=0).result()
    assert broker.set_disk_free_limit(2 * ROOM) == 2 * ROOM
    with pytest.raises(warrenmq.Blocked, match="disk_free_limit wants 2,000,000"):
        queue.publish(b"refused", timeout=0)
    assert broker.set_disk_free_limit(("mem_relative", 1.5)) == 15_000
    queue.publish(b"taken", timeout=0).result()
    for wrong in (1.5, "much", ("relative", 2), -1):
        with pytest.raises(warrenmq.SettingsError, match=r"vm_memory_high_watermark = .* must be"):
            broker.set_vm_memory_high_watermark(wrong)
    broker.close()
    memory, disk = host.open().stats().alarms
    assert (memory.limit, disk.limit) == (4_000, 20_000)


def test_a_watermark_of_nothing_blocks_all_publishing(host: SimulatedHost) -> None:
    host.memory.used_bytes = 1
    host.settings = replace(SETTINGS, vm_memory_high_watermark=0.0)
    with pytest.raises(warrenmq.Blocked, match="allows 0"):
        host.open().declare_queue("q").publish(b"", timeout=0)


def test_memory_kept_by_the_allocator_is_returned_before_publishers_are_blocked(host: SimulatedHost) -> None:
    broker = host.open()
    host.memory.used_bytes, host.memory.releasable_bytes = 5_000, 1_000
    host.sleep(1.1)
    assert set_alarms(broker) == []
    assert host.memory.used_bytes == 4_000


@pytest.mark.parametrize("victim", ["vm_memory_monitor", "rabbit_disk_monitor", "rabbit_alarm"])
def test_one_that_is_killed_is_started_again_alone_and_no_alarm_is_forgotten(
    host: SimulatedHost, victim: str
) -> None:
    host.disk.free_bytes = ROOM
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.get()  # its process starts
    others = {name: host.sim.whereis(name) for name in ("vhost_process", "queue:q", "msg_store_persistent")}
    broker.set_vm_memory_high_watermark(0.3)
    broker.set_disk_free_limit(30_000)
    host.memory.used_bytes, host.disk.free_bytes = TOTAL, 25_000
    host.sleep(11)
    done = publish_beside(host, queue, 3)
    host.sleep(1)
    host.sim.kill(host.sim.whereis(victim))
    assert set_alarms(broker) == ["memory", "disk"]
    host.wait_until(lambda: host.sim.is_registered(victim))
    host.sleep(11)
    assert set_alarms(broker) == ["memory", "disk"]
    assert [alarm.limit for alarm in broker.stats().alarms] == [3_000, 30_000], "it still has its last limit"
    host.memory.used_bytes, host.disk.free_bytes = 0, ROOM  # better while nobody looks
    host.sim.kill(host.sim.whereis(victim))
    host.wait_until(lambda: done == [0, 1, 2], seconds=20)
    assert {name: host.sim.whereis(name) for name in others} == others
    broker.close()
    host.check_trace()


@pytest.mark.parametrize("seed", range(60))
def test_publishers_wait_for_alarms_and_not_for_ever_whichever_process_is_killed(seed: int) -> None:
    host = SimulatedHost(seed, SETTINGS)
    host.memory.total_bytes = TOTAL
    try:
        broker = host.open()
        queue = broker.declare_queue("q")
        done = publish_beside(host, queue, 40)
        for turn in range(8):
            host.memory.used_bytes = TOTAL if turn % 2 == 0 else 0
            host.sleep(0.1 + seed % 10 * 0.1)
            victim = ("rabbit_alarm", "vm_memory_monitor")[seed % 2]
            if host.sim.is_registered(victim):
                host.sim.kill(host.sim.whereis(victim))
        host.memory.used_bytes = 0
        host.wait_until(lambda: len(done) == 40 and not set_alarms(broker))
        broker.close()
        host.check_trace()
    finally:
        host.close()


def test_a_waiting_publisher_gets_an_error_when_the_broker_is_closed(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    host.memory.used_bytes = TOTAL
    host.sleep(1.1)
    told: list[BaseException] = []

    def publisher() -> None:
        try:
            queue.publish(b"never")
        except warrenmq.BrokerClosed as error:
            told.append(error)

    host.sim.spawn(publisher)
    host.sleep(1)
    assert told == []
    broker.close()
    host.sleep(0.1)
    assert len(told) == 1


def test_a_simulation_in_which_everybody_waits_for_an_alarm_to_clear_is_at_its_end(
    host: SimulatedHost,
) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    host.memory.used_bytes = TOTAL
    host.sleep(1.1)
    with pytest.raises(Deadlock):
        queue.publish(b"nobody will ever make room")
    host.memory.used_bytes = 0
    queue.publish(b"somebody did").result()


def test_the_trace_tells_both_alarms_with_their_figures_and_is_the_same_for_the_same_seed() -> None:
    def life() -> dict[str, bytes]:
        host = SimulatedHost(8, SETTINGS)
        host.memory.total_bytes = TOTAL
        try:
            host.disk.free_bytes = ROOM
            broker = host.open()
            queue = broker.declare_queue("q")
            for used, free in ((4_321, ROOM), (0, ROOM), (0, 19_999), (0, ROOM)):
                host.memory.used_bytes, host.disk.free_bytes = used, free
                host.sleep(10.5)
                if not set_alarms(broker):
                    host.disk.free_bytes = None
                    queue.publish(b"x").result()
            broker.close()
            assert host.sink is not None
            return host.sink.files()
        finally:
            host.close()

    files = life()
    assert digest(files) == digest(life())
    trace = open_memory(files)
    rows = [row for piece in trace.catalog.chunks for row in trace.rows(piece)]
    events = [(row[8] >> 8 & 0xFF, row[8] & 0xFF, row[5], row[7 - 1]) for row in rows]
    assert [each for each in events if each[0] in (Ev.ALARM_SET, Ev.ALARM_CLEAR)] == [
        (Ev.ALARM_SET, ALARM_MEMORY, 4_321, 4_000),
        (Ev.ALARM_CLEAR, ALARM_MEMORY, 0, 4_000),
        (Ev.ALARM_SET, ALARM_DISK, 19_999, 20_000),
        (Ev.ALARM_CLEAR, ALARM_DISK, ROOM, 20_000),
    ]


# the disk alarm and a disk that is full


def test_the_disk_alarm_comes_before_the_disk_is_full_and_goes_when_consumers_have_made_room(
    host: SimulatedHost,
) -> None:
    host.settings = replace(SETTINGS, disk_free_limit=5_000)
    host.disk.free_bytes = 40_000
    broker = host.open()
    queue = broker.declare_queue("q")

    def fill_up() -> None:
        while True:
            queue.publish(b"L" * 900, timeout=1).result()
            host.sleep(0.1)

    with pytest.raises(warrenmq.Blocked, match="disk alarm"):
        fill_up()
    assert 0 < host.disk.free_bytes < 5_000
    done = publish_beside(host, queue, 3)
    while (delivery := queue.get()) is not None:
        delivery.ack()
    host.wait_until(lambda: done == [0, 1, 2])
    broker.close()
    host.check_trace()


def test_a_disk_that_fills_up_between_two_looks_refuses_first_and_then_lets_wait(host: SimulatedHost) -> None:
    host.disk.free_bytes = None
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.get()  # its process starts, which needs room
    host.disk.free_bytes = 0
    taken = queue.publish(b"taken")
    host.sleep(0.1)
    with pytest.raises(warrenmq.Blocked, match="disk is full"):
        queue.publish(b"refused").result()
    host.sleep(10)
    assert set_alarms(broker) == ["disk"]
    done = publish_beside(host, queue, 1)
    host.sleep(20)
    assert (done, taken.done()) == ([], False)
    host.disk.free_bytes = None
    host.wait_until(lambda: done == [0])
    taken.result()
    assert queue.info().ready == 2
    broker.close()
    host.check_trace()


def test_a_disk_of_unknown_free_space_blocks_no_publisher(host: SimulatedHost) -> None:
    host.disk.free_bytes = 10_000
    broker = host.open()
    queue = broker.declare_queue("q")
    assert set_alarms(broker) == ["disk"]
    original, failures = host.disk.free_space, []

    def fails(path: str) -> int:
        failures.append(host.sim.monotonic_ns() / 1e9)
        raise OSError(5, "Input/output error", path)

    host.disk.free_space = fails  # type: ignore[method-assign]
    host.sleep(15)
    assert set_alarms(broker) == []
    queue.publish(b"taken", timeout=0).result()
    host.sleep(3000)
    assert gaps(failures) == [120.0] * 10, "ten tries more, then no more"
    assert broker.stats().alarms[1].measured is None
    host.disk.free_space = original  # type: ignore[method-assign]
    broker.set_disk_free_limit(20_000)
    assert set_alarms(broker) == ["disk"], "a new limit makes it look again"
    broker.close()


# real threads and real memory


def test_a_real_process_above_a_tiny_watermark_blocks_until_it_is_raised(tmp_path: Path) -> None:
    with warrenmq.open(tmp_path, settings={"vm_memory_high_watermark": ("absolute", "1MB")}) as broker:
        queue = broker.declare_queue("q")
        with pytest.raises(warrenmq.Blocked, match="allows 1,000,000"):
            queue.publish(b"refused", timeout=0)
        threads = [
            threading.Thread(target=lambda: queue.publish(b"x").result(), name=f"p{i}") for i in range(3)
        ]
        for thread in threads:
            thread.start()
        while len(broker.stats().blocked_publishers) < 3:
            pass
        assert {each.name for each in broker.stats().blocked_publishers} == {"p0", "p1", "p2"}
        memory = broker.stats().alarms[0]
        assert memory.is_set
        assert memory.measured is not None
        assert memory.measured > 5_000_000
        assert broker.set_vm_memory_high_watermark(1.0) > memory.measured
        for thread in threads:
            thread.join(LIMIT)
        assert queue.info().ready == 3


def test_real_memory_that_consumers_have_freed_is_given_back_and_the_alarm_clears(tmp_path: Path) -> None:
    kept = {"profile": "classic", "queue_ram_bytes": 1 << 30}  # a backlog that stays in memory
    with warrenmq.open(tmp_path, settings={"vm_memory_high_watermark": 1.0, **kept}) as broker:
        queue = broker.declare_queue("q", durable=False)
        backlog = 40_000
        gc.collect()
        broker.inside.resources.memory.release()
        before = broker.inside.resources.memory.used()
        for first in range(0, backlog, 500):
            confirm = queue.publish_many(
                [b"%d" % number + bytes(1000) for number in range(first, first + 500)]
            )
        confirm.result()
        full = broker.inside.resources.memory.used()
        assert before is not None
        assert full is not None
        broker.set_vm_memory_high_watermark((before + full) // 2)
        with queue.consume(prefetch=1000, no_ack=True) as consumer:
            for _ in range(backlog):
                next(consumer)
        queue.publish(b"there is room again", timeout=30).result()
        assert set_alarms(broker) == []
