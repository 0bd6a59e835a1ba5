"""Replay in one process, with prechecks: engine.py's steps, and a second look at what the prechecks could not prove fine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from warrenmq.replay.drive.columns import units_of
from warrenmq.replay.drive.engine import Result, gather, replay_trace, result
from warrenmq.replay.drive.machines import FigureKey, Finding, Key, Machine, State, Summary
from warrenmq.replay.drive.prechecking import FullCheck, Place, Prechecker, prechecks_and_machines
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext
from warrenmq.replay.drive.verdict import judge
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
    unproven: set[Place] = field(default_factory=set)


def replay_arrays(trace: Trace) -> Result:
    """What `replay_trace` gives, sooner."""
    catalog = trace.catalog
    pieces = sorted(catalog.chunks, key=file_order)
    if catalog.overlaps or not _rises(pieces):
        return replay_trace(trace)
    workers = {each.name: each for each in prechecks_and_machines(catalog.runs)}
    machines = {each.name: each for each in all_machines(catalog.runs)}
    context = TraceContext.of(catalog)
    states = _precheck(trace, pieces, workers, context)
    found = Found()
    for stage in sorted({each.stage for each in machines.values()}):
        for name, key, fact in found.facts:
            if machines[name].stage == stage:
                _absorb(workers[name], states, (name, key), fact)
        prechecked = _finish(
            {place: state for place, state in states.items() if workers[place[0]].stage == stage},
            workers,
            context,
        )
        again = _full_check(trace, pieces, workers, found, prechecked.unproven)
        fully_checked = _finish(again, machines, context)
        for each in (prechecked, fully_checked):
            found.findings += each.findings
            found.figures.update(each.figures)
            found.facts += each.facts
    verdict = judge(found.findings, found.figures, catalog, context)
    told = result(verdict, catalog, context, found.figures)
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


def _precheck(
    trace: Trace, pieces: Sequence[Chunk], workers: dict[str, Machine], context: TraceContext
) -> dict[Place, State]:
    prechecker = Prechecker(list(workers.values()))
    states: dict[Place, State] = {}
    marks: defaultdict[tuple[int, int], list[tuple[int, ActorSummary]]] = defaultdict(list)
    for unit in units_of((piece, trace.columns(piece)) for piece in pieces):
        for piece, noted in prechecker.actor_summaries(unit):
            marks[piece.run, piece.actor].append((piece.seq_first, noted))
        for name, key, _, summary in prechecker.check(unit):
            _absorb(workers[name], states, (name, key), summary)
    for who, its in sorted(marks.items()):
        context.actor_summaries[who] = ActorSummary()
        for _, noted in sorted(its, key=lambda each: each[0]):
            context.actor_summaries[who].merge(noted)
    return states


def _full_check(
    trace: Trace, pieces: Sequence[Chunk], workers: dict[str, Machine], found: Found, unproven: set[Place]
) -> dict[Place, State]:
    """The machines, on all rows of these keys."""
    machines = {each.name: each for each in all_machines(trace.catalog.runs)}
    states: dict[Place, State] = {}
    if unproven:
        look = FullCheck(list(workers.values()), unproven)
        units = units_of(((piece, trace.columns(piece)) for piece in pieces), join=False)
        told = [each for unit in units for each in look.summarise(unit)]
        for name, key, _, summary in sorted(told, key=lambda each: file_order(each[2])):
            _absorb(machines[name], states, (name, key), summary)
    for name, key, fact in found.facts:
        if (name, key) in unproven:
            _absorb(machines[name], states, (name, key), fact)
    return states


def _absorb(machine: Machine, states: dict[Place, State], place: Place, summary: Summary) -> None:
    state = states.get(place)
    if state is None:
        state = states[place] = machine.start(place[1])
    machine.absorb(state, summary)


def _finish(states: dict[Place, State], workers: dict[str, Machine], context: TraceContext) -> Found:
    found = Found()
    for (name, key), state in states.items():
        outcome = workers[name].finish(key, state, context)
        if outcome.needs_full_check:
            found.unproven.add((name, key))
            continue
        found.findings += outcome.findings
        found.figures.update(outcome.figures)
        found.facts += outcome.facts
    return found
