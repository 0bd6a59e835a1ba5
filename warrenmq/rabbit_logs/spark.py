"""Logs of RabbitMQ's tracing plugin in Spark: every message's life in every queue, as a DataFrame.

    files ─► parts of files ─► sights (rabbit_logs/lifecycles.py) ─► by queue, in order ─► lives

A JSON log is read in parts of PART bytes, a text log or a compressed one in one task.  A queue is matched in one task, as
matching goes through its records in order, and what a task keeps is bounded.  Bodies are not sent from task to task.

Paths are read with Python's own `open`, so on a cluster they must be mounted on every worker.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from warrenmq.rabbit_logs.lifecycles import Lifecycle, Matcher, SeenRecord, sights
from warrenmq.rabbit_logs.log_files import LogFile, open_logs
from warrenmq.rabbit_logs.record import Record

PART = 32 << 20
BATCH_ROWS = 8_192
Batches = Iterable[pa.RecordBatch]

_TIME = pa.timestamp("us", "UTC")
_WHO = [("connection", pa.string()), ("channel", pa.int32()), ("user", pa.string())]
_CONTENT = [
    ("exchange", pa.string()), ("routing_keys", pa.list_(pa.string())), ("message_id", pa.string()),
    ("correlation_id", pa.string()), ("priority", pa.int32()), ("size", pa.int64()),
]  # fmt: skip
_PLACE = pa.schema([("file", pa.string()), ("format", pa.string()), ("number", pa.int32()), ("begin", pa.int64()),
                    ("end", pa.int64())])  # fmt: skip
_SIGHTS = pa.schema([
    ("number", pa.int32()), ("place", pa.int64()), ("vhost", pa.string()), ("queue", pa.string()), ("t", pa.int64()),
    ("published", pa.bool_()), *_WHO, *_CONTENT, ("dead_lettered", pa.bool_()), ("from_stream", pa.bool_()),
    ("identity", pa.binary()),
])  # fmt: skip
LIFECYCLES = pa.schema([
    ("vhost", pa.string()), ("queue", pa.string()), *_CONTENT,
    ("published_t", _TIME), *((f"published_{name}", kind) for name, kind in _WHO),
    ("delivered_t", _TIME), *((f"delivered_{name}", kind) for name, kind in _WHO),
    ("last_delivered_t", _TIME), ("deliveries", pa.int32()), ("delay_us", pa.int64()), ("dead_lettered", pa.bool_()),
    ("from_stream", pa.bool_()), ("matched", pa.string()),
])  # fmt: skip
"""Columns of `read_tracing`; `rabbit_logs/lifecycles.py` says what they mean."""


def read_tracing(spark: SparkSession, *paths: str | os.PathLike[str]) -> DataFrame:
    """One row for each message in each queue."""
    files = open_logs(*paths).files
    parts = [part for number, file in enumerate(files) for part in _parts(number, file)]
    table = pa.Table.from_pylist(parts, _PLACE)
    several = len(files) > 1
    seen = (
        spark.createDataFrame(table).repartition(len(parts) or 1).mapInArrow(_sights_of_parts, ddl(_SIGHTS))
    )
    order = ["vhost", "queue", *(["t"] if several else []), "number", "place"]
    return (
        seen.repartition("vhost", "queue")
        .sortWithinPartitions(*order)
        .mapInArrow(partial(_lives_of_queues, several), ddl(LIFECYCLES))
    )


def ddl(schema: pa.Schema) -> str:
    """The schema in Spark's words."""
    words = {
        pa.string(): "string", pa.int32(): "int", pa.int64(): "long", pa.bool_(): "boolean", pa.binary(): "binary",
        _TIME: "timestamp", pa.list_(pa.string()): "array<string>",
    }  # fmt: skip
    return ", ".join(f"{field.name} {words[field.type]}" for field in schema)


def _parts(number: int, file: LogFile) -> Iterator[dict[str, object]]:
    path = os.path.abspath(file.path)
    step, size = PART, os.path.getsize(path)
    whole = {"file": path, "format": file.format, "number": number}
    if not file.can_be_parted:
        yield whole | {"begin": 0, "end": -1}
        return
    for begin in range(0, size, step):
        yield whole | {"begin": begin, "end": min(begin + step, size)}


def _sights_of_parts(batches: Batches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for part in batch.to_pylist():
            rows = _rows(part["number"], part["begin"], _records(part))
            while chunk := list(islice(rows, BATCH_ROWS)):
                yield pa.RecordBatch.from_pylist(chunk, _SIGHTS)


def _records(part: dict[str, int | str]) -> Iterator[Record]:
    path, begin, end = str(part["file"]), int(part["begin"]), int(part["end"])
    file = LogFile(path, "json" if part["format"] == "json" else "text")
    return file.read() if end < 0 else file.read_part(begin, end)


def _rows(number: int, begin: int, records: Iterable[Record]) -> Iterator[dict[str, object]]:
    # a record takes more than a byte, so places rise from one part of a file to the next
    for place, record in enumerate(records, begin):
        for seen in sights(record):
            yield {"number": number, "place": place, **seen._asdict()}


def _lives_of_queues(several: bool, batches: Batches) -> Iterator[pa.RecordBatch]:
    done: list[Lifecycle] = []
    matcher = Matcher(done.append, several=several)
    for batch in batches:
        for row in batch.to_pylist():
            del row["number"], row["place"]
            row["routing_keys"] = tuple(row["routing_keys"])
            matcher.take(SeenRecord(**row))
        yield from _batches(done)
    matcher.finish()
    yield from _batches(done)


def _batches(done: list[Lifecycle]) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(done), BATCH_ROWS):
        lives = done[at : at + BATCH_ROWS]
        columns = [
            pa.array(
                [getattr(life, "delay" if field.name == "delay_us" else field.name) for life in lives],
                field.type,
            )
            for field in LIFECYCLES
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=LIFECYCLES)
    done.clear()
