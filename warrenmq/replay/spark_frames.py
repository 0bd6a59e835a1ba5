"""The public DataFrame of a trace, with names (columns: arrow_rows.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from warrenmq.replay.arrow_rows import DDL, Names, named_batches, names_of
from warrenmq.replay.spark_datasource import TraceSource
from warrenmq.replay.spark_source import Batches, Pieces, look, map_pieces


class NamedBatches:
    """Job of `map_pieces`: the public rows."""

    def __init__(self, names: Sequence[Names], unpack: Pieces) -> None:
        self._names = names
        self._unpack = unpack

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        return named_batches(self._names, self._unpack(batches))


def read(spark: SparkSession, *paths: str | os.PathLike[str]) -> DataFrame:
    """The rows of a trace, with names."""
    trace = look(spark, *paths)
    return map_pieces(spark, trace, partial(NamedBatches, names_of(trace.catalog)), DDL)


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("warrenmq-trace")` and `readStream` of it known to a Spark session.

    Spark refuses a source that can use filters unless the session allows it, so the session is told to.
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(TraceSource)
