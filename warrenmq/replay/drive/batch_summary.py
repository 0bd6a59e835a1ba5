"""The summaries of one part of a live trace, made where the part was unpacked.

This is step 1 of the driver for rows that have just come; `Live` (live.py) takes it.  It can be pickled, and it
is small: no rows are in it but the rare ones of actor summaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from warrenmq.replay.drive.machines import Key, Summariser
from warrenmq.replay.drive.trace_context import ActorSummary
from warrenmq.replay.rules.registry import all_machines
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.index import BROKER, Damage, Row, rows_of, run_starts
from warrenmq.trace.schema import events_of
from warrenmq.trace.tail import Part, Place, Tail, read_parts

PART_PIECES = 512
"""Pieces that are summarised together: half a million rows."""


_OF_THE_END = ("t", "settled", "closed", "lossy", "damaged", "missing", "ended")


class PieceSummary(NamedTuple):
    """A summary from a piece for a key of a machine."""

    machine: str
    key: Key
    order: tuple[int, int, int, int]
    """(run, actor, seq of the piece, its number among the summaries of the piece)."""
    summary: Any


class BatchSummary(NamedTuple):
    """The summaries of some pieces of one run."""

    number: int
    """The run's number."""
    run: Run
    """The run, with the actors that wrote the pieces or have registered since, and who started them."""
    place: dict[str, Any]
    """The place up to which the run was read: t, settled, and what is known of its end (trace/tail.py)."""
    chunks: list[Chunk] = []  # noqa: RUF012 - a tuple's default, never appended to
    """The chunks, without their rows."""
    actors: list[tuple[int, int, ActorSummary]] = []  # noqa: RUF012
    """(actor, seq of the piece, its summary)"""
    summaries: list[PieceSummary] = []  # noqa: RUF012
    damage: list[Damage] = []  # noqa: RUF012


@dataclass
class Batch:
    """Parts of one run, to be summarised by one task; goes to it by value."""

    number: int
    run: Run
    place: dict[str, Any]
    parts: list[Part] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


def batches(tail: Tail, start: Place, end: Place) -> Iterator[Batch]:
    """The parts between two places, one batch at least for each run that has moved."""
    parts, damage = tail.parts(start, end)
    for key, place in end.items():
        if start.get(key) == place or key not in tail.runs:
            continue
        files = tail.runs[key]
        mine = [part for part in parts if part.run == key]
        harm = [found for found in damage if found.file in files.segments.values()]
        read_to = {name: place[name] for name in _OF_THE_END}
        registered = range(start.get(key, {}).get("actors", 0) + 1, place["actors"] + 1)
        yield Batch(place["n"], _run(files.run, registered), read_to, damage=harm)
        for at in range(0, len(mine), PART_PIECES):
            its = mine[at : at + PART_PIECES]
            yield Batch(place["n"], _run(files.run, {part.actor for part in its}), read_to, its)


def _run(run: Run, actors: Iterable[int]) -> Run:
    """A run with some of its actors and those that started them."""
    known = {actor: run.actors[actor] for actor in actors if actor in run.actors}
    parents = {
        entry.parent: run.actors[entry.parent] for entry in known.values() if entry.parent in run.actors
    }
    return replace(run, actors=parents | known)


def summarise_batch(batch: Batch) -> BatchSummary:
    """Unpack and summarise."""
    summary_of = BatchSummary(batch.number, replace(batch.run), batch.place, [], [], [], batch.damage)
    # The machines look up their piece's run by its number, and no other run.
    summariser = Summariser(all_machines([summary_of.run] * (batch.number + 1)))
    for chunk, columns in read_parts(batch.parts, {part.run: batch.number for part in batch.parts}):
        rows = rows_of(columns)
        summary_of.chunks.append(chunk._replace(raw=b""))
        events = events_of(rows)
        actor = ActorSummary()
        actor.note(rows, events)
        summary_of.actors.append((chunk.actor, chunk.seq_first, actor))
        _note_start(summary_of.run, chunk, rows, columns)
        for nth, (machine, key, summary) in enumerate(summariser.summarise(chunk, rows, events)):
            summary_of.summaries.append(PieceSummary(machine, key, (*chunk.order, nth), summary))
    return summary_of


def _note_start(run: Run, chunk: Chunk, rows: list[Row], columns: list[memoryview]) -> None:
    entry = run.actors.get(chunk.actor)
    if rows and entry is not None and entry.kind == BROKER:
        run.start = next(iter(run_starts(columns)), run.start)
