"""The limit that a channel's consumers share."""

from __future__ import annotations

from threading import Lock, Thread
from typing import Any

import pytest

from warrenmq.queue.limiter import Limiter


def limiter(prefetch_count: int = 0, volume: int = 0) -> Any:
    """One with so many deliveries on their way."""
    made: Any = Limiter(Lock())
    assert made.reserve("q", volume, ack_required=True) == volume
    made.limit(prefetch_count)
    return made


@pytest.mark.parametrize(
    ("limit", "volume", "ack_required", "most", "granted", "after"),
    [
        (0, 7, True, 5, 5, 12), (10, 7, True, 5, 3, 10), (10, 10, True, 5, 0, 10), (10, 12, True, 5, 0, 12),
        (10, 7, False, 5, 5, 7), (10, 10, False, 5, 0, 10),
    ],
)  # fmt: skip
def test_the_table_of_grants(
    limit: int, volume: int, ack_required: bool, most: int, granted: int, after: int
) -> None:
    one = limiter(limit, volume)
    assert one.reserve("q", most, ack_required=ack_required) == granted
    one.limit(100)
    assert one.reserve("q", 1000, ack_required=True) == 100 - after


def test_queues_that_were_refused_hear_when_there_is_room_and_no_others() -> None:
    one = limiter(2)
    assert one.reserve("a", 2, ack_required=True) == 2
    assert one.reserve("b", 1, ack_required=True) == 0
    assert one.ack(1) == ["b"]
    assert one.ack(1) == []


def test_no_resume_comes_before_there_is_room() -> None:
    one = limiter(2, volume=5)
    assert one.reserve("a", 1, ack_required=True) == 0
    assert one.ack(3) == []
    assert one.ack(1) == ["a"]


@pytest.mark.parametrize(("change", "resumed"), [(0, ["a"]), (3, ["a"]), (2, []), (1, [])])
def test_a_higher_limit_or_none_resumes(change: int, resumed: list[str]) -> None:
    one = limiter(2, volume=2)
    assert one.reserve("a", 1, ack_required=True) == 0
    assert one.limit(change) == resumed
    assert one.prefetch_count == change


def test_the_queue_that_was_served_last_is_resumed_last() -> None:
    one = limiter(1)
    served, resumed = [], ["a", "b", "c"]
    for _ in range(6):
        served += [queue for queue in resumed if one.reserve(queue, 2, ack_required=True)]
        resumed = one.ack(1)
    assert served == ["a", "b", "c", "a", "b", "c"]


def test_threads_never_get_more_together_than_there_is_room_for() -> None:
    one, granted = limiter(1000), []

    def ask() -> None:
        granted.append(sum(one.reserve("q", 3, ack_required=True) for _ in range(500)))

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == 1000
