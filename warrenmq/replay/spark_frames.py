"""The public DataFrame of a trace, with names (columns: arrow_rows.py), and the data source `warrenmq-trace`."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from warrenmq.replay.arrow_rows import DDL, Names, Piece, named_batches, names_of
from warrenmq.replay.spark_source import Batches, Pieces, local_name, look, map_pieces
from warrenmq.trace.block import decode_columns, frame_at, raw_columns
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.reader import open_trace

PART_PIECES = 512
"""Pieces in one partition of the data source: half a million rows."""


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


@dataclass
class Part(InputPartition):
    """Pieces of one file, some BATCH_ROWS rows of them at a time."""

    names: list[Names]
    chunks: list[Chunk]


class TraceSource(DataSource):
    """`spark.read.format("warrenmq-trace").load(path)`.

    It reads with Python's own `open`, so on a cluster the path must be mounted on every worker.
    """

    @classmethod
    def name(cls) -> str:
        return "warrenmq-trace"

    def schema(self) -> str:
        return DDL

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 - always the same columns
        return TraceReader(self.options["path"])


class TraceReader(DataSourceReader):
    """Plans and reads the parts of a trace."""

    def __init__(self, path: str) -> None:
        self._path = local_name(path)

    def partitions(self) -> Sequence[InputPartition]:
        with open_trace(self._path) as trace:
            names = names_of(trace.catalog)
            parts = []
            for _, chunks in groupby(trace.catalog.chunks, key=lambda chunk: (chunk.run, chunk.file)):
                of_file = list(chunks)
                step = PART_PIECES
                parts += [Part(names, of_file[at : at + step]) for at in range(0, len(of_file), step)]
            return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return named_batches(partition.names, _pieces(partition.chunks))


def _pieces(chunks: Sequence[Chunk]) -> Iterator[Piece]:
    with open(chunks[0].file, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        data = memoryview(mapped)
        for chunk in chunks:
            frame = None if chunk.raw else frame_at(data, chunk.offset)
            if chunk.raw:
                yield chunk, raw_columns(chunk.raw)
            elif frame is not None:
                yield chunk, decode_columns(frame)
                frame.payload.release()
        data.release()


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("warrenmq-trace")` known to a Spark session."""
    spark.dataSource.register(TraceSource)
