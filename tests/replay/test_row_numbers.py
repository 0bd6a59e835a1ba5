"""The number of a row, found through the pieces of a trace, is its place in the order of all rows."""

from __future__ import annotations

import pytest

from tests.broker.lives import long_life, trace_of
from tests.support.simulated import BOTH_PROFILES
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_plants import a_restart_beyond_intensity
from tests.support.trace_writer import write_trace
from warrenmq.replay.drive.engine import replay_trace
from warrenmq.replay.explain.row_numbers import row_numbers
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.trace.reader import open_memory


@pytest.mark.parametrize("profile", BOTH_PROFILES)
def test_every_row_has_its_number(profile):
    trace = open_memory(trace_of(4, long_life, BOTH_PROFILES[profile]))
    rows = [(run, row.actor, row.seq) for run, row in rows_in_order(trace)]
    assert row_numbers(trace, rows) == {row: number for number, row in enumerate(rows, 1)}
    for at in range(0, len(rows), 211):
        assert row_numbers(trace, [rows[at]]) == {rows[at]: at + 1}


def test_rows_that_are_not_there_are_left_out():
    trace = open_memory(write_trace(consistent_trace(1)))
    assert row_numbers(trace, [(0, 9_999, 1), (0, 1, 10**9), (7, 1, 1)]) == {}


def test_the_evidence_of_a_violation_is_found():
    runs = consistent_trace(3)
    a_restart_beyond_intensity(runs)
    trace = open_memory(write_trace(runs))
    wanted = [row for each in replay_trace(trace).violations for row in each.rows]
    rows = [(run, row.actor, row.seq) for run, row in rows_in_order(trace)]
    assert wanted
    assert row_numbers(trace, wanted) == {row: rows.index(row) + 1 for row in map(tuple, wanted)}
