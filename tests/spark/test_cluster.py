"""The data source and the engine on a standalone cluster, asked by a program and through Spark Connect.

The master and both workers live in the JVM of the other tests, which is a server of Spark Connect, too; the driver and the executors
are processes, as a user's are.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.spark.conftest import CHEAP, conf_dir
from tests.support.simulated_trace import consistent_trace
from tests.support.source_tree import ROOT
from tests.support.trace_union import write_directory
from warrenmq.replay.drive import engine

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


QUESTIONS = """
import json, sys
from warrenmq.replay import SqlRule, lifecycles, register, replay
from warrenmq.replay.spark.own_rules import check_own
from warrenmq.replay.spark.session import spark_session

with spark_session(master=sys.argv[2], short=True, memory="1g", partitions=2) as spark:
    register(spark)
    rows = spark.read.format("warrenmq-trace").load(sys.argv[1])
    answer = {
        **rows.selectExpr("count(*) rows", "count_if(ev = 'PUBLISH') published").first().asDict(),
        "lives": lifecycles(rows).where("whole and not recovered").count(),
        "damage": spark.read.format("warrenmq-trace").option("report", "damage").load(sys.argv[1]).count(),
        "client": type(spark).__module__,
        "version": spark.version,
    }
    query = (
        spark.readStream.format("warrenmq-trace").load(sys.argv[1]).select("run", "seq")
        .writeStream.format("parquet").option("path", sys.argv[3] + "/rows")
        .option("checkpointLocation", sys.argv[3] + "/checkpoint").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    answer["streamed"] = spark.read.parquet(sys.argv[3] + "/rows").count()
    acked = SqlRule("mine", "", "SELECT run, actor, seq FROM ack_rows")
    found = replay(sys.argv[1], engine="python", picture=False).result
    answer["acked"] = check_own(rows, [acked], found).count()
    answer["verdict"] = replay(sys.argv[1], picture=False).verdict
    print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return write_directory(tmp_path_factory.mktemp("shared") / "trace", consistent_trace(0, 20))


DEFAULTS = f"""{CHEAP}
spark.executor.extraJavaOptions     -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executorEnv.PYTHONPATH        {ROOT}
spark.sql.shuffle.partitions        2
"""
"""The package as if it were installed on each machine, and what makes queries of a few rows cheap."""


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """The folder of both workers."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(spark, work):
    """The address of the master."""
    java = spark.sparkContext._jvm
    deploy, none = java.org.apache.spark.deploy, java.scala.Option.empty()
    conf = java.org.apache.spark.SparkConf(False).set("spark.master.rest.enabled", "false")
    master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)
    started = [master._1()]
    try:
        address = f"spark://127.0.0.1:{started[0].address().port()}"
        masters = spark.sparkContext._gateway.new_array(java.java.lang.String, 1)
        masters[0] = address
        started += [
            deploy.worker.Worker.startRpcEnvAndEndpoint(
                "127.0.0.1", 0, 0, 1, 1024, masters, str(work / f"work{number}"), none, conf, none
            )
            for number in (1, 2)
        ]
        yield address
    finally:
        for each in reversed(started):
            each.shutdown()


def ask(folder, *arguments, **said):
    """The answers of a program that has to find Java, Python and Spark by itself, but for what is `said`."""
    told = ("SPARK_", "PYSPARK_", "JAVA_HOME")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(told)}
    conf = folder / "conf"
    conf.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", QUESTIONS, *arguments, str(folder / "stream")],
        env=kept | {"PYTHONPATH": ROOT, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": conf_dir(conf, DEFAULTS)} | said,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def expected(trace):
    result = engine.replay(trace)
    figures = result.figures
    return {
        "rows": figures["events"], "published": figures["events_of"]["PUBLISH"], "lives": figures["messages"], "damage": 0,
        "streamed": figures["events"], "acked": figures["events_of"]["ACK"],
    }  # fmt: skip


@pytest.fixture(scope="module")
def answers(cluster, connect_port, trace, tmp_path_factory) -> Iterator[dict[str, Future]]:
    """Those of both programs, which run at the same time."""
    with ThreadPoolExecutor() as pool:
        asked = {"cluster": pool.submit(ask, tmp_path_factory.mktemp("of_cluster"), trace, cluster)}
        if lacking_for_connect() is None:
            asked["connect"] = pool.submit(
                ask, tmp_path_factory.mktemp("of_connect"), trace, "local[7]", SPARK_REMOTE=f"sc://127.0.0.1:{connect_port}"
            )  # fmt: skip
        yield asked


def lacking_for_connect():
    """The first package that is not there."""
    for package in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return package
    return None


def test_two_workers_of_a_cluster_read_and_check_a_trace(answers, trace, work):
    answer = answers["cluster"].result()
    assert answer | expected(trace) == answer
    assert answer["verdict"] == engine.replay(trace).verdict == "ok"
    assert {path.parent.parent.name for path in work.glob("work*/app-*/[0-9]*")} == {"work1", "work2"}


def test_a_server_of_spark_connect_answers_the_same(answers, trace):
    if (lacking := lacking_for_connect()) is not None:
        pytest.skip(f"Spark Connect needs {lacking}: pip install 'warrenmq[connect]'")
    answer = answers["connect"].result()
    assert answer | expected(trace) == answer
    assert answer["verdict"] == "ok"
    assert "connect" in answer["client"]
