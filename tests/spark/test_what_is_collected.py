"""The data that a replay in Spark collects to the driver grows with actors and runs, and neither with the rows of the
trace nor with files of stores.
"""

from __future__ import annotations

import pytest

from tests.support.simulated_trace import write_large
from warrenmq.replay import check, read, replay

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark


def test_four_times_the_rows_and_files_collect_little_more(spark, tmp_path, monkeypatch):
    from benchmarks.collected import collecting
    from warrenmq.replay.drive import levels

    # A short trace does not fill the slices that it may have: fewer, so that the small one fills them, too.
    monkeypatch.setattr(levels, "SLICES", 10)

    collected, events = [], []
    for name, rows in (("small", 5_000), ("large", 20_000)):
        trace = tmp_path / name
        events.append(write_large(trace, rows))
        with collecting() as bytes_of:
            assert replay(trace, engine="spark").verdict == "ok"
            check(read(spark, trace)).count()
        collected.append(bytes_of)
    small, large = collected
    assert events[1] > 3 * events[0]
    allowed = {columns: 1.5 if "tallies" in columns else 3 for columns in large}
    grown = {
        columns: (small[columns], n)
        for columns, n in large.items()
        if n > allowed[columns] * small[columns] + 2_000
    }
    assert not grown


def test_of_many_findings_the_first_are_kept_and_all_are_counted(spark, tmp_path, monkeypatch):
    from tests.replay.trace_mutations import jumbled
    from tests.support.trace_union import write_directory
    from warrenmq.replay.drive import engine, findings
    from warrenmq.replay.spark import engine as spark_engine

    trace = write_directory(tmp_path / "trace", jumbled(14))
    whole = engine.replay(trace)
    # The workers keep as many as ever; the driver, which merges last, keeps two.
    monkeypatch.setattr(findings, "KEPT", 2)
    found, expected = spark_engine.replay(spark, trace), engine.replay(trace)
    assert found.violations == expected.violations
    assert found.counts == expected.counts == whole.counts
    assert max(whole.counts["violations"].values()) > 2
    for rule in whole.counts["violations"]:
        of_rule = [each for each in found.violations if each.rule == rule]
        assert of_rule == [each for each in whole.violations if each.rule == rule][:2]
