"""No memory for a moment, at any line of the scheduler: what keeps the time, runs actors and tells of their end goes on."""

import threading

import pytest

from tests.support.schedulers import LIMIT, Worker, busy, crash, do, drained, end_of, scheduler, take
from warrenmq.runtime import Pool
from warrenmq.runtime.closable import Closable
from warrenmq.runtime.leading import SharedLoop
from warrenmq.runtime.life import ActorLife
from warrenmq.runtime.wheel import Wheel
from warrenmq.runtime.workers import Workers


@pytest.fixture
def pool(logs):
    made = Pool()
    yield made
    made.shutdown(1.0)


@pytest.fixture
def fails(monkeypatch):
    """Make the next calls of a method find no memory."""

    def fail(owner, name, times=2):
        method = getattr(owner, name)
        left = [None] * times

        def failing(*args):
            if left:
                left.pop()
                raise MemoryError
            return method(*args)

        monkeypatch.setattr(owner, name, failing)
        return left

    return fail


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Workers, "watch"), (Wheel, "_ring_alarms"), (Wheel, "set_alarm"), (Workers, "_turns"), (Workers, "_slice"),
        (Workers, "_park"),
    ],
)  # fmt: skip
def test_mail_and_timers_come_though_the_scheduler_had_no_memory(pool, fails, owner, name):
    worker = pool.start(Worker, notes := pool.channel())
    left = fails(owner, name)
    for number in range(3):
        pool.cast(worker, lambda server, number=number: server.send_after(0.001, number))
        assert take(notes, "info") == (number,)
    assert pool.call(worker, do(lambda server: server.seen)) == [0, 1, 2]
    assert not left


def test_an_alarm_that_was_due_is_kept(pool, fails):
    worker = pool.start(Worker, notes := pool.channel())
    pool.cast(worker, lambda server: server.send_after(0.05, "due"))
    left = fails(Workers, "make_ready", 1)
    assert take(notes, "info") == ("due",)
    assert not left


def test_an_actor_that_crashes_for_want_of_memory_ends_though_there_is_none_to_say_so(pool, fails):
    worker, other = pool.start(Worker), pool.start(Worker)
    pool.call(worker, do(lambda server: server.link(other)))
    fails(ActorLife, "crashed", 1)
    pool.cast(worker, crash)
    assert isinstance(end_of(pool, worker), RuntimeError)
    assert isinstance(end_of(pool, other), RuntimeError)


@pytest.mark.parametrize("name", ["_crash", "_end"])
@pytest.mark.parametrize("kind", ["threads", "pool"])
def test_an_actor_that_had_no_memory_to_end_handles_nothing_more_and_ends(logs, fails, kind, name):
    with scheduler(kind) as runtime:
        worker, other = runtime.start(Worker, notes := runtime.channel()), runtime.start(Worker)
        runtime.call(worker, do(lambda server: server.link(other)))
        fails(Worker, name, 1)
        gate = busy(runtime, worker)
        runtime.cast(worker, crash)
        runtime.cast(worker, lambda server: server.note("handled"))
        gate.set()
        assert isinstance(end_of(runtime, worker), RuntimeError | MemoryError)
        end_of(runtime, other)
        assert "handled" not in [each[0] for each in drained(notes)]


def test_a_callback_that_found_no_memory_is_called_again():
    closable, called = Closable(iter(range(1, 9)).__next__), []

    def callback(reason):
        called.append(reason)
        if len(called) < 3:
            raise MemoryError

    closable.on_close(callback)
    closable.begin_close("over")
    closable.notify_closed()
    assert called == ["over"] * 3


def test_a_loop_that_found_no_memory_is_run_again():
    runs, made = [], threading.Event()

    def run():
        assert made.wait(LIMIT)
        runs.append(None)
        if len(runs) < 3:
            raise MemoryError
        loop.end()

    loop = SharedLoop(run, lambda: None, "a loop")
    made.set()
    loop.join()
    assert len(runs) == 3
