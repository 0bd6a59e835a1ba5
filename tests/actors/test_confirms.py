"""A promise is settled once, by the last of its queues, and waiters never miss it."""

import asyncio
import threading

import pytest

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.errors import Nacked
from warrenmq.runtime import Pool, Threads


def test_it_takes_every_queue_to_confirm_and_one_to_nack() -> None:
    confirm = Confirm(Threads(), 3)
    confirm.confirm()
    confirm.confirm()
    assert not confirm.done()
    confirm.confirm()
    assert confirm.done()
    confirm.result(0)

    refused = Confirm(Threads(), 2)
    refused.nack("no")
    refused.confirm()
    with pytest.raises(Nacked, match="no"):
        refused.result(0)


def test_waiting_too_short_a_time_is_a_timeout_and_the_answer_may_still_come() -> None:
    confirm = Confirm(Threads())
    with pytest.raises(TimeoutError):
        confirm.result(0.001)
    confirm.confirm()
    confirm.result(0)


def test_a_callback_is_called_once_before_or_after_the_answer_and_may_fail() -> None:
    called = []

    def callback(confirm: Confirm) -> None:
        called.append(confirm)
        raise RuntimeError

    confirm = Confirm(Threads())
    confirm.add_done_callback(callback)
    confirm.confirm()
    confirm.add_done_callback(callback)
    assert called == [confirm, confirm]


@pytest.mark.parametrize("make", [Threads, Pool])
def test_a_callback_that_raises_what_is_no_exception_ends_no_actor(make: type[Threads]) -> None:
    def callback(_confirm: Confirm) -> None:
        raise asyncio.CancelledError

    runtime = make()
    confirm = Confirm(runtime)
    confirm.add_done_callback(callback)
    settled: list[bool] = []
    actor = threading.Thread(target=lambda: settled.append(confirm.confirm() is None))
    actor.start()
    actor.join()
    runtime.shutdown()
    assert settled == [True]


def test_no_waiter_misses_an_answer_that_comes_while_it_registers() -> None:
    runtime = Threads()
    for _ in range(300):
        confirm = Confirm(runtime, 2)
        threads = [threading.Thread(target=confirm.confirm) for _ in range(2)]
        for thread in threads:
            thread.start()
        confirm.result()
        for thread in threads:
            thread.join()
