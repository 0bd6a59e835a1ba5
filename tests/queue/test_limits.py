"""The tables of what has to leave a queue, and what does not get in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.message.queue_message import Message
from warrenmq.queue.limits import Limits, expired, expiries, fitting, fresh, sizes_of, surplus, timer_delay
from warrenmq.queue_index import record as index_record

NONE = Limits(None, None)


def message(expiry: int = 0, size: int = 0) -> Message:
    return (0, index_record.pack(bytes(16), expiry, size), 0, None)


@pytest.mark.parametrize(
    ("limits", "sizes", "too_many"),
    [
        (NONE, [1] * 9, 0),
        (Limits(2, None), [1] * 3, 1),
        (Limits(0, None), [1] * 3, 3),
        (Limits(None, 5), [1, 2, 3], 1),
        (Limits(None, 5), [1, 2, 9], 3),
        (Limits(None, 0), [0, 0], 0),
        (Limits(2, 3), [1, 2, 3], 2),
        (Limits(1, 6), [1, 2, 3], 2),
    ],
)
def test_the_table_of_surplus(limits: Limits, sizes: list[int], too_many: int) -> None:
    assert surplus(limits, len(sizes), sum(sizes), sizes) == too_many


LIMITS = st.builds(Limits, st.none() | st.integers(0, 5), st.none() | st.integers(0, 20))


@given(LIMITS, st.lists(st.integers(0, 9)))
def test_dropping_at_once_is_dropping_after_each_message(limits: Limits, sizes: list[int]) -> None:
    kept: list[int] = []
    for size in sizes:
        kept.append(size)
        while (limits.length is not None and len(kept) > limits.length) or (
            limits.size is not None and sum(kept) > limits.size
        ):
            del kept[0]
    assert len(sizes) - surplus(limits, len(sizes), sum(sizes), sizes) == len(kept)


@pytest.mark.parametrize(
    ("limits", "ready", "size", "sizes", "count"),
    [
        (NONE, 9, 90, [1, 1], 2),
        (Limits(2, None), 1, 1, [1, 1], 1),
        (Limits(1, None), 1, 1, [1], 0),
        (Limits(None, 5), 1, 3, [2, 1], 1),
        (Limits(None, 5), 1, 3, [3, 1], 0),
    ],
)
def test_the_table_of_what_fits(limits: Limits, ready: int, size: int, sizes: list[int], count: int) -> None:
    assert fitting(limits, ready, size, sizes) == count


@pytest.mark.parametrize(
    ("expires", "gone", "left"),
    [
        ([], 0, 0),
        ([5], 1, 0),
        ([6], 0, 1),
        ([0, 1], 0, 1),
        ([1, 2, 0, 3], 2, 0),
        ([0, 9, 5, 9], 0, 2),
        ([4, 5, 6], 2, 0),
    ],
)
def test_only_the_front_expires(expires: list[int], gone: int, left: int) -> None:
    front = [message(each) for each in expires]
    assert (expired(front, 5), fresh(front, 5)) == (gone, left)


def test_the_bytes_of_bodies_count() -> None:
    assert list(sizes_of([message(size=3), message(size=0)])) == [3, 0]


@pytest.mark.parametrize(
    ("ttl", "own", "expiry"),
    [(None, None, 0), (2, None, 12_000), (None, 3, 13_000), (2, 3, 12_000), (2, 0, 10_000)],
)
def test_a_message_expires_by_the_smaller_of_both_times(
    ttl: int | None, own: int | None, expiry: int
) -> None:
    assert expiries(ttl, [own, own], 10_000) == [expiry, expiry]


@pytest.mark.parametrize(
    ("expiry", "running", "delay"),
    [
        (0, None, None),
        (0, 9_000, None),
        (101_500, None, 2),
        (1, None, 0),
        (105_000, 109_000, 5),
        (108_000, 109_000, None),
        (109_000, 105_000, None),
    ],
)
def test_the_table_of_timers(expiry: int, running: int | None, delay: int | None) -> None:
    assert timer_delay(expiry, 100_000, running) == delay
