"""Folds the rows of a run's store files to what the report shows of them, whose size does not grow with their number.

A trace has some rows for every file of a store: it was opened, combined, deleted.  Kept are the SHOWN largest
files of each store, and of the collectors' work the SHOWN pieces that gave back most.  How many files and
pieces there were, and of how many bytes, tallies say.  In Spark the workers fold, run by run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from warrenmq.trace.catalog import Run
from warrenmq.trace.events import Ev, FileDelete, FileState, GcDone, GcStart, Truncate
from warrenmq.trace.schema import Row

SHOWN = 200
OF_FILES = frozenset({
    Ev.STORE_RECOVERED, Ev.FILE_STATE, Ev.FILE_DELETE, Ev.ROLL, Ev.GC_START, Ev.GC_DONE, Ev.TRUNCATE,
})  # fmt: skip


class StoreFile(NamedTuple):
    """A file as its store last described it."""

    store: int
    file: int
    valid_total_size: int
    file_size: int


class Collected(NamedTuple):
    """One piece of a collector's work: two files combined, or one cut that had been compacted in place."""

    t: int
    ns: int
    """The duration in ns; 0 of a cut."""
    file: int
    """The destination, or the file that was cut."""
    source: int | None
    """None = it was a cut."""
    reclaimed: int


@dataclass(slots=True)
class StoreFiles:
    """Totals of the rows about the files of a run."""

    found: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(store, slice) -> bytes of the files that the store found when it started."""
    files: list[StoreFile] = field(default_factory=list)
    collected: list[Collected] = field(default_factory=list)


def owner(run: Run, actor: int, stores: Iterable[int]) -> int | None:
    """The store that a collector works for: its parent, else the one whose name its own begins with."""
    entry = run.actors.get(actor)
    if entry is None:
        return None
    its = list(stores)
    by_name = [store for store in its if entry.name.startswith(run.actor_name(store))]
    found = [store for store in its if store == entry.parent] or by_name
    return found[-1] if found else None


def fold(run: Run, rows: Iterable[Row], slice_ns: int) -> StoreFiles:
    """Rows of OF_FILES of one run, in the order of time."""
    folded = StoreFiles()
    files: dict[int, dict[int, StoreFile]] = {}
    """Store -> its files."""
    has_rolled: set[int] = set()
    started: dict[tuple[int, int], int] = {}
    for row in rows:
        store = row.actor
        match row.event:
            case Ev.STORE_RECOVERED:
                files.setdefault(store, {})
            case Ev.ROLL:
                has_rolled.add(store)
            case Ev.FILE_STATE:
                state = FileState.of(row)
                its = files.setdefault(store, {})
                if state.file not in its and store not in has_rolled:
                    folded.found[store, row.t // slice_ns] += state.file_size
                its[state.file] = StoreFile(store, state.file, state.valid_total_size, state.file_size)
            case Ev.FILE_DELETE:
                files.get(store, {}).pop(FileDelete.of(row).file, None)
            case Ev.GC_START:
                started[row.actor, GcStart.of(row).destination] = row.t
            case Ev.GC_DONE:
                done = GcDone.of(row)
                began = started.pop((row.actor, done.destination), row.t)
                _keep(folded, Collected(began, row.t - began, done.destination, done.source, done.reclaimed))
                its_store = owner(run, row.actor, files)
                if done.destination != done.source and its_store is not None:
                    files[its_store].pop(done.source, None)
            case Ev.TRUNCATE:
                cut = Truncate.of(row)
                _keep(folded, Collected(row.t, 0, cut.file, None, cut.size))
    for its in files.values():
        largest = sorted(its.values(), key=lambda file: (-file.file_size, file.file))[:SHOWN]
        folded.files += sorted(largest)
    folded.collected = sorted(_most(folded.collected), key=lambda each: (each.t, each.file))
    return folded


def _keep(folded: StoreFiles, piece: Collected) -> None:
    folded.collected.append(piece)
    if len(folded.collected) >= 2 * SHOWN:
        folded.collected = _most(folded.collected)


def _most(pieces: list[Collected]) -> list[Collected]:
    """The SHOWN that gave back most."""
    return sorted(pieces, key=lambda each: (-each.reclaimed, each.t, each.file))[:SHOWN]
