"""The stretches of rows that are there, as a table: rows of an actor that follow each other without a gap.

An actor of whom nothing is missing has one, from row 1 to `actor_rows`, which is null where it is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from warrenmq.trace.catalog import Catalog

DDL = "run string, actor_id long, first long, last long, actor_rows long"


class Stretch(NamedTuple):
    """One row of the table."""

    run: str
    actor_id: int
    first: int
    last: int
    actor_rows: int | None


def stretches_of(catalog: Catalog) -> Iterator[Stretch]:
    """The stretches of a trace."""
    latest: dict[tuple[int, int], Stretch] = {}
    for chunk in catalog.chunks:
        whose = chunk.run, chunk.actor
        before = latest.get(whose)
        if before is not None and chunk.seq_first <= before.last + 1:
            latest[whose] = before._replace(last=max(before.last, chunk.seq_end - 1))
            continue
        if before is not None:
            yield before
        coverage = catalog.coverage[whose]
        rows = coverage.last_seq if coverage.end_known else None
        latest[whose] = Stretch(
            catalog.runs[chunk.run].name, chunk.actor, chunk.seq_first, chunk.seq_end - 1, rows
        )
    yield from latest.values()
