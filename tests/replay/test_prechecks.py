"""With prechecks a replay comes to what the machines come to: of consistent traces, and of every wrong that is done to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

pytest.importorskip("numpy")

from tests.replay.planted_violations import PLANTS, planted
from tests.replay.trace_mutations import jumbled, mutated_somewhere, mutations
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_union import with_a_gap
from tests.support.trace_writer import RunRows, write_trace
from warrenmq.replay.drive import array_engine as prechecks
from warrenmq.replay.drive import columns
from warrenmq.replay.drive.engine import replay_trace
from warrenmq.replay.drive.result import Result
from warrenmq.trace.reader import open_memory

SIZES = (5, 23, 1 << 17)
"""Rows after which a unit is closed.  A replay costs more with more units, so most traces are tried with one size.  A unit
for each piece of a row is what some consistent and some impossible traces have."""
LARGE = (257, 1 << 17)
"""Sizes for the many plants and mutations, which are there for what the rules ask; that the ends of units change nothing is seen in the
other traces."""
STEPS = 25


@pytest.fixture
def agree(monkeypatch) -> Callable[..., Result]:
    """Replays with prechecks, with each of these sizes of a unit, and compares with what the machines find."""

    def compare(runs: list[RunRows], sizes: Sequence[int] = SIZES, piece: int = 16) -> Result:
        trace = open_memory(write_trace(runs, piece=piece))
        theirs = replay_trace(trace)
        for size in sizes:
            monkeypatch.setattr(columns, "UNIT_ROWS", size)
            ours = prechecks.replay_arrays(trace)
            assert ours.violations == theirs.violations
            assert ours.indeterminate == theirs.indeterminate
            assert ours.figures == theirs.figures
            assert ours.chains == theirs.chains
        return theirs

    return compare


@pytest.mark.parametrize("seed", range(4))
def test_they_agree_on_consistent_traces(agree, seed):
    smallest = 1 if seed < 2 else SIZES[0]
    assert agree(consistent_trace(seed, STEPS), sizes=[smallest, *SIZES[1:]]).verdict == "ok"


@pytest.mark.parametrize("at", range(len(LARGE)))
def test_they_agree_on_every_planted_violation(agree, at):
    """One by one: where rows are there twice, as in one of these traces, nothing is prechecked."""
    for rule, plant, _ in PLANTS[at :: len(LARGE)]:
        found = agree(planted(plant), sizes=[LARGE[at]], piece=64)
        assert rule in {finding.rule for finding in found.violations}


@pytest.mark.parametrize("seed", range(2))
def test_they_agree_where_rows_are_missing(agree, seed):
    assert agree(with_a_gap(seed, STEPS)).verdict != "violated"


@pytest.mark.parametrize("event", sorted({event for _, event in mutations()}), ids=lambda event: event.name)
def test_they_agree_on_mutations(agree, event):
    for number, mutation in enumerate(mutations()):
        if mutation[1] == event and (runs := mutated_somewhere(mutation)) is not None:
            agree(runs, sizes=[LARGE[number % 2]], piece=64)


@pytest.mark.parametrize("seed", range(0, 24, 4))
def test_they_agree_on_what_no_broker_would_ever_write(agree, seed):
    for each in range(seed, seed + 4):
        agree(jumbled(each), sizes=[(1, 10, 40, 1 << 17)[each % 4]], piece=(3, 16, 64)[each % 3])


@pytest.mark.parametrize("seed", [0, 1])
def test_they_agree_where_files_are_in_another_order_than_their_rows(seed):
    files = write_trace(consistent_trace(seed, 12), piece=2, a_file=1)
    names = sorted(name for name in files if name.endswith(".wtr"))
    files |= dict(zip(names, [files[name] for name in reversed(names)], strict=True))
    trace = open_memory(files)
    ours, theirs = prechecks.replay_arrays(trace), replay_trace(trace)
    assert (ours.violations, ours.figures) == (theirs.violations, theirs.figures)
