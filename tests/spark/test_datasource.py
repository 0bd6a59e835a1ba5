"""`format("warrenmq-trace")`: several paths, conditions that pass blocks over, columns, damage, streams."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

import warrenmq
from tests.support.kept_rows import emit
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_union import side_by_side, write_directory
from warrenmq.errors import CallerError, Error
from warrenmq.replay import check, lifecycles, read, register, replay
from warrenmq.replay.drive import engine
from warrenmq.trace.events import Ev
from warrenmq.trace.recorder import Recorder

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from warrenmq.replay.spark.arrow_rows import SCHEMA
from warrenmq.replay.spark.check import check_rows
from warrenmq.replay.spark.datasource import TraceSource
from warrenmq.replay.spark.only import EVERYTHING
from warrenmq.replay.spark.stream import TraceStream

pytestmark = pytest.mark.spark

CONTENT = ["count(*)", "sum(cast(xxhash64(*) as decimal(38)))"]
"""Sums of hashes: the same rows in any order, without a sort of either side."""


@pytest.fixture(scope="module")
def source(spark):
    register(spark)
    return lambda: spark.read.format("warrenmq-trace")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two directories, as of two machines."""
    folder = tmp_path_factory.mktemp("two")
    runs = side_by_side([consistent_trace(seed) for seed in (3, 4)])
    return [
        write_directory(folder / machine, [run for run in runs if run.name.startswith(machine)])
        for machine in ("000", "001")
    ]


def test_several_paths_are_one_trace(spark, source, two, clean_trace):
    assert source().load([clean_trace]).selectExpr(*CONTENT).collect() == (
        read(spark, clean_trace).selectExpr(*CONTENT).collect()
    )
    assert source().load(two).count() == sum(source().load(path).count() for path in two)


def test_paths_are_given_as_to_sparks_own_readers(spark, source, two):
    both = [tuple(row) for row in source().load(two).selectExpr(*CONTENT).collect()]
    pattern = f"{os.path.dirname(two[0])}/00[01]"
    for rows in (
        read(spark, two),
        read(spark, *two),
        read(spark, pattern),
        read(spark, [two[0], f"file:{two[1]}"]),
    ):
        assert rows.selectExpr(*CONTENT).collect() == both
    assert source().load(pattern).count() == both[0][0]
    with pytest.raises(CallerError, match="say which trace"):
        read(spark, [])
    with pytest.raises(CallerError, match="is not UTF-8, and Spark finds no other names"):
        read(spark, os.fsdecode(b"tr\xe9"))


def test_brokers_of_a_pattern_are_judged_apart(spark, tmp_path):
    for name in ("one", "two"):
        with warrenmq.open(tmp_path / f"data {name}", trace=tmp_path / name) as broker:
            broker.declare_queue("jobs").publish(b"a").result(10)
    for rows in (
        read(spark, f"{tmp_path}/[ot]*", tmp_path / "one"),  # one is named twice
        read(spark, [tmp_path / "one", tmp_path / "two"]).where("seq > 0"),
    ):
        assert [each["verdict"] for each in check_rows(rows).figures["brokers"]] == ["ok", "ok"]


def test_a_colon_and_letters_of_a_pattern_are_letters_of_a_path(spark, two, tmp_path):
    """Hadoop finds no path that has both; read needs no Hadoop, check of all rows does."""
    odd = str(shutil.copytree(two[0], tmp_path / "08:15 [a]*" / "trace"))
    assert [each["verdict"] for each in check_rows(read(spark, odd)).figures["brokers"]] == ["ok"]
    assert check(read(spark, f"file:{tmp_path}/*15*/trace")).count() == 0
    with pytest.raises(Error, match=r"a pattern where a name has a colon .*name the paths themselves\.$"):
        replay(f"file:{tmp_path}/*/trace")


def pieces(reader):
    """Number of pieces that the reader will read."""
    files = [part for task in reader.partitions() for part in task.parts]
    return sum(len(part.slabs) + sum(each.frames for each in part.ranges) for part in files)


def test_only_what_is_asked_for_is_read(spark, source, clean_trace):
    from warrenmq.replay.spark.arrow_rows import COLUMNS
    from warrenmq.replay.spark.datasource import TraceReader
    from warrenmq.replay.spark.only import Only

    rows = source().load(clean_trace)
    middle = int(rows.selectExpr("percentile(t, 0.5)").collect()[0][0])
    run = rows.select("run").first()[0]
    cases = [
        ({"t": (middle + 1, 1 << 62)}, f"t > {middle}"),
        ({"seq": (5, 9), "kind": "QueueProcess"}, "seq between 5 and 9 and kind = 'QueueProcess'"),
        ({"run": [run], "t": (0, middle)}, f"run = '{run}' and t <= {middle}"),
        ({"ev": ["PUBLISH", "ACK"], "seq": (0, 99)}, "ev in ('PUBLISH', 'ACK') and seq < 100"),
        ({"ev": ["?99"]}, "false"),
    ]
    for only, condition in cases:
        chosen = read(spark, clean_trace, columns=["run", "actor", "msg"], only=only)
        expected = rows.where(condition).select("run", "actor", "msg")
        assert chosen.selectExpr(*CONTENT).collect() == expected.selectExpr(*CONTENT).collect(), condition
    every, some = (
        pieces(TraceReader([clean_trace], COLUMNS, Only.of(only))) for only in ({}, {"t": (middle, 1 << 62)})
    )
    assert 0 < some < every
    with pytest.raises(CallerError, match="take a name or several"):
        read(spark, clean_trace, only={"msg": (1, 2)})


def test_two_filters_of_one_dataframe_in_one_query_are_each_its_own(source, clean_trace):
    """Filters that were pushed down into the source were shared: a union had the rows of one side, a join none."""
    rows = source().load(clean_trace)
    published, acked = rows.where("ev = 'PUBLISH'"), rows.where("ev = 'ACK'")
    both = published.unionAll(acked).groupBy("ev").count()
    assert dict(both.collect()) == {"PUBLISH": published.count(), "ACK": acked.count()}


def test_a_large_segment_is_many_tasks(spark, source, tmp_path):
    recorder = Recorder(tmp_path, run="large")
    actor = recorder.actor("a", "Kind")
    for _ in range(20_000):
        emit(actor, Ev.SEND)
        if actor.at == 16 * 72:
            actor.full()  # small blocks, as an idle actor's
    recorder.close()
    assert len(list(tmp_path.glob("*.wtr"))) == 1
    rows = source().load(str(tmp_path))
    assert rows.selectExpr("spark_partition_id()").distinct().count() > 1
    assert rows.selectExpr("count(*)", "sum(seq)").collect()[0] == (20_000, 20_000 * 20_001 // 2)


def test_many_small_files_are_few_tasks(spark, source, tmp_path):
    """A broker that is opened often leaves a file a time; Spark took longer to start a task than the task to read it."""
    for number in range(60):
        recorder = Recorder(tmp_path, run=f"{number:06}")
        emit(recorder.actor(f"a{number}", "Kind"), Ev.SEND, msg=number)
        recorder.close()
    rows = source().load(str(tmp_path))
    assert rows.rdd.getNumPartitions() == 1
    assert {tuple(row) for row in rows.select("run", "actor", "msg").collect()} == {
        (f"{number:06}", f"a{number}", number) for number in range(60)
    }
    live = TraceStream([str(tmp_path)], ["msg"], EVERYTHING)
    (task,) = live.partitions({}, live.latestOffset({}, ReadAllAvailable()))
    assert [msg for batch in live.read(task) for msg in batch.column("msg").to_pylist()] == list(range(60))


def test_a_schema_says_which_columns_are_unpacked(spark, source, clean_trace):
    chosen = (
        spark.read.schema("ev string, t long, actor_rows long").format("warrenmq-trace").load(clean_trace)
    )
    assert chosen.columns == ["ev", "t", "actor_rows"]
    expected = source().load(clean_trace).select("ev", "t", "actor_rows")
    assert chosen.selectExpr(*CONTENT).collect() == expected.selectExpr(*CONTENT).collect()
    only_t = spark.read.schema("t long").format("warrenmq-trace").load(clean_trace)
    assert only_t.where("t > 0").count() == expected.count()


def test_a_column_that_a_trace_does_not_have_is_named(spark, clean_trace, source):
    with pytest.raises(Exception, match="a trace has no column weight string"):
        spark.read.schema("weight string").format("warrenmq-trace").load(clean_trace).count()
    with pytest.raises(Exception, match="leave NOT NULL of t away"):
        spark.read.schema("t long not null").format("warrenmq-trace").load(clean_trace).count()
    with pytest.raises(CallerError, match="the column t is named twice"):
        read(spark, clean_trace, columns=["t", "ev", "t"])


def test_no_trace_is_said_when_it_is_loaded(source, clean_trace, tmp_path):
    with pytest.raises(Exception, match=r"is no trace: it holds no \.wtr file"):
        source().load(str(tmp_path))
    with pytest.raises(Exception, match="there is no trace at"):
        source().load(str(tmp_path / "missing"))
    with pytest.raises(Exception, match="mounted on every worker"):
        source().load("s3a://bucket/trace")
    with pytest.raises(Exception, match="rows, damage, stretches"):
        source().option("report", "everything").load(clean_trace)


def test_damage_is_a_table_and_never_an_error(source, tmp_path):
    trace = write_directory(tmp_path / "trace", side_by_side([consistent_trace(5), consistent_trace(6)]))
    whole = source().option("report", "damage").load(trace)
    assert whole.collect() == []
    one, other, *_ = sorted(name for name in os.listdir(trace) if name.endswith(".wtr"))
    content = bytearray((tmp_path / "trace" / one).read_bytes())
    second = content.index(b"WTRB", content.index(b"WTRB") + 1)
    content[second + 60] ^= 0xFF
    (tmp_path / "trace" / one).write_bytes(content[:-7])
    (tmp_path / "trace" / other).write_bytes(b"WTR1")
    found = {row.what for row in source().option("report", "damage").load(trace).collect()}
    assert {"damaged", "torn tail", "no header", "missing rows"} <= found
    assert source().load(trace).count() > 0


def test_stretches_are_the_rows_that_are_there(source, tmp_path):
    run, *others = consistent_trace(5)
    actor = max(run.actors, key=lambda each: len(each.rows))
    actor.rows = [row for number, row in enumerate(actor.rows, 1) if number not in {3, 4}]
    trace = write_directory(tmp_path / "trace", [run, *others])
    rows = (
        source()
        .option("report", "stretches")
        .load(trace)
        .where(f"run = '{run.name}' and actor_id = {actor.id}")
    )
    assert [(row.first, row.last) for row in rows.collect()] == [(1, 2), (5, actor.last)]


def table_of(reader):
    (part,) = reader.partitions()
    return list(reader.read(part))


def test_a_table_of_a_trace_has_the_columns_that_a_schema_asks_for(clean_trace):
    source = TraceSource({"path": clean_trace, "report": "stretches"})
    there = StructType().add("run", "string").add("last", "long")
    backwards = StructType([there["last"], there["run"]])
    rows = table_of(source.reader(there))
    assert rows
    assert table_of(source.reader(backwards)) == [(last, run) for run, last in rows]
    with pytest.raises(CallerError, match="no column t long; it has run string, actor_id long"):
        source.reader(StructType().add("t", "long"))


def rows_of(reader, parts):
    batches = [batch for part in parts for batch in reader.read(part)]
    return sorted(map(repr, pa.Table.from_batches(batches).to_pylist()))


def test_a_stream_takes_conditions_as_a_read_does(clean_trace):
    asked = {"ev": ["PUBLISH", "ACK"], "kind": "QueueProcess", "seq": [3, 200]}
    source = TraceSource({"path": clean_trace, "only": json.dumps(asked)})
    columns = from_arrow_schema(pa.schema([SCHEMA.field("run"), SCHEMA.field("ev"), SCHEMA.field("msg")]))
    reader, stream = source.reader(columns), source.streamReader(columns)
    end = stream.latestOffset({}, ReadAllAvailable())
    expected = rows_of(reader, reader.partitions())
    assert rows_of(stream, stream.partitions({}, end)) == expected
    assert len(expected) > 10


def test_events_and_columns_of_a_later_version_do_not_fail(spark, source, tmp_path, monkeypatch):
    from warrenmq.trace import block

    monkeypatch.setattr(block, "COLUMNS", (*block.COLUMNS[:8], "who"))
    recorder = Recorder(tmp_path, run="later")
    recorder._header["v"] = 99
    recorder._segment.finish(closed=False)
    recorder._segment = recorder._open_segment()
    actor = recorder.actor("a", "Kind")
    emit(actor, 250, 7, msg=3)
    recorder.close()
    row = source().load(str(tmp_path)).collect()[0]
    assert (row.ev, row.flag_id, row.msg) == ("?250", 7, 3)


@pytest.fixture
def streamed(spark, source, tmp_path):
    """Runs the stream up to what is on disk now, and returns the rows that it added."""
    trace, out = tmp_path / "trace", tmp_path / "out"

    def go():
        before = spark.read.parquet(str(out)).count() if out.exists() else 0
        rows = spark.readStream.format("warrenmq-trace").load(str(trace))
        query = (
            rows.select("actor", "seq", "msg", "ev").writeStream.format("parquet")
            .option("path", str(out)).option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return [tuple(row) for row in spark.read.parquet(str(out)).orderBy("actor", "seq").collect()], before

    return go


def test_a_stream_of_a_live_trace_gives_each_row_once_over_restarts(streamed, tmp_path):
    recorder = Recorder(tmp_path / "trace", run="live", segment_bytes=800)
    one, two = recorder.actor("one", "Kind"), recorder.actor("two", "Kind")
    expected = []
    for times in (3, 140):
        for _ in range(times):
            for name, actor in (("one", one), ("two", two)):
                seq = emit(actor, Ev.SEND, msg=len(expected))
                expected.append((name, seq, len(expected), "SEND"))
        rows, before = streamed()
        assert before < len(rows)
        assert rows == sorted(expected)
    recorder.close()
    rows, before = streamed()
    assert rows == sorted(expected)


def test_a_stream_of_a_finished_trace_has_the_rows_of_a_read(spark, source, tmp_path, clean_trace):
    rows = spark.readStream.format("warrenmq-trace").load(clean_trace)
    query = (
        rows.drop("actor_rows", "run_actors").writeStream.format("memory").queryName("whole")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    expected = source().load(clean_trace).drop("actor_rows", "run_actors")
    assert spark.table("whole").selectExpr(*CONTENT).collect() == expected.selectExpr(*CONTENT).collect()
    assert engine.replay(clean_trace).figures["events"] == expected.count()


def test_a_process_that_plans_a_query_imports_no_pandas():
    """Spark starts a Python for each step of a plan, and pandas is most of what that would take."""
    program = "import sys, warrenmq.replay.spark.datasource; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_stream_is_refused_where_only_an_end_could_answer(spark, clean_trace):
    rows = spark.readStream.format("warrenmq-trace").load(clean_trace)
    for asked in (check, lifecycles):
        with pytest.raises(CallerError, match="these rows are a stream"):
            asked(rows)
