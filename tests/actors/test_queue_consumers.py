"""Who gets the next message, and what an ack names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.actors.queue_consumers import UNSENT_LIMIT, Consumer, share_out
from warrenmq.storage.queue_message import Fetched
from warrenmq.storage.runs import runs


@pytest.mark.parametrize(
    ("count", "rooms", "shares"),
    [(5, [10], [5]), (5, [10, 10], [3, 2]), (5, [1, 10], [1, 4]), (5, [1, 2], [1, 2]), (5, [], []), (0, [3], [0])],
)
def test_the_table_of_shares(count: int, rooms: list[int], shares: list[int]) -> None:
    assert share_out(count, rooms) == shares


@given(st.integers(0, 500), st.lists(st.integers(0, 60), max_size=8))
def test_shares_are_even_and_within_room(count: int, rooms: list[int]) -> None:
    shares = share_out(count, rooms)
    assert sum(shares) == min(count, sum(rooms))
    assert all(0 <= share <= room for share, room in zip(shares, rooms, strict=True))
    open_ = [share for share, room in zip(shares, rooms, strict=True) if share < room]
    assert not open_ or max(open_) - min(open_) <= 1, "whoever has room left got as much as the others"


def fetched(*seqs: int) -> list[Fetched]:
    return [Fetched(seq, b"", 0, redelivered=False, in_store=False) for seq in seqs]


def test_acks_name_one_delivery_or_all_up_to_it_and_each_only_once() -> None:
    consumer = Consumer(1, None, 10, no_ack=False)
    assert consumer.take(fetched(7, 8, 9)) == 1
    assert consumer.take(fetched(3)) == 4
    assert consumer.settle(2, multiple=False) == [8]
    assert consumer.settle(2, multiple=False) == []
    assert consumer.settle(3, multiple=True) == [7, 9]
    assert consumer.settle(99, multiple=True) == [3]
    assert consumer.unacked == {}


def test_room_ends_at_the_prefetch_count_and_at_the_unsent_limit() -> None:
    consumer = Consumer(1, None, 2, no_ack=False)
    consumer.take(fetched(1))
    assert consumer.room() == 1
    unlimited = Consumer(2, None, 0, no_ack=False)
    unlimited.unsent = UNSENT_LIMIT - 5
    assert unlimited.room() == 5
    no_ack = Consumer(3, None, 1, no_ack=True)
    no_ack.take(fetched(1, 2, 3))
    assert no_ack.unacked == {}
    assert no_ack.room() == UNSENT_LIMIT


@given(st.sets(st.integers(0, 40)))
def test_runs_cover_the_numbers_they_were_made_of(numbers: set[int]) -> None:
    found = list(runs(sorted(numbers)))
    assert [n for first, count in found for n in range(first, first + count)] == sorted(numbers)
    assert all(a + n < b for (a, n), (b, _) in zip(found, found[1:], strict=False)), "no two runs touch"
