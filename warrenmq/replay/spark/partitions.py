"""The number of partitions of a replay: it follows from the number of rows, and not from the settings of the session.

A session's default (spark.sql.shuffle.partitions, 200) makes thousands of tasks of a small trace, and the default parallelism of
a large cluster does the same.  Each `repartition` here says its number.  SQL aggregations cannot say one, so for as long as they
run the session is set to it, and then set back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

ROWS_OF_PIECES = 1 << 19
"""Rows of a partition that holds all rows of a part of the trace: those of a block."""
ROWS_OF_KEYS = 1 << 20
"""Rows of the trace for each partition by key, which holds what the prechecks left of them."""
_SHUFFLE = "spark.sql.shuffle.partitions"


def partitions(rows: int, rows_each: int) -> int:
    """At least one."""
    return max(1, -(-rows // rows_each))


@contextmanager
def shuffled_into(spark: SparkSession, number: int) -> Iterator[None]:
    """Aggregations and joins that run inside have this many partitions."""
    before = spark.conf.get(_SHUFFLE, None)
    spark.conf.set(_SHUFFLE, str(number))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_SHUFFLE)
        else:
            spark.conf.set(_SHUFFLE, before)
