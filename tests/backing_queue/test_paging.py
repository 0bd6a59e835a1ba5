"""The decisions of paging, each walked along its table."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.backing_queue import paging
from warrenmq.backing_queue.paging import INFINITE
from warrenmq.backing_queue.rates import Rates, memory_limit, moving_average
from warrenmq.queue_index.v1.segment import next_boundary, tune_read

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("seconds", "latest", "current", "average"),
    [(0, 100, 8, 8), (5, 0, 8, 4), (5, 8, 0, 4), (10, 0, 8, 2), (1e9, 8, 100, 8)],
)
def test_a_moving_average_halves_what_was_in_five_seconds(
    seconds: float, latest: float, current: float, average: float
) -> None:
    assert moving_average(seconds, latest, current) == pytest.approx(average)


def test_rates_are_computed_after_a_hundred_messages_or_five_seconds() -> None:
    rates = Rates(0)
    rates.arrived += 60
    rates.left += 40
    rates.delivered += 40
    rates.maybe_update(SECOND)
    assert rates.total == 0, "a hundred is not more than a hundred"
    rates.left += 1
    rates.maybe_update(SECOND)
    weight = 1 - moving_average(1, 0, 1)
    assert rates.ingress == pytest.approx(60 * weight)
    assert rates.egress == pytest.approx(41 * weight)
    assert rates.ack_ingress == pytest.approx(40 * weight)
    assert not rates.anything_counted
    rates.acked += 40
    assert rates.anything_counted
    rates.maybe_update(5 * SECOND)
    assert rates.ack_egress == 0
    rates.maybe_update(6 * SECOND)
    assert rates.ack_egress == pytest.approx(8 / 2)


def test_rates_wait_while_no_time_passes() -> None:
    rates = Rates(7)
    rates.arrived += 1_000
    rates.update(7)
    assert rates.ingress == 0
    assert rates.anything_counted


def test_unacked_messages_grow_faster_when_their_balance_is_larger() -> None:
    rates = Rates(0)
    rates.arrived += 10
    rates.left += 10
    rates.delivered += 10
    rates.update(SECOND)
    assert rates.acks_grow_faster
    rates.acked += 50
    rates.arrived += 50
    rates.update(2 * SECOND)
    assert not rates.acks_grow_faster


def of_rates(ingress: float = 0, egress: float = 0) -> Rates:
    rates = Rates(0)
    rates.ingress, rates.egress = ingress, egress
    return rates


@pytest.mark.parametrize(
    ("messages", "before", "acks", "acks_before", "rates", "duration"),
    [
        (100, 100, 0, 0, of_rates(0.009, 0.009), INFINITE),
        (100, 100, 0, 0, of_rates(25, 25), 1.0),
        (300, 100, 50, 50, of_rates(50), 2.5),
        (0, 0, 0, 0, of_rates(50), 0.0),
    ],
)
def test_the_ram_duration(
    messages: int, before: int, acks: int, acks_before: int, rates: Rates, duration: float
) -> None:
    assert paging.ram_duration(messages, before, acks, acks_before, rates) == duration


@pytest.mark.parametrize(
    ("ratio", "total", "queues", "disk_alarm", "desired"),
    [
        (0.9, 10.0, 2, True, INFINITE),
        (math.inf, 10.0, 2, True, INFINITE),
        (math.inf, 10.0, 2, False, 0.0),
        (0.49, 10.0, 2, False, INFINITE),
        (0.9, 0.0, 0, False, INFINITE),
        (0.5, 10.0, 2, False, 11.0),
        (0.94, 10.0, 2, False, 5.5 / 0.94),
        (0.95, 10.0, 2, False, 5.0 / 0.95),
        (2.0, 10.0, 2, False, 2.5),
    ],
)
def test_the_desired_duration(
    ratio: float, total: float, queues: int, disk_alarm: bool, desired: float
) -> None:
    assert paging.desired_duration(ratio, 0.5, total, queues, disk_alarm=disk_alarm) == pytest.approx(desired)


@pytest.mark.parametrize(
    ("told", "reported", "desired", "disk_alarm", "inform"),
    [
        (INFINITE, 5.0, 2.0, False, True),
        (INFINITE, 1.0, 2.0, False, False),
        (1.0, 5.0, 2.0, False, False),
        (2.0, 5.0, 2.0, False, False),
        (2.0, 3.0, INFINITE, True, True),
        (INFINITE, 3.0, INFINITE, True, False),
        (2.0, INFINITE, INFINITE, True, False),
    ],
)
def test_which_queues_are_asked_at_once(
    told: float, reported: float, desired: float, disk_alarm: bool, inform: bool
) -> None:
    assert paging.must_inform(told, reported, desired, disk_alarm=disk_alarm) is inform


@pytest.mark.parametrize(
    ("desired", "rates", "target"), [(INFINITE, 50, INFINITE), (2.5, 50, 125), (2.5, 0.9, 2), (0.0, 50, 0)]
)
def test_the_target_ram_count(desired: float, rates: float, target: float) -> None:
    assert paging.target_ram_count(desired, rates) == target


@pytest.mark.parametrize(
    ("bound", "count", "size", "allowed"),
    [(1_000, 10, 1_000, INFINITE), (1_000, 10, 2_000, 5), (1_000, 1, 50_000, 0)],
)
def test_a_queues_own_bound(bound: int, count: int, size: int, allowed: float) -> None:
    assert paging.count_within(bound, count, size) == allowed


@pytest.mark.parametrize(
    ("count", "permitted", "excess"), [(10, INFINITE, 0), (10, 10, 0), (10, 4, 6), (10, 0, 10)]
)
def test_how_many_are_too_many(count: int, permitted: float, excess: int) -> None:
    assert paging.chunk_size(count, permitted) == excess


@pytest.mark.parametrize(
    ("ready", "q1", "q3", "q4", "target", "permitted"),
    [
        (0, 0, 0, 0, 5, INFINITE),
        (100, 0, 10, 0, INFINITE, INFINITE),
        (100, 0, 10, 0, 0, 8),
        (100, 0, 5, 0, 0, 5),
        (100, 0, 10, 90, 5, 8),
        (1_000, 0, 10, 0, 1_000, 500),
    ],
)
def test_how_many_betas_are_permitted(
    ready: int, q1: int, q3: int, q4: int, target: float, permitted: float
) -> None:
    assert paging.permitted_beta_count(ready, q1, q3, q4, target, 8) == permitted


@given(st.integers(1, 10**7), st.integers(1, 10**6))
def test_permitted_betas_come_near_the_target_and_are_never_more(ready: int, target: int) -> None:
    permitted = paging.permitted_beta_count(ready, 0, 0, 0, target, 8)
    assert 8 <= permitted <= max(8, target)


@pytest.mark.parametrize(
    ("egress", "limit"), [(0, 1), (0.4, 1), (10, 21), (1_023.4, 2_047), (1_024, 2_048), (1e9, 2_048)]
)
def test_the_memory_limit_is_what_two_seconds_take(egress: float, limit: int) -> None:
    assert memory_limit(egress) == limit


@pytest.mark.parametrize(("count", "together"), [(9, False), (10, True)])
def test_ten_small_bodies_are_worth_one_read(count: int, together: bool) -> None:
    assert paging.worth_reading_together(count) is together


@pytest.mark.parametrize(
    ("start", "end", "entries", "tuned"),
    [(0, 70, 100, 70), (0, 90, 100, 100), (50, 104, 100, 100), (50, 150, 100, 150), (98, 99, 100, 100)],
)
def test_where_a_read_of_the_tail_had_better_end(start: int, end: int, entries: int, tuned: int) -> None:
    assert tune_read(start, end, entries) == tuned


@pytest.mark.parametrize(("seq_id", "entries", "boundary"), [(0, 8, 8), (7, 8, 8), (8, 8, 16)])
def test_where_the_next_segment_begins(seq_id: int, entries: int, boundary: int) -> None:
    assert next_boundary(seq_id, entries) == boundary
