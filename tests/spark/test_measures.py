"""The data behind the plots: delay classes, delays by sequence id, bodies, percentiles, the time axis."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.latency import class_middle, delay_class, percentile
from warrenmq.replay.drive.columns import np
from warrenmq.replay.drive.levels import SLICE_NS, round_up
from warrenmq.replay.report import measure_arrays
from warrenmq.replay.report.measure_arrays import CHUNK_BITS, TimedRows, chunk_delays
from warrenmq.replay.report.measures import CONFIRM_DELAY, CONSUMER_DELAY, WAIT_DELAY, Body, delays
from warrenmq.trace.events import (
    CONFIRM_DURABLE,
    CONFIRM_NACK,
    REDELIVERED,
    Append,
    Decision,
    Ev,
    StoreRemove,
)
from warrenmq.trace.schema import row_of

NEW, AGAIN = 0, REDELIVERED


def count(rows, **bounds):
    """The delays of (event, flag, t, first id, n), as which -> how many messages waited how long."""
    found = {}
    for (which, _, _), histogram in delays(0, rows, **bounds).items():
        found.setdefault(which, Counter()).update(histogram)
    return found


@given(st.integers(0, 1 << 62))
def test_the_class_of_a_delay_is_off_by_less_than_four_percent(ns):
    assert abs(class_middle(delay_class(ns)) - ns) <= max(0.04 * ns, 0.5)


def test_classes_rise_without_a_hole():
    classes = [delay_class(ns) for ns in range(5_000)]
    assert sorted(set(classes)) == list(range(classes[-1] + 1))
    assert classes == sorted(classes)


def test_one_confirm_may_answer_several_publishes_and_a_part_of_one():
    rows = [
        (Ev.PUBLISH, 0, 100, 0, 10),
        (Ev.PUBLISH, 0, 110, 10, 10),
        (Ev.CONFIRM, CONFIRM_DURABLE, 120, 5, 10),
    ]
    assert count(rows)[CONFIRM_DELAY] == {delay_class(20): 5, delay_class(10): 5}


def test_a_nack_is_no_confirm():
    assert count([(Ev.PUBLISH, 0, 100, 0, 1), (Ev.CONFIRM, CONFIRM_NACK, 120, 0, 1)]) == {}


def test_the_wait_ends_with_the_first_delivery_and_the_consumers_time_begins_there():
    rows = [
        (Ev.PUBLISH, 0, 100, 0, 2),
        (Ev.DELIVER, NEW, 105, 0, 2),
        (Ev.DELIVER, AGAIN, 130, 0, 1),
        (Ev.ACK, 0, 121, 0, 2),
    ]
    assert count(rows)[WAIT_DELAY] == {delay_class(5): 2}
    assert count(rows)[CONSUMER_DELAY] == {delay_class(16): 2}


def test_messages_of_another_incarnation_have_no_delay():
    assert count([(Ev.DELIVER, NEW, 105, 0, 2), (Ev.ACK, 0, 110, 0, 1)]) == {
        CONSUMER_DELAY: {delay_class(5): 1}
    }


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 50)), max_size=20), st.integers(1, 30))
def test_counting_by_chunks_of_ids_is_counting_at_once(blocks, chunk):
    rows, t, first = [], 100, 0
    for n, wait in blocks:
        rows += [(Ev.PUBLISH, 0, t, first, n), (Ev.CONFIRM, CONFIRM_DURABLE, t + wait, first, n)]
        t, first = t + wait, first + n
    parts = Counter()
    for lowest in range(0, first, chunk):
        parts.update(count(rows, lowest=lowest, highest=lowest + chunk).get(CONFIRM_DELAY, Counter()))
    assert parts == count(rows).get(CONFIRM_DELAY, Counter())


def append(t):
    return row_of(Append, t=t, message=1, checksum=0, file=0, offset=0, size=500)


def remove(t, references):
    columns = {"message": 1, "client": 0, "file": 0, "flying": 0, "was_flying": 0}
    return row_of(StoreRemove, t=t, decision=Decision.REMOVE, references=references, **columns)


def test_a_body_lives_from_its_first_record_to_the_remove_that_leaves_no_reference():
    body = Body()
    body.see(Ev.APPEND, append(SLICE_NS * 3))
    body.see(Ev.STORE_REMOVE, remove(SLICE_NS * 5, 1))
    assert body.changes() == [(3, 500)]
    body.see(Ev.STORE_REMOVE, remove(SLICE_NS * 7, 0))
    assert body.changes() == [(3, 500), (7, -500)]


def test_a_body_that_was_never_written_takes_no_room():
    body = Body()
    body.see(Ev.STORE_REMOVE, remove(SLICE_NS, 0))
    assert body.changes() == []


def test_percentiles_of_a_histogram():
    histogram = Counter({delay_class(ns): 1 for ns in range(1, 31)})
    assert percentile(histogram, 50) == pytest.approx(15)
    assert percentile(histogram, 100) == pytest.approx(30)
    assert percentile(Counter(), 99) == 0


@pytest.mark.parametrize(
    ("seconds", "rounded"),
    [(0.0, 0.01), (0.011, 0.02), (0.021, 0.05), (0.3, 0.5), (3.0, 5.0), (700.0, 1000.0)],
)
def test_a_point_of_the_axis_covers_a_round_time(seconds, rounded):
    assert round_up(seconds * 1e9) == round(rounded * 1e9)


TIMED_ROWS = st.lists(
    st.tuples(
        st.sampled_from([Ev.PUBLISH, Ev.CONFIRM, Ev.DELIVER, Ev.ACK]),
        st.sampled_from([0, REDELIVERED, CONFIRM_NACK]),
        st.integers(0, 3 * SLICE_NS),
        st.integers((1 << CHUNK_BITS) - 4, (1 << CHUNK_BITS) + 6),
        st.integers(1, 5),
    ),
    max_size=12,
)


@given(TIMED_ROWS)
def test_columns_give_the_delays_that_rows_give(rows):
    columns = TimedRows(*np.array(rows, np.int64).reshape(-1, 5).T)
    for chunk in (0, 1):
        bounds = chunk << CHUNK_BITS, (chunk + 1) << CHUNK_BITS
        assert chunk_delays(0, chunk, columns, SLICE_NS) == delays(0, rows, *bounds)


def test_columns_have_the_classes_of_numbers():
    numbers = [each for bit in range(63) for each in ((1 << bit) - 1, 1 << bit, (1 << bit) + 1)] + [-5]
    assert measure_arrays._classes(np.array(numbers)).tolist() == list(map(delay_class, numbers))
