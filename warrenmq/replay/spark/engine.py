"""The setting of Spark: pieces are checked where they lie, and summaries go to their keys by a shuffle.

    blocks of the trace ──mapInArrow──► summaries, kept
                                         │ one row an actor to the driver, for the TraceContext
                                         ▼ repartition by key, sort by order
                          stage 1 ──mapInArrow──► outcomes, kept ──► merged in one task, to the driver
                                         │ facts         └─► keys that need a full check: their rows once more, to the machines
                                         ▼ repartition by key, sort by order
                          stage 2 ──mapInArrow──► the same

The keys of a trace of up to a million rows fit into one task.  It is given the summaries of the actors, too,
and concludes one stage behind the other: all of it is one job, as a job costs more than such a stage.

No actor is one task: a block of half a million rows is checked wherever it comes to lie.  Shuffled are the
rows that the prechecks (precheck.py) leave open, and one small row for each key of a block.  Blocks of
messages and files, not the store, are the keys of what the store does.  A task handles thousands of keys in
one call, so no Python call is paid for a message.

The driver collects one row an actor, a bounded number of findings a rule and of files a store, and the
figures of queues and stores: nothing that grows with the rows of a trace.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import chain, groupby
from typing import Any, Self

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import DataType, StructType

from warrenmq.replay.drive.columns import units_of
from warrenmq.replay.drive.driver import InMemory, Keys, conclude, drive, stages_of
from warrenmq.replay.drive.findings import Found, Place
from warrenmq.replay.drive.machines import Fact, Machine
from warrenmq.replay.drive.prechecking import EVERY_KEY, FullCheck, Prechecker, prechecks_and_machines
from warrenmq.replay.drive.result import Result
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext, Who
from warrenmq.replay.explain.evidence import Want, pick
from warrenmq.replay.rules.registry import RULES, all_machines
from warrenmq.replay.rules.rule import Rule
from warrenmq.replay.spark.failures import SparkFailed
from warrenmq.replay.spark.jobs import described
from warrenmq.replay.spark.partitions import ROWS_OF_KEYS, partitions
from warrenmq.replay.spark.source import Batches, Job, Pieces, TraceIndex, index_trace, map_pieces
from warrenmq.replay.spark.stage_columns import (
    FACT,
    OUTCOMES,
    SUMMARIES,
    OutcomeRow,
    SummaryRow,
    actor_struct,
    actor_summary_of,
    batches,
    fact_of,
    fact_struct,
    found_of,
    found_rows,
    pack,
    pressed,
    rows_in,
    unpack,
    unpressed,
)
from warrenmq.trace.block import Stored, columns_of
from warrenmq.trace.catalog import Catalog, Chunk, Run
from warrenmq.trace.index import Row, rows_of

NAMED_KEYS = 4_096
"""Keys of one machine that are named when their rows are read again; where more need it, all rows of the machine are."""

_FIRST, _LAST = -1, (1 << 31) - 1
"""Sort marks in place of a run: a key's marks come before its summaries, its facts behind them."""
_ORDER = ("machine", "key", "run", "actor", "seq", "nth", "summary", "fact")
_ACTORS = pa.schema([SUMMARIES.field(name) for name in ("run", "actor", "seq", "actor_summary")])
_CONCLUDED = pa.schema(
    [*OUTCOMES, ("stage", pa.int32()), *(field for field in _ACTORS if field.name != "seq")]
)
"""Outcomes of several stages, with their numbers, and the summaries of actors."""
_FACT = from_arrow_type(FACT)
_EVIDENCE = pa.schema([("found", pa.binary())])


def replay(spark: SparkSession, *paths: str | os.PathLike[str]) -> Result:
    """Replay trace directories or files; NotATrace if they hold none."""
    return replay_indexed(spark, index_trace(spark, *paths))


def replay_indexed(
    spark: SparkSession, trace: TraceIndex, own: Sequence[Rule] = (), queried: Found | None = None
) -> Result:
    """Replay an indexed trace; `own` are rules of the user, `queried` what the queries among them found."""
    with InSpark(spark, trace.catalog, partial(map_pieces, spark, trace), own) as setting:
        return drive(setting, queried)


class InSpark:
    """The setting of Spark (driver.py); as a context manager it lets go of what it kept."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        over_pieces: Callable[[Job, StructType], DataFrame],
        own: Sequence[Rule],
    ) -> None:
        self.catalog = catalog
        self.rules = (*RULES.values(), *own)
        self.machines = all_machines(catalog.runs, self.rules)
        self._spark = spark
        self._over_pieces = over_pieces
        # The same rows twice are more than a precheck can judge.
        self._checkers = self.machines if catalog.overlaps else prechecks_and_machines(self.machines, own)
        self._partitions = partitions(catalog.rows, ROWS_OF_KEYS)
        self._kept: list[DataFrame] = []
        self._outcomes: list[DataFrame] = []
        """Outcomes of the stages so far: their facts are the input of the next one."""
        self._concluded: dict[int, Found] = {}
        """The sums of the stages that were concluded with the summaries."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._kept:
            each.unpersist()

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return self._kept[-1]

    def summarise(self) -> dict[Who, ActorSummary]:
        summaries = self._summarise()
        read = sum(sum(each.counts.values()) for each in summaries.values())
        if read != self.catalog.rows:
            raise SparkFailed(
                f"Spark read {read:,} of the {self.catalog.rows:,} rows of this trace: its files changed meanwhile, or the workers see "
                "others at this path."
            )
        return summaries

    def _summarise(self) -> dict[Who, ActorSummary]:
        job = partial(summarise_pieces, self._checkers)
        self._summaries = self._keep(self._over_pieces(job, from_arrow_schema(SUMMARIES)))
        if self._partitions == 1:
            return self._conclude_at_once()
        actors = (
            self._summaries.where("actor_summary is not null")
            .select(*_ACTORS.names)
            .repartition(1)
            .sortWithinPartitions("run", "actor", "seq")
            .mapInArrow(merge_actors, from_arrow_schema(_ACTORS))
        )
        with described(self._spark, "check the pieces, merge what they say of actors"):
            return _summaries_of(row.asDict(recursive=True) for row in actors.collect())

    def _conclude_at_once(self) -> dict[Who, ActorSummary]:
        """The summaries of the actors; notes the stages as well, up to one that leaves keys unproven."""
        job = partial(conclude_stages, self._checkers, TraceContext.of(self.catalog))
        concluded = self._keep(
            self._summaries.repartition(1)
            .sortWithinPartitions("machine", "run", "actor", "seq", "nth")
            .mapInArrow(job, from_arrow_schema(_CONCLUDED))
        )
        with described(
            self._spark, "check the pieces, merge what they say of actors, and all stages of the rules"
        ):
            rows = [row.asDict(recursive=True) for row in concluded.where("fact is null").collect()]
        for stage in stages_of(self._checkers):
            found = _with_few_keys(found_of(row for row in rows if row["stage"] == stage))
            self._concluded[stage] = found
            self._outcomes.append(concluded.where(sf.col("stage") == stage).select(*OUTCOMES.names))
            if found.unproven:
                break
        return _summaries_of(row for row in rows if row["stage"] is None)

    def conclude(self, stage: int, context: TraceContext) -> Found:
        if stage in self._concluded:
            return self._concluded[stage]
        given = [_input(self._summaries, summary=sf.col("summary")), *self._facts()]
        return self._conclude(given, self._checkers, stage, context)

    def check_fully(self, stage: int, unproven: set[Place], context: TraceContext) -> Found:
        job = partial(check_pieces_fully, self._checkers, sorted(unproven, key=repr), self.catalog.files)
        again = self._over_pieces(job, from_arrow_schema(SUMMARIES))
        marks = self._outcomes[-1].where("needs_full_check")
        given = [
            _input(again, summary=sf.col("summary")),
            *self._facts(),
            _input(marks, run=_FIRST, needs_full_check=sf.col("needs_full_check")),
        ]
        return self._conclude(given, self.machines, stage, context, only_marked=True)

    def _facts(self) -> list[DataFrame]:
        return [
            _input(each.where("fact is not null"), run=_LAST, nth=sf.col("nth"), fact=sf.col("fact"))
            for each in self._outcomes
        ]

    def _conclude(
        self,
        given: Sequence[DataFrame],
        machines: Sequence[Machine],
        stage: int,
        context: TraceContext,
        *,
        only_marked: bool = False,
    ) -> Found:
        """Finish the keys of these machines with the given summaries, facts and marks."""
        mine = [machine for machine in machines if machine.stage == stage]
        of_mine = sf.col("machine").isin([machine.name for machine in mine])
        # Filtered one by one: Spark flattens a union of unions, and would then not find what was kept.
        first, *others = (each.where(of_mine) for each in given)
        outcomes = self._keep(
            reduce(DataFrame.union, others, first)
            .repartition(self._partitions, "machine", "key")
            .sortWithinPartitions(*_ORDER)
            .mapInArrow(partial(conclude_keys, mine, context, only_marked), from_arrow_schema(OUTCOMES))
        )
        self._outcomes.append(outcomes)
        merged = (
            outcomes.where("fact is null")
            .repartition(1)
            .mapInArrow(merge_outcomes, from_arrow_schema(OUTCOMES))
        )
        again = ", once more for keys that no precheck could prove fine" if only_marked else ""
        with described(self._spark, f"stage {stage} of the rules{again}"):
            return found_of(row.asDict(recursive=True) for row in merged.collect())

    def gather(self, wants: Sequence[Want]) -> list[tuple[int, int, Row]]:
        job = partial(pick_evidence, wants, self.catalog.runs)
        picked = self._over_pieces(job, from_arrow_schema(_EVIDENCE))
        with described(self._spark, "rows that explain the first findings"):
            found = picked.collect()
        return [each for row in found for each in pickle.loads(bytes(row["found"]))]  # noqa: S301 - our own tasks'


def _input(
    frame: DataFrame,
    *,
    run: int | None = None,
    nth: Column | None = None,
    summary: Column | None = None,
    fact: Column | None = None,
    needs_full_check: Column | None = None,
) -> DataFrame:
    """Summaries, facts or marks as input of a stage."""
    from_piece = run is None
    return frame.select(
        "machine", "key",
        sf.col("run") if from_piece else sf.lit(run).alias("run"),
        sf.col("actor") if from_piece else sf.lit(0).alias("actor"),
        sf.col("seq") if from_piece else sf.lit(0).cast("long").alias("seq"),
        sf.col("nth") if from_piece else (sf.lit(0) if nth is None else nth).alias("nth"),
        _or_null(summary, "binary").alias("summary"),
        _or_null(fact, _FACT).alias("fact"),
        _or_null(needs_full_check, "boolean").alias("needs_full_check"),
    )  # fmt: skip


def _or_null(column: Column | None, kind: DataType | str) -> Column:
    return sf.lit(None).cast(kind) if column is None else column


def summarise_pieces(checkers: Sequence[Machine], unpack: Pieces, given: Batches) -> Iterator[pa.RecordBatch]:
    """Job of `map_pieces`: the summaries and open rows of every machine, and the actors' summaries."""

    def summaries() -> Iterator[SummaryRow]:
        prechecker = Prechecker(checkers)
        actors = PartsOfActors()
        for unit in units_of(unpack(given)):
            for piece, part in prechecker.actor_summaries(unit):
                actors.add(piece, part)
            for nth, (machine, key, piece, summary) in enumerate(prechecker.check(unit)):
                yield SummaryRow(machine, pack(key), *piece.order, nth, pressed(pickle.dumps(summary)))
        yield from actors.rows()

    return batches(summaries(), SUMMARIES)


class PartsOfActors:
    """The summaries of actors from pieces of a task; pieces that follow each other become one part."""

    def __init__(self) -> None:
        self._parts: dict[Who, list[tuple[int, int, ActorSummary]]] = {}
        """(first seq, one past the last seq, summary)"""

    def add(self, piece: Chunk, part: ActorSummary) -> None:
        its = self._parts.setdefault((piece.run, piece.actor), [])
        if its and its[-1][1] == piece.seq_first:
            first, _, before = its.pop()
            before.merge(part)
            its.append((first, piece.seq_end, before))
        else:
            its.append((piece.seq_first, piece.seq_end, part))

    def rows(self) -> Iterator[SummaryRow]:
        for (run, actor), its in self._parts.items():
            for first, _, part in its:
                yield SummaryRow(None, None, run, actor, first, 0, actor_summary=actor_struct(part))


def merge_actors(given: Batches) -> Iterator[pa.RecordBatch]:
    """Parts, by actor and in the order of its rows: one summary for each actor."""
    merged = []
    for (run, actor), parts in groupby(rows_in(given), key=lambda row: (row["run"], row["actor"])):
        summary = ActorSummary()
        for part in parts:
            summary.merge(actor_summary_of(part["actor_summary"]))
        merged.append((run, actor, 0, actor_struct(summary)))
    return batches(merged, _ACTORS)


def check_pieces_fully(
    checkers: Sequence[Machine],
    unproven: Sequence[Place],
    files: Sequence[str],
    unpack: Pieces,
    given: Batches,
) -> Iterator[pa.RecordBatch]:
    """Job of `map_pieces`: summaries by the machines for the keys that no precheck could prove fine."""
    numbers = {name: number for number, name in enumerate(sorted(files))}

    def order(piece: Chunk) -> tuple[int, int, int]:
        """The order of a piece in the files, so that of duplicated rows the same one counts as second as in one process."""
        if piece.file not in numbers:
            return piece.order
        return piece.run, int(piece.offset < 0), numbers[piece.file] << 40 | max(piece.offset, 0)

    def summaries() -> Iterator[SummaryRow]:
        check = FullCheck(checkers, unproven)
        for unit in units_of(unpack(given)):
            for nth, (machine, key, piece, summary) in enumerate(check.summarise(unit)):
                yield SummaryRow(machine, pack(key), *order(piece), nth, pressed(pickle.dumps(summary)))

    return batches(summaries(), SUMMARIES)


def conclude_keys(
    machines: Sequence[Machine], context: TraceContext, only_marked: bool, given: Batches
) -> Iterator[pa.RecordBatch]:
    """Job of a stage, whose input comes key by key, in order: yields facts, and at the end of the task the outcomes added up.

    With `only_marked`, keys without a mark that they need a full check are passed over.
    """
    facts: list[Fact] = []
    keys = Keys(machines, InMemory())
    found = conclude(keys, _places(keys, rows_in(given), only_marked), context, facts.append)
    return batches(chain(_facts_as_rows(facts), found_rows(found)), OUTCOMES)


def _places(keys: Keys, rows: Iterable[dict[str, Any]], only_marked: bool) -> Iterator[Place]:
    """Each key when it has absorbed all its summaries; its state is dropped when it has been finished."""
    for (name, packed), group in groupby(rows, key=lambda row: (row["machine"], row["key"])):
        key = unpack(packed)
        is_wanted = not only_marked
        for row in group:
            if row["needs_full_check"]:
                is_wanted = True
            elif is_wanted:
                absorbed = _summary(row["summary"]) if row["fact"] is None else fact_of(row["fact"])
                keys.absorb(name, key, absorbed)
        if is_wanted:
            yield name, key
            keys.forget(name, key)


def _summary(pickled: bytes) -> Any:
    return pickle.loads(unpressed(pickled))  # noqa: S301 - our own tasks'


def conclude_stages(
    machines: Sequence[Machine], context: TraceContext, given: Batches
) -> Iterator[pa.RecordBatch]:
    """Job of all stages in one task: yields the actors' summaries, and outcomes up to those of a stage that
    leaves keys unproven.

    Summaries of actors come first: they have no machine.
    """
    states = InMemory()
    keys = Keys(machines, states)
    merged: defaultdict[Who, ActorSummary] = defaultdict(ActorSummary)
    for row in rows_in(given):
        if row["machine"] is None:
            merged[row["run"], row["actor"]].merge(actor_summary_of(row["actor_summary"]))
        else:
            keys.absorb(row["machine"], unpack(row["key"]), _summary(row["summary"]))
    context = replace(context, actor_summaries=dict(merged))

    def concluded() -> Iterator[tuple[Any, ...]]:
        for (run, actor), summary in merged.items():
            yield (*OutcomeRow(), None, run, actor, actor_struct(summary))
        for stage in stages_of(machines):
            facts: list[Fact] = []
            found = conclude(keys, states.places(machines, stage), context, facts.append)
            for outcome in chain(_facts_as_rows(facts), found_rows(found)):
                yield (*outcome, stage, None, None, None)
            if found.unproven:
                return
            for fact in facts:
                keys.tell(fact)

    return batches(concluded(), _CONCLUDED)


def _facts_as_rows(facts: Iterable[Fact]) -> Iterator[OutcomeRow]:
    for nth, (machine, key, fact) in enumerate(facts):
        yield OutcomeRow(machine, pack(key), nth, fact_struct(fact))


def _summaries_of(rows: Iterable[dict[str, Any]]) -> dict[Who, ActorSummary]:
    return {(row["run"], row["actor"]): actor_summary_of(row["actor_summary"]) for row in rows}


def merge_outcomes(given: Batches) -> Iterator[pa.RecordBatch]:
    """The findings, figures and keys of all tasks as those of one."""
    return batches(found_rows(_with_few_keys(found_of(rows_in(given)))), OUTCOMES)


def _with_few_keys(found: Found) -> Found:
    """Only NAMED_KEYS of a machine that are unproven are named; of more, every key is."""
    numbers = Counter(name for name, _ in found.unproven)
    found.unproven = {
        (name, key if numbers[name] <= NAMED_KEYS else EVERY_KEY) for name, key in found.unproven
    }
    return found


def _rows_of(stored: Stored) -> list[Row]:
    return rows_of(columns_of(stored))


def pick_evidence(
    wants: Sequence[Want], runs: Sequence[Run], unpack: Pieces, given: Batches
) -> Iterator[pa.RecordBatch]:
    """Job of `map_pieces`: the rows that explain findings."""
    found = [
        picked
        for piece, stored in unpack(given)
        for picked in pick(wants, runs, piece, partial(_rows_of, stored))
    ]
    return batches([(pickle.dumps(found),)], _EVIDENCE)
