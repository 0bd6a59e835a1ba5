"""The public DataFrame of a trace, with names (columns: arrow_rows.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from urllib.parse import urlsplit
from weakref import WeakSet

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from warrenmq.errors import CallerError
from warrenmq.replay.spark.arrow_rows import DDL, TYPES, Names, named_batches, names_of
from warrenmq.replay.spark.datasource import TraceSource
from warrenmq.replay.spark.only import Conditions, Only
from warrenmq.replay.spark.source import Batches, Pieces, index_trace, local_name, map_pieces
from warrenmq.trace.reader import require_header, trace_files


class NamedBatches:
    """Job of `map_pieces`: the public rows."""

    def __init__(self, names: Sequence[Names], unpack: Pieces) -> None:
        self._names = names
        self._unpack = unpack

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        return named_batches(self._names, self._unpack(batches))


def read(
    spark: SparkSession,
    *paths: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    only: Conditions | None = None,
) -> DataFrame:
    """The rows of a trace, with names; only some `columns`, and only rows that fulfil conditions (only.py), if they are given.

    Of files that Python can open it is the data source that reads, so blocks without such rows are passed over.  Other
    addresses (object storage) go through Spark's own readers, and every block is unpacked.
    """
    names = [os.fspath(path) for path in paths]
    schema = DDL if columns is None else ", ".join(f"{name} {_type_of(name)}" for name in columns)
    chosen = Only.of(only or {})
    if not all(urlsplit(name).scheme in {"", "file"} for name in names):
        rows = read_through_spark(spark, *names)
        for name, (first, last) in chosen.ranges.items():
            rows = rows.where(sf.col(name).between(first, last))
        for name, values in chosen.names.items():
            rows = rows.where(sf.col(name).isin(values))
        return rows.select(*(columns or "*"))
    require_header(file for name in names for file in trace_files(local_name(name)))
    register(spark)
    return (
        spark.read.schema(schema)
        .format(TraceSource.name())
        .option("only", chosen.as_option())
        .load([os.path.abspath(local_name(name)) for name in names])
    )


def _type_of(column: str) -> str:
    if column not in TYPES:
        raise CallerError(f"a trace has no column {column!r}; it has {DDL}.")
    return TYPES[column]


def read_through_spark(spark: SparkSession, *paths: str) -> DataFrame:
    """Read all rows of a trace from any file system that Spark reads."""
    trace = index_trace(spark, *paths)
    return map_pieces(spark, trace, partial(NamedBatches, names_of(trace.catalog)), DDL)


_registered: WeakSet[SparkSession] = WeakSet()
"""Sessions that know the source: Spark warns when one is registered twice."""


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("warrenmq-trace")` and `readStream` of it known to a Spark session."""
    if spark not in _registered:
        spark.dataSource.register(TraceSource)
        _registered.add(spark)
