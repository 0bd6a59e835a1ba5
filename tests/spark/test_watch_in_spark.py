"""The watch as a streaming query prints what the watch of one process prints, also over a restart from its checkpoint."""

from __future__ import annotations

import io
import threading

import pytest

from tests.replay.live_trace import grow
from tests.replay.planted_violations import PLANTS, planted
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_union import side_by_side
from warrenmq.errors import CallerError
from warrenmq.replay.drive import engine
from warrenmq.replay.drive.batch_summary import PART_PIECES
from warrenmq.replay.drive.watch import Watch

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

RULES = ("C2", "Q1", "S3", "T2")


class Enough(Exception):
    """Ends a watch from within its wait."""


@pytest.fixture
def runs():
    """Some plants and a trace that is fine, as one trace; every run ends."""
    plants = [next(plant for rule, plant, _ in PLANTS if rule == wanted) for wanted in RULES]
    runs = side_by_side([*map(planted, plants), consistent_trace(2)])
    for run in runs:
        run.closed = True
    return runs


def test_it_prints_what_a_replay_finds_once_over_restarts(spark, tmp_path, runs):
    from warrenmq.replay.spark.watch import watch

    trace, checkpoint, printed = tmp_path / "trace", str(tmp_path / "checkpoint"), io.StringIO()
    steps = grow(trace, runs, 2)
    next(steps)

    def go(**how):
        taken_by = Watch(checkpoint, to=printed)

        def pause(seconds):
            threading.Event().wait(seconds)
            if not how and taken_by.progress is not None:
                raise Enough

        try:
            watch(spark, [str(trace)], checkpoint, taken_by, wait=pause, **how)
        finally:
            taken_by.close()

    for _ in range(3):
        next(steps)
    with pytest.raises(Enough):
        go()
    for _ in steps:
        pass
    go(until_closed=True)
    lines = printed.getvalue().splitlines()
    assert len(lines) == len(set(lines))
    found = sorted(line.split(" (row ")[0] for line in lines)
    expected = engine.replay(str(trace)).violations
    assert found == sorted(f"violated {each.rule} {each.subject}: {each.text}" for each in expected)
    assert {each.rule for each in expected} >= set(RULES)


def test_many_runs_are_few_tasks(tmp_path, runs):
    from warrenmq.replay.spark.watch import SummaryStream

    for _ in grow(tmp_path / "trace", runs, 1):
        pass
    stream = SummaryStream([str(tmp_path / "trace")])
    parts = stream.partitions({}, stream.latestOffset({}, None))
    batches = [batch for part in parts for batch in part.batches]
    assert len(parts) <= 1 + 2 * sum(len(batch.parts) for batch in batches) // PART_PIECES < len(runs)
    assert {batch.run.name for batch in batches} == {run.name for run in runs}
    assert sum(len(list(stream.read(part))) for part in parts) == len(batches)


def test_half_a_checkpoint_is_refused(spark, tmp_path, runs):
    from warrenmq.replay.spark.watch import watch

    for _ in grow(tmp_path / "trace", runs[:1], 1):
        pass
    taken_by = Watch(str(tmp_path / "checkpoint"))
    taken_by.take([], {"a place": "of the engine of one process"})
    with pytest.raises(CallerError, match="the checkpoint of the other engine"):
        watch(spark, [str(tmp_path / "trace")], str(tmp_path / "checkpoint"), taken_by, wait=lambda _: None)
    taken_by.close()
