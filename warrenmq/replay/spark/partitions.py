"""The number of partitions of a replay: it follows from the number of rows, and not from the settings of the session.

A session's default (spark.sql.shuffle.partitions, 200) makes thousands of tasks of a small trace, and the
default parallelism of a large cluster does the same.  Each `repartition` here says its number.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from warrenmq.replay.spark.jobs import described

ROWS_OF_PIECES = 1 << 19
"""Rows of a partition that holds all rows of a part of the trace: those of a block."""
ROWS_OF_KEYS = 1 << 20
"""Rows of the trace for each partition by key, which holds what the prechecks left of them."""

TASKS_OF_A_CORE = 4
FEW = 32
"""Partitions that are not worth bringing together."""


def partitions(rows: int, rows_each: int) -> int:
    """The number of partitions, at least one."""
    return max(1, -(-rows // rows_each))


def in_few_partitions(rows: DataFrame) -> DataFrame:
    """Rows that came from anywhere, in no more partitions than keep all cores busy: a task in Python costs 50
    ms, however few its rows are.
    """
    spark = rows.sparkSession
    if spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return rows  # of the cores that there will be nothing is known
    parts = spark.range(1 << 16).select(sf.spark_partition_id().alias("part"))
    with described(spark, "find out how many cores there are"):
        (last,) = parts.agg(sf.max("part")).collect()[0]
    return rows.coalesce(max(FEW, TASKS_OF_A_CORE * (last + 1)))
