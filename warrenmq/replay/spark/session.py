"""The Spark session: take the one there is, else start a quiet local one and stop it afterwards.

Rules, each learnt the hard way:

- `builder.master(...)` in code silently overrides `spark-submit --master`, so a master is set only when this
  process itself starts Spark.  Under spark-submit, Spark Connect, Databricks or inside a notebook nothing is set.
- Workers must run this interpreter, here or at the same place on their machines: without PYSPARK_PYTHON they are whatever
  `python3` is on PATH, and so is the process that plans a data source beside the driver.
- `-XX:TieredStopAtLevel=1 -XX:+UseSerialGC` halves the start-up of a short run and slows a long one down.
- Only the public DataFrame API anywhere in this package (no `sparkContext`, `_jvm`, `.rdd`): the rest does not
  exist on Spark Connect and Databricks serverless.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from warrenmq.errors import CallerError
from warrenmq.location import HOME
from warrenmq.replay.spark.home import compiled_pyspark
from warrenmq.replay.spark.java import SparkUnavailable, ensure_java
from warrenmq.replay.spark.quiet import quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = max(4, 2 * (os.cpu_count() or 1))
"""Shuffle partitions of a local run; Spark's own 200 are its commonest slowdown."""

_SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_MASTER = re.compile(r"(local(-cluster)?(\[[\w*, ]+\])?|yarn)$|(spark|k8s)://.")
_ANSWER_SECONDS = 10.0
_CONNECT = "sc://"
_PORTS = {"spark": 7077, "sc": 15002}
_ELSEWHERE = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "DATABRICKS_RUNTIME_VERSION")

_LOG4J = """\
rootLogger.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
"""
# Errors come as exceptions, printed as one sentence; below them Spark logs a stack trace for each attempt of
# each task, and for each accumulator that a task reports when the session has ended.  The gateway's level is
# named because Spark prints a line about it whenever it differs from the root's.


def require_pyspark() -> None:
    """Raise `SparkUnavailable` with the remedy when a package of the `spark` extra is missing."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkUnavailable(f"{' and '.join(missing)} not installed: pip install 'warrenmq[spark,java]'.")


@contextmanager
def spark_session(
    *,
    master: str | None = None,
    short: bool = False,
    memory: str = "2g",
    partitions: int = SHUFFLE_PARTITIONS,
) -> Iterator[SparkSession]:
    """The session of this process, whichever thread began it, or a new one that ends with the block.

    `master` may be the address of a Spark Connect server, too.  `short` compiles less (for a run of seconds);
    `memory` is the JVM's heap.  Both, and `master`, count only when this process starts Spark.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    running = _running()
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.appName("warrenmq replay")
    server = master if master is not None and master.startswith(_CONNECT) else os.environ.get("SPARK_REMOTE")
    if server is not None:
        _require_answer(server)
        builder = builder.remote(server)
    if server is not None or any(name in os.environ for name in _ELSEWHERE):
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
        return
    master = master or "local[*]"
    if not _MASTER.match(master):  # Spark's launcher would say so, with a stack trace
        raise CallerError(
            f"{master!r} is no master of Spark; they are like local[*], spark://HOST:7077, yarn and k8s://HOST:PORT, "
            "or sc://HOST:15002 for Spark Connect."
        )
    _require_answer(master)
    ensure_java()
    scratch = Path(tempfile.mkdtemp(prefix="warrenmq-spark-"))
    try:
        conf = _driver_conf(scratch, short=short, memory=memory)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if master.startswith("local"):
            conf |= _local_conf(scratch, partitions)
        for key, value in conf.items():
            builder = builder.config(key, value)
        with quiet(), compiled_pyspark() if master.startswith("local") else nullcontext():
            spark = builder.master(master).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _running() -> SparkSession | None:
    """The active session of this thread, else that of the process; None without one, or when it has ended.

    A thread that did not begin the session has no active one: to get or create it there and to stop it
    afterwards would stop its owner's.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        found = SparkSession.active()
        found.range(0)
    except (PySparkException, AttributeError):  # the latter when only its context was stopped
        return None
    return found


def _require_answer(address: str) -> None:
    """Raise CallerError when no standalone master, or server of Spark Connect, listens there; Spark itself
    tries for minutes, and then does not say so.
    """
    scheme, _, hosts = address.partition("://")
    # gRPC goes through a proxy, which a master's clients do not
    if scheme not in _PORTS or (scheme == "sc" and getproxies()):
        return
    refusals = []
    for each in hosts.partition("/")[0].split(","):
        host = urlsplit(f"//{each}")
        try:
            with socket.create_connection(
                (host.hostname or "", host.port or _PORTS[scheme]), _ANSWER_SECONDS
            ):
                return
        except (OSError, ValueError) as refused:
            refusals.append(f"{each}: {refused}")
    who = "Spark Connect's server" if scheme == "sc" else "Spark's master"
    raise CallerError(f"{who} does not answer ({'; '.join(refusals)}): start it, or correct its address.")


def _driver_conf(scratch: Path, *, short: bool, memory: str) -> dict[str, str]:
    """Settings for the JVM that this process starts, wherever the work is done."""
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    jvm = f"-Dlog4j2.configurationFile={log4j.as_uri()}" + (f" {_SHORT_RUN}" if short else "")
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": jvm,
        "spark.sql.session.timeZone": "UTC",
    }


def _local_conf(scratch: Path, partitions: int) -> dict[str, str]:
    """Settings for work that is done on this machine."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(partitions),
        # Of few and equal ones Spark would join some, and one core would wait for the other.
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        # Workers import this package from where we did, installed or not.
        "spark.executorEnv.PYTHONPATH": str(HOME),
    }
