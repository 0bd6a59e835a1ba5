"""The watch as a query of Structured Streaming.

    source    which rows are new, in the driver: a place of trace/tail.py is the offset
    tasks     unpack their blocks and summarise them (batch_summary.py): a few hundred bytes a block come out, no rows
    batch     Live takes the summaries, in one transaction with the number of the batch

After a restart Spark does the last batch again if it is not known to be done; `Watch` knows whether it was, by its number.
What the rules keep between batches is in the same checkpoint directory, and not in Spark's state store: a rule asks what other
actors did, which a state that is held by key cannot know, and what is finished is forgotten, so one process can hold it.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from warrenmq.errors import CallerError
from warrenmq.replay.drive.batch_summary import PART_PIECES, Batch, batches, summarise_batch
from warrenmq.replay.drive.watch import INTERVAL, Watch
from warrenmq.trace.reader import require_live
from warrenmq.trace.tail import Place, Tail


@dataclass
class SummarisedPart(InputPartition):
    """The pieces that one task summarises, of one run or of several: a task costs more than some hundred pieces."""

    batches: list[Batch]


class BatchSource(DataSource):
    """Summaries of the new parts of a trace, pickled."""

    @classmethod
    def name(cls) -> str:
        return "warrenmq-trace-summaries"

    def schema(self) -> str:
        return "summaries binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        return SummaryStream(json.loads(self.options["traces"]))


class SummaryStream(DataSourceStreamReader):
    """Lives in the driver."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._tail = Tail(*paths)

    def initialOffset(self) -> Place:  # noqa: N802 - Spark's name
        return {}

    def latestOffset(self, start: Place, limit: ReadLimit) -> Place:  # noqa: N802, ARG002 - Spark's name; all there is
        return self._tail.look(start)

    def partitions(self, start: Place, end: Place) -> Sequence[InputPartition]:
        planned: list[SummarisedPart] = []
        pieces = 0
        for batch in batches(self._tail, start, end):
            pieces += len(batch.parts)
            if not planned or pieces > PART_PIECES:
                planned.append(SummarisedPart([]))
                pieces = len(batch.parts)
            planned[-1].batches.append(batch)
        return planned

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        if isinstance(partition, SummarisedPart):
            for batch in partition.batches:
                yield (pickle.dumps(summarise_batch(batch)),)


def watch(
    spark: SparkSession,
    paths: list[str],
    checkpoint: str,
    taken_by: Watch,
    *,
    wait: Callable[[float], None],
    until_closed: bool = False,
) -> None:
    """Check a trace while it is written, as watch.watch does; the query's own checkpoint is in `checkpoint`, too."""
    require_live(paths)
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise CallerError("a watch keeps its state where it prints, so it cannot run through Spark Connect.")
    place = os.path.join(os.path.abspath(checkpoint), "spark")
    done = taken_by.progress
    refusal = CallerError(
        f"{checkpoint} is the checkpoint of the other engine, or half of one; say another --checkpoint."
    )
    if done is not None and not (isinstance(done, int) and os.path.isdir(place)):
        raise refusal

    def take(frame: DataFrame, number: int) -> None:
        last = -1 if taken_by.progress is None else int(taken_by.progress)
        if number > last + 1:
            raise refusal
        if number > last:
            taken_by.take([pickle.loads(bytes(row["summaries"])) for row in frame.collect()], number)  # noqa: S301 - our tasks'

    spark.dataSource.register(BatchSource)
    query = (
        spark.readStream.format(BatchSource.name())
        .option("traces", json.dumps([os.path.abspath(path) for path in paths]))
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", place)
        .trigger(processingTime=f"{round(INTERVAL * 1000)} milliseconds")
        .start()
    )
    try:
        while query.isActive:
            if until_closed and taken_by.closed:
                query.processAllAvailable()
                return
            wait(INTERVAL)
        query.awaitTermination()  # raises what ended it
    finally:
        query.stop()
