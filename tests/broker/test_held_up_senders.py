"""Senders that wait for credit, or for an alarm to clear, say so in the trace: when it begins, and when and why it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pykka
import pytest

import warrenmq
from tests.amqp.channels import Client
from tests.support.interrupted_calls import signalled
from tests.support.kept_rows import KeptRows
from tests.support.simulated import SMALL, WAITS, SimulatedHost, hold_disk, said, stuck_queue
from warrenmq.broker.publisher import WaitingFlow
from warrenmq.runtime import Threads
from warrenmq.trace.events import (
    CREDIT_GAVE_UP,
    CREDIT_GRANTED,
    CREDIT_PEER_DOWN,
    CreditBlocked,
    CreditUnblocked,
    Ev,
)
from warrenmq.trace.reader import open_trace

SECOND = 1_000_000_000


@pytest.fixture
def host() -> Iterator[SimulatedHost]:
    made = SimulatedHost(3)
    made.memory.total_bytes = 10_000
    yield made
    made.close()


def test_a_thread_that_is_granted_credit_in_time_says_nothing(host: SimulatedHost) -> None:
    with host.open() as broker:
        queue = broker.declare_queue("q")
        for _ in range(1000):
            queue.publish(b"m").result()
        queue.publish(b"m", timeout=10).result()
    assert said(host, *WAITS) == []


def test_a_thread_says_how_long_it_waited_for_credit(host: SimulatedHost) -> None:
    with host.open() as broker:
        stuck_queue(host, broker, 2.0).publish(b"one too many").result()
    host.check_trace()
    blocked, unblocked = said(host, *WAITS)
    assert blocked[:2] == (Ev.CREDIT_BLOCKED, 0)
    assert unblocked[:2] == (Ev.CREDIT_UNBLOCKED, CREDIT_GRANTED)
    assert (blocked.actor, blocked.peer) == (unblocked.actor, unblocked.peer) == ("client-1", "queue:q")
    assert unblocked.t - blocked.t == pytest.approx(2 * SECOND, rel=0.01)


@pytest.mark.parametrize(
    ("bodies", "batches", "waits"),
    [
        ([b"small"] * 100, 1, False),
        ([b"small"] * 100, 30, True),
        ([bytes(300_000)] * 10, 1, False),
        ([bytes(300_000)] * 10, 2, True),
        ([b"alone"], 1, True),
    ],
)
def test_only_batches_of_small_bodies_are_sent_ahead_of_credit(
    host: SimulatedHost, bodies: list[bytes], batches: int, waits: bool
) -> None:
    with host.open() as broker:
        queue = stuck_queue(host, broker, 2.0)
        for confirmed in [queue.publish_many(bodies) for _ in range(batches)]:
            confirmed.result()
    assert bool(said(host, Ev.CREDIT_BLOCKED)) is waits


def test_a_sender_whose_timeout_ends_its_wait_records_that_it_gave_up(host: SimulatedHost) -> None:
    with host.open() as broker:
        queue = stuck_queue(host, broker, 5.0)
        with pytest.raises(warrenmq.Blocked, match="queue 'q' is behind"):
            queue.publish(b"refused", timeout=1.5)
        with pytest.raises(warrenmq.Blocked):
            queue.publish(b"does not wait at all", timeout=0)
    blocked, unblocked = said(host, *WAITS)
    assert unblocked.flag == CREDIT_GAVE_UP
    assert unblocked.t - blocked.t == pytest.approx(1.5 * SECOND, rel=0.01)


def test_a_sender_does_not_wait_for_credit_from_a_dead_process(host: SimulatedHost) -> None:
    with host.open() as broker:
        queue = stuck_queue(host, broker, 5.0)
        host.sim.spawn(lambda: (host.sleep(1.0), host.sim.kill(broker.inside.client.calls.address("q"))))
        with pytest.raises(warrenmq.Nacked):
            queue.publish(b"into the void").result()
    blocked, unblocked = said(host, *WAITS)
    assert unblocked.flag == CREDIT_PEER_DOWN
    assert SECOND <= unblocked.t - blocked.t < 1.2 * SECOND, "it looks ten times a second"


def test_a_thread_says_how_long_an_alarm_held_it_up(host: SimulatedHost) -> None:
    with host.open() as broker:
        queue = broker.declare_queue("q")
        host.memory.used_bytes = 5_000
        host.sleep(1.1)
        with pytest.raises(warrenmq.Blocked):
            queue.publish(b"refused", timeout=0.5)
        host.sim.spawn(lambda: (host.sleep(3.0), setattr(host.memory, "used_bytes", 0)))
        queue.publish(b"when it has cleared").result()
    host.check_trace()
    rows = said(host, *WAITS)
    assert [row.event for row in rows] == [Ev.ALARM_BLOCKED, Ev.ALARM_UNBLOCKED] * 2
    assert {row.actor for row in rows} == {"client-1"}
    assert rows[1].t - rows[0].t == pytest.approx(0.5 * SECOND, rel=0.01)
    assert 2.9 * SECOND < rows[3].t - rows[2].t < 4.1 * SECOND, "the memory is looked at every second"


def test_a_queue_whose_store_is_behind_says_so(host: SimulatedHost) -> None:
    host.settings = replace(SMALL, msg_store_credit_disc_bound=(20, 5))
    with host.open() as broker:
        queue = broker.declare_queue("q")
        queue.publish(b"x" * 500).result()
        hold_disk(host, 1.0)
        queue.publish_many([b"x" * 500] * 100).result()
    host.check_trace()
    rows = said(host, *WAITS)
    assert [row.event for row in rows] == [Ev.CREDIT_BLOCKED, Ev.CREDIT_UNBLOCKED] * (len(rows) // 2)
    assert {(row.actor, row.peer) for row in rows} == {("queue:q", "msg_store_persistent")}


def test_a_channel_without_credit_says_so_until_it_is_granted_some(host: SimulatedHost) -> None:
    with host.open() as broker:
        channel = Client(broker).open(1)
        channel.declare("q", durable=True)
        broker.queue("q").get()  # its process starts
        hold_disk(host, 2.0)
        for _ in range(6):
            channel.publish("q", *[b"x" * 100] * 200, delivery_mode=2)
        host.sleep(5.0)
    blocked, unblocked = said(host, *WAITS)[:2]
    assert (blocked.event, blocked.peer) == (Ev.CREDIT_BLOCKED, "queue:q")
    assert (unblocked.event, unblocked.flag, unblocked.peer) == (
        Ev.CREDIT_UNBLOCKED,
        CREDIT_GRANTED,
        "queue:q",
    )
    assert unblocked.t - blocked.t == pytest.approx(2 * SECOND, rel=0.05)


def test_a_channel_that_ends_without_credit_waits_no_more(host: SimulatedHost) -> None:
    with host.open() as broker:
        client = Client(broker)
        channel = client.open(1)
        channel.declare("q", durable=True)
        broker.queue("q").get()  # its process starts
        hold_disk(host, 5.0)
        channel.publish("q", *[b"x"] * 1000, delivery_mode=2)
        host.sleep(1.0)
        host.sim.stop_actor(channel.ref)
        host.sleep(10.0)
    blocked, unblocked = said(host, *WAITS)
    assert unblocked.flag == CREDIT_GAVE_UP
    assert unblocked.t - blocked.t == pytest.approx(SECOND, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_waits_in_the_same_way(seed: int) -> None:
    def trace() -> dict[str, bytes]:
        host = SimulatedHost(seed)
        with host.open() as broker:
            stuck_queue(host, broker, 1.0).publish(b"one too many").result()
        assert said(host, *WAITS)
        assert host.sink is not None
        files = host.sink.files()
        host.close()
        return files

    assert trace() == trace()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_wait_for_credit_that_is_interrupted_anywhere_has_two_rows_or_none() -> None:
    trace, runtime = KeptRows(), Threads()
    granter = runtime.start(pykka.ThreadingActor)
    flow = WaitingFlow(runtime, granter, 0, trace)
    number = 1
    while signalled(number, lambda: flow.wait_for_credit(0), interrupt):
        number += 1
    runtime.stop_actor(granter)
    events = [event for event, _ in trace.said()]
    assert len(events) > number
    assert events == [CreditBlocked, CreditUnblocked] * (len(events) // 2)


def test_a_wait_for_an_alarm_that_is_interrupted_anywhere_has_two_rows_or_none(tmp_path: Path) -> None:
    def publish() -> None:
        with suppress(warrenmq.Blocked):
            queue.publish(b"refused", timeout=0)

    with warrenmq.open(tmp_path / "data", trace=tmp_path / "trace") as broker:
        queue = broker.declare_queue("q")
        broker.set_vm_memory_high_watermark(0.0)
        number = 1
        while signalled(number, publish, interrupt):
            number += 1
    with open_trace(tmp_path / "trace") as trace:
        rows = (row for chunk in trace.catalog.chunks for row in trace.rows(chunk))
        events = [
            Ev(event)
            for row in rows
            if (event := row[-1] >> 8 & 255) in (Ev.ALARM_BLOCKED, Ev.ALARM_UNBLOCKED)
        ]
    assert len(events) > 20
    assert events == [Ev.ALARM_BLOCKED, Ev.ALARM_UNBLOCKED] * (len(events) // 2)
