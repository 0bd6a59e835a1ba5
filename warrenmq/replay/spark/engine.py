"""Spark drives the machines: sift where the rows are, then one pass by key for each stage.

    blocks of the trace ──mapInArrow──► (machine, key, order, summary or rows_left), kept
                                         │ actor_summaries to the driver, into the TraceContext
                                         ▼ repartition by key, sort by order
                          stage 1 ──mapInArrow──► findings, figures and unproven to the driver
                                         │ facts         └─► if there are any: a second look at their rows, by the machines
                                         ▼ repartition by key, sort by order
                          stage 2 ──mapInArrow──► the same

No actor is one task: a block of some 130,000 rows is sifted wherever it comes to lie, and what is shuffled by key is what the prechecks
(warrenmq/replay/rules/prechecks) leave of it, and one small row for each key that it speaks of.  Blocks of messages and files,
not the store, are the keys of what the store does.  A task handles thousands of keys in one call, so no Python call is
paid for a message.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import groupby
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from warrenmq.replay.drive.columns import units_of
from warrenmq.replay.drive.engine import Result, result
from warrenmq.replay.drive.machines import FigureKey, Finding, Machine, Outcome
from warrenmq.replay.drive.prechecking import FullCheck, Place, Prechecker, prechecks_and_machines
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext
from warrenmq.replay.drive.verdict import judge
from warrenmq.replay.explain.causes import explain
from warrenmq.replay.explain.evidence import Want, pick
from warrenmq.replay.rules.registry import all_machines
from warrenmq.replay.spark.partitions import ROWS_OF_KEYS, partitions
from warrenmq.replay.spark.source import Batches, Pieces, TraceIndex, index_trace, map_pieces
from warrenmq.trace.catalog import Catalog, Chunk, Run
from warrenmq.trace.index import Row, rows_of

Job = Callable[[Pieces], Callable[[Batches], Iterator[pa.RecordBatch]]]
"""Of `map_pieces`."""

ACTOR_SUMMARY = "actor_summaries"
FOUND = "found"
"""Stand in the machine column of rows for the driver."""

SUMMARIES_DDL = "machine string, key binary, run int, actor int, seq long, nth int, summary binary"
_SCHEMA = pa.schema([
    ("machine", pa.string()), ("key", pa.binary()), ("run", pa.int32()), ("actor", pa.int32()), ("seq", pa.int64()),
    ("nth", pa.int32()), ("summary", pa.binary()),
])  # fmt: skip
_BATCH_ROWS = 4096
_AFTER_ALL_RUNS = (1 << 31) - 1
"""Facts come after the summaries of their key."""


class Summarised(NamedTuple):
    """One summary on its way to the place of its key."""

    machine: str
    key: bytes
    """msgpack of the tuple: equal keys are equal bytes, which pickle does not promise."""
    run: int
    actor: int
    seq: int
    nth: int
    """Keeps the order of what one piece said."""
    summary: bytes


@dataclass(slots=True)
class Found:
    """What all keys came to, so far."""

    findings: list[Finding] = field(default_factory=list)
    figures: Counter[FigureKey] = field(default_factory=Counter)
    unproven: list[Place] = field(default_factory=list)

    def take(self, place: Place, outcome: Outcome) -> None:
        """What one key came to."""
        if outcome.needs_full_check:
            self.unproven.append(place)
        self.findings += outcome.findings
        self.figures.update(outcome.figures)

    def add(self, other: Found) -> None:
        """What the keys of another task came to."""
        self.findings += other.findings
        self.figures.update(other.figures)
        self.unproven += other.unproven


class Summarise:
    """Job of `map_pieces`: the summaries and open rows of every machine, and the actors' summaries."""

    def __init__(self, workers: Sequence[Machine], unpack: Pieces) -> None:
        self._workers = workers
        self._unpack = unpack

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        return _batches(self._summaries(batches))

    def _summaries(self, batches: Batches) -> Iterator[Summarised]:
        prechecker = Prechecker(self._workers)
        marks: dict[tuple[int, int], list[tuple[int, ActorSummary]]] = {}
        for unit in units_of(self._unpack(batches)):
            for piece, noted in prechecker.actor_summaries(unit):
                marks.setdefault((piece.run, piece.actor), []).append((piece.seq_first, noted))
            for nth, (machine, key, piece, summary) in enumerate(prechecker.check(unit)):
                yield Summarised(machine, pack_key(key), *piece.order, nth, pickle.dumps(summary))
        for (run, actor), noted_at in marks.items():
            yield Summarised(ACTOR_SUMMARY, b"", run, actor, 0, 0, pickle.dumps(noted_at))


class RunFullCheck:
    """Job of `map_pieces`: what the machines say of the keys that no precheck could prove fine."""

    def __init__(
        self, workers: Sequence[Machine], unproven: Sequence[Place], files: Sequence[str], unpack: Pieces
    ) -> None:
        self._workers = workers
        self._unproven = unproven
        self._numbers = {name: number for number, name in enumerate(sorted(files))}
        self._unpack = unpack

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        return _batches(self._summaries(batches))

    def _summaries(self, batches: Batches) -> Iterator[Summarised]:
        look = FullCheck(self._workers, self._unproven)
        for unit in units_of(self._unpack(batches), join=False):
            for nth, (machine, key, piece, summary) in enumerate(look.summarise(unit)):
                yield Summarised(machine, pack_key(key), *self._order(piece), nth, pickle.dumps(summary))

    def _order(self, piece: Chunk) -> tuple[int, int, int]:
        """That of engine.py, so that the same row is called the second where there are two; rows of no file have their own."""
        if piece.file not in self._numbers:
            return piece.order
        return piece.run, int(piece.offset < 0), self._numbers[piece.file] << 40 | max(piece.offset, 0)


class Conclude:
    """Summaries that come key by key, in order: facts for the next stage, and at the end of the task what was found."""

    def __init__(self, machines: Sequence[Machine], context: TraceContext) -> None:
        self._machines = {machine.name: machine for machine in machines}
        self._context = context

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        return _batches(self._outcomes(_rows(batches)))

    def _outcomes(self, rows: Iterable[Summarised]) -> Iterator[Summarised]:
        found = Found()
        for (name, packed), group in groupby(rows, key=lambda row: (row.machine, row.key)):
            machine, key = self._machines[name], unpack_key(packed)
            state = machine.start(key)
            for row in group:
                machine.absorb(state, pickle.loads(row.summary))  # noqa: S301 - our own tasks'
            outcome = machine.finish(key, state, self._context)
            found.take((name, key), outcome)
            for nth, (to, fact_key, fact) in enumerate(outcome.facts):
                yield Summarised(to, pack_key(fact_key), _AFTER_ALL_RUNS, 0, 0, nth, pickle.dumps(fact))
        yield Summarised(FOUND, b"", 0, 0, 0, 0, pickle.dumps(found))


def replay(spark: SparkSession, *paths: str | os.PathLike[str]) -> Result:
    """Replay trace directories or files; NotATrace if they hold none."""
    return replay_indexed(spark, index_trace(spark, *paths))


def replay_indexed(spark: SparkSession, trace: TraceIndex) -> Result:
    """The same after a first look."""
    found = conclude(trace.catalog, partial(map_pieces, spark, trace))
    found.chains = explain(found.violations, trace.catalog.runs, partial(_gather, spark, trace))
    return found


def _gather(spark: SparkSession, trace: TraceIndex, wants: Sequence[Want]) -> list[tuple[int, int, Row]]:
    """One more job, for what explains."""
    picked = map_pieces(
        spark, trace, partial(PickEvidence, wants, trace.catalog.runs), "found binary"
    ).collect()
    return [found for row in picked for found in pickle.loads(bytes(row["found"]))]  # noqa: S301 - our own tasks'


class PickEvidence:
    """Job of `map_pieces`: the rows that explain findings."""

    def __init__(self, wants: Sequence[Want], runs: Sequence[Run], unpack: Pieces) -> None:
        self._wants = wants
        self._runs = runs
        self._unpack = unpack

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        found = [
            picked
            for piece, columns in self._unpack(batches)
            for picked in pick(self._wants, self._runs, piece, partial(rows_of, columns))
        ]
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(found)], pa.binary())], ["found"])


def conclude(catalog: Catalog, over_pieces: Callable[[Job, str], DataFrame]) -> Result:
    """The result for all pieces that `over_pieces` gives a job."""
    context = TraceContext.of(catalog)
    machines = all_machines(catalog.runs)
    # The same rows twice are more than a precheck can judge.
    workers = machines if catalog.overlaps else prechecks_and_machines(catalog.runs)
    number = partitions(sum(chunk.rows for chunk in catalog.chunks), ROWS_OF_KEYS)
    found = Found()
    kept: list[DataFrame] = []
    """What keys said that are facts to others, stage by stage."""
    summaries = over_pieces(partial(Summarise, workers), SUMMARIES_DDL).persist(StorageLevel.DISK_ONLY)
    try:
        _actor_summaries(summaries, context)
        for stage in sorted({machine.stage for machine in machines}):
            told = _stage(
                [summaries, *kept], [each for each in workers if each.stage == stage], context, number
            ).persist(StorageLevel.DISK_ONLY)
            kept.append(told)
            looked = _collect(told)
            found.add(looked)
            if looked.unproven:
                again = over_pieces(
                    partial(RunFullCheck, workers, looked.unproven, catalog.files), SUMMARIES_DDL
                )
                facts = [_of(each, looked.unproven) for each in kept[:-1]]
                kept.append(
                    _stage(
                        [again, *facts], [each for each in machines if each.stage == stage], context, number
                    ).persist(StorageLevel.DISK_ONLY)
                )
                found.add(_collect(kept[-1]))
        verdict = judge(found.findings, found.figures, catalog, context)
        return result(verdict, catalog, context, found.figures)
    finally:
        for each in (summaries, *kept):
            each.unpersist()


def _actor_summaries(summaries: DataFrame, context: TraceContext) -> None:
    parts: dict[tuple[int, int], list[tuple[int, ActorSummary]]] = {}
    for row in (
        summaries.where(sf.col("machine") == ACTOR_SUMMARY).select("run", "actor", "summary").collect()
    ):
        noted: list[tuple[int, ActorSummary]] = pickle.loads(bytes(row["summary"]))  # noqa: S301 - our own tasks'
        parts.setdefault((row["run"], row["actor"]), []).extend(noted)
    for who, noted in sorted(parts.items()):
        context.actor_summaries[who] = ActorSummary()
        for _, marks in sorted(noted, key=lambda part: part[0]):
            context.actor_summaries[who].merge(marks)


def _stage(
    summaries: Sequence[DataFrame], machines: Sequence[Machine], context: TraceContext, number: int
) -> DataFrame:
    """What these machines conclude, in so many partitions."""
    mine = sf.col("machine").isin([machine.name for machine in machines])
    # Filtered one by one: Spark flattens a union of unions, and would then not find what was kept.
    first, *others = (each.where(mine) for each in summaries)
    return (
        reduce(DataFrame.union, others, first)
        .repartition(number, "machine", "key")
        .sortWithinPartitions("machine", "key", "run", "actor", "seq", "nth", "summary")
        .mapInArrow(Conclude(machines, context), SUMMARIES_DDL)
    )


def _collect(outcomes: DataFrame) -> Found:
    found = Found()
    for row in outcomes.where(sf.col("machine") == FOUND).select("summary").collect():
        part: Found = pickle.loads(bytes(row["summary"]))  # noqa: S301 - our own tasks'
        found.add(part)
    return found


def _of(told: DataFrame, places: Sequence[Place]) -> DataFrame:
    """What these keys were told."""
    names, keys = zip(*[(name, pack_key(key)) for name, key in places], strict=True)
    wanted = told.sparkSession.createDataFrame(
        pa.table({"machine": pa.array(names), "key": pa.array(keys, pa.binary())})
    )
    return told.join(sf.broadcast(wanted), ["machine", "key"], "left_semi")


def pack_key(key: Sequence[Any]) -> bytes:
    packed: bytes = msgpack.packb(key)
    return packed


def unpack_key(packed: bytes) -> tuple[Any, ...]:
    key: tuple[Any, ...] = msgpack.unpackb(packed, use_list=False)
    return key


def _batches(rows: Iterable[Summarised]) -> Iterator[pa.RecordBatch]:
    pending: list[Summarised] = []
    for row in rows:
        pending.append(row)
        if len(pending) == _BATCH_ROWS:
            yield _batch(pending)
            pending = []
    if pending:
        yield _batch(pending)


def _batch(rows: list[Summarised]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field_.type) for column, field_ in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _rows(batches: Batches) -> Iterator[Summarised]:
    for batch in batches:
        for values in zip(*[column.to_pylist() for column in batch.columns], strict=True):
            yield Summarised(*values)
