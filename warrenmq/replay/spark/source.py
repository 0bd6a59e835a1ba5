"""A trace in Spark: its catalogue and its pieces.

All files are read through Spark's `binaryFile`, so that whatever Spark can read (a folder, a volume, object
storage) can hold a trace and no executor needs to open a file.  First each task indexes its files, and one
task makes the catalogue of the small results, which is all that the driver collects; local files of up to 128
MiB the driver indexes sooner than a job begins.  Then each task unpacks its blocks piece by piece, for
whatever job reads them.  The rows that killed runs left in slab files are in the catalogue, and go back to
the tasks as they are.

A file may be large, so its frames are dealt out in blocks: the bytes that go from one task to another are as
they were stored, some five a row.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from warrenmq.replay.spark.addresses import is_of_spark, listed, load, local_name
from warrenmq.replay.spark.arrow_rows import Piece
from warrenmq.replay.spark.jobs import described
from warrenmq.replay.spark.partitions import ROWS_OF_PIECES, partitions
from warrenmq.replay.spark.stage_columns import batches
from warrenmq.trace.block import Kind, next_frame, raw_columns
from warrenmq.trace.catalog import Catalog, Chunk, build_catalog
from warrenmq.trace.index import NO_HEADER, FileIndex, index_file, joined, unread_file
from warrenmq.trace.reader import is_named_as_trace, mapped, named_by, require_runs, trace_files
from warrenmq.trace.segment import SEGMENT_SUFFIX, decode_header
from warrenmq.trace.slab import SLAB_SUFFIX

_BLOCKS = pa.schema([
    ("run", pa.int32()), ("file", pa.string()), ("offset", pa.int64()), ("place", pa.int32()), ("frames", pa.binary()),
])  # fmt: skip
_INDEX = pa.schema([
    ("file", pa.string()), ("bytes", pa.int64()), ("rows", pa.int64()), ("damaged", pa.int32()), ("index", pa.binary()),
])  # fmt: skip
_CATALOGUE = pa.schema([("trace", pa.binary())])
BLOCK_ROWS = ROWS_OF_PIECES
"""Rows of a block, which is a task: some 3 MB, and a unit (drive/columns.py)."""
SHORT_BYTES = 1 << 27
"""Local files that are indexed in the driver: some twenty million rows, in half a second."""
Batches = Iterable[pa.RecordBatch]
Pieces = Callable[[Batches], Iterator[Piece]]
"""Cuts what a task is given into pieces; the job decodes what it needs of them."""
Job = Callable[[Pieces, Batches], Iterator[pa.RecordBatch]]
"""The function that a task applies to its pieces; it goes to the workers by value."""


@dataclass(frozen=True)
class TraceIndex:
    """The catalogue of a trace, and its files."""

    paths: list[str]
    catalog: Catalog
    """The catalog; of its pieces only those from slab files are kept."""
    sizes: dict[str, int]
    """Bytes of each file when it was looked at: a live trace grows, and is read up to there."""
    rows: Counter[str]
    """Rows of each segment file."""


def index_trace(spark: SparkSession, *paths: str | os.PathLike[str]) -> TraceIndex:
    """Index every file; raises NotATrace when there is nothing to read."""
    names = [name for path in listed(paths) for name in _checked(path)]
    of_spark = [name for name in names if is_of_spark(name)]
    found = [file for name in names if name not in of_spark for file in trace_files(name)]
    local = list(dict.fromkeys(found))
    with ExitStack() as opened:
        files, unread = mapped(filter(is_named_as_trace, local), opened)
        unread += [
            unread_file(name, "Spark reads no file of this name")
            for name in local
            if not is_named_as_trace(name)
        ]
        if unread or len(local) < len(found):  # Spark would fail at them, or read some twice
            names = [*of_spark, *files]
        if not of_spark and sum(map(len, files.values())) <= SHORT_BYTES:
            trace = trace_index(names, [*(index_file(*file) for file in files.items()), *unread])
        else:
            trace = _index(spark, names, unread, by_piece=False)
            if trace.catalog.overlaps:  # they are named piece by piece
                trace = _index(spark, names, unread, by_piece=True)
    require_runs(trace.catalog, names)
    return trace


def _index(
    spark: SparkSession, names: list[str], unread: Sequence[FileIndex], *, by_piece: bool
) -> TraceIndex:
    files = _files(spark, names)
    there = [local_name(unquote(name)) for name in files.inputFiles()]
    entries = files.mapInArrow(partial(index_files, by_piece), from_arrow_schema(_INDEX))
    together = partial(put_together, names, there, unread)
    whole = entries.repartition(1).mapInArrow(together, from_arrow_schema(_CATALOGUE))
    with described(spark, "index the files of the trace"):
        found = whole.collect()
    if found:
        trace: TraceIndex = pickle.loads(bytes(found[0]["trace"]))  # noqa: S301 - our own task's
        return trace
    return _whole_trace(names, there, unread, [])


def trace_index(names: list[str], indexes: Sequence[FileIndex]) -> TraceIndex:
    """The files of a trace put together."""
    catalog = build_catalog(indexes)
    copies = {name for name, _ in catalog.copies}
    sizes = {index.name: index.size for index in indexes if index.name not in copies}
    rows: Counter[str] = Counter()
    for chunk in catalog.chunks:
        if not chunk.raw:
            rows[chunk.file] += chunk.rows
    catalog.chunks = [chunk for chunk in catalog.chunks if chunk.raw]
    return TraceIndex(names, catalog, sizes, rows)


def map_pieces(spark: SparkSession, trace: TraceIndex, job: Job, ddl: str | StructType) -> DataFrame:
    """Run a job over the pieces of a trace, each piece once."""
    numbers = {(run.name, run.node, run.pid): number for number, run in enumerate(trace.catalog.runs)}
    places, tasks = _places(trace)
    cut = partial(cut_blocks, numbers, trace.sizes, places)
    blocks = _files(spark, trace.paths).mapInArrow(cut, from_arrow_schema(_BLOCKS))
    mapped = blocks.repartitionById(tasks, sf.col("place") % tasks).mapInArrow(
        partial(job, block_pieces), ddl
    )
    slabs = [pickle.dumps(chunk) for chunk in trace.catalog.chunks]
    if slabs:
        sent = spark.createDataFrame(pa.table({"piece": pa.array(slabs, pa.binary())}))
        rows = sum(chunk.rows for chunk in trace.catalog.chunks)
        sent = sent.coalesce(partitions(rows, ROWS_OF_PIECES))  # else as many as the cluster has cores
        mapped = mapped.union(sent.mapInArrow(partial(job, slab_pieces), ddl))
    return mapped


def _places(trace: TraceIndex) -> tuple[dict[str, int], int]:
    """The task of each file's first block, and the number of tasks; small files share one."""
    places, before = {}, 0
    for name in sorted(trace.sizes):
        places[name] = before // BLOCK_ROWS
        before += trace.rows[name]
    return places, max(-(-before // BLOCK_ROWS), 1)


def cut_blocks(
    runs: Mapping[tuple[str, str, int], int],
    sizes: Mapping[str, int],
    places: Mapping[str, int],
    given: Batches,
) -> Iterator[pa.RecordBatch]:
    """Cut (path, content of a trace file) into blocks of whole frames, each a batch of its own: it is large."""
    for batch in given:
        for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
            name = local_name(path.as_py())
            if name in sizes and not name.endswith(SLAB_SUFFIX):
                for block in _blocks(name, memoryview(content.as_py())[: sizes[name]], runs, places[name]):
                    yield from batches([block], _BLOCKS)


def _blocks(
    name: str, data: memoryview, runs: Mapping[tuple[str, str, int], int], place: int
) -> Iterator[tuple[Any, ...]]:
    head = decode_header(data)
    if head is None:
        return
    header, begin = head
    run = runs[header["run"], header["node"], header["pid"]]
    offset, rows = begin, 0
    while True:
        frame = next_frame(data, offset)
        if frame is None or rows >= BLOCK_ROWS:
            if offset > begin:
                yield run, name, begin, place, bytes(data[begin:offset])
            begin, rows, place = offset, 0, place + 1
        if frame is None:
            return
        offset = frame.end
        rows += frame.rows


def block_pieces(given: Batches) -> Iterator[Piece]:
    """The pieces of batches of blocks."""
    for batch in given:
        for run, file, begin, _, content in zip(*batch.columns, strict=True):
            data = memoryview(content.as_py())
            offset = 0
            while (frame := next_frame(data, offset)) is not None:
                if frame.kind == Kind.ROWS:
                    yield Chunk.of(run.as_py(), frame, file.as_py(), begin.as_py() + frame.offset), frame
                offset = frame.end


def slab_pieces(given: Batches) -> Iterator[Piece]:
    """The pieces of batches that the driver sent."""
    for batch in given:
        for sent in batch.column(0):
            chunk: Chunk = pickle.loads(sent.as_py())  # noqa: S301 - our own driver's
            yield chunk, raw_columns(chunk.raw)


def index_files(by_piece: bool, given: Batches) -> Iterator[pa.RecordBatch]:
    """Index (path, content) of trace files; consecutive pieces of an actor count as one unless they are wanted."""
    for batch in given:
        for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
            index = index_file(local_name(path.as_py()), memoryview(content.as_py()))
            if not by_piece:
                index.frames = joined(index.frames)
            rows = sum(frame.rows for frame in index.frames)
            yield from batches(
                [(index.name, index.size, rows, len(index.damage), pickle.dumps(index))], _INDEX
            )


def put_together(
    names: list[str], listed: list[str], unread: Sequence[FileIndex], given: Batches
) -> Iterator[pa.RecordBatch]:
    """Put the indexes of all files together, as one row: what the driver collects grows with the actors, not with pieces."""
    indexes = [pickle.loads(index.as_py()) for batch in given for index in batch.column("index")]  # noqa: S301 - our own tasks'
    if indexes:
        trace = pickle.dumps(_whole_trace(names, listed, unread, indexes))
        yield pa.RecordBatch.from_arrays([pa.array([trace], pa.binary())], schema=_CATALOGUE)


def _whole_trace(
    names: list[str], listed: list[str], unread: Sequence[FileIndex], indexes: Sequence[FileIndex]
) -> TraceIndex:
    """The trace of these files, of those that were not read, and of those that Spark lists and, as they are
    empty, does not read.
    """
    read = {index.name for index in indexes}
    empty = [unread_file(name, NO_HEADER) for name in listed if name not in read]
    return trace_index(names, [*indexes, *empty, *unread])


def _checked(path: str) -> list[str]:
    """Paths that do not depend on where this process is; local ones are checked first, so that errors are in our words."""
    if is_of_spark(path):
        return [path]
    trace_files(path)
    return list(map(os.path.abspath, named_by(path)))


def _files(spark: SparkSession, paths: list[str]) -> DataFrame:
    """One row a trace file: its path and its bytes."""
    wanted = f"*{{{SEGMENT_SUFFIX},{SLAB_SUFFIX}}}"
    return load(spark.read.format("binaryFile").option("pathGlobFilter", wanted), paths).select(
        "path", "content"
    )
