"""Arbitrary user sessions, and workers without the package: few tasks, unchanged settings, errors of one sentence."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.source_tree import ROOT
from warrenmq.cli import main
from warrenmq.errors import CallerError, Error
from warrenmq.replay import check, read, read_tracing
from warrenmq.replay.drive import engine

pytest.importorskip("pyspark")

from pyspark.sql import functions as sf

from warrenmq.replay.spark.session import spark_session

pytestmark = pytest.mark.spark


@pytest.fixture
def default_session(spark):
    """Spark's own defaults for a cluster, and nothing that repairs them; the standard's words are reserved."""
    chosen = {
        "spark.sql.shuffle.partitions": "200",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.ansi.enforceReservedKeywords": "true",
    }
    before = {name: spark.conf.get(name) for name in chosen}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    yield spark
    assert {name: spark.conf.get(name) for name in chosen} == chosen
    for name, value in before.items():
        spark.conf.set(name, value)


def tasks_of(spark, group, does):
    """The result of `does`, the number of its tasks, and the descriptions of its jobs."""
    spark.sparkContext.setJobGroup(group, "the user's own")
    try:
        given = does()
    finally:
        tracker = spark.sparkContext.statusTracker()
        jobs = tracker.getJobIdsForGroup(group)
        stages = {stage for job in jobs for stage in tracker.getJobInfo(job).stageIds}
        for name in ("spark.jobGroup.id", "spark.job.description"):
            spark.sparkContext.setLocalProperty(name, None)
    found = [tracker.getStageInfo(stage) for stage in stages]
    store = spark.sparkContext._jsc.sc().statusStore()
    described = [store.job(job).description().get() for job in jobs]
    return given, sum(stage.numCompletedTasks for stage in found if stage is not None), described


def test_a_small_trace_takes_few_tasks_in_any_session(default_session, small_trace):
    from warrenmq.replay.spark.engine import replay
    from warrenmq.replay.spark.measures import measure
    from warrenmq.replay.spark.source import index_trace

    spark = default_session
    expected = engine.replay(small_trace).violations
    rows = read(spark, small_trace).repartition(7).cache()
    rows.count()
    found, tasks, described = tasks_of(spark, "check", lambda: check(rows).collect())
    rows.unpersist()
    assert len(found) == len(expected)
    assert tasks < 80
    assert described.count("the user's own") == 1  # the collect
    index = index_trace(spark, small_trace)
    files = len(index.sizes)
    result, tasks, described = tasks_of(spark, "replay", lambda: replay(spark, small_trace))
    assert result.violations == expected
    assert tasks < 40 + 8 * files
    assert [each for each in described if not each.startswith("warrenmq: ")] == []
    _, tasks, described = tasks_of(spark, "measure", lambda: measure(spark, index))
    assert tasks < 8 + 2 * files
    assert [each.startswith("warrenmq: measure ") for each in described] == [True]


def test_rows_in_many_partitions_are_cut_in_few_tasks_and_of_a_compiled_pyspark(spark):
    from warrenmq.replay.spark.partitions import FEW, in_few_partitions

    def where(_batches):
        import pyspark

        yield pa.RecordBatch.from_pydict({"file": [pyspark.__cached__]})

    rows = in_few_partitions(spark.range(0, 500, 1, 500))
    assert rows.rdd.getNumPartitions() == FEW
    ((compiled,),) = rows.coalesce(1).mapInArrow(where, "file string").collect()
    assert Path(compiled).is_file()


def test_read_and_sparks_own_readers_give_the_same_rows(spark, clean_trace):
    from warrenmq.replay.spark.frames import scan_through_spark
    from warrenmq.replay.spark.source import index_trace

    content = ["count(*)", "sum(cast(xxhash64(*) as decimal(38)))"]
    assert (
        read(spark, clean_trace).selectExpr(*content).collect()
        == scan_through_spark(spark, index_trace(spark, clean_trace)).selectExpr(*content).collect()
    )


def test_a_trace_in_another_file_system_is_read_by_spark_alone(spark, small_trace, capsys):
    """viewfs is Hadoop's own: like s3a, abfs and hdfs it is nothing that Python can open."""
    spark.conf.set("fs.viewfs.mounttable.cloud.link./bucket", Path(small_trace).parent.as_uri())
    address = f"viewfs://cloud/bucket/{Path(small_trace).name}"
    content = ["count(*)", "sum(cast(xxhash64(*) as decimal(38)))"]
    only = {"ev": "PUBLISH"}
    assert (
        read(spark, address, only=only).selectExpr(*content).collect()
        == read(spark, small_trace, only=only).selectExpr(*content).collect()
    )
    assert main(["replay", address]) == 0
    assert "verdict ok" in capsys.readouterr().out
    assert main(["replay", "viewfs://cloud/bucket/missing"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "missing" in line


def test_an_empty_file_in_another_file_system_is_told(spark, small_trace, tmp_path):
    """Spark lists it and reads nothing of it."""
    from warrenmq.replay.spark.engine import replay

    odd = Path(shutil.copytree(small_trace, tmp_path / "trace %20 é"))
    (odd / "last run.wtr").touch()
    spark.conf.set("fs.viewfs.mounttable.far.link./bucket", tmp_path.as_uri())
    found = replay(spark, f"viewfs://far/bucket/{odd.name}")
    assert (found.verdict, found.violations) == ("indeterminate", [])
    assert [row.file for row in found.missing] == [f"viewfs://far/bucket/{odd.name}/last run.wtr"]
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "last run.wtr").touch()
    with pytest.raises(CallerError, match=r"there is no trace.*last run\.wtr"):
        replay(spark, "viewfs://far/bucket/empty")


def test_a_path_is_local_and_taken_by_the_letter(spark, small_trace, tmp_path):
    """A cluster's paths lead into another file system, and Hadoop has letters that are patterns to it."""
    from warrenmq.replay.spark.engine import replay

    odd = tmp_path / "trace #1 [a] {b,c} %20?"
    shutil.copytree(small_trace, odd)
    before = spark.conf.get("fs.defaultFS", None)
    spark.conf.set("fs.viewfs.mounttable.elsewhere.link./Volumes", odd.parent.as_uri())
    spark.conf.set("fs.defaultFS", "viewfs://elsewhere/")
    try:
        found = replay(spark, str(odd))
        rows = read(spark, f"/Volumes/{odd.name.replace('[', '?')[:10]}*").count()
    finally:
        spark.conf.unset("fs.defaultFS")
    assert before is None
    expected = engine.replay(small_trace)
    assert found.figures["exercised"] == expected.figures["exercised"]
    assert rows == expected.figures["events"]


def test_files_that_are_gone_when_their_rows_are_read_are_no_clean_trace(spark, small_trace, tmp_path):
    from warrenmq.replay.spark.engine import replay_indexed
    from warrenmq.replay.spark.source import index_trace

    copy = Path(shutil.copytree(small_trace, tmp_path / "trace"))
    trace = index_trace(spark, str(copy))
    next(iter(copy.glob("*.wtr"))).unlink()
    with pytest.raises(Error, match=r"Spark read [\d,]+ of the [\d,]+ rows of this trace"):
        replay_indexed(spark, trace)


def test_read_takes_filters_and_columns_to_the_blocks(spark, clean_trace, capsys):
    late = read(spark, clean_trace).where("t < 0 and ev = 'SEND'")
    late.explain()
    assert "PushedFilters: []" not in capsys.readouterr().out
    assert late.count() == 0
    narrow = read(spark, clean_trace, columns=["seq", "ev"])
    assert narrow.columns == ["seq", "ev"]
    assert narrow.count() == read(spark, clean_trace).count()
    with pytest.raises(CallerError, match="no column 'nope'"):
        read(spark, clean_trace, columns=["nope"])


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            "Traceback ...\nModuleNotFoundError: No module named 'warrenmq'\n at org...",
            "has no package 'warrenmq'",
        ),
        ("ModuleNotFoundError: No module named 'warrenmq.replay'", "has no package 'warrenmq'"),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11",
            "run Python 3.9",
        ),
        (
            "[PACKAGE_NOT_INSTALLED] grpcio >= 1.48.1 must be installed; however, it was not found.",
            "pip install 'warrenmq[connect]'",
        ),
        ("[PYTHON_VERSION_MISMATCH] something new", "another version of Python"),
        (
            'java.io.IOException: Cannot run program "python9": error=2, No such file',
            "cannot start 'python9'",
        ),
        (
            "[UNRESOLVED_COLUMN] A column `run` cannot be resolved.\n at line 1",
            "Spark failed: [UNRESOLVED_COLUMN]",
        ),
        (
            "An error occurred while calling o1.x.\n: java.lang.X: odd\n\tat a.b",
            "Spark failed: java.lang.X: odd",
        ),
        (
            "An error occurred while calling o1.x.\n: java.lang.X: All masters are unresponsive\n\tat a.b",
            "master does not answer",
        ),
        (
            "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nThis stopped",
            "master does not answer",
        ),
        (
            "x: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found\n\tat",
            "no file system S3AFileSystem",
        ),
        ('UnsupportedFileSystemException: No FileSystem for scheme "s3"\n\tat', "no file system s3"),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/tmp/nope. SQLSTATE: 42K03",
            "nothing at file:/tmp/nope.",
        ),
        (
            "ClassNotFoundException: Class org.apache.hadoop.fs.azure.NativeAzureFileSystem$Secure not found\n\tat",
            "no file system NativeAzureFileSystem:",
        ),
        ("java.net.UnknownHostException: h1\n\tat", "no host h1"),
        (
            "Job aborted: Total size of serialized results of 4 tasks (9.1 KiB) is bigger than spark.driver.maxResultSize (1024.0 B)",
            "more than spark.driver.maxResultSize (1024.0 B) allows",
        ),
        (
            "Job aborted due to stage failure: Lost task 0.0 in stage 2.0 (TID 2) (h executor driver): TaskResultLost (result lost)",
            "more than spark.driver.maxResultSize allows, or",
        ),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred\n\tat", "cannot read the checkpoint"),
        (
            '[FAILED_EXECUTE] Failed to initialize: Traceback (most recent call last):\n  File "a.py", line 98, in reader\n    x\n'
            "warrenmq.errors.CallerError: the column t is named twice; name each once.\n SQLSTATE: 38000",
            "the column t is named twice; name each once.",
        ),
        (
            'x.PythonException: Traceback (most recent call last):\n  File "b.py", line 1, in read\n    f()\n'
            '  File "mine.py", line 12, in summarise\n    1/0\n    ~^~\nZeroDivisionError: division by zero\n\n\tat org.x',
            "Spark's Python raised ZeroDivisionError: division by zero (mine.py, line 12).",
        ),
        (
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: warrenmq-trace. Make sure",
            "Spark has ended",
        ),
        ("", "does not say why"),
    ],
)
def test_a_failure_of_spark_is_a_sentence(said, sentence):
    from warrenmq.replay.spark.failures import sentence_of

    found = sentence_of(said)
    assert sentence in found
    assert "\n" not in found


def test_rows_that_are_no_rows_of_a_trace_are_refused_in_a_sentence(spark):
    with pytest.raises(CallerError, match="they have no column run, actor") as raised:
        check(spark.range(3))
    assert "\n" not in str(raised.value)


def test_a_time_that_was_made_a_timestamp_is_refused(spark, small_trace):
    """Cast back it would be seconds, and a clean trace was convicted of thousands of violations."""
    with pytest.raises(CallerError, match="t is a timestamp, no bigint"):
        check(read(spark, small_trace).withColumn("t", sf.timestamp_seconds(sf.col("t") / 1e9)))


def test_an_address_without_a_connector_is_refused_in_a_sentence(spark):
    with pytest.raises(Error, match="hadoop-aws"):
        read(spark, "s3a://bucket/trace")


@pytest.mark.parametrize("python", [sys._base_executable, "/nowhere/python"])
def test_workers_with_another_python_are_one_sentence(spark, small_trace, monkeypatch, capfd, python):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    assert main(["replay", small_trace]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("warrenmq replay: ")
    assert "PYSPARK_PYTHON" in line


def test_a_thread_that_did_not_begin_the_session_uses_it_and_leaves_it(spark, monkeypatch):
    """The thread has no active session; to make one there gives the process's, which must not be stopped."""
    stopped = []
    monkeypatch.setattr(type(spark), "stop", stopped.append)

    def used():
        with spark_session() as session:
            return session

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(used).result() is spark
    assert stopped == []


@pytest.fixture
def second_session(spark):
    yield spark.newSession()
    spark.createDataFrame([], "nothing int")  # active again


def test_a_second_session_of_a_process_reads_traces_as_well(spark, second_session, small_trace):
    rows = read(spark, small_trace)
    again = read(second_session, small_trace)
    assert rows.count() == again.count() == read(spark, small_trace).count()
    assert check(again.where("seq > 0")).count() == 0


def test_each_call_of_a_session_without_a_python_is_one_sentence(second_session, small_trace, monkeypatch):
    """Of the first, of a later one, and of logs, which Spark reads when the caller asks for a result."""
    monkeypatch.setattr(second_session.sparkContext, "pythonExec", "/nowhere/python")
    logs = Path(ROOT) / "tests" / "golden" / "rabbitmq-tracing-3.10"
    for call in (
        partial(read, second_session, small_trace),
        partial(read, second_session, small_trace, columns=["t"]),
        partial(read_tracing, second_session, logs),
    ):
        with pytest.raises(Error, match="PYSPARK_PYTHON") as raised:
            call()
        assert "\n" not in str(raised.value)
