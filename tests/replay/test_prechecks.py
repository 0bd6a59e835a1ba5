"""With prechecks a replay comes to what the machines come to: of consistent traces, and of every wrong that is done to one."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

from tests.replay.trace_mutations import jumbled, mutated, mutations
from tests.support.trace_model import consistent_trace
from tests.support.trace_plants import PLANTS
from tests.support.trace_union import every_plant, side_by_side, with_a_gap
from tests.support.trace_writer import write_trace
from warrenmq.replay.drive import array_engine as prechecks
from warrenmq.replay.drive import columns
from warrenmq.replay.drive.engine import replay_trace
from warrenmq.replay.drive.result import Result
from warrenmq.trace.reader import open_memory

STEPS = 40
SIZES = (1, 23, 1 << 17)
"""Rows after which a unit is closed."""


@pytest.fixture(params=SIZES)
def unit_rows(request, monkeypatch) -> int:
    monkeypatch.setattr(columns, "UNIT_ROWS", request.param)
    return request.param


def agree(runs, piece: int = 16) -> Result:
    trace = open_memory(write_trace(runs, piece=piece))
    ours, theirs = prechecks.replay_arrays(trace), replay_trace(trace)
    assert ours.violations == theirs.violations
    assert ours.indeterminate == theirs.indeterminate
    assert ours.figures == theirs.figures
    assert ours.chains == theirs.chains
    return ours


@pytest.mark.parametrize("seed", range(8))
def test_they_agree_on_consistent_traces(unit_rows, seed):
    assert agree(consistent_trace(seed)).verdict == "ok"


def test_they_agree_on_every_planted_violation(unit_rows):
    found = agree(side_by_side(every_plant()))
    assert {finding.rule for finding in found.violations} == {rule for rule, _, _ in PLANTS}


@pytest.mark.parametrize("seed", range(4))
def test_they_agree_where_rows_are_missing(unit_rows, seed):
    assert agree(with_a_gap(seed)).verdict != "violated"


@pytest.mark.parametrize(("number", "mutation"), list(enumerate(mutations())))
def test_they_agree_on_mutations(monkeypatch, number, mutation):
    monkeypatch.setattr(columns, "UNIT_ROWS", SIZES[number % 3])
    runs = mutated(mutation, number % 2, STEPS)
    if runs is not None:
        agree(runs)


@pytest.mark.parametrize("seed", range(0, 60, 4))
def test_they_agree_on_what_no_broker_would_ever_write(monkeypatch, seed):
    for each in range(seed, seed + 4):
        monkeypatch.setattr(columns, "UNIT_ROWS", (1, 10, 40, 1 << 17)[each % 4])
        agree(jumbled(each), piece=(3, 16, 64)[each % 3])
