"""The number of partitions of a replay: it follows from the number of rows, and not from the settings of the session.

A session's default (spark.sql.shuffle.partitions, 200) makes thousands of tasks of a small trace, and the default parallelism of
a large cluster does the same.  Each `repartition` here says its number.
"""

from __future__ import annotations

ROWS_OF_PIECES = 1 << 19
"""Rows of a partition that holds all rows of a part of the trace: those of a block."""
ROWS_OF_KEYS = 1 << 20
"""Rows of the trace for each partition by key, which holds what the prechecks left of them."""


def partitions(rows: int, rows_each: int) -> int:
    """The number of partitions, at least one."""
    return max(1, -(-rows // rows_each))
