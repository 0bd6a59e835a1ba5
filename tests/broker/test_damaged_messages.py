"""A message whose bytes are damaged on the disk: set aside and told, and the next one is delivered in its place."""

from __future__ import annotations

from itertools import islice

import pytest

import warrenmq
from tests.support.own_directories import VHOST, files_of
from tests.support.simulated import EVERY_KIND, SimulatedHost
from warrenmq.directory.layout import vhost_folder
from warrenmq.message.properties import Properties
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.settings import Settings

QUARANTINE = f"/data/quarantine/{vhost_folder('/')}"
BODIES = [b"%d " % number + b"x" * (30, 700)[number % 2] for number in range(12)]
SMALL_ONE, LARGE_ONE = 4, 7


def damaged(host: SimulatedHost, body: bytes) -> str:
    """Flip a bit of the only copy of a message; returns the file."""
    (path,) = [path for path, data in files_of(host).items() if body in data and path.startswith(VHOST)]
    at = host.disk.read(path).index(body) + 5
    host.disk.open(path).pwrite(bytes((body[5] ^ 4,)), at)
    return path


def ids(settings: Settings) -> str:
    return f"{settings.queue_version}-{settings.msg_store_gc}-{settings.queue_paging}"


@pytest.mark.parametrize("settings", EVERY_KIND, ids=ids)
@pytest.mark.parametrize("clean", [True, False])
def test_it_is_set_aside_and_the_next_one_is_delivered(settings: Settings, clean: bool) -> None:
    with SimulatedHost(5, settings) as host:
        broker = host.open()
        queue = broker.declare_queue("a")
        for body in BODIES:
            queue.publish(body, properties=Properties(headers={"body": body[:2].decode()})).result(100)
        host.sleep(1)
        if clean:
            broker.close()
        host.crash(power_cut=False)
        broker = host.open()  # everything in its last place
        broker.close()
        host.crash(power_cut=False)
        hit = [damaged(host, BODIES[number]) for number in (SMALL_ONE, LARGE_ONE)]
        broker = host.open()
        queue = broker.queue("a")
        expected = [body for number, body in enumerate(BODIES) if number not in (SMALL_ONE, LARGE_ONE)]
        deliveries = []
        with queue.consume(prefetch=2) as consumer:
            for delivery in islice(consumer, 5):
                deliveries.append(delivery)
                delivery.ack()
        deliveries += list(iter(queue.get, None))
        assert [delivery.body for delivery in deliveries] == expected
        assert [delivery.properties.headers for delivery in deliveries] == [
            {"body": body[:2].decode()} for body in expected
        ]
        for delivery in deliveries[5:]:
            delivery.ack()
        stats = broker.stats()
        (told,) = stats.queues
        assert (told.ready, told.unacked, told.damaged) == (0, 0, 2)
        assert {f"/data/{each.file}" for each in stats.damage} >= set(hit)
        kept = [host.disk.read(f"{QUARANTINE}/{name}") for name in host.disk.listdir(QUARANTINE)]
        assert all(
            any(body[8:30] in data for data in kept) for body in (BODIES[SMALL_ONE], BODIES[LARGE_ONE])
        )
        broker.close()
        assert host.sink is not None
        result = replay_memory(host.sink.files())
        (finding,) = result.violations
        assert (finding.rule, finding.text.split(" ", 1)[0]) == ("C2", "2"), finding
        assert "lost to damage" in finding.text


@pytest.mark.parametrize("settings", EVERY_KIND[::4], ids=ids)
def test_a_rejected_message_that_cannot_be_read_again_is_not_dead_lettered(settings: Settings) -> None:
    with SimulatedHost(6, settings) as host:
        broker = host.open()
        broker.declare_queue("dead")
        queue = broker.declare_queue(
            "a", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        )
        for number in (LARGE_ONE, LARGE_ONE + 2):
            queue.publish(BODIES[number]).result(100)
        broker.close()
        host.crash(power_cut=False)
        broker = host.open()
        first, second = [broker.queue("a").get() for _ in range(2)]
        assert isinstance(first, warrenmq.Delivery)
        assert isinstance(second, warrenmq.Delivery)
        damaged(host, BODIES[LARGE_ONE])
        first.reject(requeue=False)
        second.reject(requeue=False)
        dead = broker.queue("dead")
        host.wait_until(lambda: dead.info().ready > 0)
        assert [delivery.body for delivery in iter(dead.get, None)] == [BODIES[LARGE_ONE + 2]]
        assert broker.queue("a").info().unacked == 0
        broker.close()
        host.check_trace()
