"""One connection, in virtual time: heartbeats, and the alarms that block it."""

from __future__ import annotations

import pytest
from pamqp.commands import Channel, Confirm, Connection, Queue

from tests.amqp.connections import SimulatedClient, SimulatedNode, published
from tests.support.simulated import WAITS, said
from warrenmq.actors.node.alarm import RABBIT_ALARM
from warrenmq.amqp.wire.frames import HEARTBEAT_FRAME
from warrenmq.trace.events import Ev


@pytest.fixture
def client(node: SimulatedNode) -> SimulatedClient:
    return node.opened()


# -- heartbeats


def test_heartbeats_are_sent_when_nothing_else_is(node):
    client = node.opened(heartbeat=10)
    for _ in range(6):
        client.sleep(5)
        client.send(HEARTBEAT_FRAME)
    assert client.heartbeats() in {5, 6}
    for _ in range(6):
        client.sleep(4.9)
        client.channel(1)
        client.call(Channel.Close(200, "", 0, 0), Channel.CloseOk, 1)
    assert client.heartbeats() <= 1


def test_a_silent_client_is_dropped_after_two_missed_intervals(node):
    client = node.opened(heartbeat=10)
    client.sleep(19)
    assert not client.over
    client.sleep(12)
    assert client.over


def test_any_frame_is_a_heartbeat(node):
    client = node.opened(heartbeat=10)
    for number in range(1, 10):
        client.sleep(8)
        client.method(Channel.Open(), number)
    assert not client.over


# -- alarms


def alarm(node: SimulatedNode, source: str, *, is_set: bool = True) -> None:
    """Have too little memory or disk, or enough again."""
    if source == "memory":
        node.host.memory.used_bytes = (1 << 34) if is_set else 0
    else:
        node.broker.set_disk_free_limit((1 << 60) if is_set else 0)
    node.host.sleep(12)


def test_a_publisher_is_blocked_notified_and_goes_on_afterwards(node, client):
    client.channel(1)
    client.call(Queue.Declare(queue="q"), Queue.DeclareOk, 1)
    alarm(node, "memory")
    assert client.transport.reading
    client.send(published())
    _, blocked = client.next(Connection.Blocked)
    assert blocked.reason == "low on memory"
    assert not client.transport.reading
    client.method(Queue.Declare(queue="later"), 1)
    client.sleep(1)
    assert client.received() == []
    alarm(node, "memory", is_set=False)
    client.next(Connection.Unblocked)
    client.next(Queue.DeclareOk)
    assert client.transport.reading


def test_a_client_that_goes_while_it_is_blocked_is_not_waited_for(node, client):
    client.channel(1)
    client.call(Queue.Declare(queue="q"), Queue.DeclareOk, 1)
    alarm(node, "memory")
    client.send(published())
    client.next(Connection.Blocked)
    client.disconnect()
    client.sleep(0.1)
    assert client.over
    assert node.broker.queue("q").info().ready == 0


def test_the_trace_says_how_long_an_alarm_held_a_connection_up():
    node = SimulatedNode(traced=True)
    client = node.opened()
    client.channel(1)
    alarm(node, "memory")
    assert said(node.host, *WAITS) == [], "nothing is published"
    client.send(published())
    alarm(node, "disk")
    alarm(node, "memory", is_set=False)
    client.next(Connection.Blocked)
    assert len(said(node.host, *WAITS)) == 1
    alarm(node, "disk", is_set=False)
    client.next(Connection.Unblocked)
    blocked, unblocked = said(node.host, *WAITS)
    assert (blocked.event, unblocked.event) == (Ev.ALARM_BLOCKED, Ev.ALARM_UNBLOCKED)
    assert blocked.actor == unblocked.actor
    assert 20 < (unblocked.t - blocked.t) / 1e9 < 40
    node.close()


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_a_message_that_meets_an_alarm_is_not_taken_before_the_alarm_is_over(node, client, pieces):
    """The connection is blocked by the message's header, and its body is left where it is, as in RabbitMQ."""
    client.channel(1)
    client.call(Queue.Declare(queue="q"), Queue.DeclareOk, 1)
    client.call(Confirm.Select(), Confirm.SelectOk, 1)
    alarm(node, "memory")
    data = published() + published()
    size = -(-len(data) // pieces)
    for at in range(0, len(data), size):
        client.send(data[at : at + size])
    client.next(Connection.Blocked)
    client.sleep(1)
    assert client.received() == []
    alarm(node, "memory", is_set=False)
    client.next(Connection.Unblocked)
    client.sleep(1)
    assert [each for _, each in client.received()][-1].delivery_tag == 2


def test_a_connection_that_does_not_publish_is_not_blocked(node, client):
    alarm(node, "disk")
    client.channel(1)
    client.call(Queue.Declare(queue="q"), Queue.DeclareOk, 1)
    assert client.transport.reading


def test_an_alarm_from_before_counts(node):
    alarm(node, "disk")
    client = node.opened()
    client.channel(1)
    client.send(published())
    assert client.next(Connection.Blocked)[1].reason == "low on disk"


def test_a_client_that_knows_no_blocked_is_blocked_all_the_same(node):
    client = node.connect()
    client.start(properties={})
    client.tune()
    client.call(Connection.Open("/"), Connection.OpenOk)
    client.channel(1)
    alarm(node, "memory")
    client.send(published())
    client.sleep(0.1)
    assert client.received() == []
    assert not client.transport.reading


def test_a_blocked_client_is_not_missed(node):
    alarm(node, "memory")
    client = node.opened(heartbeat=20)
    client.channel(1)
    client.send(published())
    client.next(Connection.Blocked)
    client.sleep(200)
    assert not client.over
    alarm(node, "memory", is_set=False)
    client.sleep(30)
    assert not client.over
    client.sleep(60)
    assert client.over


def test_alarms_are_heard_of_from_a_new_rabbit_alarm_too(node, client):
    client.channel(1)
    node.sim.kill(node.sim.whereis(RABBIT_ALARM))
    client.sleep(1)
    alarm(node, "memory")
    client.send(published())
    client.next(Connection.Blocked)
