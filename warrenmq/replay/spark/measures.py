"""The five tables of `measures`, filled by Spark: four SQL aggregations, and one pass in Python by queue.

Tallies, bodies and levels are sums, so Spark adds them up where the rows are.  Delays pair rows of one queue by sequence id: they
go by chunk of 65,536 ids, not by queue, so that one busy queue is not one task.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from warrenmq.replay.drive.levels import CHANGING, FALLS, RECEIVES, RISES, SLICE_NS, Kind, LevelKey
from warrenmq.replay.report.measures import (
    BODIES,
    RARE,
    TALLIED,
    TIMED,
    Measures,
    Row,
    TallyKey,
    Timed,
    delays,
)
from warrenmq.replay.spark.partitions import shuffled_into
from warrenmq.trace.events import Decision, Ev

CHUNK_BITS = 16
_DELAYS_DDL = "delays string"


def measure_rows(rows: DataFrame, number: int = 1) -> Measures:
    """All five tables of rows as spark_source.load_rows gives them; what is shuffled has so many partitions."""
    measures = Measures()
    with shuffled_into(rows.sparkSession, number):
        _tallies(rows, measures)
        _rare(rows, measures)
        _bodies(rows, measures)
        _levels(rows, measures)
        _delays(rows, measures, number)
    return measures


def _slice(t: str) -> Column:
    return sf.expr(f"{t} div {SLICE_NS}")


def _tallies(rows: DataFrame, measures: Measures) -> None:
    size = sf.when(
        (sf.col("event") == int(Ev.QI_SYNC)) & (sf.col("b") > 0), sf.length(sf.bin("b"))
    ).otherwise(0)
    found = (
        rows.where(sf.col("event").isin(sorted(map(int, TALLIED))))
        .groupBy("run", "actor", "event", "flag", size.alias("size"), _slice("t").alias("slice"))
        .agg(sf.count("*"), sf.sum("a"), sf.sum("b"), sf.sum("c"))
    )
    for run, actor, event, flag, bits, slice_, n, a, b, c in found.collect():
        measures.tallies[TallyKey(run, actor, event, flag, bits, slice_)] = (n, a, b, c)


def _rare(rows: DataFrame, measures: Measures) -> None:
    found = rows.where(sf.col("event").isin(sorted(map(int, RARE)))).select(*Row._fields)
    measures.rare = [Row(*row) for row in found.collect()]


def _bodies(rows: DataFrame, measures: Measures) -> None:
    """A record comes with its first APPEND or REF_RECOVERED and goes with the remove that leaves no reference."""
    came = sf.col("event").isin(int(Ev.APPEND), int(Ev.REF_RECOVERED))
    went = (
        (~came)
        & (sf.col("b") == 0)
        & ((sf.col("event") == int(Ev.REF_DROPPED)) | (sf.col("flag") == int(Decision.REMOVE)))
    )
    messages = (
        rows.where(sf.col("event").isin(sorted(map(int, BODIES))))
        .groupBy("run", "actor", "msg")
        .agg(
            sf.max(sf.when(came, sf.col("c"))).alias("size"),
            sf.min(sf.when(came, sf.col("t"))).alias("came"),
            sf.max(sf.when(went, sf.col("t"))).alias("went"),
        )
        .where("size is not null")
    )
    changes = sf.explode(
        sf.array(
            sf.struct(sf.col("came").alias("t"), sf.col("size").alias("bytes")),
            sf.struct(sf.col("went").alias("t"), (-sf.col("size")).alias("bytes")),
        )
    )
    found = (
        messages.select("run", "actor", changes.alias("change"))
        .where("change.t is not null")
        .groupBy("run", "actor", _slice("change.t").alias("slice"))
        .agg(sf.sum("change.bytes"))
    )
    measures.bodies = {(run, actor, slice_): gained for run, actor, slice_, gained in found.collect()}


def _levels(rows: DataFrame, measures: Measures) -> None:
    """`levels.step` in SQL."""
    event, sent, received = sf.col("event"), _is(Ev.SEND), _is(*RECEIVES)
    rises = _is(*RISES)
    kind = sf.lit(0)
    for each in Kind:
        events = [name for table in (RISES, FALLS) for name, its in table.items() if its is each]
        kind = sf.when(event.isin(events), int(each)).otherwise(kind)
    up = sf.when(rises, 1).otherwise(0)
    down = sf.when(rises, 0).when(_is(Ev.PUBLISH), sf.greatest(sf.col("c"), sf.lit(1))).otherwise(1)
    until_end = (_slice("t") + 1) * SLICE_NS - sf.col("t")
    found = (
        rows.where(event.isin(sorted(map(int, CHANGING))))
        .where(~sent | (sf.col("peer") != 0))
        .where(~received | (sf.col("pseq") != 0))
        .select(
            kind.alias("kind"), "run",
            sf.when(sent, sf.col("peer")).otherwise(sf.col("actor")).alias("actor"),
            sf.when(kind == int(Kind.CREDIT), sf.col("peer")).otherwise(0).alias("peer"),
            _slice("t").alias("slice"), up.alias("up"), down.alias("down"), ((up - down) * until_end).alias("ns"),
        )
        .groupBy("kind", "run", "actor", "peer", "slice")
        .agg(sf.sum("up"), sf.sum("down"), sf.sum("ns"))
    )  # fmt: skip
    measures.levels = {LevelKey(*row[:5]): (row[5], row[6], row[7]) for row in found.collect()}


def _is(*events: int) -> Column:
    return sf.col("event").isin([int(event) for event in events])


def _delays(rows: DataFrame, measures: Measures, number: int) -> None:
    chunk = sf.explode(sf.expr(f"sequence(shiftright(a, {CHUNK_BITS}), shiftright(a + b - 1, {CHUNK_BITS}))"))
    found = (
        rows.where(sf.col("event").isin(sorted(map(int, TIMED))) & (sf.col("b") > 0))
        .select("run", "actor", chunk.alias("chunk"), "seq", "event", "flag", "t", "a", "b")
        .repartition(number, "run", "actor", "chunk")
        .sortWithinPartitions("run", "actor", "chunk", "seq")
        .mapInArrow(_chunk_delays, _DELAYS_DDL)
    )
    for row in found.collect():
        merged = Measures()
        for which, run, slice_, classes in json.loads(row["delays"]):
            merged.delays[which, run, slice_] = Counter({int(cls): n for cls, n in classes.items()})
        measures.add(merged)


def _chunk_delays(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows that come chunk by chunk: one histogram set for all of a task."""
    found = Measures()
    at: tuple[int, int, int] | None = None
    rows: list[Timed] = []
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        for run, actor, chunk, _, event, flag, t, a, b in zip(*columns, strict=True):
            if (run, actor, chunk) != at:
                _close(found, at, rows)
                at, rows = (run, actor, chunk), []
            rows.append((event, flag, t, a, b))
    _close(found, at, rows)
    text = json.dumps([[*which, histogram] for which, histogram in found.delays.items()])
    yield pa.RecordBatch.from_arrays([pa.array([text])], ["delays"])


def _close(found: Measures, at: tuple[int, int, int] | None, rows: list[Timed]) -> None:
    if at is not None:
        run, _, chunk = at
        found.add(Measures(delays=delays(run, rows, chunk << CHUNK_BITS, (chunk + 1) << CHUNK_BITS)))
