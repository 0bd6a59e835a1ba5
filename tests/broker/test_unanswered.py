"""Messages whose publishers want no confirm: stored like others, but nothing is synced for them alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.simulated import EVERY_KIND, SimulatedHost
from warrenmq.queue.unconfirmed import UNANSWERED
from warrenmq.settings import Settings


@pytest.fixture(
    params=EVERY_KIND, ids=lambda kind: f"v{kind.queue_version}-{kind.msg_store_gc}-{kind.queue_paging}"
)
def host(request: pytest.FixtureRequest) -> Iterator[SimulatedHost]:
    settings: Settings = request.param
    host = SimulatedHost(1, settings)
    yield host
    host.close()


def publish_unanswered(broker, body: bytes) -> None:
    sender = broker.inside.client.publishing.own._sender
    sender.send(("q",), sender.publication("", ("q",), [body], None, persistent=True), UNANSWERED)


def count_syncs(host: SimulatedHost) -> list[str]:
    syncs: list[str] = []

    def before_op(op: str, path: str) -> None:
        if op == "datasync" and ("/queues/" in path or "/warrenmq.log." in path):
            syncs.append(path)
        host.sim.checkpoint()

    host.disk.before_op = before_op
    return syncs


def test_nothing_is_synced_for_them_until_there_is_time(host: SimulatedHost) -> None:
    broker = host.open()
    broker.declare_queue("q").get()  # its process starts
    host.sleep(1)
    syncs = count_syncs(host)
    publish_unanswered(broker, b"x")
    host.sleep(0.1)
    assert syncs == []
    host.sleep(0.3)
    assert syncs, "queue_sync_interval has passed"
    host.crash(power_cut=True)
    broker = host.open()
    delivery = broker.queue("q").get(timeout=0)
    assert delivery.body == b"x", "what was synced is there after a power cut"
    broker.close()
    host.check_trace()


def test_one_that_wants_a_confirm_brings_the_others_along(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    publish_unanswered(broker, b"first")
    queue.publish(b"second").result()
    host.crash(power_cut=True)
    broker = host.open()
    assert [
        delivery.body for delivery in (broker.queue("q").get(0), broker.queue("q").get(0)) if delivery
    ] == [b"first", b"second"]
    broker.close()
    host.check_trace()
