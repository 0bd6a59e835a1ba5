"""The history of replays: a Parquet table to which each replay adds its results, for pandas, DuckDB and Spark.

A directory holds one file for each replay: a row for each rule (its cases, violations, undecided cases) and a
row for each figure, named by its place in `replay --json`: `events`, `incidents.crashes`,
`delays_ms.confirm.p99`.  A file comes with one rename, so readers see all of a replay or nothing.  It is
called after the contents of the trace: the same trace, replayed again, takes the place of its earlier
results; one that has grown since is another.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from warrenmq.errors import CallerError
from warrenmq.replay.replayed import Replayed
from warrenmq.replay.spark.addresses import is_of_spark
from warrenmq.replay.spark.session import require_pyspark
from warrenmq.trace.catalog import Catalog
from warrenmq.trace.events import Profile, RunStart
from warrenmq.trace.reader import is_address
from warrenmq.version import version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUFFIX = ".parquet"
NOT_FIGURES = {"brokers", "rules", "exercised", "state"}
"""Keys of a result's figures that are in other rows, or are not numbers to compare."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.list_(pa.string())
SCHEMA = pa.schema(
    [
        ("replay", pa.string()), ("began", _TIME), ("added", _TIME), ("trace", pa.string()), ("runs", _TEXTS), ("brokers", _TEXTS),
        ("settings", pa.string()), ("version", pa.string()), ("engine", pa.string()), ("verdict", pa.string()), ("kind", pa.string()),
        ("name", pa.string()), ("text", pa.string()), ("cases", pa.int64()), ("violated", pa.int64()), ("undecided", pa.int64()),
        ("value", pa.float64()),
    ]
)  # fmt: skip


class HistoryRow(NamedTuple):
    """A rule or a figure of one replay; docs/replay.md describes the columns."""

    replay: str
    began: datetime
    added: datetime
    trace: str
    runs: list[str]
    brokers: list[str]
    settings: str
    version: str
    engine: str
    verdict: str
    kind: str
    name: str
    text: str | None = None
    cases: int | None = None
    violated: int | None = None
    undecided: int | None = None
    value: float | None = None


def check_target(folder: str) -> None:
    """Raise what `add` would raise because of the directory, before minutes of work; makes nothing."""
    if is_address(folder):
        raise CallerError(
            f"{folder} is an address; a history is written to a directory of this machine, and read by Spark from anywhere."
        )
    if os.path.isdir(folder):
        _files(folder)
    elif os.path.exists(folder):
        raise CallerError(f"{folder} is a file; name the directory of a history.")
    else:
        os.stat(os.path.join(os.path.dirname(os.path.abspath(folder)), ""))
    parent = folder if os.path.isdir(folder) else os.path.dirname(os.path.abspath(folder))
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(13, os.strerror(13), parent)


def add(replayed: Replayed, folder: str) -> bool:
    """Add a replay's results to the history in `folder`, which is made if need be; True if they replaced earlier ones."""
    check_target(folder)
    rows = list(rows_of(replayed))
    name = f"replay-{rows[0].replay}{SUFFIX}"
    table = pa.Table.from_pylist([row._asdict() for row in rows], schema=SCHEMA)
    os.makedirs(folder, exist_ok=True)
    for path in _files(folder):
        if os.path.basename(path) != name and rows[0].replay in set(_table(path)["replay"].to_pylist()):
            raise CallerError(
                f"{path} has this replay already, under a name that is not of this program; take it out first."
            )
    target = os.path.join(folder, name)
    replaced = os.path.exists(target)
    # the dot keeps Spark and pyarrow from reading what a killed process left
    unfinished = os.path.join(folder, f".{name}.{os.getpid()}")
    try:
        with open(unfinished, "wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise
    return replaced


def rows_of(replayed: Replayed) -> Iterator[HistoryRow]:
    """The rows that a replay adds: its rules, then its figures."""
    catalog, figures = replayed.result.catalog, replayed.result.figures
    path = replayed.path if is_of_spark(replayed.path) else os.path.abspath(replayed.path)
    began = _EPOCH + timedelta(microseconds=min(run.wall_ns for run in catalog.runs) // 1000)
    common = (
        _identity(catalog), began, datetime.now(UTC), path, [run.name for run in catalog.runs],
        [broker["broker"] for broker in figures["brokers"]], _settings(catalog), version(), replayed.engine, replayed.verdict,
    )  # fmt: skip
    for rule in replayed.rules:
        yield HistoryRow(*common, "rule", rule.id, rule.name, rule.checked, rule.violated, rule.indeterminate)
    numbers = {name: value for name, value in figures.items() if name not in NOT_FIGURES}
    for name, value in _numbers("", {**numbers, "seconds": replayed.seconds}):
        yield HistoryRow(*common, "figure", name, value=value)


def _identity(catalog: Catalog) -> str:
    """A number of the trace: of its runs and the extent of their actors' rows, so that a copy of a trace is the same trace.

    Headers alone do not do: runs in simulation have the same clocks and process ids.
    """
    runs = [(run.directory, run.vhost, run.name, run.boot, run.pid, run.wall_ns) for run in catalog.runs]
    actors = sorted((*who, each.rows, each.t_first, each.t_last) for who, each in catalog.coverage.items())
    return hashlib.sha256(json.dumps([runs, actors]).encode()).hexdigest()[:16]


def _settings(catalog: Catalog) -> str:
    """The settings that the last run's RUN_START says, as JSON."""
    starts = [run.start for run in catalog.runs if run.start is not None and not run.is_newer]
    if not starts:
        return "{}"
    start = RunStart.of(starts[-1])
    said = {
        "profile": Profile(start.profile).name.lower() if start.profile in set(Profile) else None,
        "fsync": bool(start.fsync),
        "msg_store_file_size_limit": start.file_size_limit,
        "msg_store_write_buffer": start.write_buffer or None,
        "queue_index_segment_entry_count": start.entries_v1 or None,
        "classic_queue_index_v2_segment_entry_count": start.entries_v2 or None,
        "queue_index_embed_msgs_below": start.embed_below if start.entries_v1 else None,
    }
    return json.dumps({name: value for name, value in said.items() if value is not None})


def _numbers(place: str, value: Any) -> Iterator[tuple[str, float]]:
    """The numbers in an object of JSON, each with its place: "incidents.crashes"."""
    if isinstance(value, dict):
        for name, inside in value.items():
            yield from _numbers(f"{place}.{name}" if place else name, inside)
    else:
        yield place, float(value)


def read(folder: str) -> list[HistoryRow]:
    """All rows of a history, the oldest trace first."""
    rows = [HistoryRow(**row) for path in _some(folder) for row in _table(path).to_pylist()]
    return sorted(rows, key=lambda row: (row.began, row.added, row.replay))


def frame(spark: SparkSession, folder: str) -> DataFrame:
    """All rows of a history as a DataFrame; `folder` may be an address that Spark reads."""
    require_pyspark()
    from warrenmq.replay.spark.failures import told_in_a_sentence

    with told_in_a_sentence():
        if is_of_spark(folder):
            return spark.read.parquet(folder).select(*SCHEMA.names)
        return spark.createDataFrame(pa.concat_tables(map(_table, _some(folder))))


def _some(folder: str) -> list[str]:
    """The files of a history that has some."""
    if not os.path.isdir(folder):
        raise CallerError(f"{folder} is a file; name the directory of a history." if os.path.exists(folder) else f"there is no directory {folder}.")  # fmt: skip
    found = _files(folder)
    if not found:
        raise CallerError(
            f"{folder} holds no history yet; `warrenmq replay TRACE --history {folder}` adds a replay to it."
        )
    return found


def _files(folder: str) -> list[str]:
    """The Parquet files of a directory in which nothing else lies but what Spark passes over."""
    there = os.listdir(folder)
    if "_delta_log" in there:  # which of its files count, only Delta knows
        raise CallerError(
            f"{folder} is a table of Delta; read it with that, and name the directory of a history."
        )
    names = sorted(name for name in there if not name.startswith((".", "_")))
    others = [name for name in names if not name.endswith(SUFFIX)]
    if others:
        raise CallerError(f"{folder} is no history of replays: it holds {others[0]}.")
    return [os.path.join(folder, name) for name in names]


def _check_schema(path: str) -> None:
    try:
        there = pq.read_schema(path)
    except pa.ArrowInvalid as invalid:
        raise CallerError(
            f"{path} is no part of a history of replays: it is not Parquet, or damaged."
        ) from invalid
    for column in SCHEMA:
        if column.name not in there.names:
            raise CallerError(f"{path} is no part of a history of replays: it has no column {column.name}.")
        kind = there.field(column.name).type
        if _family(kind) != _family(column.type):
            raise CallerError(
                f"{path} is no part of a history of replays: its column {column.name} is {kind}, not {column.type}."
            )


def _family(kind: pa.DataType) -> str:
    """The name of what types have in common that hold the same values: pandas makes doubles of integers that may be null."""
    types = pa.types
    if types.is_dictionary(kind):
        return _family(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind):
        return f"list of {_family(kind.value_type)}"
    families = {
        "number": types.is_integer(kind) or types.is_floating(kind),
        "time": types.is_timestamp(kind),
        "text": types.is_string(kind) or types.is_large_string(kind),
    }
    return next((name for name, is_of in families.items() if is_of), str(kind))


def _table(path: str) -> pa.Table:
    _check_schema(path)
    try:
        return pq.ParquetFile(path).read(columns=SCHEMA.names).select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowInvalid, OSError) as damaged:
        raise CallerError(
            f"{path} is no part of a history of replays: it is not Parquet, or damaged."
        ) from damaged
