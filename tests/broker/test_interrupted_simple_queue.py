"""Calls of warrenmq.Queue that are interrupted at each entry of a function: its other threads go on, and each item comes once."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import warrenmq
from tests.broker.test_interrupted import Interrupt, alarms
from tests.support.interrupted_calls import interrupt
from tests.support.limits import LIMIT
from warrenmq.actors.sending.message_sender import MessageSender


def act(queue: warrenmq.Queue) -> None:
    queue.get()
    queue.task_done()
    queue.peek(2)
    queue.get()
    queue.nack()
    queue.put(b"p")


def goes_on_with(queue: warrenmq.Queue, found: list[Any]) -> None:
    """In another thread: take all that is there, and wait until all is done."""
    queue.put(b"last")
    bodies = []
    while not bodies or bodies[-1] != b"last":
        bodies.append(queue.get(timeout=LIMIT))
        queue.task_done()
    queue.join()
    found.append(bodies)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a __del__, too
def test_a_queue_goes_on_wherever_a_call_was_interrupted(tmp_path: Path) -> None:
    """The lock of its counts, or of its consumer, stayed taken, and every later call hung."""
    with warrenmq.Queue(tmp_path) as queue:
        for number in range(1, 10_000, 3):
            for body in (b"1", b"2", b"3"):
                queue.put(body)
            at = interrupt(number, lambda: act(queue))
            with suppress(ValueError):  # what is held yet; a call that was interrupted is made again
                while True:
                    queue.task_done()
            found: list[list[bytes]] = []
            other = threading.Thread(target=goes_on_with, args=(queue, found), daemon=True)
            other.start()
            other.join(LIMIT)
            assert found, at
            got = sorted(each for each in found[0] if each not in {b"p", b"last"})
            assert b"3" in got, at
            assert len(got) == len(set(got)), at
            if not at:
                break
        assert number > 100


def test_what_an_interrupted_put_has_sent_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted behind its send it was there and counted as not put, so that `join` returned before it was done."""
    send = MessageSender.send

    def interrupted(*arguments: Any) -> None:
        send(*arguments)
        signal.raise_signal(signal.SIGALRM)

    with warrenmq.Queue(tmp_path) as queue, alarms():
        with monkeypatch.context() as patched:
            patched.setattr(MessageSender, "send", interrupted)
            with pytest.raises(Interrupt):
                queue.put_many([b"1", b"2"])
        assert queue.qsize() == len(queue.peek(9)) == 2
        for _ in range(2):
            queue.get()
            queue.task_done()
        queue.join()


def test_a_put_that_waits_is_interrupted_and_leaves_nothing(tmp_path: Path) -> None:
    with warrenmq.Queue(tmp_path, settings={"vm_memory_high_watermark": 0.0}) as queue, alarms() as after:
        after(0.05)
        with pytest.raises(Interrupt):
            queue.put(b"1")
        assert queue.qsize() == 0


def test_a_join_ends_wherever_the_last_task_done_was_interrupted(tmp_path: Path) -> None:
    """A handler that raised before the thread that waits was told left it waiting for ever."""
    with warrenmq.Queue(tmp_path) as queue:
        for number in range(1, 10_000):
            queue.put(b"last")
            queue.get()
            waiting = threading.Thread(target=queue.join, daemon=True)
            waiting.start()
            while not queue._finished._waiting:
                os.sched_yield()
            at = interrupt(number, queue.task_done)
            with suppress(ValueError):
                queue.task_done()
            waiting.join(LIMIT)
            assert not waiting.is_alive(), at
            if not at:
                break
        assert number > 5
