"""The six tables of `measures`, filled by Spark: four SQL aggregations, and two passes in Python, by queue and by run.

Slices of time are as long as the trace asks for, so that the driver does not collect more of a longer one.  Tallies, bodies and levels
are sums, so Spark adds them up where the rows are.  Delays pair rows of one queue by sequence id: they go by chunk of 65,536 ids, not by
queue, so that one busy queue is not one task.  Rows of store files are folded run by run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from warrenmq.replay.drive.levels import CHANGING, FALLS, RECEIVES, RISES, Kind, LevelKey, slice_of
from warrenmq.replay.explain.evidence import Placed
from warrenmq.replay.report.measures import (
    BODIES,
    RARE,
    SUMMED,
    TIMED,
    Measures,
    Tally,
    TallyKey,
    delays,
)
from warrenmq.replay.report.store_files import OF_FILES, Collected, StoreFile, StoreFiles, fold
from warrenmq.replay.spark.jobs import described
from warrenmq.replay.spark.named import STORED
from warrenmq.replay.spark.partitions import ROWS_OF_KEYS, partitions, shuffled_into
from warrenmq.replay.spark.source import Batches
from warrenmq.replay.spark.stage_columns import batches, rows_in
from warrenmq.trace.catalog import Catalog, Run
from warrenmq.trace.events import Decision, Ev
from warrenmq.trace.schema import Row

CHUNK_BITS = 16
_DELAYS = pa.schema([
    ("delay", pa.string()), ("run", pa.int32()), ("slice", pa.int64()), ("counts", pa.map_(pa.int32(), pa.int64())),
])  # fmt: skip
"""A histogram for each delay, run and slice of time: how many messages waited as long as each class says."""

_FILES = pa.schema([
    ("run", pa.int32()),
    ("found", pa.list_(pa.struct([(name, pa.int64()) for name in ("store", "slice", "bytes")]))),
    ("files", pa.list_(pa.struct([(name, pa.int64()) for name in StoreFile._fields]))),
    ("collected", pa.list_(pa.struct([(name, pa.int64()) for name in Collected._fields]))),
])  # fmt: skip
"""StoreFiles, a row for each run."""


def measure_rows(rows: DataFrame, catalog: Catalog) -> Measures:
    """Compute all six tables from rows as source.load_rows gives them."""
    measures = Measures(slice_ns=slice_of(catalog))
    number = partitions(catalog.rows, ROWS_OF_KEYS)
    spark = rows.sparkSession
    tables: dict[str, Callable[[], None]] = {
        "events, by actor and time": lambda: _tallies(rows, measures),
        "rare events": lambda: _rare(rows, measures),
        "files of the stores": lambda: _files(rows, measures, catalog, number),
        "bodies in the stores": lambda: _bodies(rows, measures),
        "mailboxes and waits": lambda: _levels(rows, measures),
        "delays of messages": lambda: _delays(rows, measures, number),
    }
    for what, fill in tables.items():
        with shuffled_into(spark, number), described(spark, f"measure {what}"):
            fill()
    return measures


def _slice(t: str, measures: Measures) -> Column:
    return sf.expr(f"{t} div {measures.slice_ns}")


def _tallies(rows: DataFrame, measures: Measures) -> None:
    records = STORED.of("records", Ev.QI_SYNC)
    bits = sf.when(records > 0, sf.length(sf.bin(records))).otherwise(0)
    sums = [
        sf.sum(
            STORED.of_any((event, name) for event, its in SUMMED.items() for at, name in its if at == place)
        )
        for place in (1, 2)
    ]
    found = (
        rows.where(STORED.is_of(*SUMMED))
        .groupBy("run", "actor", "event", "flag", bits.alias("bits"), _slice("t", measures).alias("slice"))
        .agg(sf.count("*"), *(sf.coalesce(each, sf.lit(0)) for each in sums))
    )
    for *key, n, count, size in found.collect():
        measures.tallies[TallyKey(*key)] = Tally(n, count, size)


def _stored(rows: DataFrame, events: Collection[int]) -> DataFrame:
    """The rows of these events, by their runs and stored columns."""
    who = (sf.col("actor").cast("long") * (1 << 16) + sf.col("event") * (1 << 8) + sf.col("flag")).alias(
        "who"
    )
    return rows.where(STORED.is_of(*events)).select("run", *Row._fields[:-1], who)


def _rare(rows: DataFrame, measures: Measures) -> None:
    measures.rare = [Placed(run, Row(*row)) for run, *row in _stored(rows, RARE).collect()]


def _files(rows: DataFrame, measures: Measures, catalog: Catalog, number: int) -> None:
    found = (
        _stored(rows, OF_FILES)
        .repartition(number, "run")
        .sortWithinPartitions("run", "t", sf.shiftright("who", 16), "seq")
        .mapInArrow(FoldFiles(catalog.runs, measures.slice_ns), from_arrow_schema(_FILES))
    )
    for run, gained, files, collected in found.collect():
        measures.files[run] = StoreFiles(
            Counter({(store, slice_): size for store, slice_, size in gained}),
            [StoreFile(*file) for file in files],
            [Collected(*piece) for piece in collected],
        )


class FoldFiles:
    """Job of rows of store files, run by run in the order of time."""

    def __init__(self, runs: Sequence[Run], slice_ns: int) -> None:
        self._runs = runs
        self._slice_ns = slice_ns

    def __call__(self, given: Batches) -> Iterator[pa.RecordBatch]:
        return batches(self._folded(given), _FILES)

    def _folded(self, given: Batches) -> Iterator[tuple[Any, ...]]:
        for run, group in groupby(_tuples(given), key=itemgetter(0)):
            folded = fold(self._runs[run], (Row(*row) for _, *row in group), self._slice_ns)
            found = [
                {"store": store, "slice": slice_, "bytes": size}
                for (store, slice_), size in folded.found.items()
            ]
            yield (
                run,
                found,
                [file._asdict() for file in folded.files],
                [each._asdict() for each in folded.collected],
            )


def _bodies(rows: DataFrame, measures: Measures) -> None:
    """A record comes with its first APPEND or REF_RECOVERED and goes with the remove that leaves no reference."""
    size = STORED.of("size", Ev.APPEND, Ev.REF_RECOVERED)
    removed = STORED.is_of(Ev.REF_DROPPED) | (STORED.of("decision", Ev.STORE_REMOVE) == int(Decision.REMOVE))
    went = removed & (STORED.of("references", Ev.STORE_REMOVE, Ev.REF_DROPPED) == 0)
    messages = (
        rows.where(STORED.is_of(*BODIES))
        .groupBy("run", "actor", "msg")
        .agg(
            sf.max(size).alias("size"),
            sf.min(sf.when(size.isNotNull(), sf.col("t"))).alias("came"),
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
        .groupBy("run", "actor", _slice("change.t", measures).alias("slice"))
        .agg(sf.sum("change.bytes"))
    )
    measures.bodies = {(run, actor, slice_): gained for run, actor, slice_, gained in found.collect()}


def _levels(rows: DataFrame, measures: Measures) -> None:
    """`levels.step` in SQL."""
    sent, rises = STORED.is_of(Ev.SEND), STORED.is_of(*RISES)
    receiver, granter = (
        STORED.of("receiver", Ev.SEND),
        STORED.of("granter", Ev.CREDIT_BLOCKED, Ev.CREDIT_UNBLOCKED),
    )
    kind = sf.lit(0)
    for each in Kind:
        events = [name for table in (RISES, FALLS) for name, its in table.items() if its is each]
        kind = sf.when(STORED.is_of(*events), int(each)).otherwise(kind)
    up = sf.when(rises, 1).otherwise(0)
    down = sf.when(rises, 0).otherwise(
        sf.greatest(sf.coalesce(STORED.of("sends", Ev.PUBLISH), sf.lit(1)), sf.lit(1))
    )
    until_end = (_slice("t", measures) + 1) * measures.slice_ns - sf.col("t")
    found = (
        rows.where(STORED.is_of(*CHANGING))
        .where(sf.coalesce(receiver, STORED.of("send", *RECEIVES), sf.lit(1)) != 0)
        .select(
            kind.alias("kind"), "run",
            sf.when(sent, receiver).otherwise(sf.col("actor")).alias("actor"),
            sf.coalesce(granter, sf.lit(0)).alias("peer"),
            _slice("t", measures).alias("slice"), up.alias("up"), down.alias("down"), ((up - down) * until_end).alias("ns"),
        )
        .groupBy("kind", "run", "actor", "peer", "slice")
        .agg(sf.sum("up"), sf.sum("down"), sf.sum("ns"))
    )  # fmt: skip
    measures.levels = {LevelKey(*key): (rises, falls, ns) for *key, rises, falls, ns in found.collect()}


def _delays(rows: DataFrame, measures: Measures, number: int) -> None:
    first, count = STORED.of("first_seq_id", *TIMED), STORED.of("count", *TIMED)
    chunk = sf.explode(
        sf.sequence(
            sf.shiftright("first_seq_id", CHUNK_BITS),
            sf.shiftright(sf.col("first_seq_id") + sf.col("count") - 1, CHUNK_BITS),
        )
    )
    schema = from_arrow_schema(_DELAYS)
    found = (
        rows.where(STORED.is_of(*TIMED))
        .select(
            "run", "actor", "seq", "event", "flag", "t", first.alias("first_seq_id"), count.alias("count")
        )
        .where("count > 0")
        .select("run", "actor", chunk.alias("chunk"), "seq", "event", "flag", "t", "first_seq_id", "count")
        .repartition(number, "run", "actor", "chunk")
        .sortWithinPartitions("run", "actor", "chunk", "seq")
        .mapInArrow(ChunkDelays(measures.slice_ns), schema)
        .repartition(1)
        .mapInArrow(_merge_delays, schema)
    )
    for delay, run, slice_, counts in found.collect():
        measures.delays[delay, run, slice_] = Counter(counts)


class ChunkDelays:
    """Job of rows that come chunk by chunk: the histograms of a task."""

    def __init__(self, slice_ns: int) -> None:
        self._slice_ns = slice_ns

    def __call__(self, given: Batches) -> Iterator[pa.RecordBatch]:
        found = Measures()
        for (run, _, chunk), group in groupby(_tuples(given), key=itemgetter(0, 1, 2)):
            timed = (row[4:] for row in group)
            first, end = chunk << CHUNK_BITS, (chunk + 1) << CHUNK_BITS
            found.add(Measures(delays=delays(run, timed, first, end, self._slice_ns)))
        return _delay_batches(found)


def _tuples(given: Batches) -> Iterator[tuple[Any, ...]]:
    for batch in given:
        yield from zip(*[column.to_pylist() for column in batch.columns], strict=True)


def _merge_delays(given: Batches) -> Iterator[pa.RecordBatch]:
    """The histograms of all tasks as those of one."""
    found = Measures()
    for row in rows_in(given):
        found.add(Measures(delays={(row["delay"], row["run"], row["slice"]): Counter(dict(row["counts"]))}))
    return _delay_batches(found)


def _delay_batches(found: Measures) -> Iterator[pa.RecordBatch]:
    return batches(((*which, list(counts.items())) for which, counts in found.delays.items()), _DELAYS)
