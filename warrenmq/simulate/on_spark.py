"""Simulated runs on Spark: each round of a fleet is one job, with a task for every few runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from warrenmq.replay.spark.jobs import described
from warrenmq.simulate.fleet import Task, do
from warrenmq.simulate.run import Outcome
from warrenmq.simulate.table import SCHEMA, batch_of, outcomes_of

_PIECE = 20
"""Runs of one task of Spark's."""


class OnSpark:
    """Run tasks on the executors of a Spark session, which need warrenmq with the extra `simulation`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        given = pa.Table.from_pylist([task._asdict() for task in tasks])
        frame = self._spark.createDataFrame(given).repartition(-(-len(tasks) // _PIECE), "seed")
        with described(self._spark, f"simulate {len(tasks)} runs"):
            return outcomes_of(row.asDict() for row in frame.mapInArrow(_run_batches, SCHEMA).collect())


def _run_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Carry out the tasks of each batch; the function for `mapInArrow`."""
    for batch in batches:
        yield batch_of(do(Task(**each)) for each in batch.to_pylist())
