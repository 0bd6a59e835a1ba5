"""Spark's failures in a sentence: a stack trace of a worker says it too, some hundred lines further down.

| in what Spark says | sentence |
| --- | --- |
| No module named 'x' | the workers' Python lacks a package |
| PACKAGE_NOT_INSTALLED | this process lacks what Spark Connect needs |
| PYTHON_VERSION_MISMATCH, or another version of pickle or bytecode | the workers run another Python |
| Cannot run program "x" | the workers have no such Python |
| All masters are unresponsive, a stopped SparkContext, or no source warrenmq-trace | the master is not there, or the session has ended |
| Class x.S3AFileSystem not found, or No FileSystem for scheme | Spark lacks a connector, and which ones there are |
| Path does not exist: x | nothing is there |
| Relative path in absolute URI | Hadoop looks for no pattern in a path that has a colon |
| UnknownHostException: x | there is no such host |
| spark.driver.maxResultSize | what comes back is too much for it |
| TaskResultLost | the same, or an executor has ended |
| CANNOT_LOAD_STATE_STORE | a worker does not find the checkpoint |
| a traceback of Python | its error, and where it was raised; of our own errors the sentence |
| anything else | its first line |
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from warrenmq.errors import Error

_REMEDY = "set PYSPARK_PYTHON (or spark.pyspark.python) to a Python that has it on every worker."
_CONNECTORS = (
    "a connector is among its jars, as with PYSPARK_SUBMIT_ARGS='--packages org.apache.hadoop:hadoop-aws:VERSION pyspark-shell' "
    "for s3a:// (hadoop-azure for abfss:// and wasbs://, whose version is that of Spark's Hadoop, too; Google's gcs-connector for gs://)."
)
_VERSIONS = re.compile(
    r"Python in worker has different version:? \(?(\d+)[., ]+(\d+)|different version (\d+)\.(\d+) than"
)
_RAISED = re.compile(
    r"Traceback \(most recent call last\):\n(?P<frames>(?:[ \t].*\n)*)(?P<error>\S.*)", re.ASCII
)
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_OWN = re.compile(r"warrenmq\.[\w.]+: (?P<sentence>.+)")


class SparkFailed(Error):
    """Spark could not do what was asked; the error behind it is in `__context__`."""


@contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """Raise SparkFailed for what Spark raises inside."""
    try:
        yield
    except (PySparkException, Py4JError) as why:
        raise SparkFailed(sentence_of(str(why))) from None


def sentence_of(said: str) -> str:
    """The sentence for a failure, from the table above."""
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if missing := re.search(r"No module named '?([\w.]+)", said):
        package = missing[1].split(".")[0]
        return f"the Python of Spark's workers has no package {package!r}: install it there, or {_REMEDY}"
    if lacking := re.search(r"\[PACKAGE_NOT_INSTALLED\] (.+?) must be installed", said):
        return f"{lacking[1]} not installed, which Spark Connect needs: pip install 'warrenmq[connect]'."
    if found := _VERSIONS.search(said):
        theirs = ".".join(part for part in found.groups() if part)
        return f"Spark's workers run Python {theirs}, this process {ours}: {_REMEDY.replace('has it', f'is {ours}')}"
    if any(
        sign in said
        for sign in (
            "PYTHON_VERSION_MISMATCH",
            "bad magic number",
            "unknown opcode",
            "unsupported pickle protocol",
        )
    ):
        return f"Spark's workers run another version of Python than this process ({ours}): {_REMEDY.replace('has it', f'is {ours}')}"
    if program := re.search(r'Cannot run program "([^"]+)"', said):
        return f"Spark's workers cannot start {program[1]!r} as their Python: {_REMEDY.replace('that has it', 'that is there')}"
    # the latter two are how 4.x comes to say it
    if any(
        sign in said
        for sign in (
            "masters are unresponsive",
            "_taskScheduler()",
            "stopped SparkContext",
            "Failed to find the data source: warrenmq-trace",
        )
    ):
        return "Spark has ended, or its master does not answer; start it, or correct its address."
    if found := re.search(
        r'Class (?:[\w.]+\.)?(\w+FileSystem)(?:\$\w+)? not found|No FileSystem for scheme "?(\w+)', said
    ):
        return f"Spark has no file system {found[1] or found[2]}: it reads such addresses when {_CONNECTORS}"
    if path := re.search(r"Path does not exist: (.+?)\.? *(?:SQLSTATE|[;\n]|$)", said):
        return f"Spark finds nothing at {path[1]}."
    if path := re.search(r"Relative path in absolute URI: (\S+)", said):
        return f"Hadoop cannot look for a pattern where a name has a colon ({path[1]}): name the paths themselves."
    if host := re.search(r"UnknownHostException: ([^\s:]+)", said):
        return f"Spark finds no host {host[1]}."
    if limit := re.search(r"spark\.driver\.maxResultSize(?: \(([^)]+)\))?", said):
        size = f" ({limit[1]})" if limit[1] else ""
        return f"what comes back to this process is more than spark.driver.maxResultSize{size} allows: set it higher."
    if "TaskResultLost" in said:
        return "what a task of Spark gave is lost: it is more than spark.driver.maxResultSize allows, or the task's executor has ended."
    if "CANNOT_LOAD_STATE_STORE" in said:
        return (
            "a worker of Spark cannot read the checkpoint: it has to be whole, and where all workers see it."
        )
    if raised := list(_RAISED.finditer(said)):
        error, own = raised[-1]["error"], _OWN.match(raised[-1]["error"])
        if own:
            return own["sentence"]
        *_, (file, line) = _FRAME.findall(raised[-1]["frames"]) or [("", "")]
        return f"Spark's Python raised {error}" + (f" ({file}, line {line})." if file else ".")
    lines = [
        line.strip(" :")
        for line in said.splitlines()
        if line.strip() and not line.startswith("An error occurred while calling")
    ]
    return f"Spark failed: {lines[0] if lines else 'it does not say why'}"
