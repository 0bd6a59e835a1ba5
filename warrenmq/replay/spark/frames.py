"""The public DataFrame of a trace, with names (columns: arrow_rows.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import NullType, NumericType, StringType

from warrenmq.errors import CallerError
from warrenmq.replay.drive.stretches import Stretch, stretches_of
from warrenmq.replay.spark.addresses import Paths, is_of_spark, listed, local_name
from warrenmq.replay.spark.arrow_rows import COLUMNS, DDL, TYPES, Names, named_batches, names_of
from warrenmq.replay.spark.datasource import TraceSource, require_each_once
from warrenmq.replay.spark.failures import told_in_a_sentence
from warrenmq.replay.spark.only import EVERYTHING, Conditions, Only
from warrenmq.replay.spark.source import Batches, Pieces, TraceIndex, index_trace, map_pieces
from warrenmq.replay.spark.workers import require_workers
from warrenmq.trace.reader import open_trace, require_header, trace_files
from warrenmq.trace.schema import EVENTS


def name_pieces(
    names: Sequence[Names], columns: Sequence[str], unpack: Pieces, given: Batches
) -> Iterator[pa.RecordBatch]:
    """Job of `map_pieces`: the public rows, with these columns."""
    return named_batches(names, unpack(given), columns)


Scan = Callable[[Sequence[str], Only], DataFrame]
"""Reads some columns of the rows that fulfil conditions."""


class Read(NamedTuple):
    """The way in which a DataFrame is read, and from where."""

    scan: Scan
    only: Only
    paths: list[str]
    files: list[str] | None
    """The paths; None if only Spark reads them: their index does not keep where each frame begins."""


def read(
    spark: SparkSession, *paths: Paths, columns: Sequence[str] | None = None, only: Conditions | None = None
) -> DataFrame:
    """The rows of a trace, with names; only some `columns`, and only rows that fulfil conditions (only.py),
    if they are given.

    Of files that Python can open it is the data source that reads, so blocks without such rows are passed over.  Other
    addresses (object storage) go through Spark's own readers, and every block is unpacked.
    """
    names = listed(paths)
    if not names:
        raise CallerError('say which trace: read(spark, "trace/").')
    chosen = Only.of(only or {})
    scan: Scan
    files: list[str] | None = None
    with told_in_a_sentence():
        if not any(is_of_spark(local_name(name)) for name in names):
            require_header(file for name in names for file in trace_files(local_name(name)))
            files = [os.path.abspath(local_name(name)) for name in names]
            _require_python(spark, files)
            scan = partial(_scan_files, spark, files)
        else:
            scan = partial(scan_through_spark, spark, index_trace(spark, *names))
        rows = scan(columns or COLUMNS, chosen)
    _scans[rows] = Read(scan, chosen, files or names, files)
    return rows


def narrowed(rows: DataFrame, columns: Collection[str], events: Collection[int] | None = None) -> DataFrame:
    """Select columns of the rows of some events, or of all.

    Spark pushes no columns into a Python data source.  So a DataFrame that `read` gave, and that is not kept
    in memory, is read anew, without the other columns and events; any other is selected from, and has the
    types of a trace again, which a CSV file made strings.
    """
    ordered = [name for name in COLUMNS if name in columns]
    if lacking := [name for name in ordered if name not in rows.columns]:
        raise CallerError(
            f"these are no rows of a trace as warrenmq.replay.read gives them: they have no column {', '.join(lacking)}."
        )
    if _is_as_read(rows) and set(ordered) <= set(rows.columns):
        scan, only, *_ = _scans[rows]
        chosen = only if events is None else only.of_events(EVENTS[each].name for each in sorted(events))
        with told_in_a_sentence():
            return scan(ordered, chosen)
    for name in ordered:
        kind = rows.schema[name].dataType
        if TYPES[name] == "long" and not isinstance(kind, NumericType | StringType | NullType):
            raise CallerError(
                f"these are no rows of a trace as warrenmq.replay.read gives them: {name} is a {kind.simpleString()}, no bigint; "
                "give what you made of a column another name."
            )
    with told_in_a_sentence():
        return rows.select(*(sf.col(name).cast(TYPES[name]).alias(name) for name in ordered))


def refuse_stream(rows: DataFrame, remedy: str) -> None:
    """Raise CallerError for the rows of a stream, of which nothing can be said before their end."""
    if rows.isStreaming:
        raise CallerError(f"these rows are a stream, which has no end: {remedy}.")


def whole_trace(rows: DataFrame) -> list[str] | None:
    """The paths of the traces that these are all rows of, as `read` gave them; else None."""
    if not _is_as_read(rows) or set(rows.columns) != set(COLUMNS):
        return None
    read_as = _scans[rows]
    return read_as.paths if read_as.only == EVERYTHING else None


def stretches(rows: DataFrame) -> list[Stretch] | None:
    """The rows of each actor that are there (stretches.py), of a DataFrame that `read` gave without conditions; else None.

    The driver reads them itself: a data source would do the same in a process that Spark starts for it.
    """
    if not _is_as_read(rows) or _scans[rows].only != EVERYTHING:
        return None
    files = _scans[rows].files
    if files is None:
        return None
    with open_trace(*files) as trace:
        return list(stretches_of(trace.catalog))


def _is_as_read(rows: DataFrame) -> bool:
    return rows in _scans and rows.storageLevel == StorageLevel.NONE


_scans: WeakKeyDictionary[DataFrame, Read] = WeakKeyDictionary()
"""The DataFrames that `read` gave."""


def _scan_files(spark: SparkSession, paths: list[str], columns: Sequence[str], only: Only) -> DataFrame:
    return (
        spark.read.schema(_schema(columns))
        .format(TraceSource.name())
        .option("only", only.as_option())
        .load(paths)
    )


def scan_through_spark(
    spark: SparkSession, trace: TraceIndex, columns: Sequence[str] = COLUMNS, only: Only = EVERYTHING
) -> DataFrame:
    """Read rows of a trace from any file system that Spark reads."""
    asked = [name for name in COLUMNS if name in columns or name in only.ranges or name in only.names]
    rows = map_pieces(spark, trace, partial(name_pieces, names_of(trace.catalog), asked), _schema(asked))
    for name, (first, last) in only.ranges.items():
        rows = rows.where(sf.col(name).between(first, last))
    for name, values in only.names.items():
        rows = rows.where(sf.col(name).isin(values))
    return rows.select(*columns)


def _schema(columns: Sequence[str]) -> str:
    for name in columns:
        if name not in TYPES:
            raise CallerError(f"a trace has no column {name!r}; it has {DDL}.")
    require_each_once(columns)
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def _require_python(spark: SparkSession, files: list[str]) -> None:
    """Register the source, and have Spark start its Pythons once a session, as the caller's action would not
    say what is wrong in a sentence.
    """
    register(spark)
    if spark not in _planned:
        _ = spark.read.format(TraceSource.name()).load(files[:1]).schema
        _planned.add(spark)
    require_workers(spark)


_registered: WeakSet[SparkSession] = WeakSet()
"""Sessions that know the source: Spark warns when one is registered twice."""
_planned: WeakSet[SparkSession] = WeakSet()
"""Sessions whose driver has started a Python for it."""


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("warrenmq-trace")` and `readStream` of it known to a Spark session."""
    if spark not in _registered:
        # Spark looks for another source of this name in the active session, whichever registers one; this makes it active.
        spark.createDataFrame([], "nothing int")
        spark.dataSource.register(TraceSource)
        _registered.add(spark)
