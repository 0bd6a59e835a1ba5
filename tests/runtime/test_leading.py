"""The threads of a loop: who reads runs what it made ready, and the loop waits for no actor that blocks."""

import asyncio
import threading

import pytest

from tests.support.schedulers import LIMIT, Worker, do, until
from warrenmq.errors import ResourceError
from warrenmq.runtime import Pool
from warrenmq.runtime.leading import SharedLoop
from warrenmq.runtime.reasons import KILLED
from warrenmq.seams.blocking import THIS_THREAD

NAME = "test-io"


class Helpable(Worker):
    helpable = True


@pytest.fixture
def pool():
    made = Pool()
    yield made
    made.shutdown(1.0)


@pytest.fixture
def in_loop():
    """Runs a function in a loop of two threads."""
    loop = asyncio.new_event_loop()
    threads = SharedLoop(loop.run_forever, loop.stop, NAME)
    yield loop.call_soon_threadsafe
    loop.call_soon_threadsafe(threads.end)
    threads.join()
    loop.close()


def turn(in_loop):
    """Have the loop run a callback."""
    ran = threading.Event()
    in_loop(ran.set)
    return ran.wait(LIMIT)


def lent(pool, in_loop, ref, message):
    """Cast until the loop's own thread has run the message: a worker may be quicker, and the follower has to be there."""
    for _ in range(1_000):
        ran_by = pool.channel()

        def run(server, ran_by=ran_by):
            ran_by.put(threading.current_thread().name)
            if threading.current_thread().name == NAME:
                message(server)

        in_loop(lambda run=run: pool.cast(ref, run))
        if ran_by.get(timeout=LIMIT) == NAME:
            return
    pytest.fail("the loop never ran it")


def test_who_reads_runs_what_it_made_ready_and_what_that_made_ready(pool, in_loop):
    first, last, done = pool.start(Helpable), pool.start(Helpable), pool.channel()

    def pass_on(server):
        here = threading.get_ident()
        server.cast(last, lambda _: done.put({here, threading.get_ident()}))

    for _ in range(100):
        lent(pool, in_loop, first, pass_on)
        if len(done.get(timeout=LIMIT)) == 1:
            return
    pytest.fail("another thread ran the second one each time")


def test_an_actor_that_may_run_an_applications_code_is_left_to_a_worker(pool, in_loop):
    plain, ran_by = pool.start(Worker), pool.channel()
    for _ in range(20):
        in_loop(lambda: pool.cast(plain, lambda _: ran_by.put(threading.current_thread().name)))
        assert ran_by.get(timeout=LIMIT) != NAME


@pytest.mark.parametrize("announced", [True, False])
def test_the_loop_goes_on_while_an_actor_blocks(pool, in_loop, announced):
    ref, gate, inside = pool.start(Helpable), threading.Event(), threading.Event()

    def block(_server):
        if announced:
            with THIS_THREAD.blocking:
                inside.set()
                gate.wait(LIMIT)
        else:
            inside.set()
            gate.wait(LIMIT)

    lent(pool, in_loop, ref, block)
    assert inside.wait(LIMIT)
    assert turn(in_loop)
    other, done = pool.start(Helpable), threading.Event()
    in_loop(lambda: pool.cast(other, lambda _: done.set()))  # without a follower a worker runs it
    assert done.wait(LIMIT)
    gate.set()
    assert pool.call(ref, do(lambda _: 1), LIMIT) == 1
    lent(pool, in_loop, ref, lambda _: None)  # it follows again


def test_mail_keeps_its_senders_order_whoever_runs_the_actor(pool, in_loop):
    ref, count = pool.start(Helpable), 3_000
    for i in range(count):
        in_loop(lambda i=i: pool.cast(ref, i))
    until(pool, lambda: len(pool.call(ref, "seen")) == count)
    assert pool.call(ref, "seen") == [*range(count)]


def test_an_actor_that_never_comes_back_may_be_killed_and_its_heirs_run(pool, in_loop):
    ref, gate = pool.start(Helpable), threading.Event()
    lent(pool, in_loop, ref, lambda _: gate.wait(LIMIT))
    until(pool, lambda: turn(in_loop))
    pool.kill(ref)
    assert ref.actor_inbox.reason == KILLED
    assert pool.call(pool.start(Helpable), do(lambda _: 1), LIMIT) == 1
    assert turn(in_loop)
    gate.set()


def test_a_long_row_of_messages_does_not_hold_the_loop_up(pool, in_loop):
    """Two actors that never stop sending to each other."""
    ends, turns = threading.Event(), []

    def bounce(server, to, back):
        if not ends.is_set():
            server.cast(to, lambda other: bounce(other, back, to))

    one, other = pool.start(Helpable), pool.start(Helpable)
    lent(pool, in_loop, one, lambda server: bounce(server, other, one))
    turns += [turn(in_loop) for _ in range(20)]
    ends.set()
    assert all(turns)


def test_without_a_thread_for_a_follower_workers_run_the_actors(pool, in_loop, monkeypatch):
    ref, ran_by = pool.start(Helpable), pool.channel()
    pool.call(ref, "seen")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        for _ in range(20):
            in_loop(lambda: pool.cast(ref, lambda _: ran_by.put(threading.current_thread().name)))
            assert ran_by.get(timeout=LIMIT) != NAME
    lent(pool, in_loop, ref, lambda _: None)


def test_without_any_thread_there_is_no_loop(monkeypatch):
    loop = asyncio.new_event_loop()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(ResourceError, match=NAME):
            SharedLoop(loop.run_forever, loop.stop, NAME)
    loop.close()


def no_thread(_thread):
    raise RuntimeError("can't start new thread")
