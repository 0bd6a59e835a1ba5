"""Runs of tens of thousands of rows hold every invariant, and show what was planted beside them."""

import pytest

from tests.replay.planted_violations import a_confirmed_message_that_is_lost, planted
from tests.support.simulated_trace import write_large
from tests.support.trace_union import side_by_side
from tests.support.trace_writer import write_trace
from warrenmq.replay.drive.engine import replay


@pytest.mark.parametrize("seed", range(2))
def test_in_a_long_run_every_invariant_holds(tmp_path, seed):
    events = write_large(tmp_path / "trace", 40_000, seed, queues=3)
    result = replay(tmp_path / "trace")
    assert result.violations == []
    assert result.verdict == "ok"
    assert result.figures["events"] == events >= 40_000


def test_a_planted_violation_is_found_beside_the_large_run(tmp_path):
    write_large(tmp_path / "trace", 20_000)
    for name, content in write_trace(side_by_side([planted(a_confirmed_message_that_is_lost)])).items():
        (tmp_path / "trace" / name).write_bytes(content)
    result = replay(tmp_path / "trace")
    assert result.verdict == "violated"
    assert {finding.rule for finding in result.violations} >= {"C2"}
    assert all("000" in finding.subject for finding in result.violations)
