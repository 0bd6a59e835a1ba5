"""Calls of an attached broker that are interrupted at each entry of a function: nobody hangs, nothing is lost, nothing stays taken."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warrenmq
from tests.support.interrupted_calls import interrupt
from tests.support.limits import LIMIT
from tests.support.shared_directory import opened
from warrenmq.shared.attachment import Attachment


def publish(queue: warrenmq.QueueHandle) -> Any:
    queue.publish(b"p").result(LIMIT)


def get(queue: warrenmq.QueueHandle) -> Any:
    queue.get()


def consume(queue: warrenmq.QueueHandle) -> Any:
    queue.consume(prefetch=2).cancel()


def look(queue: warrenmq.QueueHandle) -> Any:
    queue.info()


@pytest.mark.parametrize("call", [publish, get, consume, look])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a __del__, too
def test_an_attached_process_goes_on_wherever_a_call_was_interrupted(
    tmp_path: Path, call: Callable[[warrenmq.QueueHandle], Any]
) -> None:
    with opened(tmp_path) as owner, opened(tmp_path) as attached:
        queue, counted = attached.declare_queue("q"), owner.queue("q")
        link = attached.inside.client.links.current
        assert isinstance(link, Attachment)
        for number in range(1, 1000):
            counted.publish_many([b"1", b"2", b"3"]).result(LIMIT)
            taken: list[Any] = []
            at = interrupt(number, lambda: call(queue))
            if not at:
                break
            goes_on = threading.Thread(target=lambda: goes_on_with(queue, taken), daemon=True)  # noqa: B023
            goes_on.start()
            goes_on.join(LIMIT)
            assert taken == [True], at
            end = threading.Event()
            for _ in range(500):
                info = counted.info()
                if not info.unacked and not info.consumers:
                    break
                end.wait(0.01)
            else:
                raise AssertionError((number, at, info))
            counted.purge()
            channels = [each for one in link._connections if one.ended is None for each in one.channels]
            assert len(channels) < 8, at
        assert number > 20
        assert attached.inside.client.links.current is link


def goes_on_with(queue: warrenmq.QueueHandle, taken: list[Any]) -> None:
    """Each of the ways to use a queue."""
    queue.publish(b"later").result(LIMIT)
    delivery = queue.get()
    assert delivery is not None
    delivery.ack()
    with queue.consume(prefetch=1) as consumer:
        next(consumer).ack()
    queue.info()
    taken.append(True)
