"""The data source and the engine on a standalone cluster: a master and two workers, as processes on this machine.

The session of the other tests lives in this process, so each of these runs a program of its own.  The cluster's processes are
stopped by their process ids.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.limits import LIMIT
from tests.support.simulated_trace import consistent_trace
from tests.support.source_tree import ROOT
from tests.support.trace_union import write_directory
from warrenmq.replay import SparkUnavailable
from warrenmq.replay.drive import engine
from warrenmq.replay.spark.java import ensure_java

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]  # six JVMs start, one after another


QUESTIONS = """
import json, sys
from pyspark.sql import functions as sf
from warrenmq.replay import lifecycles, read, register
from warrenmq.replay.spark.session import spark_session

with spark_session(master=sys.argv[2], short=True, memory="512m", partitions=2) as spark:
    register(spark)
    rows = spark.read.format("warrenmq-trace").load(sys.argv[1])
    answer = {
        "rows": rows.count(),
        "published": rows.where("ev = 'PUBLISH'").count(),
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
    if "check" in sys.argv[4:]:
        from warrenmq.replay import replay
        answer["verdict"] = replay(sys.argv[1], picture=False).verdict
    print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return write_directory(tmp_path_factory.mktemp("shared") / "trace", consistent_trace(0, 20))


QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DEFAULTS = f"""
spark.executor.extraJavaOptions    {QUICK_JVM}
spark.sql.codegen.wholeStage       false
spark.sql.codegen.factoryMode      NO_CODEGEN
spark.sql.shuffle.partitions       2
"""
"""What a user's spark-defaults.conf may say: here what makes queries of a few rows cheap."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Of every process here: one Java, this Python, and this package, as if it were installed on each machine."""
    try:
        java = ensure_java()
    except SparkUnavailable as unavailable:
        pytest.skip(str(unavailable))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    home = importlib.util.find_spec("pyspark").submodule_search_locations[0]
    conf = tmp_path_factory.mktemp("conf")
    (conf / "spark-defaults.conf").write_text(DEFAULTS)
    return kept | {
        "JAVA_HOME": str(java), "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(conf),
    }  # fmt: skip


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(log, pattern, process, times=1):
    deadline = time.monotonic() + LIMIT
    while len(re.findall(pattern, log.read_text())) < times:
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.2)  # another process; it has no other sign than its log


@pytest.fixture
def cluster(environment, tmp_path):
    """The address of the master."""
    processes = []
    port, spark_class = free_port(), str(Path(environment["SPARK_HOME"]) / "bin" / "spark-class")

    def start(name, *arguments):
        log = tmp_path / f"{name}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [spark_class, *arguments], env=environment | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM},
                stdout=file, stderr=subprocess.STDOUT, cwd=tmp_path,
            )  # fmt: skip
        processes.append(process)
        return log, process

    try:
        log, master = start(
            "master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port),
            "--webui-port", "0",
        )  # fmt: skip
        wait_for(log, "I have been elected leader", master)
        for number in (1, 2):
            start(
                f"worker{number}", "org.apache.spark.deploy.worker.Worker", f"spark://127.0.0.1:{port}", "--host", "127.0.0.1",
                "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work{number}"),
            )  # fmt: skip
        wait_for(log, "Registering worker", master, times=2)
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def ask(environment, *arguments):
    ran = subprocess.run(
        [sys.executable, "-c", QUESTIONS, *arguments], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def expected(trace):
    result = engine.replay(trace)
    figures = result.figures
    return {
        "rows": figures["events"], "published": figures["events_of"]["PUBLISH"], "lives": figures["messages"], "damage": 0,
        "streamed": figures["events"],
    }  # fmt: skip


def test_two_workers_of_a_cluster_read_and_check_a_trace(environment, cluster, trace, tmp_path):
    # Java, and the Python of the workers, are found without help
    bare = {
        name: value
        for name, value in environment.items()
        if name not in {"JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME"}
    }
    answer = ask(bare, trace, cluster, str(tmp_path / "stream"), "check")
    assert answer | expected(trace) == answer
    assert answer["verdict"] == engine.replay(trace).verdict == "ok"
    assert {path.parent.parent.name for path in tmp_path.glob("work*/app-*/[0-9]*")} == {"work1", "work2"}


def test_a_server_of_spark_connect_answers_the_same(environment, trace, tmp_path):
    for package in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None:
            pytest.skip(f"Spark Connect needs {package}: pip install 'warrenmq[connect]'")
    port, log = free_port(), tmp_path / "server.log"
    submit = str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit")
    with log.open("w") as file:
        server = subprocess.Popen(
            [
                submit, "--master", "local[2]", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
                "--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
                "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2",
                "--driver-memory", "1g", "--driver-java-options", QUICK_JVM, "--name", "connect", "spark-internal",
            ],
            env=environment, stdout=file, stderr=subprocess.STDOUT, cwd=tmp_path,
        )  # fmt: skip
    try:
        wait_for(log, "Spark Connect server started", server)
        remote = environment | {"SPARK_REMOTE": f"sc://127.0.0.1:{port}"}
        answer = ask(remote, trace, "local[7]", str(tmp_path / "stream"), "check")
    finally:
        server.terminate()
        try:
            server.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    assert answer | expected(trace) == answer
    assert answer["verdict"] == "ok"
    assert "connect" in answer["client"]
