"""`spark.readStream.format("warrenmq-trace").load(dir)`: the rows of a trace that is still being written, each once.

The offset is a place of trace/tail.py: whole blocks of each segment, and which rows were taken from slabs.
The rows between two offsets are the same whenever they are read, so a query that starts again from its
checkpoint loses nothing and gets nothing twice.  `actor_rows` is null: how many rows an actor will write is
not known yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from warrenmq.replay.spark.arrow_rows import PART_PIECES, Names, chosen_batches
from warrenmq.replay.spark.only import Only
from warrenmq.trace.reader import trace_files
from warrenmq.trace.tail import Part, Place, Tail, read_parts


@dataclass
class StreamPart(InputPartition):
    """Rows of a part of a large file, or of some small ones."""

    names: dict[str, Names]
    """Run -> its names."""
    parts: list[Part]


class TraceStream(DataSourceStreamReader):
    """Lives in the driver; what it plans is read by the workers."""

    def __init__(self, paths: Sequence[str], columns: Sequence[str], only: Only) -> None:
        for path in paths:
            trace_files(path)  # NotATrace
        self._tail = Tail(*paths)
        self._columns = columns
        self._only = only

    def initialOffset(self) -> Place:  # noqa: N802 - Spark's name
        return {}

    def latestOffset(self, start: Place, limit: ReadLimit) -> Place:  # noqa: N802, ARG002 - Spark's name; all there is
        return self._tail.look(start)

    def partitions(self, start: Place, end: Place) -> Sequence[InputPartition]:
        found, _ = self._tail.parts(start, end)
        tasks = (found[at : at + PART_PIECES] for at in range(0, len(found), PART_PIECES))
        return [
            StreamPart({part.run: Names(self._tail.runs[part.run].run, {}) for part in parts}, parts)
            for parts in tasks
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, StreamPart):
            return iter(())
        numbers = {run: number for number, run in enumerate(partition.names)}
        names = dict(enumerate(partition.names.values()))
        return chosen_batches(names, read_parts(partition.parts, numbers), self._columns, self._only)
