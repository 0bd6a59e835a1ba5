"""Mail of a queue that nobody waits for may lie until a thread runs the queue anyway."""

import pytest

from tests.support.simulated import SimulatedHost
from warrenmq.queue.collected import OpenAcks
from warrenmq.queue.messages import Ack, Acks, Publish, Reject, Taken


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
