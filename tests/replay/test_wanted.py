"""Which pieces can hold a row that is asked for: never one too few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.replay.explain.wanted import Wanted
from warrenmq.trace.catalog import Chunk

OPERATORS = {"<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__, "=": int.__eq__}
CHUNK = Chunk(run=0, actor=1, seq_first=10, rows=5, t_first=100, t_last=140, who=0, file="", offset=0)


def taken(*conditions):
    wanted = Wanted()
    for condition in conditions:
        wanted = wanted.narrowed(*condition)
    return wanted.may_be_in(CHUNK, "run one", "queue/a", "QueueProcess")


@pytest.mark.parametrize(
    ("conditions", "may"),
    [
        ([], True),
        ([("t", ">", [140])], False),
        ([("t", ">=", [140])], True),
        ([("t", "<", [100])], False),
        ([("t", "<=", [100])], True),
        ([("seq", "=", [9])], False),
        ([("seq", "=", [14])], True),
        ([("seq", "=", [15])], False),
        ([("seq", "=", [2, 30])], True),
        ([("run", "=", ["run one"])], True),
        ([("run", "=", ["run two"])], False),
        ([("actor", "=", ["queue/a", "queue/b"])], True),
        ([("actor", "=", ["queue/a"]), ("actor", "=", ["queue/b"])], False),
        ([("kind", "=", ["Other"])], False),
        ([("ev", "=", ["NONE"])], True),
        ([("msg", "=", [3]), ("t", "=", ["a string"]), ("run", "<", ["run one"])], True),
    ],
)
def test_the_table_of_conditions(conditions, may):
    assert taken(*conditions) is may


@given(
    st.lists(
        st.tuples(st.sampled_from(["t", "seq"]), st.sampled_from(sorted(OPERATORS)), st.integers(0, 200)),
        max_size=4,
    )
)
def test_a_piece_with_a_row_that_is_asked_for_is_never_passed_over(conditions):
    rows = [{"seq": 10 + n, "t": 100 + 10 * n} for n in range(5)]
    some = any(
        all(OPERATORS[operator](row[column], value) for column, operator, value in conditions) for row in rows
    )
    assert taken(*((column, operator, [value]) for column, operator, value in conditions)) or not some


def test_events_are_those_that_all_conditions_name():
    wanted = Wanted().narrowed("ev", "=", ["ACK", "SEND"]).narrowed("ev", "=", ["ACK"])
    assert wanted.events == {"ACK"}
    assert Wanted().events is None
