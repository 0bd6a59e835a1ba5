"""Settings of Spark sessions: only a session of our own is configured."""

from __future__ import annotations

import ast
import io
import os
import socket
import sys
from contextlib import closing

import pytest

from tests.support.source_tree import imports, modules
from warrenmq.errors import CallerError
from warrenmq.replay import SparkUnavailable
from warrenmq.replay.spark import session as module
from warrenmq.replay.spark.quiet import worth_saying

pytest.importorskip("pyspark")

from pyspark.errors import PySparkRuntimeError


class FakeBuilder:
    """Notes what a session would be built with."""

    def __init__(self):
        self.conf = {}
        self.masters = []
        self.stopped = 0
        self.home = None

    def appName(self, _name):  # noqa: N802 - as pyspark names it
        return self

    def config(self, key, value):
        self.conf[key] = value
        return self

    def master(self, master):
        self.masters.append(master)
        return self

    def remote(self, server):
        self.masters.append(server)
        return self

    def getOrCreate(self):  # noqa: N802
        self.home = os.environ.get("SPARK_HOME")
        return self

    def stop(self):
        self.stopped += 1


def no_session(_cls):
    raise PySparkRuntimeError("there is no session")


@pytest.fixture
def builder(monkeypatch):
    fake = FakeBuilder()
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "DATABRICKS_RUNTIME_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "the user's")
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", fake)
    monkeypatch.setattr("pyspark.sql.SparkSession.active", classmethod(no_session))
    monkeypatch.setattr(module, "ensure_java", lambda: None)
    return fake


def test_a_local_session_is_quiet_and_ends_with_the_block(builder):
    with module.spark_session(short=True):
        assert builder.masters == ["local[*]"]
        assert builder.conf["spark.ui.enabled"] == "false"
        assert "TieredStopAtLevel=1" in builder.conf["spark.driver.extraJavaOptions"]
    assert builder.stopped == 1


@pytest.mark.parametrize(
    ("python", "home", "chosen"),
    [
        (sys.executable, None, "warrenmq/spark-"),
        ("the user's", None, None),
        (sys.executable, "/opt/spark", "/opt/spark"),
    ],
)
def test_java_starts_from_a_home_whose_pyspark_is_compiled(
    builder, monkeypatch, tmp_path, python, home, chosen
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    if home is None:
        monkeypatch.delenv("SPARK_HOME", raising=False)
    else:
        monkeypatch.setenv("SPARK_HOME", home)
    with module.spark_session():
        assert os.environ.get("SPARK_HOME") == home
    assert builder.home == chosen or chosen in builder.home


@pytest.fixture
def answering(monkeypatch):
    """A network in which every address answers."""
    monkeypatch.setattr("socket.create_connection", lambda *_: closing(io.BytesIO()))


def test_a_master_that_does_not_answer_is_refused_before_spark_is_started(builder):
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(
            CallerError, match=rf"does not answer \(127\.0\.0\.1:{port}: .*; 127\.0\.0\.1:x: "
        ):
            module.spark_session(master=f"spark://127.0.0.1:{port},127.0.0.1:x").__enter__()
    assert builder.masters == []


@pytest.mark.parametrize("said", ["master", "SPARK_REMOTE"])
def test_a_connect_server_that_does_not_answer_is_refused(builder, monkeypatch, said):
    """Spark would try for ten minutes."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = f"sc://127.0.0.1:{bound.getsockname()[1]}/;user_id=me"
        if said == "SPARK_REMOTE":
            monkeypatch.setenv(said, server)
        with pytest.raises(CallerError, match="Spark Connect's server does not answer"):
            module.spark_session(master=server if said == "master" else None).__enter__()
    assert builder.masters == []


@pytest.mark.usefixtures("answering")
def test_a_connect_server_is_taken_as_a_master(builder):
    with module.spark_session(master="sc://far.away"):
        assert builder.masters == ["sc://far.away"]
    assert builder.conf == {}
    assert builder.stopped == 1


@pytest.mark.usefixtures("answering")
def test_a_cluster_gets_no_settings_of_this_machine(builder):
    with module.spark_session(master="spark://far.away:7077"):
        assert builder.masters == ["spark://far.away:7077"]
        assert not any(name.startswith(("spark.driver.host", "spark.executorEnv")) for name in builder.conf)


@pytest.mark.parametrize("master", ["nonsense", "local[", "http://h:1", "spark://", " "])
def test_an_invalid_master_is_refused_before_spark_is_started(builder, master):
    with pytest.raises(CallerError, match="is no master of Spark"), module.spark_session(master=master):
        pass
    assert builder.masters == []


@pytest.mark.usefixtures("answering")
@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[2]",
        "local[*]",
        "local[4, 2]",
        "local-cluster[2,1,1024]",
        "spark://h:7077",
        "yarn",
        "k8s://https://h:6443",
    ],
)
def test_every_kind_of_master_is_taken(builder, master):
    with module.spark_session(master=master):
        assert builder.masters == [master]


def test_a_long_run_is_compiled_in_full(builder):
    with module.spark_session():
        assert "TieredStopAtLevel" not in builder.conf["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    ("place", "masters"),
    [("PYSPARK_GATEWAY_PORT", []), ("SPARK_REMOTE", ["local"]), ("DATABRICKS_RUNTIME_VERSION", [])],
)
def test_nothing_is_set_in_a_session_that_was_started_elsewhere(builder, monkeypatch, place, masters):
    monkeypatch.setenv(place, "local")
    with module.spark_session(master="local[2]"):
        pass
    assert builder.masters == masters
    assert builder.conf == {}


def test_the_users_python_for_workers_is_left_alone(builder):
    import os

    with module.spark_session():
        assert os.environ["PYSPARK_PYTHON"] == "the user's"


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_session_that_runs_is_used_and_not_stopped(builder, monkeypatch, has_ended):
    active = FakeBuilder()
    if not has_ended:
        active.range = lambda _end: None  # as of one whose context was stopped it has no attributes
    monkeypatch.setattr("pyspark.sql.SparkSession.active", classmethod(lambda _cls: active))
    with module.spark_session() as session:
        assert session is (builder if has_ended else active)
    assert active.stopped == 0
    assert builder.stopped == has_ended


def test_missing_packages_are_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pyarrow" else object())
    with pytest.raises(SparkUnavailable, match=r"pyarrow.*warrenmq\[spark,java\]"):
        module.require_pyspark()


FORBIDDEN = {"sparkContext", "_jvm", "_jdf", "rdd", "toPandas", "createGlobalTempView"}
"""Attributes that Spark Connect and serverless clusters do not have, and those that would pull a trace into the driver."""
DESCRIBES_JOBS = ("warrenmq.replay.spark.jobs", "sparkContext")
"""Job descriptions are set on the context; through Spark Connect, which has none, tags take their place."""


def of_spark(name):
    return name == "warrenmq.replay.spark" or name.startswith("warrenmq.replay.spark.")


def test_only_the_public_dataframe_api_is_used():
    used = {
        (name, node.attr)
        for name, module in modules().items()
        if of_spark(name)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
    }
    assert {name for name, _ in used} >= {"warrenmq.replay.spark.session", "warrenmq.replay.spark.check"}
    assert [each for each in used - {DESCRIBES_JOBS} if each[1] in FORBIDDEN] == []


ALLOWED = {
    "warrenmq.replay": {"pyspark"},
    "warrenmq.replay.export.parquet": {"pyarrow"},
    "warrenmq.replay.export.history": {"pyspark", "pyarrow"},
}
"""Outside of replay/spark: names for types, and Parquet, which is written without Spark."""


def test_only_the_spark_package_imports_spark():
    wrong = {
        (name, top)
        for name, module in modules().items()
        if name.startswith("warrenmq.replay") and not of_spark(name)
        for each in imports(module)
        if (top := each.name.split(".")[0]) in {"pyspark", "pyarrow", "pandas"} - ALLOWED.get(name, set())
    }
    assert wrong == set()


def test_of_what_java_says_only_what_it_says_every_time_is_dropped():
    said = [
        b"WARNING: Using incubator modules: jdk.incubator.vector\n",
        b"Starting Streaming TransformWithStateInPandas Python worker.\n",
        b"\n",
        b"spark: out of memory\n",
        b"\n",
        b"Streaming TransformWithStateInPandas Python worker received parameters\n",
        b"\n",
        b"\n",
        b"no end of a line",
    ]
    assert list(worth_saying(said)) == [b"spark: out of memory\n", b"\n", b"no end of a line"]
