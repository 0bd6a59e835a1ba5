"""Turns of consumers, and the deliveries that an ack names."""

from __future__ import annotations

from itertools import pairwise, repeat
from threading import Lock
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.message.queue_message import Fetched
from warrenmq.message.runs import runs
from warrenmq.queue.channel_record import UNSENT_LIMIT, ChannelRecord, Consumer, ConsumerTurns
from warrenmq.queue.limiter import Limiter

QUEUE = cast("Any", None)
"""Records without a limiter need no name for their queue."""


def consumer(name: str, *, prefetch: int = 0, priority: int = 0, no_ack: bool = False,
             channel: ChannelRecord | None = None) -> Consumer:  # fmt: skip
    made = Consumer(ord(name), channel or ChannelRecord(QUEUE, None, None), no_ack=no_ack)
    made.tag, made.prefetch, made.priority = name, prefetch, priority
    return made


def dealt(count: int, *consumers: Consumer) -> str:
    """The consumers that get the messages, one letter a message."""
    turns = ConsumerTurns()
    for each in consumers:
        turns.add(each)
    return "".join(each.tag * n for each, n in turns.deal(count))


@pytest.mark.parametrize(
    ("consumers", "expected"),
    [
        ([consumer("a"), consumer("b")], "ababab"),
        ([consumer("a", prefetch=1), consumer("b")], "abbbbb"),
        ([consumer("a", prefetch=2, priority=1), consumer("b")], "aabbbb"),
        ([consumer("b"), consumer("a", prefetch=2, priority=1)], "aabbbb"),
        ([consumer("a", prefetch=1, no_ack=True), consumer("b")], "ababab"),
        ([consumer("a", prefetch=1), consumer("b", prefetch=2, priority=-1)], "abb"),
        ([consumer("a", prefetch=2), consumer("b", prefetch=1), consumer("c", prefetch=5)], "abcacc"),
        ([], ""),
    ],
)
def test_the_table_of_turns(consumers: list[Consumer], expected: str) -> None:
    assert dealt(6, *consumers) == expected


def test_a_consumer_that_had_a_turn_goes_behind_those_that_had_none() -> None:
    turns = ConsumerTurns()
    for name in "abc":
        turns.add(consumer(name))
    assert [each.tag for each, _ in turns.deal(2)] == ["a", "b"]
    assert [each.tag for each, _ in turns.deal(2)] == ["c", "a"]


@pytest.mark.parametrize(
    ("prefetch", "no_ack", "unacked", "most", "credit"),
    [(0, False, 7, 5, 5), (10, False, 7, 5, 3), (10, False, 10, 5, 0), (10, True, 0, 50, 50)],
)
def test_the_table_of_credit(prefetch: int, no_ack: bool, unacked: int, most: int, credit: int) -> None:
    one = consumer("a", prefetch=prefetch, no_ack=no_ack)
    one.unacked = dict(zip(range(unacked), repeat(0), strict=False))
    assert one.credit(most) == credit


wishes = st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 1), st.booleans()), max_size=6)
"""(prefetch, priority, no_ack) of each consumer."""


@given(st.integers(0, 60), wishes)
def test_turns_are_fair_within_a_priority_and_go_down_only_when_all_above_are_full(
    count: int, wished: list[tuple[int, int, bool]]
) -> None:
    all_ = [
        consumer(chr(65 + i), prefetch=p, priority=rank, no_ack=no_ack)
        for i, (p, rank, no_ack) in enumerate(wished)
    ]
    given_ = dealt(count, *all_)
    got = {each.tag: given_.count(each.tag) for each in all_}
    room = {each.tag: each.prefetch if each.prefetch and not each.no_ack else count for each in all_}
    assert len(given_) == min(count, sum(room.values()))
    assert all(got[tag] <= room[tag] for tag in got)
    for each in all_:
        open_ = got[each.tag] < room[each.tag]
        for other in all_:
            if open_ and other.priority < each.priority:
                assert not got[other.tag], "nothing for a lower priority while a higher one has room"
            if open_ and other.priority == each.priority:
                assert got[other.tag] <= got[each.tag] + 1, "nobody is passed over while there is room"


def test_all_consumers_of_a_channel_share_its_unsent_limit() -> None:
    channel = ChannelRecord(QUEUE, None, None)
    channel.unsent = 2_048 - 3
    a, b, c = consumer("a", channel=channel), consumer("b", channel=channel), consumer("c")
    assert dealt(5, a, b, c) == "abcac"
    assert channel.is_blocked
    a.claimed -= 2
    a.taken(2)
    assert not channel.is_blocked
    assert UNSENT_LIMIT == 200


def fetched(*seqs: int) -> list[Fetched]:
    return [Fetched(seq, b"", 0, redelivered=False, in_store=False) for seq in seqs]


def test_acks_name_one_delivery_or_all_up_to_it_and_each_only_once() -> None:
    one = consumer("a", prefetch=10)
    assert one.take(fetched(7, 8, 9)) == 1
    assert one.take(fetched(3)) == 4
    assert one.settle(2, multiple=False) == [8]
    assert one.settle(2, multiple=False) == []
    assert one.settle(3, multiple=True) == [7, 9]
    assert one.settle(99, multiple=True) == [3]
    assert one.unacked == {}


@given(st.sets(st.integers(0, 40)))
def test_runs_cover_the_numbers_they_were_made_of(numbers: set[int]) -> None:
    found = list(runs(sorted(numbers)))
    assert [n for first, count in found for n in range(first, first + count)] == sorted(numbers)
    assert all(a + n < b for (a, n), (b, _) in pairwise(found)), "no two runs touch"


@given(
    prefetch=st.integers(0, 6), no_ack=st.booleans(), unacked=st.integers(0, 6), claimed=st.integers(0, 3),
    unsent=st.sampled_from([0, UNSENT_LIMIT - 2, UNSENT_LIMIT, UNSENT_LIMIT + 1]), most=st.integers(0, 9),
    limited=st.booleans(),
)  # fmt: skip
def test_a_claim_is_what_the_consumers_credit_and_its_channel_grant(
    prefetch: int, no_ack: bool, unacked: int, claimed: int, unsent: int, most: int, limited: bool
) -> None:
    def made() -> Consumer:
        limiter = Limiter(Lock()) if limited else None
        consumer = Consumer(
            1, ChannelRecord(cast("Any", "q"), cast("Any", "channel"), limiter), no_ack=no_ack
        )
        consumer.prefetch, consumer.claimed, consumer.channel.unsent = prefetch, claimed, unsent
        consumer.unacked = {tag: tag for tag in range(unacked)}
        return consumer

    consumer, other = made(), made()
    credit = max(0, other.credit(most))
    granted = other.channel.claim(credit, ack_required=not no_ack) if credit else 0
    assert consumer.claim(most) == granted
    assert consumer.claimed == claimed + granted
    assert consumer.unsent == granted
    assert consumer.channel.unsent == other.channel.unsent
