"""Outcomes as a table: the columns of `warrenmq simulate --out`, and of the jobs that run on Spark.

seed bigint, profile string, script string, verdict string, problem string, text string, lost bigint, digest
string, events bigint, coverage array<bigint>
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from warrenmq.errors import CallerError
from warrenmq.simulate.run import Outcome

SCHEMA = (
    "seed bigint, profile string, script string, verdict string, problem string, text string, lost bigint, digest string, "
    "events bigint, coverage array<bigint>"
)
"""The table's schema in Spark's DDL."""
ARROW = pa.schema(
    [
        ("seed", pa.int64()), ("profile", pa.string()), ("script", pa.string()), ("verdict", pa.string()), ("problem", pa.string()),
        ("text", pa.string()), ("lost", pa.int64()), ("digest", pa.string()), ("events", pa.int64()), ("coverage", pa.list_(pa.int64())),
    ]
)  # fmt: skip


def batch_of(outcomes: Iterable[Outcome]) -> pa.RecordBatch:
    """Encode outcomes as an Arrow batch, a row each."""
    rows = [
        {name: getattr(each, name) for name in ARROW.names[:-1]} | {"coverage": sorted(each.coverage)}
        for each in outcomes
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ARROW)


def outcomes_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[Outcome]:
    """Decode outcomes from rows by column name."""
    for row in rows:
        yield Outcome(**{**row, "coverage": frozenset(row["coverage"])})


def read_outcomes(path: str) -> list[Outcome]:
    """Read the outcomes of a Parquet file.  Raises CallerError if it is damaged, or none of such a table."""
    try:
        return list(outcomes_of(pq.ParquetFile(path).read().cast(ARROW).to_pylist()))
    except (pa.ArrowException, ValueError) as error:
        raise CallerError(
            f"{path} is no table of simulated runs that can be read ({error}); delete it, and its runs are done again."
        ) from None


class Parquet:
    """Writer of outcomes to a Parquet file; a context manager."""

    def __init__(self, path: str) -> None:
        self._writer = pq.ParquetWriter(path, ARROW)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        self._writer.write_batch(batch_of(outcomes))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
