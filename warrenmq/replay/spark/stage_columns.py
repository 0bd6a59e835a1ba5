"""The columns between the stages of a replay in Spark, named, to be looked at like any others.

    summaries     from a piece of the trace for a key of a machine, and of its actor
    stage input   summaries, the facts of the stages before, and which keys need a full check
    outcomes      facts, findings, figures, files of stores, and the keys that need a full check; one kind a row, the other columns
                  are null

`summary` alone is binary: it is the machine's own, a pickle of tuples and arrays, pressed.  A key is an array
of parts, each of which is a `text` or a `number`: the machine says what they are (of `files`, for instance,
run, store and file).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from warrenmq.replay.drive.findings import Found
from warrenmq.replay.drive.machines import FigureKey, FileEnd, Finding, Held, Key
from warrenmq.replay.drive.trace_context import ActorSummary
from warrenmq.trace.schema import COLUMNS, Row

BATCH_ROWS = 4096
_CODEC = "lz4_raw"
_LENGTH = 8
"""Bytes of the length, which this codec does not keep."""

_KEY = pa.list_(pa.struct([("text", pa.string()), ("number", pa.int64())]))
ROW = pa.struct([(name, pa.int64()) for name in COLUMNS])
_ACTOR_SUMMARY = pa.struct([
    ("counts", pa.map_(pa.int32(), pa.int64())), ("first_t", pa.int64()), ("incarnation", pa.int64()),
    ("started_t", pa.int64()), ("stopped", ROW), ("recovered", ROW), ("closed", ROW), ("last_sync", pa.int64()),
    ("deleted_t", pa.int64()), ("last_act", pa.struct([("t", pa.int64()), ("seq", pa.int64())])), ("last_work", pa.int64()),
    ("ended_run", pa.bool_()),
])  # fmt: skip
_OF_ACTOR = [("run", pa.int32()), ("actor", pa.int32())]
_FINDING = pa.struct([
    ("rule", pa.string()), ("subject", pa.string()), ("text", pa.string()), ("t", pa.int64()), ("stands", pa.bool_()),
    ("rows", pa.list_(pa.struct([*_OF_ACTOR, ("seq", pa.int64())]))), ("needs", pa.list_(pa.struct(_OF_ACTOR))),
    ("about", pa.list_(pa.int64())),
])  # fmt: skip
_FIGURE = pa.struct([
    ("key", _KEY), ("count", pa.int64()), ("largest", pa.int64()), ("histogram", pa.map_(pa.int64(), pa.int64())),
])  # fmt: skip
"""A count, or the largest number; or how often each number was met, such as classes of a delay."""

_FILE = pa.struct([
    *((name, pa.int64()) for name in FileEnd._fields[:-1]), ("locked", pa.bool_()),
])  # fmt: skip

FACT = pa.struct([*_OF_ACTOR, ("message", pa.int64())])
"""A queue that held a message at the clean end of its run."""

SUMMARIES = pa.schema([
    ("machine", pa.string()), ("key", _KEY), *_OF_ACTOR, ("seq", pa.int64()), ("nth", pa.int32()),
    ("summary", pa.binary()), ("actor_summary", _ACTOR_SUMMARY),
])  # fmt: skip
OUTCOMES = pa.schema([
    ("machine", pa.string()), ("key", _KEY), ("nth", pa.int32()), ("fact", FACT),
    ("needs_full_check", pa.bool_()), ("finding", _FINDING), ("figure", _FIGURE), ("file", _FILE),
])  # fmt: skip

PackedKey = list[tuple[str | None, int | None]]
"""A key as it goes to Arrow."""


class SummaryRow(NamedTuple):
    """A row of summaries."""

    machine: str | None
    key: PackedKey | None
    run: int
    actor: int
    seq: int
    nth: int
    """Keeps the order of the summaries of one piece."""
    summary: bytes | None = None
    actor_summary: dict[str, Any] | None = None


class OutcomeRow(NamedTuple):
    """A row of outcomes."""

    machine: str | None = None
    """Which machine the fact is for, or whose key needs a full check."""
    key: PackedKey | None = None
    nth: int | None = None
    """Keeps the order of the facts of one key."""
    fact: dict[str, int] | None = None
    needs_full_check: bool | None = None
    finding: dict[str, Any] | None = None
    figure: dict[str, Any] | None = None
    file: dict[str, Any] | None = None


def pack(key: Key | FigureKey) -> PackedKey:
    """A key as parts."""
    return [(part, None) if isinstance(part, str) else (None, int(part)) for part in key]  # int: of numpy's


def unpack(parts: Sequence[dict[str, Any]]) -> Key:
    """Make the key of a column's parts."""
    return tuple(part["number"] if part["text"] is None else part["text"] for part in parts)


def pressed(data: bytes | memoryview) -> bytes:
    """Bytes as they go through Spark, which moves them a dozen times: to Java, through a cache and a shuffle,
    and to Python.
    """
    compressed: bytes = pa.compress(data, codec=_CODEC, asbytes=True)
    return len(data).to_bytes(_LENGTH, "little") + compressed


def unpressed(data: bytes | memoryview) -> pa.Buffer:
    """The inverse."""
    return pa.decompress(data[_LENGTH:], int.from_bytes(data[:_LENGTH], "little"), codec=_CODEC)


def batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches."""
    pending: list[tuple[Any, ...]] = []
    for row in rows:
        pending.append(row)
        if len(pending) == BATCH_ROWS:
            yield _batch(pending, schema)
            pending = []
    if pending:
        yield _batch(pending, schema)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_in(arrow: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """The rows of Arrow batches, by the names of their columns; maps as pairs."""
    for batch in arrow:
        yield from batch.to_pylist()


def found_rows(found: Found) -> Iterator[OutcomeRow]:
    """Outcomes of keys, added up, as rows."""
    for name, key in sorted(found.unproven, key=repr):
        yield OutcomeRow(name, pack(key), needs_full_check=True)
    for findings, stands in ((found.violations, True), (found.indeterminate, False)):
        for finding in findings:
            yield OutcomeRow(finding=_finding_struct(finding, stands=stands))
    for file in found.files:
        yield OutcomeRow(file=file._asdict())
    for key, n in found.figures.items():
        yield OutcomeRow(figure={"key": pack(key), "count": n})
    for key, n in found.largest.items():
        yield OutcomeRow(figure={"key": pack(key), "largest": n})
    for key, counts in found.histograms.items():
        yield OutcomeRow(figure={"key": pack(key), "histogram": list(counts.items())})


def found_of(rows: Iterable[dict[str, Any]]) -> Found:
    """Make the outcomes of rows, added up; the inverse of `found_rows`."""
    found = Found()
    for row in rows:
        if (figure := row["figure"]) is not None:
            key = unpack(figure["key"])
            if figure["largest"] is not None:
                found.note_largest({key: figure["largest"]})
            elif figure["histogram"] is None:
                found.figures[key] += figure["count"]
            else:
                found.note_histograms({key: dict(figure["histogram"])})
        elif (file := row["file"]) is not None:
            found.files.add(FileEnd(**file))
        elif (finding := row["finding"]) is not None:
            (found.violations if finding["stands"] else found.indeterminate).add(_finding(finding))
        else:
            found.unproven.add((row["machine"], unpack(row["key"])))
    return found


def _finding_struct(finding: Finding, *, stands: bool) -> dict[str, Any]:
    struct = finding._asdict() | {"stands": stands}
    struct["rows"] = [{"run": run, "actor": actor, "seq": seq} for run, actor, seq in finding.rows]
    struct["needs"] = [{"run": run, "actor": actor} for run, actor in finding.needs]
    return struct


def _finding(struct: dict[str, Any]) -> Finding:
    return Finding(
        struct["rule"], struct["subject"], struct["text"], tuple((each["run"], each["actor"], each["seq"]) for each in struct["rows"]),
        struct["t"], tuple((each["run"], each["actor"]) for each in struct["needs"]), tuple(struct["about"]),
    )  # fmt: skip


def fact_struct(held: Held) -> dict[str, int]:
    """A fact as a struct."""
    (run, actor), message = held
    return {"run": run, "actor": actor, "message": message}


def fact_of(struct: dict[str, int]) -> Held:
    """Make the fact of a struct."""
    return (struct["run"], struct["actor"]), struct["message"]


def actor_struct(summary: ActorSummary) -> dict[str, Any]:
    """An actor's summary as a struct."""
    struct = {name: getattr(summary, name) for name in _ACTOR_FIELDS}
    for name in ("stopped", "recovered", "closed"):
        struct[name] = None if struct[name] is None else dict(zip(COLUMNS, struct[name], strict=True))
    struct["last_act"] = (
        None if summary.last_act is None else dict(zip(("t", "seq"), summary.last_act, strict=True))
    )
    struct["counts"] = list(summary.counts.items())
    return struct


def actor_summary_of(struct: dict[str, Any]) -> ActorSummary:
    """Make the summary of a struct, whose counts are a dict or pairs."""
    rows = {name: _row(struct[name]) for name in ("stopped", "recovered", "closed")}
    act = struct["last_act"]
    last_act = None if act is None else (act["t"], act["seq"])
    return ActorSummary(**struct | rows | {"last_act": last_act, "counts": dict(struct["counts"])})


_ACTOR_FIELDS = tuple(field.name for field in _ACTOR_SUMMARY)


def _row(struct: dict[str, int] | None) -> Row | None:
    return None if struct is None else Row(**struct)
