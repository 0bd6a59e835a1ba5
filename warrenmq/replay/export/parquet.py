"""A whole trace as Parquet, for DuckDB, pandas, or Spark far from here: the public rows, as `read` gives them.

One file for each ROWS_PER_FILE rows; zstd.  `check(spark.read.parquet(folder))` comes to the verdict of the trace
itself, because `actor_rows` and `run_actors` say how many rows and actors there should be.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from warrenmq.errors import CallerError
from warrenmq.replay.spark.arrow_rows import SCHEMA, Piece, named_batches, names_of
from warrenmq.trace.reader import Trace

ROWS_PER_FILE = 4_000_000


def write_parquet(trace: Trace, folder: str) -> tuple[int, int]:
    """Write files into `folder`, which is made, or empty; returns how many rows and how many files: one at least,
    since of an empty folder a reader knows no columns.
    """
    os.makedirs(folder, exist_ok=True)
    if os.listdir(folder):
        raise CallerError(f"{folder} is not empty; name a folder of its own for the Parquet files.")
    rows = files = in_file = 0
    writer: pq.ParquetWriter | None = None
    nothing = pa.RecordBatch.from_pylist([], SCHEMA)
    for batch in chain([nothing], named_batches(names_of(trace.catalog), _pieces(trace))):
        if writer is None or in_file >= ROWS_PER_FILE:
            if writer is not None:
                writer.close()
            writer = pq.ParquetWriter(
                os.path.join(folder, f"rows-{files:05d}.parquet"), SCHEMA, compression="zstd"
            )
            files, in_file = files + 1, 0
        writer.write_table(pa.Table.from_batches([batch]))
        rows, in_file = rows + batch.num_rows, in_file + batch.num_rows
    if writer is not None:
        writer.close()
    return rows, files


def _pieces(trace: Trace) -> Iterator[Piece]:
    return ((chunk, trace.stored(chunk)) for chunk in trace.catalog.chunks)
