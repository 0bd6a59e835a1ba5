"""Synthetic traces of any size are consistent, and show what was planted."""

import pytest

from tests.replay.trace_periods import write_large
from warrenmq.replay.drive.engine import replay


@pytest.mark.parametrize("seed", range(4))
def test_period_after_period_every_invariant_holds(tmp_path, seed):
    events = write_large(tmp_path / "trace", 60_000, seed, queues=3)
    result = replay(tmp_path / "trace")
    assert result.violations == []
    assert result.verdict == "ok"
    assert result.figures["events"] == events >= 60_000


def test_each_period_adds_the_same(tmp_path):
    figures, events = [], 0
    for name in ("one", "two", "three"):
        events = write_large(tmp_path / name, events + 1, 1, queues=2)
        figures.append(replay(tmp_path / name).figures["queues"])
    one, two, three = figures
    for queue, told in one.items():
        assert told["published"] < two[queue]["published"]
        for what in (name for name, n in told.items() if isinstance(n, int)):
            assert three[queue][what] - two[queue][what] == two[queue][what] - told[what]


def test_a_planted_violation_is_found_beside_the_large_run(tmp_path):
    write_large(tmp_path / "trace", 20_000, 1, queues=2, plants=["a_confirmed_message_that_is_lost"])
    result = replay(tmp_path / "trace")
    assert result.verdict == "violated"
    assert {finding.rule for finding in result.violations} >= {"C2"}
    assert all(finding.subject.startswith("000") or "000" in finding.subject for finding in result.violations)
