"""Pieces that can hold a row that is read: never one too few."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.errors import CallerError
from warrenmq.replay.spark.only import Only
from warrenmq.trace.catalog import Chunk

CHUNK = Chunk(run=0, actor=1, seq_first=10, rows=5, t_first=100, t_last=140, who=0, file="", offset=0)


def taken(conditions):
    only = Only.from_option(Only.of(conditions).as_option())
    return only.may_be_in(CHUNK, "run one", "queue/a", "QueueProcess")


@pytest.mark.parametrize(
    ("conditions", "may"),
    [
        ({}, True),
        ({"t": (141, 200)}, False),
        ({"t": (140, 200)}, True),
        ({"t": (0, 99)}, False),
        ({"t": (0, 100)}, True),
        ({"seq": (9, 9)}, False),
        ({"seq": (14, 14)}, True),
        ({"seq": (15, 15)}, False),
        ({"seq": (2, 30)}, True),
        ({"run": "run one"}, True),
        ({"run": ["run two"]}, False),
        ({"actor": ["queue/a", "queue/b"]}, True),
        ({"actor": []}, False),
        ({"kind": "Other"}, False),
        ({"ev": "PUBLISH"}, True),
        ({"ev": ["ack", "?99"]}, True),
        ({"t": (-(10**30), 10**30)}, True),
        ({"seq": np.array([15, 16])}, False),
    ],
)
def test_the_table_of_conditions(conditions, may):
    assert taken(conditions) is may


@given(st.dictionaries(st.sampled_from(["t", "seq"]), st.tuples(st.integers(0, 200), st.integers(0, 200))))
def test_a_piece_with_a_row_that_is_read_is_never_passed_over(conditions):
    rows = [{"seq": 10 + n, "t": 100 + 10 * n} for n in range(5)]
    some = any(all(low <= row[column] <= high for column, (low, high) in conditions.items()) for row in rows)
    assert taken(conditions) or not some


@pytest.mark.parametrize(
    "conditions",
    [
        {"msg": (1, 2)}, {"t": (1, 2, 3)}, {"run": [1]}, {"seq": "one"}, {"seq": 5}, {"t": (0, 1e18)}, {"actor": None}, {"t": (None, 5)},
    ],
)  # fmt: skip
def test_a_condition_that_makes_no_sense_is_refused(conditions):
    with pytest.raises(CallerError, match="take a name or several"):
        Only.of(conditions)


def test_a_misspelled_event_is_refused_with_the_nearest_name():
    with pytest.raises(CallerError, match="no event 'PUBLSH'; did you mean PUBLISH"):
        Only.of({"ev": ["ACK", "PUBLSH"]})


@pytest.mark.parametrize("text", ["garbage", "[1]", "7"])
def test_an_option_that_is_no_object_is_refused(text):
    with pytest.raises(CallerError, match="an object of JSON such as"):
        Only.from_option(text)
