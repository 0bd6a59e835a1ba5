"""Levels: what a row changes, and the course that the sums of a level stand for."""

import itertools
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.replay.drive.levels import CHANGING, FALLS, RISES, SLICE_NS, Kind, Span, spans, step
from warrenmq.trace.events import (
    Ack,
    AlarmBlocked,
    AlarmUnblocked,
    CreditBlocked,
    CreditUnblocked,
    Publish,
    Recv,
    Send,
)
from warrenmq.trace.schema import row_of

ME, OTHER, STORE = 7, 8, 9
MS = SLICE_NS // 10
PUBLISHED = {"flags": 0, "message": 1, "first_seq_id": 0, "count": 1}
ACKED = {"multiple": 0, "first_seq_id": 0, "count": 1}


@pytest.mark.parametrize(
    ("event", "columns", "changed"),
    [
        (Send, {"kind": 1, "receiver": OTHER}, (Kind.MAIL, OTHER, 0, 1)),
        (Send, {"kind": 1}, None),
        (Recv, {"sender": OTHER, "send": 5, "kind": 1}, (Kind.MAIL, ME, 0, -1)),
        (Recv, {"sender": 0, "send": 0, "kind": 1}, None),
        (Ack, ACKED | {"acker": OTHER, "send": 5, "delivery_tag": 33}, (Kind.MAIL, ME, 0, -1)),
        (Ack, ACKED | {"acker": OTHER, "send": 0}, None),
        (Publish, PUBLISHED | {"publisher": OTHER, "send": 5}, (Kind.MAIL, ME, 0, -1)),
        (Publish, PUBLISHED | {"publisher": OTHER, "send": 5, "sends": 3}, (Kind.MAIL, ME, 0, -3)),
        (Publish, PUBLISHED | {"publisher": 0, "send": 0, "sends": 1}, None),
        (CreditBlocked, {"granter": STORE}, (Kind.CREDIT, ME, STORE, 1)),
        (CreditUnblocked, {"reason": 1, "granter": STORE}, (Kind.CREDIT, ME, STORE, -1)),
        (AlarmBlocked, {}, (Kind.ALARM, ME, 0, 1)),
        (AlarmUnblocked, {}, (Kind.ALARM, ME, 0, -1)),
    ],
)
def test_the_table_of_what_a_row_changes(event, columns, changed):
    assert step(event.number, row_of(event, actor=ME, **columns)) == changed


def test_every_kind_rises_and_falls():
    assert set(RISES.values()) == set(FALLS.values()) == set(Kind)
    assert set(RISES) | set(FALLS) == CHANGING
    assert not set(RISES) & set(FALLS)


def summed(steps):
    """Changes by slice of (t, by)."""
    found = defaultdict(lambda: (0, 0, 0))
    for t, by in steps:
        rises, falls, ns = found[t // SLICE_NS]
        found[t // SLICE_NS] = (
            rises + max(by, 0),
            falls + max(-by, 0),
            ns + by * ((t // SLICE_NS + 1) * SLICE_NS - t),
        )
    return found


def at_ends(found, until):
    """Level at the end of every slice."""
    levels = [0] * (until // SLICE_NS + 1)
    for span in found:
        for slice_ in range(span.first, span.end):
            levels[slice_] = span.level
    return levels


def true_levels(steps, until):
    return [
        sum(by for t, by in steps if t < end)
        for end in range(SLICE_NS, (until // SLICE_NS + 2) * SLICE_NS, SLICE_NS)
    ]


def time_under(steps, until):
    return sum(by * (until - t) for t, by in steps)


lives = st.lists(st.tuples(st.integers(0, 300 * MS), st.integers(1, 200 * MS), st.booleans()), max_size=12)
"""(when it comes, how long it stays, whether its coming is told)"""


def steps_of(all_lives, *, told_only=False):
    rises = [(t, 1) for t, _, told in all_lives if told or not told_only]
    return rises + [(t + stay, -1) for t, stay, _ in all_lives]


@given(lives)
def test_the_course_is_what_happened(all_lives):
    steps, until = steps_of(all_lives), 600 * MS
    found = list(spans(summed(steps), until))
    assert at_ends(found, until) == true_levels(steps, until)
    assert sum(span.ns for span in found) == time_under(steps, until)
    assert all(one.end <= other.first for one, other in itertools.pairwise(found))


@given(lives)
def test_where_rises_are_missing_a_level_is_too_low_and_never_too_high(all_lives):
    until = 600 * MS
    found = list(spans(summed(steps_of(all_lives, told_only=True)), until))
    true = true_levels(steps_of(all_lives), until)
    assert all(0 <= told <= level for told, level in zip(at_ends(found, until), true, strict=True))
    assert 0 <= sum(span.ns for span in found) <= time_under(steps_of(all_lives), until)


@given(lives, st.integers(0, 600 * MS))
def test_nothing_is_known_after_its_end(all_lives, until):
    steps = [(t, by) for t, by in steps_of(all_lives) if t <= until]
    later = [(t, by) for t, by in steps_of(all_lives) if t // SLICE_NS > until // SLICE_NS]
    found = list(spans(summed(steps + later), until))
    assert sum(span.ns for span in found) == time_under(steps, until)
    assert max((span.end for span in found), default=0) <= until // SLICE_NS + 1


def test_three_that_wait_for_each_other():
    changes = summed([(5 * MS, 1), (7 * MS, 1), (28 * MS, -2), (38 * MS, 1), (41 * MS, -1)])
    assert list(spans(changes, 100 * MS)) == [
        Span(0, 1, 2, 8 * MS), Span(1, 2, 2, 20 * MS), Span(2, 3, 0, 16 * MS), Span(3, 4, 1, 2 * MS), Span(4, 5, 0, 1 * MS),
    ]  # fmt: skip
