"""A trace as a DataFrame of plain numbers.

Two looks at the files, both through Spark's `binaryFile`, so that whatever Spark can read (a folder, a volume, object
storage) can hold a trace and no executor needs to open a file:

1. `load_catalog`: each task indexes its files, the driver puts the small results together: runs, actors, what is
   missing.
2. `load_rows`: each task unpacks its files into Arrow batches.

Nothing here sends a Python object per row anywhere: columns of a frame become columns of a batch.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from warrenmq.trace.block import ROW, Kind, decode_columns, next_frame, raw_columns
from warrenmq.trace.catalog import Catalog, build_catalog
from warrenmq.trace.index import FileIndex, index_file
from warrenmq.trace.reader import NotATrace, trace_files
from warrenmq.trace.segment import SEGMENT_SUFFIX, decode_header
from warrenmq.trace.slab import SLAB_SUFFIX, read_slabs

ROWS_DDL = (
    "run int, actor int, event int, flag int, t long, seq long, "
    "msg long, peer long, pseq long, a long, b long, c long"
)
ROWS_ARROW = pa.schema(
    [(name, pa.int32()) for name in ("run", "actor", "event", "flag")]
    + [(name, pa.int64()) for name in ("t", "seq", "msg", "peer", "pseq", "a", "b", "c")]
)
BATCH_ROWS = 65_536

RunKey = tuple[str, str, int]
"""run, node and pid in a file's header: what names a run."""

Stored = Mapping[tuple[int, int], int]
"""The last seq that an actor of a run has in segment files: what a slab file repeats up to there is left out."""


def load_catalog(spark: SparkSession, path: str | Sequence[str]) -> Catalog:
    """What the trace holds; raises NotATrace when that is nothing."""
    found = _files(spark, path).mapInArrow(_index_batches, "found binary").collect()
    indexes: list[FileIndex] = [pickle.loads(bytes(row["found"])) for row in found]  # noqa: S301 - of our own tasks
    catalog = build_catalog(sorted(indexes, key=lambda index: index.name))
    if not catalog.runs:
        raise NotATrace(f"{path} is no trace: no file in it begins with a whole header.")
    return catalog


def load_rows(spark: SparkSession, path: str | Sequence[str], catalog: Catalog) -> DataFrame:
    """Every row of the trace, once, as ROWS_DDL; `run` is an index into `catalog.runs`."""
    decoder = Decoder(run_numbers(catalog), stored_rows(catalog))
    return _files(spark, path).mapInArrow(decoder.batches, ROWS_DDL)


def run_numbers(catalog: Catalog) -> dict[RunKey, int]:
    return {(run.name, run.node, run.pid): number for number, run in enumerate(catalog.runs)}


def stored_rows(catalog: Catalog) -> dict[tuple[int, int], int]:
    """Only runs that left a slab file need it."""
    killed = {chunk.run for chunk in catalog.chunks if chunk.offset < 0}
    last: dict[tuple[int, int], int] = {}
    for chunk in catalog.chunks:
        if chunk.run in killed and chunk.offset >= 0:
            key = (chunk.run, chunk.actor)
            last[key] = max(last.get(key, 0), chunk.seq_end - 1)
    return last


class Decoder:
    """Bytes of trace files to Arrow batches of rows; goes to the workers by value."""

    def __init__(self, runs: Mapping[RunKey, int], stored: Stored) -> None:
        self._runs = dict(runs)
        self._stored = dict(stored)

    def batches(self, files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow` on a DataFrame of `path` and `content`."""
        for batch in files:
            for name, content in zip(batch.column("path"), batch.column("content"), strict=True):
                yield from self.decode(name.as_py(), memoryview(content.as_py()))

    def decode(self, name: str, data: memoryview) -> Iterator[pa.RecordBatch]:
        """The rows of one file."""
        head = decode_header(data)
        if head is None:
            return
        header, offset = head
        run = self._runs[header["run"], header["node"], header["pid"]]
        pieces = self._slabs(run, data) if name.endswith(SLAB_SUFFIX) else _frames(data, offset)
        pending: list[list[memoryview]] = []
        rows = 0
        for columns in pieces:
            pending.append(columns)
            rows += len(columns[0])
            if rows >= BATCH_ROWS:
                yield _batch(run, pending, rows)
                pending, rows = [], 0
        if rows:
            yield _batch(run, pending, rows)

    def _slabs(self, run: int, data: memoryview) -> Iterator[list[memoryview]]:
        content = read_slabs(data)
        for actor, raw in (content.rows if content else {}).items():
            stored = self._stored.get((run, actor), 0)
            kept = b"".join(
                raw[at : at + ROW.size]
                for at in range(0, len(raw), ROW.size)
                if ROW.unpack_from(raw, at)[1] > stored
            )
            if kept:
                yield raw_columns(kept)


def _frames(data: memoryview, offset: int) -> Iterator[list[memoryview]]:
    while (frame := next_frame(data, offset)) is not None:
        if frame.kind == Kind.ROWS:
            yield decode_columns(frame)
        offset = frame.end


def _batch(run: int, pieces: Sequence[Sequence[memoryview]], rows: int) -> pa.RecordBatch:
    columns = [
        pa.Array.from_buffers(
            pa.int64(), rows, [None, pa.py_buffer(b"".join(piece[index] for piece in pieces))]
        )
        for index in range(9)
    ]
    t, seq, msg, peer, pseq, a, b, c, who = columns
    event = pc.bit_wise_and(pc.shift_right(who, 8), 0xFF)
    small = [
        pa.repeat(pa.scalar(run, pa.int32()), rows),
        pc.shift_right(who, 16).cast(pa.int32()),
        event.cast(pa.int32()),
        pc.bit_wise_and(who, 0xFF).cast(pa.int32()),
    ]
    return pa.RecordBatch.from_arrays([*small, t, seq, msg, peer, pseq, a, b, c], schema=ROWS_ARROW)


def _index_batches(files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in files:
        found = [
            pickle.dumps(index_file(local_name(name.as_py()), memoryview(content.as_py())))
            for name, content in zip(batch.column("path"), batch.column("content"), strict=True)
        ]
        yield pa.RecordBatch.from_arrays([pa.array(found, pa.binary())], ["found"])


def local_name(name: str) -> str:
    """`file:/x` as /x; other addresses as they are."""
    return urlsplit(name).path if name.startswith("file:") else name


def _files(spark: SparkSession, path: str | Sequence[str]) -> DataFrame:
    """One row a trace file: its path and its bytes."""
    paths = [path] if isinstance(path, str) else list(path)
    for each in paths:
        if not urlsplit(each).scheme:
            trace_files(each)  # says in our words what is wrong with a local path
    local = [os.path.abspath(each) if not urlsplit(each).scheme else each for each in paths]
    reader = spark.read.format("binaryFile").option("pathGlobFilter", f"*{{{SEGMENT_SUFFIX},{SLAB_SUFFIX}}}")
    return reader.load(local).select("path", "content")
