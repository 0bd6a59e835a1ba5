"""Spark and the engine of one process come to the same result, to the last figure."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.hand_made import hand_made
from tests.replay.planted_violations import PLANTS, a_plant_of_each_rule
from tests.replay.test_unread_files import UNREAD
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_union import side_by_side, with_a_gap, write_directory
from tests.support.trace_writer import write_trace
from warrenmq.replay import replay
from warrenmq.replay.drive import engine
from warrenmq.replay.drive.levels import Kind
from warrenmq.trace.reader import NotATrace
from warrenmq.trace.segment import decode_header, encode_header

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from warrenmq.replay.spark import engine as spark_engine  # noqa: E402 - where there is no pyspark all are skipped
from warrenmq.replay.spark import source  # noqa: E402


@cache
def in_one_process(trace):
    """The outcome of a replay without Spark, once for all who ask for this trace."""
    return engine.replay(trace)


def agree(one, other):
    assert one.verdict == other.verdict
    assert one.violations == other.violations
    assert one.indeterminate == other.indeterminate
    assert one.figures == other.figures
    assert one.counts == other.counts
    assert replace(one.catalog, chunks=[]) == replace(other.catalog, chunks=[])
    assert one.chains == other.chains


@given(st.binary(max_size=1 << 17))
def test_what_goes_through_spark_comes_back_as_it_was(data):
    from warrenmq.replay.spark.stage_columns import pressed, unpressed

    for each in (data, memoryview(data)):
        assert unpressed(memoryview(pressed(each))) == unpressed(pressed(each)) == data


def test_between_stages_only_a_machines_own_summary_is_binary():
    import pyarrow as pa

    from warrenmq.replay.spark.stage_columns import OUTCOMES, SUMMARIES, fact_of, fact_struct, pack, unpack

    assert [field.name for field in (*SUMMARIES, *OUTCOMES) if pa.types.is_binary(field.type)] == ["summary"]
    key = ("queue:jobs", 1 << 40, "", 0)
    for column in (SUMMARIES.field("key"), OUTCOMES.field("key"), OUTCOMES.field("figure").type.field("key")):
        assert [part.name for part in column.type.value_type] == ["text", "number"]
        assert unpack(pa.array([pack(key)], column.type)[0].as_py()) == key
    fact = OUTCOMES.field("fact").type
    assert [field.name for field in fact] == ["run", "actor", "message"]
    held = ((1, 7), 1 << 40)
    assert fact_of(pa.array([fact_struct(held)], fact)[0].as_py()) == held


def test_they_agree_on_a_clean_trace(spark, clean_trace):
    found = replay(clean_trace, engine="spark", picture=False).result
    assert found.verdict == "ok"
    agree(found, in_one_process(clean_trace))


def test_they_agree_on_a_planted_violation_of_each_rule_and_on_missing_rows(spark, broken_trace, monkeypatch):
    """As a long trace is, it is indexed by tasks, and its keys are dealt out to several, stage by stage."""
    monkeypatch.setattr(source, "SHORT_BYTES", 0)
    monkeypatch.setattr(spark_engine, "ROWS_OF_KEYS", 4_096)
    found = replay(broken_trace, engine="spark", picture=False).result
    assert {finding.rule for finding in found.violations} == {rule for rule, _, _ in PLANTS}
    assert found.indeterminate
    assert found.chains
    agree(found, in_one_process(broken_trace))


def test_they_agree_on_a_short_trace_with_violations_and_missing_rows(spark, tmp_path):
    """A few plants, as test_frames.py has one of each rule judged without a deal, too; a short trace is indexed by the driver."""
    plants = a_plant_of_each_rule()[::5]
    runs = side_by_side([*plants, with_a_gap(3), consistent_trace(1)])
    trace = write_directory(tmp_path / "trace", runs)
    found = replay(trace, engine="spark", picture=False).result
    assert len({finding.rule for finding in found.violations}) >= len(plants)
    assert found.indeterminate
    assert found.chains
    agree(found, in_one_process(trace))


def test_they_measure_the_same(spark, clean_trace):
    from warrenmq.replay.report.measures import measure_trace
    from warrenmq.replay.spark.measures import measure
    from warrenmq.replay.spark.source import index_trace
    from warrenmq.trace.reader import open_trace

    index = index_trace(spark, clean_trace)
    ours = measure(spark, index)
    with open_trace(clean_trace) as trace:
        theirs = measure_trace(trace)
    assert ours.tallies == theirs.tallies
    assert sorted(ours.rare) == sorted(theirs.rare)
    assert ours.delays == theirs.delays
    assert ours.bodies == theirs.bodies
    assert ours.files == theirs.files
    assert any(its.files and its.collected for its in ours.files.values())
    assert ours.levels == theirs.levels
    assert {key.kind for key in ours.levels} == set(Kind)


def test_they_agree_on_waits(spark, tmp_path):
    from warrenmq.replay.report.measures import measure_trace
    from warrenmq.replay.spark.measures import measure
    from warrenmq.replay.spark.source import index_trace
    from warrenmq.trace.reader import open_trace

    folder = write_directory(tmp_path / "trace", hand_made())
    index = index_trace(spark, folder)
    ours = measure(spark, index)
    with open_trace(folder) as trace:
        assert ours.levels == measure_trace(trace).levels
    assert {key.kind for key in ours.levels} == set(Kind)
    assert replay(folder, engine="spark").picture == replay(folder, engine="python").picture


@pytest.mark.parametrize("indexed_by", ["the driver", "tasks"])
def test_they_agree_on_copies_missing_files_and_later_versions(spark, tmp_path, monkeypatch, indexed_by):
    if indexed_by == "tasks":
        monkeypatch.setattr(source, "SHORT_BYTES", 0)
    folder = tmp_path / "trace"
    folder.mkdir()
    for name, content in write_trace(consistent_trace(3, 25), piece=20, a_file=8).items():
        (folder / name).write_bytes(content)
    first, gone, *_, last = sorted(folder.glob("*.wtr"))
    (folder / "copy.wtr").write_bytes(first.read_bytes())
    gone.unlink()
    for harm in UNREAD:
        (folder / f"{harm.__name__}.wtr").write_bytes(b"WTR1")
        harm(folder / f"{harm.__name__}.wtr", random.Random(1))
    (folder / "._hidden.wtr").write_text("remember the milk")
    header, end = decode_header(memoryview(last.read_bytes()))
    last.write_bytes(encode_header(header | {"v": 99}) + last.read_bytes()[end:])
    found = replay(folder, engine="spark", picture=False).result
    assert found.verdict == "indeterminate"
    assert {row.what for row in found.missing} >= {
        "copy",
        "missing file",
        "missing rows",
        "no header",
        "newer version",
    }
    agree(found, in_one_process(str(folder)))
    assert found.missing == in_one_process(str(folder)).missing
    assert len([row for row in found.missing if row.what == "no header"]) == len(UNREAD)


def test_they_agree_on_a_path_with_nothing_to_be_read(spark, tmp_path):
    folder = tmp_path / "trace"
    folder.mkdir()
    for harm in UNREAD:
        (folder / f"{harm.__name__}.wtr").touch()
        harm(folder / f"{harm.__name__}.wtr", random.Random(1))
    with pytest.raises(NotATrace) as theirs:
        replay(folder, engine="spark", picture=False)
    with pytest.raises(NotATrace) as ours:
        replay(folder, engine="python", picture=False)
    assert str(theirs.value) == str(ours.value)
    assert str(folder) in str(ours.value)
