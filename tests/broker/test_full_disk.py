"""A full disk is a state that passes: publishes are refused, the rest goes on, and nothing that was taken is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import warrenmq
from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from warrenmq.broker import Broker
from warrenmq.settings import Settings

LARGE = b"L" * 900


@pytest.fixture(params=BOTH_PROFILES.values(), ids=BOTH_PROFILES)
def host(request: pytest.FixtureRequest) -> Iterator[SimulatedHost]:
    made = SimulatedHost(5, request.param)
    yield made
    made.close()


def bodies(broker: Broker, name: str) -> list[bytes]:
    got = []
    for delivery in iter(broker.queue(name).get, None):
        got.append(delivery.body)
        delivery.ack()
    return got


def test_publishes_are_refused_and_what_was_taken_is_confirmed_when_there_is_room(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"before").result()
    host.disk.free_bytes = 0
    taken = queue.publish(b"taken")
    host.sleep(0.1)
    assert not taken.done()
    with pytest.raises(warrenmq.Blocked, match="disk is full"):
        queue.publish(b"refused").result()
    with pytest.raises(warrenmq.Blocked, match="disk is full"):
        queue.publish_many([b"refused", b"too"]).result()
    host.sleep(10)
    assert not taken.done()
    host.disk.free_bytes = None
    taken.result()
    queue.publish(b"after").result()
    host.crash(power_cut=True)
    assert bodies(host.open(), "q") == [b"before", b"taken", b"after"]


def test_consumers_and_acks_go_on_and_acks_reach_the_disk_when_there_is_room(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"1", b"2" * 500, b"3", b"4"]).result()
    host.disk.free_bytes = 0
    with queue.consume(prefetch=1) as consumer:
        for _ in range(3):
            next(consumer).ack()
        assert next(consumer).body == b"4"
    host.sleep(5)
    host.disk.free_bytes = None
    host.sleep(5)
    host.crash(power_cut=True)
    assert bodies(host.open(), "q") == [b"4"]


def test_a_store_without_room_keeps_what_it_was_given_and_frees_what_is_acked(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    for _ in range(10):
        queue.publish(LARGE).result()
    host.disk.free_bytes = 300
    taken = queue.publish(LARGE)
    host.sleep(10)
    assert not taken.done()
    for _ in range(6):
        delivery = queue.get()
        assert delivery is not None
        delivery.ack()
    taken.result()
    assert host.disk.free_bytes is not None, "files of acked messages were deleted, nothing else made room"
    host.disk.free_bytes = None
    host.crash(power_cut=True)
    assert bodies(host.open(), "q") == [LARGE] * 5


@pytest.mark.parametrize("room", range(0, 2000, 97))
@pytest.mark.parametrize("settings", BOTH_PROFILES.values(), ids=BOTH_PROFILES)
def test_however_little_room_there_is_nothing_confirmed_is_lost(room: int, settings: Settings) -> None:
    host = SimulatedHost(room, settings)
    try:
        broker = host.open()
        queue = broker.declare_queue("q")
        host.disk.free_bytes = room
        confirms = {}
        for number in range(30):
            body = b"%d " % number + b"." * (600 if number % 3 == 0 else 20)
            confirms[body] = queue.publish(body)
            host.sleep(0.01)
        if room % 2:
            host.disk.free_bytes = None
            host.sleep(5)
        answers = {body: confirm.exception() for body, confirm in confirms.items() if confirm.done()}
        confirmed = [body for body, error in answers.items() if error is None]
        assert {type(error) for error in answers.values()} <= {type(None), warrenmq.Blocked}
        if room % 2:
            assert len(answers) == len(confirms), "everybody has an answer once there is room"
        host.crash(power_cut=True)
        host.disk.free_bytes = None
        found = bodies(host.open(), "q")
        unexpected = [body for body in found if answers.get(body) is not None]
        assert not unexpected, "what was refused does not come back"
        assert [body for body in found if body in confirmed] == confirmed
        host.check_trace()
    finally:
        host.close()


def test_a_queue_with_a_journal_to_flush_waits_for_room(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"%d" % i for i in range(5)]).result()
    host.disk.free_bytes = 150
    taken = queue.publish_many([b"%d" % i for i in range(5, 7)])
    taken.result()
    host.disk.free_bytes = 0
    delivery = queue.get()
    assert delivery is not None
    delivery.ack()
    host.sleep(60)
    host.disk.free_bytes = None
    host.sleep(5)
    queue.publish(b"7").result()
    host.crash(power_cut=True)
    assert bodies(host.open(), "q") == [b"%d" % i for i in range(1, 8)]


def test_a_broker_that_is_closed_while_the_disk_is_full_loses_nothing_confirmed(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"confirmed").result()
    host.disk.free_bytes = 0
    taken = queue.publish(b"taken")
    broker.close()
    with pytest.raises(warrenmq.Nacked):
        taken.result(0)
    host.crash(power_cut=False)
    host.disk.free_bytes = None
    assert bodies(host.open(), "q") == [b"confirmed"]


@pytest.mark.parametrize("room", [0, 10, 25, 40])
def test_a_queue_that_cannot_be_declared_is_not_there_by_half(host: SimulatedHost, room: int) -> None:
    broker = host.open()
    broker.declare_queue("old").publish(b"x").result()
    vhost_process = host.sim.whereis("vhost_process")
    host.disk.free_bytes = room
    with pytest.raises(warrenmq.Blocked, match="disk is full"):
        broker.declare_queue("new")
    assert host.sim.whereis("vhost_process") is vhost_process, "nothing crashed"
    with pytest.raises(warrenmq.NotFound):
        broker.queue("new")
    with pytest.raises(warrenmq.NotFound):
        broker.queue("new").publish(b"lost")
    assert not host.sim.is_registered("queue:new")
    host.disk.free_bytes = None
    broker.declare_queue("new").publish(b"y").result()
    host.crash(power_cut=True)
    broker = host.open()
    assert (bodies(broker, "old"), bodies(broker, "new")) == ([b"x"], [b"y"])


def test_a_queue_that_was_refused_is_not_there_after_a_crash_either(host: SimulatedHost) -> None:
    broker = host.open()
    host.disk.free_bytes = 40
    with pytest.raises(warrenmq.Blocked):
        broker.declare_queue("new")
    host.crash(power_cut=False)
    host.disk.free_bytes = None
    with pytest.raises(warrenmq.NotFound):
        host.open().queue("new")


def test_exchanges_and_bindings_that_cannot_be_written_are_not_in_effect(host: SimulatedHost) -> None:
    broker = host.open()
    broker.declare_queue("q")
    broker.declare_exchange("x", "fanout")
    host.disk.free_bytes = 0
    with pytest.raises(warrenmq.Blocked, match="disk is full"):
        broker.declare_exchange("y")
    with pytest.raises(warrenmq.NotFound):
        broker.publish("y", "", b"")
    with pytest.raises(warrenmq.Blocked, match="disk is full"):
        broker.bind("q", "x")
    with pytest.raises(warrenmq.Returned):
        broker.publish("x", "", b"", mandatory=True).result()
    host.disk.free_bytes = None
    broker.bind("q", "x")
    host.disk.free_bytes = 0
    for refused in (
        lambda: broker.unbind("q", "x"), lambda: broker.delete_exchange("x"), lambda: broker.delete_queue("q")
    ):  # fmt: skip
        with pytest.raises(warrenmq.Blocked, match="disk is full"):
            refused()
    host.disk.free_bytes = None
    broker.publish("x", "", b"still bound", mandatory=True).result()
    assert bodies(broker, "q") == [b"still bound"]
