"""The watch as a streaming query prints what the watch of one process prints, also over a restart from its checkpoint."""

from __future__ import annotations

import io
import threading
from contextlib import closing

import pytest

from tests.replay.live_trace import grow
from tests.replay.planted_violations import PLANTS, planted
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_union import side_by_side
from warrenmq.errors import CallerError
from warrenmq.replay.drive import engine
from warrenmq.replay.drive.batch_summary import PART_PIECES
from warrenmq.replay.drive.watch import Watch, watch

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


def go(spark, trace, checkpoint, printed, **how):
    """Watch until the first batch was printed, or as `how` says; returns what the driver knows then."""
    from warrenmq.replay.spark import watch as streaming

    taken_by = streaming.StreamedWatch(to=printed)
    before = {}

    def pause(seconds):
        threading.Event().wait(seconds)
        before.setdefault("standings", dict(taken_by.standings))
        if not how and taken_by.standings != before["standings"]:
            raise Enough

    streaming.watch(spark, [str(trace)], str(checkpoint), taken_by, wait=pause, **how)
    return taken_by


def test_it_prints_what_a_replay_finds_once_over_restarts(spark, tmp_path, runs):
    trace, checkpoint, printed = tmp_path / "trace", tmp_path / "a checkpoint #1", io.StringIO()
    steps = grow(trace, runs, 2)
    next(steps)
    for _ in range(3):
        next(steps)
    with pytest.raises(Enough):
        go(spark, trace, checkpoint, printed)
    for _ in steps:
        pass
    ended = go(spark, trace, checkpoint, printed, until_closed=True)
    lines = printed.getvalue().splitlines()
    assert len(lines) == len(set(lines))
    found = sorted(line.split(" (row ")[0] for line in lines)
    expected = engine.replay(str(trace)).violations
    assert found == sorted(f"violated {each.rule} {each.subject}: {each.text}" for each in expected)
    assert {each.rule for each in expected} >= set(RULES)
    again = go(spark, trace, checkpoint, printed, until_closed=True)
    assert again.standings == ended.standings, "what was found is found, and printed once"
    assert again.violations == len(lines) == len(printed.getvalue().splitlines())
    assert again.summary() == by_one_process(trace, tmp_path / "other")
    with pytest.raises(CallerError, match="the checkpoint of the other engine"):
        by_one_process(trace, checkpoint)


def by_one_process(trace, checkpoint):
    with closing(Watch(str(checkpoint), to=io.StringIO())) as taken_by:
        watch([str(trace)], taken_by, wait=lambda _: None, until_closed=True)
        return taken_by.summary()


def test_many_runs_are_few_tasks(tmp_path, runs):
    from warrenmq.replay.spark.watch import SummaryStream

    for _ in grow(tmp_path / "trace", runs, 1):
        pass
    stream = SummaryStream([str(tmp_path / "trace")])
    parts = stream.partitions({}, stream.latestOffset({}, None))
    batches = [each.batch for part in parts for each in part.batches]
    assert len(parts) <= 1 + 2 * sum(len(batch.parts) for batch in batches) // PART_PIECES < len(runs)
    assert {batch.run.name for batch in batches} == {run.name for run in runs}
    assert sum(len(list(stream.read(part))) for part in parts) == len(batches)


def test_the_checkpoint_of_the_other_engine_is_refused(spark, tmp_path, runs):
    trace, checkpoint = tmp_path / "trace", tmp_path / "checkpoint"
    for _ in grow(trace, runs[:1], 1):
        pass
    by_one_process(trace, checkpoint)
    for named in (checkpoint, f"file:{checkpoint}"):
        with pytest.raises(CallerError, match="the checkpoint of the other engine"):
            go(spark, trace, named, io.StringIO())
