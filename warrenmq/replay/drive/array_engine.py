"""Replay in one process, with sieves: engine.py's steps, and a second look at what the sieves could not prove fine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from warrenmq.replay.drive.columns import units_of
from warrenmq.replay.drive.engine import Result, gather, replay_trace, result
from warrenmq.replay.drive.machines import FigureKey, Finding, Key, Machine, State, Summary
from warrenmq.replay.drive.sifting import Place, SecondLook, Sifter, sieves_and_machines
from warrenmq.replay.drive.verdict import judge
from warrenmq.replay.drive.world import Landmarks, World
from warrenmq.replay.explain.causes import explain
from warrenmq.replay.rules.registry import all_machines
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.reader import Trace


@dataclass(slots=True)
class Found:
    """What keys came to, so far."""

    findings: list[Finding] = field(default_factory=list)
    figures: Counter[FigureKey] = field(default_factory=Counter)
    facts: list[tuple[str, Key, Summary]] = field(default_factory=list)
    suspects: set[Place] = field(default_factory=set)


def replay_sifted(trace: Trace) -> Result:
    """What `replay_trace` gives, sooner."""
    catalog = trace.catalog
    pieces = sorted(catalog.chunks, key=file_order)
    if catalog.overlaps or not _rises(pieces):
        return replay_trace(trace)
    workers = {each.name: each for each in sieves_and_machines(catalog.runs)}
    machines = {each.name: each for each in all_machines(catalog.runs)}
    world = World.of(catalog)
    states = _sift(trace, pieces, workers, world)
    found = Found()
    for stage in sorted({each.stage for each in machines.values()}):
        for name, key, fact in found.facts:
            if machines[name].stage == stage:
                _absorb(workers[name], states, (name, key), fact)
        first_look = _finish(
            {place: state for place, state in states.items() if workers[place[0]].stage == stage},
            workers,
            world,
        )
        again = _look_again(trace, pieces, workers, found, first_look.suspects)
        second_look = _finish(again, machines, world)
        for each in (first_look, second_look):
            found.findings += each.findings
            found.figures.update(each.figures)
            found.facts += each.facts
    verdict = judge(found.findings, found.figures, list(machines.values()), catalog, world)
    told = result(verdict, catalog, world, found.figures)
    told.chains = explain(told.violations, catalog.runs, partial(gather, trace))
    return told


def file_order(piece: Chunk) -> tuple[int, bool, str, int]:
    """Sorts pieces as they stand in files, which is about the order of time; rows of a slab come last, they are the latest."""
    return piece.run, piece.offset < 0, piece.file, piece.offset


def _rises(pieces: Sequence[Chunk]) -> bool:
    """Whether the pieces of each actor come in the order of its rows."""
    last: dict[tuple[int, int], int] = {}
    for piece in pieces:
        if piece.seq_first < last.get((piece.run, piece.actor), 0):
            return False
        last[piece.run, piece.actor] = piece.seq_first
    return True


def _sift(
    trace: Trace, pieces: Sequence[Chunk], workers: dict[str, Machine], world: World
) -> dict[Place, State]:
    sifter = Sifter(list(workers.values()))
    states: dict[Place, State] = {}
    marks: defaultdict[tuple[int, int], list[tuple[int, Landmarks]]] = defaultdict(list)
    for unit in units_of((piece, trace.columns(piece)) for piece in pieces):
        for piece, noted in sifter.landmarks(unit):
            marks[piece.run, piece.actor].append((piece.seq_first, noted))
        for name, key, _, summary in sifter.sift(unit):
            _absorb(workers[name], states, (name, key), summary)
    for who, its in sorted(marks.items()):
        world.landmarks[who] = Landmarks()
        for _, noted in sorted(its, key=lambda each: each[0]):
            world.landmarks[who].merge(noted)
    return states


def _look_again(
    trace: Trace, pieces: Sequence[Chunk], workers: dict[str, Machine], found: Found, suspects: set[Place]
) -> dict[Place, State]:
    """The machines, on all rows of these keys."""
    machines = {each.name: each for each in all_machines(trace.catalog.runs)}
    states: dict[Place, State] = {}
    if suspects:
        look = SecondLook(list(workers.values()), suspects)
        units = units_of(((piece, trace.columns(piece)) for piece in pieces), join=False)
        told = [each for unit in units for each in look.summarise(unit)]
        for name, key, _, summary in sorted(told, key=lambda each: file_order(each[2])):
            _absorb(machines[name], states, (name, key), summary)
    for name, key, fact in found.facts:
        if (name, key) in suspects:
            _absorb(machines[name], states, (name, key), fact)
    return states


def _absorb(machine: Machine, states: dict[Place, State], place: Place, summary: Summary) -> None:
    state = states.get(place)
    if state is None:
        state = states[place] = machine.start(place[1])
    machine.absorb(state, summary)


def _finish(states: dict[Place, State], workers: dict[str, Machine], world: World) -> Found:
    found = Found()
    for (name, key), state in states.items():
        outcome = workers[name].finish(key, state, world)
        if outcome.is_suspect:
            found.suspects.add((name, key))
            continue
        found.findings += outcome.findings
        found.figures.update(outcome.figures)
        found.facts += outcome.facts
    return found
