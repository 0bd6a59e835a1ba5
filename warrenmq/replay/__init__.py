"""Replay: read traces, check the invariants, draw what happened; in Spark, or in this process.

    result = replay("trace/")                       # engine="python" needs neither pyspark nor Java
    result.verdict                                  # ok, violated or indeterminate
    write_report(result, "report.html")

    rows = read(spark, "trace/")                    # a DataFrame with names, for questions of your own
    events(rows, "FILE_SYNC").show()                # one event's rows, its columns by name
    check(rows).show()                              # the violations, as a DataFrame
    verdicts(rows).show()                           # every rule: cases that could have broken it, violations, undecided
    incidents(rows).show()                          # crashes, restarts, escalations, losses and damage, counted
    lifecycles(rows).show()                         # what became of each message in each queue
    register(spark)                                 # then spark.read.format("warrenmq-trace").load("trace/")
    add_to_history(result, "history/")              # a row for each rule and figure, in a table of Parquet files
    history("history/", spark)                      # that table as a DataFrame; without a session as named tuples
    read_tracing(spark, "rabbitmq-tracing/")        # the same of logs of RabbitMQ's tracing plugin

Both engines drive the same state machines and must agree.  Importing this package imports nothing of Spark.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, overload

from warrenmq.errors import CallerError
from warrenmq.replay.drive.machines import Finding, Machine, Outcome
from warrenmq.replay.drive.own_rules import SqlRule, split_own
from warrenmq.replay.replayed import Engine, Replayed, replay
from warrenmq.replay.report.report import write_report
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.replay.spark.addresses import Paths, listed
from warrenmq.replay.spark.java import SparkUnavailable
from warrenmq.replay.spark.session import require_pyspark
from warrenmq.trace.reader import named_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from warrenmq.replay.export.history import HistoryRow
    from warrenmq.replay.spark.only import Conditions

__all__ = [
    "Engine", "Exercised", "Finding", "Machine", "Outcome", "Replayed", "Rule", "SparkUnavailable", "SqlRule", "add_to_history", "check", "check_history", "events", "history", "incidents", "lifecycles", "read", "read_tracing", "register", "replay",
    "verdicts", "write_report",
]  # fmt: skip


def read(
    spark: SparkSession, *paths: Paths, columns: Sequence[str] | None = None, only: Conditions | None = None
) -> DataFrame:
    """The rows of traces, with names (docs/replay.md); NotATrace when there are none.  A path may be a list
    of them, and have a pattern.

    Some `columns`, and rows that fulfil conditions, are read sooner than all: only={"actor": "queue:jobs",
    "t": (0, 10**9)}.  Name them here: Spark tells a Python data source of no `select`, so `explain()` shows
    all columns in the scan of rows that were filtered or cached.
    """
    require_pyspark()
    from warrenmq.replay.spark import frames as spark_frames

    return spark_frames.read(spark, *paths, columns=columns, only=only)


def read_tracing(spark: SparkSession, *paths: Paths) -> DataFrame:
    """The life of each message, from logs of RabbitMQ's tracing plugin (columns: rabbit_logs/spark.py); paths
    are as for `read`.
    """
    require_pyspark()
    from warrenmq.rabbit_logs import spark as spark_tracing
    from warrenmq.replay.spark.workers import require_workers

    require_workers(spark)
    names = [each for path in listed(paths) for each in named_by(path)]
    return spark_tracing.read_tracing(spark, *names)


def check(rows: DataFrame, *, rules: Sequence[Rule | SqlRule] = ()) -> DataFrame:
    """Run the jobs of a check of what `read` gave, or a part of it, and return the violations as a DataFrame.

    Empty = every invariant holds as far as rows tell; `verdicts` says which were exercised.  `rules` are
    rules of your own (docs/rules.md): machines run in the same jobs as ours, queries add to the plan and run
    when the DataFrame does.
    """
    require_pyspark()
    from warrenmq.replay.spark import check as spark_check

    return spark_check.check(rows, *split_own(rules))


def verdicts(rows: DataFrame, *, rules: Sequence[Rule | SqlRule] = ()) -> DataFrame:
    """Run the jobs of a check, and return how each rule fared: rule, name, text, exercised, violated, indeterminate."""
    require_pyspark()
    from warrenmq.replay.spark import check as spark_check

    return spark_check.verdicts(rows, *split_own(rules))


def incidents(rows: DataFrame) -> DataFrame:
    """Crashes, restarts, escalations, losses and damage in what `read` gave, counted (columns: what, count)."""
    require_pyspark()
    from warrenmq.replay.spark import check as spark_check

    return spark_check.incidents(rows)


def events(rows: DataFrame, name: str) -> DataFrame:
    """The rows of one event in what `read` gave, with the event's own columns, named and typed
    (`warrenmq.trace.events` lists them).
    """
    require_pyspark()
    from warrenmq.replay.spark import event_views

    return event_views.events(rows, name)


def lifecycles(rows: DataFrame) -> DataFrame:
    """A row for each message in each incarnation of a queue, from what `read` gave (columns: docs/replay.md)."""
    require_pyspark()
    from warrenmq.replay.spark import lifecycles as spark_lifecycles

    return spark_lifecycles.lifecycles(rows)


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("warrenmq-trace")` known to a session."""
    require_pyspark()
    from warrenmq.replay.spark import frames as spark_frames

    spark_frames.register(spark)


def add_to_history(replayed: Replayed, folder: str | os.PathLike[str]) -> bool:
    """Add the results of a replay to the history in a directory, in one step; True if those of the same trace
    were replaced.
    """
    return _history().add(replayed, os.fspath(folder))  # type: ignore[no-any-return]


def check_history(folder: str | os.PathLike[str]) -> None:
    """Raise what keeps `add_to_history` from writing there; to be asked before a long replay."""
    _history().check_target(os.fspath(folder))


@overload
def history(folder: str | os.PathLike[str]) -> list[HistoryRow]: ...
@overload
def history(folder: str | os.PathLike[str], spark: SparkSession) -> DataFrame: ...
def history(
    folder: str | os.PathLike[str], spark: SparkSession | None = None
) -> list[HistoryRow] | DataFrame:
    """The rows of a history (columns: docs/replay.md): with a session as a DataFrame, else as named tuples,
    the oldest trace first.
    """
    if spark is None:
        return _history().read(os.fspath(folder))  # type: ignore[no-any-return]
    return _history().frame(spark, os.fspath(folder))  # type: ignore[no-any-return]


def _history() -> ModuleType:
    try:
        from warrenmq.replay.export import history as table
    except ImportError as missing:
        raise CallerError(
            "A history is Parquet, which needs pyarrow: pip install 'warrenmq[spark]'."
        ) from missing
    return table
