"""Looking into queues: peek leaves everything as it was, and asyncio and warrenmq.Queue can do what the face can."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warrenmq
from tests.support.limits import LIMIT
from warrenmq import aio
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedMachine

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 5)),
        st.tuples(st.just("get"), st.booleans()),
        st.tuples(st.just("peek"), st.integers(0, 12)),
        st.tuples(st.just("requeue"), st.just(0)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("profile", ["classic", "modern"])
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-max-length-bytes": 10_000}])
@settings(max_examples=15, deadline=None)
@given(steps=STEPS)
def test_peeks_change_nothing_that_a_consumer_or_a_count_could_tell(
    profile: str, arguments: dict[str, Any], steps: list[Any]
) -> None:
    def lives(look: bool) -> list[Any]:
        seen: list[Any] = []

        def life(machine: SimulatedMachine) -> None:
            with machine.open() as broker:
                queue = broker.declare_queue("q", arguments=arguments)
                held: list[warrenmq.Delivery] = []
                number = 0
                for step, how in steps:
                    if step == "publish":
                        for _ in range(how):
                            number += 1
                            queue.publish(
                                b"%d" % number * (1 + 2000 * (number % 3)), priority=number % 4
                            ).result()
                    elif step == "get" and (got := queue.get()) is not None:
                        seen.append((got.body, got.redelivered))
                        if how:
                            got.ack()
                        else:
                            held.append(got)
                    elif step == "requeue" and held:
                        held.pop().nack()
                    elif step == "peek" and look:
                        peeked = [(each.body, each.redelivered) for each in queue.peek(how)]
                        assert len(peeked) == min(how, len(queue))
                    seen.append((len(queue), queue.info().unacked))
                rest = [(each.body, each.redelivered) for each in queue.peek(1000)] if look else []
                drained = []
                while (got := queue.get()) is not None:
                    drained.append((got.body, got.redelivered))
                    got.ack()
                assert rest in ([], drained)
                seen.extend(drained)

        with SimulatedMachine(1, Settings.load(environ={}, profile=profile)) as machine:
            life(machine)
        return seen

    assert lives(look=True) == lives(look=False)


def test_asyncio_can_do_what_the_face_can(tmp_path: Path) -> None:
    async def work() -> None:
        async with aio.open(tmp_path) as broker:
            queue = await broker.declare_queue("q")
            failed = await broker.declare_queue("failed", durable=False)
            exchange = await broker.declare_exchange("x", "fanout")
            await broker.bind(queue, exchange)
            await exchange.publish("", b"1")
            assert [each.body for each in await queue.peek(5)] == [b"1"]
            assert (await queue.length(), (await queue.info()).unacked) == (1, 0)
            assert [each.name for each in await broker.queues()] == ["failed", "q"]
            assert (await broker.queue("q")).name == "q"
            delivery = await queue.get()
            assert delivery is not None
            async with broker.tx() as tx:
                tx.publish("", "failed", b"2")
                tx.ack(delivery)
                assert await failed.length() == 0
            assert (await failed.length(), (await queue.info()).unacked) == (1, 0)
            with pytest.raises(ZeroDivisionError):
                async with broker.tx() as tx:
                    tx.publish("", "failed", b"3")
                    raise ZeroDivisionError
            assert await failed.purge() == 1
            assert (await queue.retry_policy(3, 0.5, failed)).max_attempts == 3
            await broker.delete_exchange(exchange)
            with pytest.raises(warrenmq.NotFound):
                await exchange.publish("", b"")
            assert await failed.delete() == 0
            assert broker.is_owner
            assert broker.is_open

    asyncio.run(asyncio.wait_for(work(), LIMIT))


def test_a_simple_queues_item_can_be_given_back(tmp_path: Path) -> None:
    with warrenmq.Queue(tmp_path) as queue:
        queue.put_many([b"1", b"2"])
        assert queue.get() == b"1"
        queue.nack()
        assert sorted([queue.get(timeout=LIMIT), queue.get(timeout=LIMIT)]) == [b"1", b"2"]
        assert queue.qsize() == 0
        queue.task_done()
        queue.task_done()
        queue.join()
        with pytest.raises(ValueError, match="more often than get"):
            queue.nack()
