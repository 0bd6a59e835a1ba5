"""The rules on a DataFrame of rows: whatever is left of a trace after a filter, a union, or a trip through Parquet.

Rows are brought together by blocks of an actor (never a whole actor in one place) and cut into pieces again, and the
catalogue is made from the pieces that are there: an actor is whole when its rows run without a gap to `actor_rows`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from warrenmq.replay.drive.engine import Result
from warrenmq.replay.spark.arrow_rows import Piece
from warrenmq.replay.spark.engine import conclude
from warrenmq.replay.spark.failures import told_in_a_sentence
from warrenmq.replay.spark.partitions import ROWS_OF_PIECES, partitions
from warrenmq.replay.spark.source import Batches
from warrenmq.trace.catalog import Catalog, Chunk, build_catalog
from warrenmq.trace.events import SCHEMA_VERSION, Ev
from warrenmq.trace.index import BROKER, ActorEntry, FileIndex, FrameEntry, Row, rows_of

PIECE_ROWS = 1024
_BLOCK_BITS = 14
"""Rows of one actor that go to one place: 16,384."""

_WHOSE = ("directory", "vhost")
_COLUMNS = ("t", "seq", "msg", "peer_id", "pseq", "a", "b", "c", "who")
INCIDENTS_DDL = "what string, count long"
VIOLATIONS_DDL = (
    "rule string, subject string, text string, rows array<struct<run: string, actor: string, seq: long>>"
)


def check(rows: DataFrame) -> DataFrame:
    """The violations; no row = every invariant holds as far as the rows tell."""
    with told_in_a_sentence():
        found = check_rows(rows)
    violations = [
        (
            finding.rule,
            finding.subject,
            finding.text,
            [
                (found.catalog.runs[run].name, found.catalog.runs[run].actor_name(actor), seq)
                for run, actor, seq in finding.rows
            ],
        )
        for finding in found.violations
    ]
    return rows.sparkSession.createDataFrame(violations, VIOLATIONS_DDL).coalesce(1)


def incidents(rows: DataFrame) -> DataFrame:
    """How often what went wrong, broken rule or not, as (what, count): one row for each name in incidents.py."""
    counts: dict[str, int] = check_rows(rows).figures["incidents"]
    return rows.sparkSession.createDataFrame(list(counts.items()), INCIDENTS_DDL)


def check_rows(rows: DataFrame) -> Result:
    """The same with what is indeterminate, and the figures."""
    # rows that were stored before there were such columns have one broker
    whose = [name if name in rows.columns else f"'' as {name}" for name in _WHOSE]
    needed = rows.selectExpr(
        *whose, "run", "actor", "kind", "parent_id", "actor_rows", "t", "seq", "msg", "peer_id", "pseq", "a", "b", "c",
        "shiftleft(actor_id, 16) | shiftleft(ev_id, 8) | flag_id as who", "actor_id",
    )  # fmt: skip
    with ExitStack() as kept:
        needed = _kept(needed, kept)  # it is counted, and then sent: what it comes from is asked once
        number = partitions(needed.count(), ROWS_OF_PIECES)
        block = sf.expr(f"shiftright(seq, {_BLOCK_BITS})")
        sent = needed.repartition(number, "run", "actor_id", block).sortWithinPartitions(
            "run", "actor_id", "seq"
        )
        together = _kept(sent, kept)
        catalog = _catalog(together)
        numbers = {run.name: number for number, run in enumerate(catalog.runs)}
        return conclude(catalog, lambda job, ddl: together.mapInArrow(job(partial(_unpack, numbers)), ddl))


def _kept(rows: DataFrame, until: ExitStack) -> DataFrame:
    cached = rows.cache()
    until.callback(cached.unpersist)
    return cached


def _pieces(batches: Batches) -> Iterator[tuple[dict[str, Any], list[memoryview]]]:
    """Consecutive rows of one actor, with the columns that are the same in all of them."""
    for batch in batches:
        runs, actors, seqs = (batch.column(name).to_pylist() for name in ("run", "actor_id", "seq"))
        begin = 0
        for at in range(1, len(seqs) + 1):
            if (
                at == len(seqs)
                or at - begin == PIECE_ROWS
                or seqs[at] != seqs[at - 1] + 1
                or actors[at] != actors[at - 1]
                or runs[at] != runs[at - 1]
            ):
                piece = batch.slice(begin, at - begin)
                same = {
                    name: piece.column(name)[0].as_py()
                    for name in ("run", "actor", "kind", "parent_id", "actor_rows", *_WHOSE)
                }
                yield same, [_int64s(piece.column(name)) for name in _COLUMNS]
                begin = at


def _int64s(column: pa.Array) -> memoryview:
    """The numbers of a column of longs, which has no nulls."""
    start = column.offset * 8
    return memoryview(column.buffers()[1])[start : start + len(column) * 8].cast("q")


def _unpack(numbers: dict[str, int], batches: Batches) -> Iterator[Piece]:
    """For jobs that want pieces."""
    for same, columns in _pieces(batches):
        entry = _entry(columns, 0)
        chunk = Chunk(
            numbers[same["run"]], entry.who >> 16, entry.seq_first, entry.rows, entry.t_first, entry.t_last, entry.who,
            "", 0,
        )  # fmt: skip
        yield chunk, columns


def _entry(columns: list[memoryview], offset: int) -> FrameEntry:
    t, seq, who = columns[0], columns[1], columns[8]
    return FrameEntry(offset, seq[0], len(t), t[0], t[-1], who[-1])


def _catalog(rows: DataFrame) -> Catalog:
    """Made from the pieces: one imagined file for each run."""
    files: dict[str, FileIndex] = {}
    for found in rows.mapInArrow(_tell_pieces, "piece string").collect():
        same, entry, starts = json.loads(found["piece"])
        name = same["run"]
        if name not in files:
            header = {
                "run": name, "node": "", "pid": 0, "boot": 0, "wall_ns": 0, "mono_ns": 0, "v": SCHEMA_VERSION, "n": 1,
                "events": {}, "filtered": True, "directory": same["directory"], "vhost": same["vhost"],
            }  # fmt: skip
            files[name] = FileIndex(name, header)
        file, frame = files[name], FrameEntry(*entry)
        file.actors[frame.who >> 16] = ActorEntry(same["actor"], same["kind"], same["parent_id"])
        file.frames.append(frame)
        file.starts += [Row._make(row) for row in starts]
    for file in files.values():
        file.frames.sort(key=lambda frame: (frame.who >> 16, frame.seq_first))
    return build_catalog(files[name] for name in sorted(files))


def _tell_pieces(batches: Batches) -> Iterator[pa.RecordBatch]:
    for same, columns in _pieces(batches):
        # A piece that ends with the actor's last row is as good as one from a slab: nothing can follow it.
        at_end = columns[1][-1] == same["actor_rows"]
        starts: list[Row] = []
        if same["kind"] == BROKER:
            starts = [row for row in rows_of(columns) if row[8] >> 8 & 0xFF == Ev.RUN_START]
        told = json.dumps([same, _entry(columns, -1 if at_end else 0), starts])
        yield pa.RecordBatch.from_arrays([pa.array([told])], ["piece"])
