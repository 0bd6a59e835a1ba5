"""A trace in Spark: its catalogue and its pieces.

All files are read through Spark's `binaryFile`, so that whatever Spark can read (a folder, a volume, object storage)
can hold a trace and no executor needs to open a file.  First each task indexes its files, and one task makes the catalogue of the
small results, which is all that the driver collects; local files of up to 128 MiB the driver indexes sooner than a job begins.  Then each task unpacks its blocks piece by piece, for whatever job reads
them.  The rows that killed runs left in slab files are in the catalogue, and go back to the tasks as they are.

A file may be large, so its frames are dealt out in blocks: the bytes that go from one task to another are as they were stored, some
five a row.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from warrenmq.replay.spark.addresses import for_spark, is_of_spark, local_name
from warrenmq.replay.spark.arrow_rows import Piece
from warrenmq.replay.spark.jobs import described
from warrenmq.replay.spark.partitions import ROWS_OF_PIECES, partitions
from warrenmq.trace.block import Kind, next_frame, raw_columns
from warrenmq.trace.catalog import Catalog, Chunk, build_catalog
from warrenmq.trace.index import NO_HEADER, FileIndex, index_file, joined, unread_file
from warrenmq.trace.reader import is_named_as_trace, mapped, require_runs, trace_files
from warrenmq.trace.segment import SEGMENT_SUFFIX, decode_header
from warrenmq.trace.slab import SLAB_SUFFIX

BLOCKS_DDL = "run int, file string, offset long, place int, frames binary"
_BLOCKS = pa.schema([
    ("run", pa.int32()), ("file", pa.string()), ("offset", pa.int64()), ("place", pa.int32()), ("frames", pa.binary()),
])  # fmt: skip
INDEX_DDL = "file string, bytes long, rows long, damaged int, index binary"
_INDEX = pa.schema([
    ("file", pa.string()), ("bytes", pa.int64()), ("rows", pa.int64()), ("damaged", pa.int32()), ("index", pa.binary()),
])  # fmt: skip
CATALOGUE_DDL = "trace binary"
BLOCK_ROWS = ROWS_OF_PIECES
"""Rows of a block, which is a task: some 3 MB, and a unit (drive/columns.py)."""
SHORT_BYTES = 1 << 27
"""Local files that are indexed in the driver: some twenty million rows, in half a second."""
Batches = Iterable[pa.RecordBatch]
Pieces = Callable[[Batches], Iterator[Piece]]
"""Cuts what a task is given into pieces; the job decodes what it needs of them."""


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
    names = [_checked(os.fspath(path)) for path in paths]
    of_spark = [name for name in names if is_of_spark(name)]
    local = [file for name in names if name not in of_spark for file in trace_files(name)]
    with ExitStack() as opened:
        files, unread = mapped(filter(is_named_as_trace, local), opened)
        unread += [
            unread_file(name, "Spark reads no file of this name")
            for name in local
            if not is_named_as_trace(name)
        ]
        if unread:  # Spark would fail at them
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
    listed = [local_name(unquote(name)) for name in files.inputFiles()]
    together = Catalogue(names, listed, unread)
    entries = files.mapInArrow(IndexFiles(by_piece=by_piece), INDEX_DDL)
    whole = entries.repartition(1).mapInArrow(together, CATALOGUE_DDL)
    with described(spark, "index the files of the trace"):
        found = whole.collect()
    return pickle.loads(bytes(found[0]["trace"])) if found else together.of([])  # noqa: S301 - our own task's


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


def map_pieces(
    spark: SparkSession,
    trace: TraceIndex,
    job: Callable[[Pieces], Callable[[Batches], Iterator[pa.RecordBatch]]],
    ddl: str | StructType,
) -> DataFrame:
    """Run a job over the pieces of a trace, each piece once; job(unpack) is a function for `mapInArrow`."""
    numbers = {(run.name, run.node, run.pid): number for number, run in enumerate(trace.catalog.runs)}
    places, tasks = _places(trace)
    blocks = _files(spark, trace.paths).mapInArrow(CutBlocks(numbers, trace.sizes, places), BLOCKS_DDL)
    mapped = blocks.repartitionById(tasks, sf.col("place") % tasks).mapInArrow(job(block_pieces), ddl)
    slabs = [pickle.dumps(chunk) for chunk in trace.catalog.chunks]
    if slabs:
        sent = spark.createDataFrame(pa.table({"piece": pa.array(slabs, pa.binary())}))
        rows = sum(chunk.rows for chunk in trace.catalog.chunks)
        sent = sent.coalesce(partitions(rows, ROWS_OF_PIECES))  # else as many as the cluster has cores
        mapped = mapped.union(sent.mapInArrow(job(slab_pieces), ddl))
    return mapped


def _places(trace: TraceIndex) -> tuple[dict[str, int], int]:
    """The task of each file's first block, and the number of tasks; small files share one."""
    places, before = {}, 0
    for name in sorted(trace.sizes):
        places[name] = before // BLOCK_ROWS
        before += trace.rows[name]
    return places, max(-(-before // BLOCK_ROWS), 1)


class CutBlocks:
    """Cuts (path, content of a trace file) into blocks of whole frames; goes to the workers by value."""

    def __init__(
        self, runs: dict[tuple[str, str, int], int], sizes: dict[str, int], places: dict[str, int]
    ) -> None:
        self._runs = runs
        self._sizes = sizes
        self._places = places

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
                name = local_name(path.as_py())
                if name in self._sizes and not name.endswith(SLAB_SUFFIX):
                    yield from self._blocks(name, memoryview(content.as_py())[: self._sizes[name]])

    def _blocks(self, name: str, data: memoryview) -> Iterator[pa.RecordBatch]:
        head = decode_header(data)
        if head is None:
            return
        header, begin = head
        run = self._runs[header["run"], header["node"], header["pid"]]
        place = self._places[name]
        offset, rows = begin, 0
        while True:
            frame = next_frame(data, offset)
            if frame is None or rows >= BLOCK_ROWS:
                if offset > begin:
                    columns = [[run], [name], [begin], [place], [bytes(data[begin:offset])]]
                    yield pa.RecordBatch.from_arrays(
                        [pa.array(each, kind) for each, kind in zip(columns, _BLOCKS.types, strict=True)],
                        schema=_BLOCKS,
                    )
                begin, rows, place = offset, 0, place + 1
            if frame is None:
                return
            offset = frame.end
            rows += frame.rows


def block_pieces(batches: Batches) -> Iterator[Piece]:
    """The pieces of batches of blocks."""
    for batch in batches:
        for run, file, begin, _, content in zip(*batch.columns, strict=True):
            data = memoryview(content.as_py())
            offset = 0
            while (frame := next_frame(data, offset)) is not None:
                if frame.kind == Kind.ROWS:
                    chunk = Chunk(
                        run.as_py(), frame.who >> 16, frame.seq_first, frame.rows, frame.t_first, frame.t_last, frame.who,
                        file.as_py(), begin.as_py() + frame.offset,
                    )  # fmt: skip
                    yield chunk, frame
                offset = frame.end


def slab_pieces(batches: Batches) -> Iterator[Piece]:
    """The pieces of batches that the driver sent."""
    for batch in batches:
        for sent in batch.column(0):
            chunk: Chunk = pickle.loads(sent.as_py())  # noqa: S301 - our own driver's
            yield chunk, raw_columns(chunk.raw)


class IndexFiles:
    """Indexes (path, content) of trace files; consecutive pieces of an actor count as one unless they are wanted."""

    def __init__(self, *, by_piece: bool) -> None:
        self._by_piece = by_piece

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
                index = index_file(local_name(path.as_py()), memoryview(content.as_py()))
                if not self._by_piece:
                    index.frames = joined(index.frames)
                rows = sum(frame.rows for frame in index.frames)
                columns = [[index.name], [index.size], [rows], [len(index.damage)], [pickle.dumps(index)]]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(each, kind) for each, kind in zip(columns, _INDEX.types, strict=True)],
                    schema=_INDEX,
                )


class Catalogue:
    """Puts the indexes of all files together, as one row: what the driver collects grows with the actors, not with pieces."""

    def __init__(self, names: list[str], listed: list[str], unread: Sequence[FileIndex]) -> None:
        """`listed`: what Spark finds, though it reads no empty file."""
        self._names = names
        self._listed = listed
        self._unread = unread

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        indexes = [
            pickle.loads(index.as_py())  # noqa: S301 - our own tasks'
            for batch in batches
            for index in batch.column("index")
        ]
        if indexes:
            trace = pickle.dumps(self.of(indexes))
            yield pa.RecordBatch.from_arrays([pa.array([trace], pa.binary())], names=["trace"])

    def of(self, indexes: Sequence[FileIndex]) -> TraceIndex:
        """The trace of these files and of those that were not read."""
        read = {index.name for index in indexes}
        empty = [unread_file(name, NO_HEADER) for name in self._listed if name not in read]
        return trace_index(self._names, [*indexes, *empty, *self._unread])


def _checked(path: str) -> str:
    """A path that does not depend on where this process is; a local one is checked first, so that errors are in our words."""
    if is_of_spark(path):
        return path
    trace_files(path)
    return os.path.abspath(path)


def _files(spark: SparkSession, paths: list[str]) -> DataFrame:
    """One row a trace file: its path and its bytes."""
    wanted = f"*{{{SEGMENT_SUFFIX},{SLAB_SUFFIX}}}"
    return (
        spark.read.format("binaryFile")
        .option("pathGlobFilter", wanted)
        .load([for_spark(path) for path in paths])
        .select("path", "content")
    )
