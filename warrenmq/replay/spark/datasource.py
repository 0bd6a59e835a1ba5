"""The data source `warrenmq-trace`, of Spark's Python Data Source API; as a stream: replay/spark/stream.py.

    spark.read.format("warrenmq-trace").load(["a/", "b/"])                     the public rows (arrow_rows.py)
    spark.read.schema("t long, ev string").format(...).load("a/")              only these columns are unpacked
    spark.read.format(...).option("report", "damage").load("a/")               what is missing or damaged (damage.py)
    spark.read.format(...).option("report", "stretches").load("a/")            which rows of each actor are there (stretches.py)

It reads with Python's own `open`, so on a cluster a path must be mounted on every worker;
`warrenmq.replay.read` reads whatever Spark itself can.  A task takes some hundred blocks, so a large segment
is many tasks, and many small files are one.

option("only", ...) is a JSON object of conditions on t, seq, run, actor, kind and ev: blocks that can hold no
such rows are not read (only.py).  The API tells a source nothing of the columns that a query selects, so
`select` alone prunes none: a schema does.
"""

from __future__ import annotations

import json
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from warrenmq.errors import CallerError
from warrenmq.replay.drive import damage, stretches
from warrenmq.replay.spark.addresses import local_name
from warrenmq.replay.spark.arrow_rows import (
    DDL,
    PART_PIECES,
    Names,
    Piece,
    chosen_batches,
    may_hold,
    names_of,
)
from warrenmq.replay.spark.only import Only
from warrenmq.trace.block import Kind, next_frame, raw_columns
from warrenmq.trace.catalog import Catalog, Chunk
from warrenmq.trace.reader import is_address, open_trace, trace_files

_TABLES: dict[str, tuple[str, Callable[[Catalog, list[str]], Iterable[tuple[Any, ...]]]]] = {
    "damage": (damage.DDL, damage.damage_rows),
    "stretches": (stretches.DDL, lambda catalog, _: stretches.stretches_of(catalog)),
}
"""Small tables that the driver makes of a whole trace: their columns, and their rows from its catalogue and
the names of its files.
"""
_REPORTS = ("rows", *_TABLES)


class FrameRange(NamedTuple):
    """Frames of rows that follow each other in a file."""

    offset: int
    frames: int


class FilePart(NamedTuple):
    """A part of a file: which frames of rows are wanted, not one by one."""

    run: int
    names: Names
    file: str
    ranges: list[FrameRange]
    slabs: list[Chunk]
    """Pieces of a slab file, with their rows."""


@dataclass
class FileParts(InputPartition):
    """A part of a large file, or parts of small ones: a task costs more than to read one of these."""

    parts: list[FilePart]


@dataclass
class TablePart(InputPartition):
    """A whole table that the driver has made."""

    rows: list[tuple[Any, ...]]


class TraceSource(DataSource):
    """Spark's name, schema and readers of the source."""

    @classmethod
    def name(cls) -> str:
        return "warrenmq-trace"

    def schema(self) -> str:
        for path in self._paths():
            trace_files(path)  # NotATrace here is said by `load` already
        return self._ddl()

    def reader(self, schema: Any) -> DataSourceReader:
        paths, columns = self._paths(), columns_of(schema, self._ddl())
        if (report := self._report()) in _TABLES:
            return TableReader(paths, report, columns)
        return TraceReader(paths, columns, self._only())

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from warrenmq.replay.spark.stream import TraceStream

        if self._report() != "rows":
            raise CallerError(
                'a stream gives rows only; read the damage with spark.read and option("report", "damage").'
            )
        return TraceStream(self._paths(), columns_of(schema, self._ddl()), self._only())

    def _paths(self) -> list[str]:
        several = self.options.get("paths")
        paths = (
            json.loads(several)
            if several
            else [self.options[name] for name in ("path",) if name in self.options]
        )
        if not paths:
            raise CallerError('say which trace: spark.read.format("warrenmq-trace").load("trace/").')
        for path in paths:
            if is_address(local_name(path)):
                raise CallerError(
                    f"{path}: this source reads files that are mounted on every worker; warrenmq.replay.read(spark, path) "
                    "reads whatever Spark can."
                )
        return [os.path.abspath(local_name(path)) for path in paths]

    def _ddl(self) -> str:
        return DDL if (report := self._report()) == "rows" else _TABLES[report][0]

    def _only(self) -> Only:
        return Only.from_option(self.options.get("only", "{}"))

    def _report(self) -> str:
        report = self.options.get("report", "rows")
        if report not in _REPORTS:
            raise CallerError(f'option("report", ...) is one of {", ".join(_REPORTS)}, not {report!r}.')
        return str(report)


def columns_of(schema: Any, ddl: str) -> list[str]:
    """The columns of a schema that the user may have given: some of the source's, in any order."""
    there = dict(each.replace("`", "").split(" ") for each in ddl.split(", "))
    for field in schema.fields:
        kind = {"bigint": "long"}.get(field.dataType.simpleString(), field.dataType.simpleString())
        if there.get(field.name) != kind:
            raise CallerError(f"a trace has no column {field.name} {kind}; it has {ddl}.")
        if not field.nullable:
            raise CallerError(
                f"to Spark every column of a trace may be null: leave NOT NULL of {field.name} away."
            )
    require_each_once(schema.names)
    return list(schema.names)


def require_each_once(columns: Sequence[str]) -> None:
    """Raise CallerError for a column that is named twice, whose values Spark could not tell apart."""
    if twice := [name for name, times in Counter(columns).items() if times > 1]:
        raise CallerError(f"the column {twice[0]} is named twice; name each once.")


class TraceReader(DataSourceReader):
    """Plans and reads the parts of a trace."""

    def __init__(self, paths: Sequence[str], columns: Sequence[str], only: Only) -> None:
        self._paths = paths
        self._columns = columns
        self._only = only

    def partitions(self) -> Sequence[InputPartition]:
        with open_trace(*self._paths) as trace:
            names = names_of(trace.catalog)
            planned: list[InputPartition] = []
            parts: list[FilePart] = []
            pieces = 0
            for (run, file), group in groupby(
                trace.catalog.chunks, key=lambda chunk: (chunk.run, chunk.file)
            ):
                chunks = enumerate(group)
                wanted = [(at, chunk) for at, chunk in chunks if may_hold(chunk, names[run].run, self._only)]
                for at in range(0, len(wanted), PART_PIECES):
                    its = wanted[at : at + PART_PIECES]
                    slabs = [chunk for _, chunk in its if chunk.raw]
                    if not planned or pieces + len(its) > PART_PIECES:
                        parts, pieces = [], 0
                        planned.append(FileParts(parts))
                    parts.append(FilePart(run, names[run], file, [] if slabs else _ranges(its), slabs))
                    pieces += len(its)
            return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FileParts):  # Spark asks for one part even when there are none
            return
        for part in partition.parts:
            yield from chosen_batches({part.run: part.names}, _pieces(part), self._columns, self._only)


class TableReader(DataSourceReader):
    """Reads one of the tables of a trace."""

    def __init__(self, paths: Sequence[str], report: str, columns: Sequence[str]) -> None:
        self._paths = paths
        self._report = report
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        with open_trace(*self._paths) as trace:
            files = [name for path in self._paths for name in trace_files(path)]
            rows = _TABLES[self._report][1](trace.catalog, files)
            return [TablePart([tuple(getattr(row, name) for name in self._columns) for row in rows])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, TablePart)
        return iter(partition.rows)


def _ranges(chunks: Iterable[tuple[int, Chunk]]) -> list[FrameRange]:
    """Numbered pieces of a file -> those with consecutive numbers together."""
    ranges: list[FrameRange] = []
    before = -2
    for number, chunk in chunks:
        if number == before + 1:
            ranges[-1] = FrameRange(ranges[-1].offset, ranges[-1].frames + 1)
        else:
            ranges.append(FrameRange(chunk.offset, 1))
        before = number
    return ranges


def _pieces(part: FilePart) -> Iterator[Piece]:
    for slab in part.slabs:
        yield slab, raw_columns(slab.raw)
    if not part.ranges:
        return
    with open(part.file, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        data = memoryview(mapped)
        for each in part.ranges:
            offset, left = each
            while left and (frame := next_frame(data, offset)) is not None:
                if frame.kind == Kind.ROWS:
                    chunk = Chunk.of(part.run, frame, part.file, frame.offset)
                    # A copy of its bytes, as a batch is made of many pieces, and the map must be closed behind the last.
                    yield chunk, frame._replace(payload=memoryview(bytes(frame.payload)))
                    left -= 1
                offset = frame.end
                frame.payload.release()
        data.release()
