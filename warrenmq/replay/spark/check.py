"""The rules on a DataFrame of rows: a trace, or the part of it that a filter, a union, or a trip through Parquet left.

Rows are cut into pieces where they lie, a piece a row: as a trace is read, and through most filters, those of
an actor still follow each other, so that hundreds of them go on as one.  Pieces that are near in time are
brought together, as in a file of a trace, so that most messages are sent, received and settled in one task,
and a busy actor is spread like any other.  There those that follow each other are joined, which mends rows
that came in any order, and kept; the catalogue is made from the pieces: an actor is whole when its rows run
without a gap to `actor_rows`.  All rows of a trace, as `read` gave them, are checked as a replay does, in the
blocks of its files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from warrenmq.replay.drive.columns import Ints
from warrenmq.replay.drive.driver import drive
from warrenmq.replay.drive.own_rules import SqlRule
from warrenmq.replay.drive.result import Result
from warrenmq.replay.rules.rule import Rule
from warrenmq.replay.spark.arrow_rows import TYPES, Piece
from warrenmq.replay.spark.engine import InSpark
from warrenmq.replay.spark.failures import told_in_a_sentence
from warrenmq.replay.spark.frames import narrowed, refuse_stream, whole_trace
from warrenmq.replay.spark.jobs import described
from warrenmq.replay.spark.own_rules import check_own, verdicts_own
from warrenmq.replay.spark.partitions import ROWS_OF_PIECES, in_few_partitions, partitions
from warrenmq.replay.spark.source import Batches, Job, index_trace, map_pieces
from warrenmq.replay.spark.stage_columns import batches, rows_in
from warrenmq.trace.catalog import STRANGER, Catalog, Chunk, Coverage, build_catalog
from warrenmq.trace.events import SCHEMA_VERSION
from warrenmq.trace.index import BROKER, ActorEntry, FileIndex, FrameEntry, run_starts
from warrenmq.trace.schema import COLUMNS as STORED
from warrenmq.trace.schema import Row

_WHOSE = ("directory", "vhost")
_LATER = {"run_actors": "null", "directory": "''", "vhost": "''"}
"""Columns that older rows do not have, and what stands for them: one broker, and any number of actors."""
_KNOWN_LATER = ("actor_rows", "run_actors")
_GIVEN = (
    "run", "actor", "kind", "parent_id", "actor_rows", "t", "seq", "msg", "peer_id", "pseq", "a", "b", "c",
)  # fmt: skip
_NEEDED = (*_GIVEN, "actor_id", "ev_id", "flag_id")
_WHO = "shiftleft(actor_id, 16) | shiftleft(ev_id, 8) | flag_id as who"
_NULLABLE = {"actor", "kind", "parent_id", "actor_rows"}
_COLUMNS = ("t", "seq", "msg", "peer_id", "pseq", "a", "b", "c", "who")
INCIDENTS_DDL = "what string, count long"
VIOLATIONS_DDL = (
    "rule string, subject string, text string, rows array<struct<run: string, actor: string, seq: long>>, "
    "exercised long"
)
VERDICTS_DDL = "rule string, name string, text string, exercised long, violated long, indeterminate long"


def check(rows: DataFrame, own: Sequence[Rule] = (), queries: Sequence[SqlRule] = ()) -> DataFrame:
    """Run the jobs of a check, and return the violations; no row = every invariant holds as far as the rows show."""
    found = _checked(rows, own, queries)
    violations = [
        (
            finding.rule,
            finding.subject,
            finding.text,
            [
                (found.catalog.runs[run].name, found.catalog.runs[run].actor_name(actor), seq)
                for run, actor, seq in finding.rows
            ],
            found.figures["exercised"][finding.rule],
        )
        for finding in found.violations
    ]
    by_machines = rows.sparkSession.createDataFrame(violations, VIOLATIONS_DDL).coalesce(1)
    return by_machines.unionByName(check_own(rows, queries, found)) if queries else by_machines


def verdicts(rows: DataFrame, own: Sequence[Rule] = (), queries: Sequence[SqlRule] = ()) -> DataFrame:
    """Run the jobs of a check, and return how each rule fared: one row for each."""
    found = _checked(rows, own, queries)
    asked = {each.id for each in queries}
    decided = [rule for rule in found.rules if rule.id not in asked]
    by_machines = rows.sparkSession.createDataFrame(decided, VERDICTS_DDL).coalesce(1)
    return by_machines.unionByName(verdicts_own(rows, queries, found)) if queries else by_machines


def _checked(rows: DataFrame, own: Sequence[Rule], queries: Sequence[SqlRule]) -> Result:
    """The result of a check, in which queries are rules of which nothing is known but what missing rows leave open."""
    with told_in_a_sentence():
        return check_rows(rows, [*own, *(each.as_rule() for each in queries)])


def incidents(rows: DataFrame) -> DataFrame:
    """Run the jobs of a check, and return counts of incidents, as (what, count): one row for each name in incidents.py."""
    with told_in_a_sentence():
        counts: dict[str, int] = check_rows(rows).figures["incidents"]
    return rows.sparkSession.createDataFrame(list(counts.items()), INCIDENTS_DDL)


def check_rows(rows: DataFrame, own: Sequence[Rule] = ()) -> Result:
    """Check rows; returns also indeterminate findings and figures."""
    refuse_stream(rows, "`warrenmq trace watch` judges a live trace, and check what read gives of it")
    spark = rows.sparkSession
    if (paths := whole_trace(rows)) is not None:  # blocks of files need not become rows first
        trace = index_trace(spark, *paths)
        with InSpark(spark, trace.catalog, partial(map_pieces, spark, trace), own) as in_files:
            return drive(in_files, explained=False)
    stored = narrowed(rows, {*_NEEDED, *(name for name in _LATER if name in rows.columns)})
    typed = stored.selectExpr(*(_typed(name, stored) for name in (*_NEEDED, *_LATER)))
    needed = in_few_partitions(typed.selectExpr(*_GIVEN, *_LATER, _WHO))
    with ExitStack() as kept:
        together = _joined(needed, kept)
        catalog = _catalog(together)
        if catalog.overlaps:  # a union, or a table that was written twice, may have the same rows twice
            by_row = needed.repartition(partitions(catalog.rows, ROWS_OF_PIECES), "run", "seq")
            together = _joined(_distinct(by_row), kept)
            catalog = _catalog(together)
            catalog.counts_once = True
        numbers = {run.name: number for number, run in enumerate(catalog.runs)}

        def over_pieces(job: Job, schema: StructType) -> DataFrame:
            return together.mapInArrow(partial(job, partial(_unpack, numbers)), schema)

        setting = kept.enter_context(InSpark(spark, catalog, over_pieces, own))
        return drive(setting, explained=False)


def _typed(name: str, rows: DataFrame) -> str:
    """A column as check needs it, whatever a table made of its type; rows that lack what every row has are refused."""
    given = name if name in rows.columns else "null"
    lacking = (
        "null" if name in _NULLABLE else f"raise_error('these are no rows of a trace: one has no {name}.')"
    )
    return f"coalesce(cast({given} as {TYPES[name]}), {_LATER.get(name, lacking)}) as {name}"


def _joined(needed: DataFrame, kept: ExitStack) -> DataFrame:
    """The rows as pieces that are as long as can be, those that are near in time together."""
    pieces = _kept(needed.mapInArrow(_cut_pieces, from_arrow_schema(_PIECES)), kept)
    with described(needed.sparkSession, "cut the rows into pieces, and count them"):
        rows_in_all = pieces.agg(sf.sum(sf.size("t"))).collect()[0][0] or 0
    number = partitions(rows_in_all, ROWS_OF_PIECES)
    sent = pieces.repartitionByRange(number, "run", _first("t")) if number > 1 else pieces.repartition(1)
    ordered = sent.sortWithinPartitions("run", _first("who"), _first("seq"))
    return _kept(ordered.mapInArrow(_join_pieces, from_arrow_schema(_PIECES)), kept)


def _distinct(rows: DataFrame) -> DataFrame:
    """Each row once, with the most that is known of its actor and run: an earlier copy of a trace that grew knew less."""
    known = [sf.max(name).alias(name) for name in _KNOWN_LATER]
    each = rows.groupBy(*(name for name in rows.columns if name not in _KNOWN_LATER)).agg(*known)
    return each.select(*rows.columns)


def _kept(rows: DataFrame, until: ExitStack) -> DataFrame:
    cached = rows.cache()
    until.callback(cached.unpersist)
    return cached


def _first(column: str) -> Column:
    """Of a piece: that of its first row; of `who` the actor."""
    value = sf.get(column, sf.lit(0))
    return sf.shiftright(value, 16) if column == "who" else value


def _cut_pieces(given: Batches) -> Iterator[pa.RecordBatch]:
    """Rows -> pieces of consecutive rows, in the order in which the rows came."""
    for batch in given:
        if batch.num_rows:
            runs = batch.column("run").dictionary_encode().indices.to_numpy()
            yield _cut(batch.select(_SAME), runs, [batch.column(name) for name in _COLUMNS])


def _join_pieces(given: Batches) -> Iterator[pa.RecordBatch]:
    """Pieces, by actor and in their order -> the same rows, in as few pieces as there can be."""
    for batch in given:
        if batch.num_rows:
            lengths = batch.column("t").value_lengths().to_numpy()
            piece = np.repeat(np.arange(batch.num_rows), lengths)
            runs = batch.column("run").dictionary_encode().indices.to_numpy()[piece]
            yield _cut(batch.select(_SAME), runs, [batch.column(name).flatten() for name in _COLUMNS], piece)


def _cut(
    same: pa.RecordBatch, runs: Ints, columns: list[pa.Array], whose: Ints | None = None
) -> pa.RecordBatch:
    """Rows as pieces; `whose` are the places of their other columns, if these are not a row a row."""
    seqs, actors = columns[_COLUMNS.index("seq")].to_numpy(), columns[_COLUMNS.index("who")].to_numpy() >> 16
    cut = (np.diff(seqs) != 1) | (np.diff(actors) != 0) | (np.diff(runs) != 0)
    firsts = np.concatenate(([0], np.flatnonzero(cut) + 1))
    offsets = pa.array(np.append(firsts, len(seqs)), pa.int32())
    places = pa.array(firsts if whose is None else whose[firsts])
    named = [same.column(name).take(places).cast(_PIECES.field(name).type) for name in _SAME]
    rows = [pa.ListArray.from_arrays(offsets, column) for column in columns]
    return pa.RecordBatch.from_arrays([*named, *rows], schema=_PIECES)


def _pieces(given: Batches) -> Iterator[tuple[dict[str, Any], list[memoryview]]]:
    """Each piece: the columns that are the same in all of its rows, and the others."""
    for batch in given:
        same = batch.select(_SAME).to_pylist()
        columns = [batch.column(name) for name in _COLUMNS]
        for number, its in enumerate(same):
            yield its, [_int64s(column[number].values) for column in columns]


def _int64s(column: pa.Array) -> memoryview:
    """The numbers of a column of longs, which has no nulls."""
    start = column.offset * 8
    return memoryview(column.buffers()[1])[start : start + len(column) * 8].cast("q")


def _unpack(numbers: dict[str, int], given: Batches) -> Iterator[Piece]:
    """Unpack rows into pieces, for jobs that want pieces."""
    for same, columns in _pieces(given):
        yield Chunk.of(numbers[same["run"]], _entry(columns), "", 0), columns


def _entry(columns: list[memoryview]) -> FrameEntry:
    """A piece, as if it stood at the begin of a file."""
    stored = dict(zip(STORED, columns, strict=True))
    t, seq, who = stored["t"], stored["seq"], stored["who"]
    return FrameEntry(0, seq[0], len(t), t[0], t[-1], who[-1])


def _catalog(rows: DataFrame) -> Catalog:
    """Made from the pieces: one imagined file for each run, and the coverage of each actor."""
    pieces = rows.mapInArrow(_entries, from_arrow_schema(_ENTRIES))
    actors = (
        pieces.repartition(1, "run", "actor_id")
        .sortWithinPartitions("run", "actor_id", "seq_first")
        .mapInArrow(_cover, from_arrow_schema(_ACTORS))
    )
    with described(rows.sparkSession, "find out which rows of each actor are there"):
        found = [row.asDict(recursive=True) for row in actors.collect()]
    files: dict[str, FileIndex] = {}
    for actor in found:
        name = actor["run"]
        if name not in files:
            header = {
                "run": name, "node": "", "pid": 0, "boot": 0, "wall_ns": 0, "mono_ns": 0, "v": SCHEMA_VERSION, "n": 1,
                "events": {}, "filtered": True, "directory": actor["directory"], "vhost": actor["vhost"],
            }  # fmt: skip
            files[name] = FileIndex(name, header)
        files[name].actors[actor["actor_id"]] = ActorEntry(actor["actor"], actor["kind"], actor["parent_id"])
        files[name].starts += [Row._make(start) for start in actor["starts"]]
    catalog = build_catalog(files.values())
    numbers = {run.name: number for number, run in enumerate(catalog.runs)}
    with_rows = Counter(actor["run"] for actor in found)
    for actor in found:
        for twice in actor["overlaps"]:
            if (seq := twice["behind"]["seq_first"]) < twice["before"]["seq_first"] + twice["before"]["rows"]:
                catalog.runs[numbers[actor["run"]]].contradicted = f"row {seq} of {actor['actor']}"
    for actor in found:
        number = numbers[actor["run"]]
        if actor["run_actors"] != with_rows[actor["run"]]:
            catalog.coverage[number, STRANGER] = Coverage(number, STRANGER)
        coverage = Coverage(number, actor["actor_id"], **{name: actor[name] for name in _COVERED})
        coverage.missing = [(gap["first"], gap["last"]) for gap in actor["missing"]]
        coverage.close(catalog.runs[number], at_end=actor["at_end"])
        catalog.coverage[number, coverage.actor] = coverage
        catalog.overlaps += [
            (_chunk(number, twice["before"]), _chunk(number, twice["behind"])) for twice in actor["overlaps"]
        ]
    return catalog


def _chunk(run: int, entry: dict[str, int]) -> Chunk:
    return Chunk.of(run, FrameEntry(**entry), "", entry["offset"])


_ENTRY = pa.struct([(name, pa.int64()) for name in FrameEntry._fields])
_NAMED = [
    ("run", pa.string()), ("actor_id", pa.int64()), ("actor", pa.string()), ("kind", pa.string()), ("parent_id", pa.int64()),
    ("run_actors", pa.int64()), *((name, pa.string()) for name in _WHOSE),
]  # fmt: skip
_SAME = ["run", "actor", "kind", "parent_id", "actor_rows", *_LATER]
_PIECES = pa.schema([
    *((name, pa.int64() if TYPES[name] == "long" else pa.string()) for name in _SAME),
    *((name, pa.list_(pa.int64())) for name in _COLUMNS),
])  # fmt: skip
"""A row a piece: consecutive rows of one actor, as columns."""

_ENTRIES = pa.schema([
    *_NAMED, *((name, pa.int64()) for name in FrameEntry._fields), ("starts", pa.list_(pa.list_(pa.int64()))),
])  # fmt: skip
_COVERED = (
    "last_seq", "rows", "gaps", "missing_rows", "stopped", "known_until", "t_first", "t_last",
)  # fmt: skip
_ACTORS = pa.schema([
    *_NAMED,
    *((name, pa.bool_() if name == "stopped" else pa.int64()) for name in _COVERED),
    ("missing", pa.list_(pa.struct([("first", pa.int64()), ("last", pa.int64())]))),
    ("at_end", pa.bool_()),
    ("starts", pa.list_(pa.list_(pa.int64()))),
    ("overlaps", pa.list_(pa.struct([("before", _ENTRY), ("behind", _ENTRY)]))),
])  # fmt: skip


def _entries(given: Batches) -> Iterator[pa.RecordBatch]:
    """The pieces that are there, without their rows."""

    def entries() -> Iterator[tuple[Any, ...]]:
        for same, columns in _pieces(given):
            # A piece that ends with the actor's last row is as good as one from a slab: nothing can follow it.
            entry = _entry(columns)
            if entry.seq_first + entry.rows - 1 == same["actor_rows"]:
                entry = entry._replace(offset=-1)
            starts = run_starts(columns) if same["kind"] == BROKER else []
            named = (same[name] for name in ("run", "actor", "kind", "parent_id", *_LATER))
            run, *names = named
            yield run, entry.who >> 16, *names, *entry, starts

    return batches(entries(), _ENTRIES)


def _cover(given: Batches) -> Iterator[pa.RecordBatch]:
    """Pieces, by actor and in the order of its rows: one row for each actor."""

    def actors() -> Iterator[tuple[Any, ...]]:
        for _, its in groupby(rows_in(given), key=lambda row: (row["run"], row["actor_id"])):
            coverage, starts, overlaps = Coverage(0, 0), [], []
            before: dict[str, int] | None = None
            for piece in its:
                entry = {name: piece[name] for name in FrameEntry._fields}
                if not coverage.add(_chunk(0, entry)):
                    overlaps.append({"before": before, "behind": entry})
                starts += piece["starts"]
                before = entry
            yield (
                *(piece[name] for name, _ in _NAMED), *(getattr(coverage, name) for name in _COVERED),
                [{"first": first, "last": last} for first, last in coverage.missing], entry["offset"] < 0, starts, overlaps,
            )  # fmt: skip

    return batches(actors(), _ACTORS)
