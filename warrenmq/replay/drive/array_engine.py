"""Replay in one process with prechecks: columns of half a million rows at a time, and no look at most of the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from warrenmq.replay.drive.columns import Unit, units_of
from warrenmq.replay.drive.driver import InMemory, Keys, conclude, drive
from warrenmq.replay.drive.engine import gather, replay_trace
from warrenmq.replay.drive.findings import Found, Place
from warrenmq.replay.drive.precheck import facts_in
from warrenmq.replay.drive.prechecking import FullCheck, Prechecker, prechecks_and_machines
from warrenmq.replay.drive.result import Result
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext, Who
from warrenmq.replay.explain.evidence import Want
from warrenmq.replay.rules.registry import RULES, all_machines
from warrenmq.replay.rules.rule import Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.index import Row
from warrenmq.trace.reader import Trace


def replay_arrays(trace: Trace, own: Sequence[Rule] = (), queried: Found | None = None) -> Result:
    """Replay a trace in arrays: the same result as `replay_trace`, faster."""
    pieces = sorted(trace.catalog.chunks, key=file_order)
    # The same rows twice, or out of order, are more than a precheck can judge.
    if trace.catalog.overlaps or not _rises(pieces):
        return replay_trace(trace, own, queried)
    return drive(Arrays(trace, pieces, own), queried)


class Arrays:
    """The setting of one process with numpy: units of columns, and prechecks before machines."""

    def __init__(self, trace: Trace, pieces: Sequence[Chunk], own: Sequence[Rule]) -> None:
        self.catalog = trace.catalog
        self.rules = (*RULES.values(), *own)
        self.machines = all_machines(trace.catalog.runs, self.rules)
        self._trace = trace
        self._pieces = pieces
        self._checkers = prechecks_and_machines(self.machines, own)
        self._states = InMemory()
        self._keys = Keys(self._checkers, self._states)

    def summarise(self) -> dict[Who, ActorSummary]:
        prechecker = Prechecker(self._checkers)
        actors: defaultdict[Who, ActorSummary] = defaultdict(ActorSummary)
        for unit in self._units():
            for piece, part in prechecker.actor_summaries(unit):
                actors[piece.run, piece.actor].merge(part)
            for name, key, _, summary in prechecker.check(unit):
                self._keys.absorb(name, key, summary)
        return dict(actors)

    def conclude(self, stage: int, context: TraceContext) -> Found:
        return conclude(self._keys, self._states.places(self.machines, stage), context, self._keys.tell)

    def check_fully(self, stage: int, unproven: set[Place], context: TraceContext) -> Found:
        states = InMemory()
        keys = Keys(self.machines, states)
        check = FullCheck(self._checkers, unproven)
        for unit in self._units():
            for name, key, _, summary in check.summarise(unit):
                keys.absorb(name, key, summary)
        for name, key in unproven:
            for fact in facts_in(self._states.load(name, key) or ()):
                keys.absorb(name, key, fact)
        return conclude(keys, states.places(self.machines, stage), context, self._keys.tell)

    def gather(self, wants: Sequence[Want]) -> Iterator[tuple[int, int, Row]]:
        return gather(self._trace, wants)

    def _units(self) -> Iterator[Unit]:
        return units_of((piece, self._trace.stored(piece)) for piece in self._pieces)


def file_order(piece: Chunk) -> tuple[int, bool, str, int]:
    """Sorts pieces as they stand in files, which is about the order of time; rows of a slab come last, they
    are the latest.
    """
    return piece.run, piece.offset < 0, piece.file, piece.offset


def _rises(pieces: Sequence[Chunk]) -> bool:
    """True if the pieces of each actor come in the order of its rows."""
    last: dict[Who, int] = {}
    for piece in pieces:
        if piece.seq_first < last.get((piece.run, piece.actor), 0):
            return False
        last[piece.run, piece.actor] = piece.seq_first
    return True
