"""The rows and files that are missing from a trace, and damage to its files, as a table.

    what           one row for each
    copy           a file that is there under another name, too, or an earlier copy of it: left out
    clock jump     a run that began, by the wall clock, before the one before it
    no header      a file that does not begin with a whole header, or that cannot be read: nothing is known of it
    missing file   a number that is missing among a run's segments
    damaged        bytes of a segment that are no whole frame, with whole frames after them
    torn tail      the same at its end: the writer was killed, or is writing
    missing rows   rows of an actor that are in no file (first_seq to last_seq); after its first hundred gaps one row for all others
    unknown end    an actor that may have written rows after last_seq
    strangers      a run that may have had actors of whom nothing is known, or whose predecessor is missing
    rows twice     rows of an actor that are there twice, or whose t falls
    contradiction  a file that has the number of another one of its run and other contents: the run's rows may be those of two
    newer version  a run of a later version of the format: unknown columns were left out, unknown events are "?<number>"

Of a trace that is whole there are no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from warrenmq.trace.catalog import STRANGER, Catalog
from warrenmq.trace.events import SCHEMA_VERSION
from warrenmq.trace.segment import SEGMENT_SUFFIX

DDL = (
    "what string, file string, run string, actor string, first_seq long, last_seq long, `offset` long, bytes long, "
    "text string"
)


class Row(NamedTuple):
    """One row of the table."""

    what: str
    file: str | None
    run: str | None
    actor: str | None
    first_seq: int | None
    last_seq: int | None
    offset: int | None
    bytes: int | None
    text: str


def damage_rows(catalog: Catalog, files: Iterable[str]) -> Iterator[Row]:
    """The damage rows of a trace, given the names of all its files."""
    for found in catalog.damage:
        what = "no header" if found.file in catalog.unread else "torn tail" if found.at_end else "damaged"
        text = catalog.unread.get(found.file, f"{found.size} bytes from {found.offset} on are no whole frame")
        yield Row(what, found.file, None, None, None, None, found.offset, found.size, text)
    for copy, original in catalog.copies:
        yield Row("copy", copy, None, None, None, None, None, None, f"{original} holds all of it")
    copies = {copy for copy, _ in catalog.copies}
    for stem, missing in _missing_files(name for name in files if name not in copies):
        text = f"segment {missing:06d} of the run is not there"
        yield Row("missing file", stem, None, None, None, None, None, None, text)
    for run in catalog.runs:
        if run.is_newer:
            text = f"written as version {run.version}, this reader knows {SCHEMA_VERSION}"
            yield Row("newer version", None, run.name, None, None, None, None, None, text)
        elif run.contradicted:
            yield Row(
                "contradiction", run.contradicted, run.name, None, None, None, None, None, run.why_undecidable
            )
    for before, run in pairwise(catalog.runs):
        if (
            (before.directory, before.node) == (run.directory, run.node)
            and before.boot < run.boot
            and before.wall_ns > run.wall_ns
        ):
            text = f"its wall clock began {(before.wall_ns - run.wall_ns) / 1e9:.0f} s before that of run {before.name}"
            yield Row("clock jump", None, run.name, None, None, None, None, None, text)
    for (number, actor), coverage in sorted(catalog.coverage.items()):
        run = catalog.runs[number]
        if actor == STRANGER:
            yield Row("strangers", None, run.name, None, None, None, None, None, run.why_strangers)
            continue
        name = run.actor_name(actor)
        for first, last in coverage.missing:
            text = f"{last - first + 1} rows are missing"
            yield Row("missing rows", None, run.name, name, first, last, None, None, text)
        if more := coverage.gaps - len(coverage.missing):
            rows = coverage.missing_rows - sum(last - first + 1 for first, last in coverage.missing)
            text = f"{rows} rows are missing in {more} more places"
            yield Row("missing rows", None, run.name, name, None, None, None, None, text)
        if not coverage.end_known:
            text = "nothing proves that this is its last row"
            yield Row("unknown end", None, run.name, name, None, coverage.last_seq, None, None, text)
    for earlier, later in catalog.overlaps:
        run = catalog.runs[later.run]
        text = f"rows from {later.seq_first} on stand behind row {earlier.seq_end - 1}, t {later.t_first} behind {earlier.t_last}"
        yield Row(
            "rows twice", later.file, run.name, run.actor_name(later.actor), later.seq_first, earlier.seq_end - 1,
            later.offset if later.offset >= 0 else None, None, text,
        )  # fmt: skip


def _missing_files(files: Iterable[str]) -> Iterator[tuple[str, int]]:
    """(what the run's files begin with, number) of segments that are not there."""
    numbers: dict[str, set[int]] = {}
    for name in files:
        stem, _, number = name.removesuffix(SEGMENT_SUFFIX).rpartition("-")
        if name.endswith(SEGMENT_SUFFIX) and number.isdecimal():
            numbers.setdefault(stem, set()).add(int(number))
    for stem, found in sorted(numbers.items()):
        yield from ((stem, number) for number in range(1, max(found)) if number not in found)
