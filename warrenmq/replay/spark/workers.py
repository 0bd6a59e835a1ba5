"""The question to a session's workers whether they can run this package, asked before the caller's first
action, whose error would be a stack trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakSet

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from warrenmq.replay.spark.failures import told_in_a_sentence
from warrenmq.replay.spark.jobs import described


def require_workers(spark: SparkSession) -> None:
    """Run one task of this package, once a session; raises SparkFailed when that cannot be done."""
    if spark in _answered:
        return
    with told_in_a_sentence(), described(spark, "see that the workers have warrenmq"):
        spark.range(0, 1, 1, 1).mapInArrow(_given_back, "id long").collect()
    _answered.add(spark)


_answered: WeakSet[SparkSession] = WeakSet()
"""Sessions whose workers can."""


def _given_back(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches
