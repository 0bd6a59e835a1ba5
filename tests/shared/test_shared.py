"""Several processes, one directory: whoever owns it, everybody has the same face.  Here both sides are in this process."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.shared_directory import opened, wait_until
from warrenmq import aio
from warrenmq.amqp import serve
from warrenmq.amqp.net.local_socket import LONGEST_PATH, SOCKET
from warrenmq.shared.broker import SharedBroker
from warrenmq.shared.consuming import UNREAD, ConsumerChannel


class Pair(NamedTuple):
    owner: SharedBroker
    attached: SharedBroker
    path: Path


@pytest.fixture(name="pair")
def _pair(tmp_path: Path) -> Iterator[Pair]:
    path = tmp_path / "data"
    with opened(path) as owner, opened(path) as attached:
        assert (owner.is_owner, attached.is_owner) == (True, False)
        yield Pair(owner, attached, path)


def test_the_first_owns_the_directory_and_the_socket_is_for_its_user_alone(pair: Pair) -> None:
    mode = os.stat(pair.path / SOCKET).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    pair.attached.close()
    pair.owner.close()
    assert not (pair.path / SOCKET).exists()


def test_the_owners_close_is_no_error_of_the_attached(pair: Pair, logs: list[dict[str, object]]) -> None:
    pair.attached.declare_queue("q")
    pair.owner.close()
    pair.attached.queue("q").publish(b"goes on").result(LIMIT)
    assert [each for each in logs if each["log_level"] == "error"] == []


def test_a_handle_of_either_is_the_same_kind_of_thing(pair: Pair) -> None:
    for broker in pair.owner, pair.attached:
        assert isinstance(broker, warrenmq.Broker)
        assert type(broker.declare_queue("q")) is warrenmq.QueueHandle


def test_what_one_publishes_the_other_gets_with_its_properties(pair: Pair) -> None:
    given = warrenmq.Properties(
        headers={"n": 1, "t": [True, "x"]}, message_id="m", priority=3, expiration="60000"
    )
    there, here = pair.attached.declare_queue("q"), pair.owner.queue("q")
    for giver, taker in (there, here), (here, there):
        giver.publish(b"body", properties=given).result(LIMIT)
        assert [(each.body, each.properties.headers) for each in taker.peek(5)] == [(b"body", given.headers)]
        got = taker.get()
        assert (got.body, got.exchange, got.routing_key, got.redelivered) == (b"body", "", "q", False)
        assert (got.properties.headers, got.properties.message_id) == (given.headers, "m")
        got.ack()
        assert taker.get() is None


def test_bodies_of_all_sizes_come_as_they_went(pair: Pair) -> None:
    queue = pair.attached.declare_queue("q")
    bodies = [bytes([each % 251]) * each for each in (0, 1, 131_063, 131_064, 131_065, 400_000, 0)]
    queue.publish_many(bodies).result(LIMIT)
    assert [each.body for each in queue.peek(10)] == bodies
    with queue.consume(prefetch=3) as consumer:
        for body in bodies:
            delivery = consumer.get(LIMIT)
            assert delivery.body == body
            delivery.ack()
    assert len(queue) == 0


def test_a_thread_sees_what_it_did_before(pair: Pair) -> None:
    queue = pair.attached.declare_queue("q")
    for number in range(50):
        queue.publish(b"%d" % number)
        assert len(queue) == 1
        queue.get().ack()
        assert (queue.info().ready, queue.info().unacked) == (0, 0)
    with queue.consume(prefetch=10) as consumer:
        queue.publish_many([b"x"] * 10)
        for _ in range(10):
            consumer.get(LIMIT).ack()
        assert queue.info().unacked == 0


def test_exchanges_bindings_and_the_errors_of_the_caller(pair: Pair) -> None:
    broker = pair.attached
    queue = broker.declare_queue("q", arguments={"x-max-length": 10})
    exchange = broker.declare_exchange("x", "topic")
    broker.bind(queue, exchange, "a.*")
    exchange.publish("a.b", b"1").result(LIMIT)
    broker.declare_exchange("y", "fanout")
    broker.bind(exchange, "y", destination_type="exchange")
    broker.publish("y", "a.c", b"2").result(LIMIT)
    broker.unbind(queue, exchange, "a.*")
    exchange.publish("a.b", b"3").result(LIMIT)
    assert [each.body for each in queue.peek(9)] == [b"1", b"2"]
    for error, call in (
        (warrenmq.NotFound, lambda: broker.queue("none")),
        (warrenmq.NotFound, lambda: broker.publish("none", "", b"")),
        (warrenmq.NotFound, lambda: broker.delete_queue("q", if_unused=True) and broker.purge("none")),
        (
            warrenmq.PreconditionFailed,
            lambda: broker.declare_queue("p", durable=False) and broker.declare_queue("p"),
        ),
        (warrenmq.AccessRefused, lambda: broker.declare_queue("amq.mine")),
        (warrenmq.CommandInvalid, lambda: broker.declare_exchange("z", "odd")),
        (warrenmq.ArgumentValueError, lambda: broker.publish("", "k" * 300, b"")),
    ):
        with pytest.raises(error):
            call()
        assert broker.declare_queue("still").delete() == 0
    with pytest.raises(warrenmq.Returned):
        broker.publish("", "nowhere", b"", mandatory=True).result(LIMIT)
    assert [each.name for each in broker.queues()] == [each.name for each in pair.owner.queues()] == ["p"]
    broker.delete_exchange("x")


def test_the_empty_name_is_no_queue(pair: Pair) -> None:
    """AMQP has it stand for the queue that the channel declared last, which `purge("")` emptied."""
    broker = pair.attached
    queue = broker.declare_queue("q")
    queue.publish(b"stays").result(LIMIT)
    nameless = warrenmq.QueueHandle(broker, "")
    for call in (nameless.get, nameless.consume, nameless.purge, nameless.info, lambda: broker.bind("", "amq.fanout"),
                 lambda: broker.delete_queue(""), lambda: broker.queue("")):  # fmt: skip
        with pytest.raises(warrenmq.NotFound):
            call()
    broker.unbind("", "amq.fanout")
    assert len(queue) == 1


def test_a_transaction_takes_effect_at_its_end_or_not_at_all(pair: Pair) -> None:
    queue = pair.attached.declare_queue("q")
    queue.publish(b"old").result(LIMIT)
    with pytest.raises(ZeroDivisionError), pair.attached.tx():
        queue.publish(b"never")
        raise ZeroDivisionError
    with pair.attached.tx():
        queue.publish(b"new")
        queue.get().ack()
        assert (queue.info().ready, queue.info().unacked) == (0, 1)
    assert [each.body for each in queue.peek(5)] == [b"new"]


def test_stats_are_the_owners(pair: Pair) -> None:
    pair.attached.declare_queue("q").publish_many([b"1", b"2"]).result(LIMIT)
    seen = pair.attached.stats()
    assert [(each.name, each.ready) for each in seen.queues] == [("q", 2)]
    assert seen.queues == pair.owner.stats().queues
    assert warrenmq.Stats.from_dict(seen.as_dict()) == seen
    assert pair.attached.set_disk_free_limit(1000) == 1000
    assert pair.owner.stats().alarms[1].limit == 1000


def test_policies_are_the_owners(pair: Pair) -> None:
    queue = pair.attached.declare_queue("q")
    pair.attached.set_policy("short", "^q$", {"max-length": 1}, apply_to="queues", priority=2)
    queue.publish_many([b"1", b"2"]).result(LIMIT)
    assert pair.owner.queue("q").info().ready == 1
    (policy,) = pair.attached.policies()
    assert policy == pair.owner.policies()[0]
    pair.attached.clear_policy("short")
    with pytest.raises(warrenmq.NotFound, match="no policy 'short'"):
        pair.attached.clear_policy("short")
    with pytest.raises(warrenmq.PreconditionFailed, match="not recognised policy settings"):
        pair.attached.set_policy("short", "", {"x": 1})


def test_a_consumer_gives_back_what_it_did_not_hand_out(pair: Pair) -> None:
    queue = pair.attached.declare_queue("q")
    queue.publish_many([b"%d" % each for each in range(20)]).result(LIMIT)
    consumer = queue.consume(prefetch=10)
    first, second = next(consumer), next(consumer)
    first.ack()
    consumer.cancel()
    assert (queue.info().ready, queue.info().unacked) == (18, 1)
    second.nack()
    with pytest.raises(warrenmq.PreconditionFailed):
        second.ack()
    assert (queue.info().ready, queue.info().unacked) == (19, 0)
    assert [each.body for each in queue.peek(3)] == [b"1", b"2", b"3"]


def test_acks_of_many_and_rejects(pair: Pair) -> None:
    queue = pair.attached.declare_queue("q")
    queue.publish_many([b"%d" % each for each in range(6)]).result(LIMIT)
    with queue.consume(prefetch=6) as consumer:
        deliveries = [next(consumer) for _ in range(6)]
        deliveries[2].ack(multiple=True)
        deliveries[3].reject(requeue=False)
        deliveries[5].nack()
        assert (queue.info().ready, queue.info().unacked) == (0, 2)
        again = next(consumer)
        assert (again.body, again.redelivered) == (b"5", True)
        with pytest.raises(warrenmq.PreconditionFailed):
            deliveries[1].ack()


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_consumer_without_a_limit_takes_no_more_than_it_can_hold(pair: Pair, no_ack: bool) -> None:
    count = 3 * UNREAD
    queue = pair.attached.declare_queue("q")
    queue.publish_many([b"x" * 2000] * count).result(LIMIT)
    with queue.consume(0, no_ack) as consumer:
        for _ in range(count):
            delivery = consumer.get(LIMIT)
            assert delivery is not None
            if not no_ack:
                delivery.ack()
    assert (queue.info().ready, queue.info().unacked) == (0, 0)


def test_a_consumer_whose_queue_is_deleted_leaves_nothing_open(pair: Pair) -> None:
    """Its channel stayed open, and its connection if it had one to itself."""
    link = pair.attached.inside.client.links.current

    def is_closed() -> bool:
        mine = [each for each in link._connections if each.ended is None]
        return len(mine) == 1 and not any(
            isinstance(each, ConsumerChannel) for each in mine[0].channels.values()
        )

    for prefetch in 0, 5:
        queue = pair.attached.declare_queue("q")
        consumer = queue.consume(prefetch)
        queue.delete()
        assert list(consumer) == []
        wait_until(is_closed)


def test_a_get_waits_for_a_message(pair: Pair) -> None:
    queue = pair.attached.declare_queue("q", auto_delete=True)
    assert queue.get(timeout=0.01) is None
    threading.Timer(0.05, lambda: pair.owner.queue("q").publish(b"late")).start()
    got = queue.get(timeout=LIMIT, no_ack=True)
    assert got.body == b"late"


def test_an_exclusive_queue_is_of_one_process(pair: Pair) -> None:
    mine = pair.attached.declare_queue(exclusive=True)
    mine.publish(b"1").result(LIMIT)
    with opened(pair.path) as third:
        for other in pair.owner, third:  # the owner took what was another's
            queue = warrenmq.QueueHandle(other, mine.name)
            behind = aio.Queue(asyncio.run(aio.Broker(lambda other=other: other).start()), queue)
            for use in (
                partial(other.queue, mine.name), queue.get, queue.consume, queue.purge, queue.delete,
                lambda behind=behind: asyncio.run(behind.get()),
            ):  # fmt: skip
                with pytest.raises(warrenmq.ResourceLocked, match="is exclusive to another connection"):
                    use()
    assert len(mine) == 1
    pair.attached.close()
    with pytest.raises(warrenmq.NotFound):
        pair.owner.queue(mine.name).publish(b"")


def test_asyncio_has_the_same(pair: Pair) -> None:
    async def work() -> list[bytes]:
        async with aio.open(pair.path, shared=True) as broker:
            queue = await broker.declare_queue("q")
            await queue.publish_many([b"1", b"2"])
            await queue.publish(b"3")
            bodies = []
            async with queue.consume(prefetch=2) as consumer:
                async for delivery in consumer:
                    delivery.ack()
                    bodies.append(delivery.body)
                    if len(bodies) == 3:
                        return bodies
            return bodies

    assert asyncio.run(asyncio.wait_for(work(), LIMIT)) == [b"1", b"2", b"3"]


def test_a_get_of_asyncio_leaves_the_queue_and_its_consumers_as_they_are(pair: Pair) -> None:
    """Its consumer took an auto-delete queue with it, was refused beside an exclusive one, and had nothing of
    a queue with a single active one.
    """
    attached = pair.attached
    alone = {"x-single-active-consumer": True}
    queues = [
        attached.declare_queue("goes", auto_delete=True),
        attached.declare_queue("exclusive"),
        attached.declare_queue("single", arguments=alone),
    ]

    async def get(name: str) -> bytes:
        queue = await (await aio.Broker(lambda: attached).start()).queue(name)
        delivery = await queue.get(timeout=LIMIT)
        assert delivery is not None
        return delivery.body

    with queues[1].consume(1, exclusive=True) as exclusive, queues[2].consume(1) as active:
        for queue in queues:
            queue.publish_many([b"1", b"2", b"3"]).result(LIMIT)
        assert exclusive.get(LIMIT).body == active.get(LIMIT).body == b"1"
        assert asyncio.run(get("goes")) == b"1"
        assert asyncio.run(get("exclusive")) == asyncio.run(get("single")) == b"2"
    assert len(queues[0]) == 2


def test_a_directory_that_is_not_shared_says_how_to_share_it(tmp_path: Path) -> None:
    with (
        warrenmq.open(tmp_path / "data"),
        pytest.raises(
            warrenmq.DirectoryInUse, match=r"shared=True in every process, or have `warrenmq serve` own it"
        ),
    ):
        warrenmq.open(tmp_path / "data", shared=True)
    with (
        opened(tmp_path / "data"),
        pytest.raises(warrenmq.DirectoryInUse, match=r"attach to it with warrenmq.open\(path, shared=True\)"),
    ):
        warrenmq.open(tmp_path / "data")


def test_a_path_longer_than_a_sockets_may_be(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 30)
    assert len(os.fsencode(path)) > LONGEST_PATH
    with opened(path), opened(path) as attached:
        attached.declare_queue("q").publish(b"x").result(LIMIT)
        assert len(attached.queue("q")) == 1


def test_only_the_owner_serves_over_tcp(pair: Pair) -> None:
    with serve(pair.owner, port=0) as server:
        assert server.url.startswith("amqp://")
    with pytest.raises(warrenmq.PreconditionFailed, match="owned by another process"):
        serve(pair.attached, port=0)


def test_another_virtual_host_is_refused(pair: Pair) -> None:
    with pytest.raises(warrenmq.AccessRefused, match="does not serve the virtual host 'other'"):
        opened(pair.path, vhost="other")


def test_after_close_every_call_says_so(pair: Pair) -> None:
    queue = pair.attached.declare_queue("q")
    consumer = queue.consume()
    pair.attached.close()
    assert list(consumer) == []
    for call in (
        queue.info,
        lambda: queue.publish(b""),
        pair.attached.stats,
        queue.get,
        pair.attached.queues,
    ):
        with pytest.raises(warrenmq.BrokerClosed):
            call()
    pair.attached.close()
    assert len(pair.owner.queue("q")) == 0


def test_consumers_of_the_owner_and_of_others_are_not_mistaken_for_each_other(pair: Pair) -> None:
    """Each process numbered its consumers from 1, so that an ack of one settled what another one held."""
    queue = pair.owner.declare_queue("q")
    consumers = [broker.queue("q").consume(prefetch=1) for broker in pair[:2] for _ in range(8)]
    queue.publish_many([b"%d" % number for number in range(60)]).result()
    seen: set[bytes] = set()
    while len(seen) < 60:
        for consumer in consumers:
            if (delivery := consumer.get(timeout=0.01)) is not None:
                seen.add(delivery.body)
                delivery.ack()
    left = pair.attached.queue("q").info()  # comes behind the acks of its own process
    assert (left.ready, left.unacked) == (0, 0)
