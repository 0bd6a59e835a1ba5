"""Mail of a queue that nobody waits for may lie until a thread runs the queue anyway."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulated import SimulatedHost
from warrenmq.log import Log
from warrenmq.queue.arguments import QueueArguments
from warrenmq.queue.asleep import NEVER_USED
from warrenmq.queue.collected import OpenAcks
from warrenmq.queue.index_sync import IndexSync
from warrenmq.queue.messages import Ack, Acks, Idle, Publish, Reject, Taken
from warrenmq.queue.setting import QueueSetting
from warrenmq.queue_index.protocol import Opening
from warrenmq.queue_index.versions import recover
from warrenmq.settings import Settings
from warrenmq.testing.disk import SimulatedDisk


@pytest.fixture
def host():
    with SimulatedHost(0) as made:
        yield made


def process_of(host, broker):
    return broker.inside.client.calls.address("q")._actor_weakref()


def test_acks_can_wait_while_there_is_nothing_to_deliver(host):
    broker = host.open()
    broker.declare_queue("q").publish(b"1").result()
    queue = process_of(host, broker)
    assert queue.can_wait({Acks})  # there is no consumer that it makes room for
    assert queue.can_wait(set())
    with broker.queue("q").consume(prefetch=1) as consumer:
        delivery = next(iter(consumer))
        assert queue.can_wait({Ack, Acks, OpenAcks, Taken})
        assert not queue.can_wait({Acks, Publish})
        assert not queue.can_wait({Reject})
        broker.queue("q").publish(b"2").result()
        assert not queue.can_wait({Acks})  # it makes room for the second one
        delivery.ack()
        next(iter(consumer)).ack()


def test_an_empty_mailbox_cannot_wait_while_a_publisher_does(host):
    broker = host.open()
    broker.declare_queue("q").publish(b"1").result()
    queue = process_of(host, broker)
    waited = []
    cast = queue.handle_cast

    def handle_cast(message):
        cast(message)
        waited.append(queue.can_wait(set()))

    queue.handle_cast = handle_cast
    broker.queue("q").publish(b"2").result()
    assert waited == [False]
    assert queue.can_wait(set())


@given(st.integers(1, 60_000), st.lists(st.integers(0, 1 << 62), min_size=1))
def test_what_nobody_waits_for_is_synced_at_the_same_moments_in_all_queues(interval, times):
    settings, disk = Settings(queue_sync_interval=interval), SimulatedDisk(Random(0))
    index, _ = recover(Opening(disk, "/q", settings, lambda _id: True, "/quarantine"))
    queue = QueueSetting(
        name="q", vhost="/", ref="q", durable=True, arguments=QueueArguments(), settings=settings, disk=disk, directory="/q",
        stores={}, rooms=[], has_dead_letter_exchange=bool, monotonic_ns=int, wall_ns=int, before=NEVER_USED.counts,
        found_expiring=False, is_up=True, log=Log("test"), delay_of=int,
    )  # fmt: skip
    moments = set()
    for now in times:
        effects = []
        index_sync = IndexSync(replace(queue, monotonic_ns=lambda now=now: now), index, effects)
        index_sync.unsynced = True
        index_sync.rest()
        [timer] = effects
        assert timer.info == Idle()
        waits = round(timer.seconds * 1e9)
        assert interval * 750_000 < waits <= interval * 1_000_000
        moments.add(now + waits)
    assert all(moment % (interval * 250_000) == 0 for moment in moments)


def test_queues_whose_acks_wait_share_their_syncs():
    with SimulatedHost(3, Settings(queue_sleep_after=60_000)) as host:
        broker = host.open()
        queues = [broker.declare_queue(f"q{number}") for number in range(40)]
        for queue in queues:
            queue.publish(b"1").result()
        host.sleep(1)
        for queue in queues:
            queue.get().ack()
        syncs = []

        def before_op(op, path):
            if op == "datasync" and "/warrenmq.log." in path:
                syncs.append(path)
            host.sim.checkpoint()

        host.disk.before_op = before_op
        host.sleep(1)
        assert 0 < len(syncs) < len(queues) * 2 // 3
