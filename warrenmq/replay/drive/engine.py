"""Replay in one process, in plain Python: one pass over the rows.

It needs no Java and no package but msgpack, and up to some tens of millions of rows it is the faster way.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from warrenmq.replay.drive.driver import InMemory, Keys, conclude, drive, findings
from warrenmq.replay.drive.findings import Found, Place
from warrenmq.replay.drive.incidents import incidents
from warrenmq.replay.drive.machines import Summariser
from warrenmq.replay.drive.result import Result
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext, Who
from warrenmq.replay.drive.verdict import Verdict
from warrenmq.replay.explain.evidence import Want, pick
from warrenmq.replay.rules.registry import RULES, all_machines
from warrenmq.replay.rules.rule import Rule
from warrenmq.trace.index import Row
from warrenmq.trace.reader import Trace, open_memory, open_trace
from warrenmq.trace.schema import events_of


def replay(*paths: str | os.PathLike[str]) -> Result:
    """Replay trace directories or files; NotATrace if they hold none."""
    with open_trace(*paths) as trace:
        return replay_trace(trace)


def replay_memory(files: Mapping[str, bytes]) -> Result:
    """Replay the files of a MemorySink."""
    return replay_trace(open_memory(files))


def replay_trace(trace: Trace, own: Sequence[Rule] = (), queried: Found | None = None) -> Result:
    """Replay an open trace; `own` are rules of the user, `queried` what the queries among them found."""
    return drive(Plain(trace, own), queried)


def judge_trace(trace: Trace) -> tuple[Verdict, dict[str, int]]:
    """The verdict of a replay and its incidents alone, without figures and explanations: for many short traces."""
    context = TraceContext.of(trace.catalog)
    verdict, found = findings(Plain(trace, ()), context)
    return verdict, incidents(trace.catalog, context, found.figures)


class Plain:
    """The setting of one process: pieces one by one, every machine sees every row that it reads."""

    def __init__(self, trace: Trace, own: Sequence[Rule]) -> None:
        self.catalog = trace.catalog
        self.rules = (*RULES.values(), *own)
        self.machines = all_machines(trace.catalog.runs, self.rules)
        self._trace = trace
        self._states = InMemory()
        self._keys = Keys(self.machines, self._states)

    def summarise(self) -> dict[Who, ActorSummary]:
        summariser = Summariser(self.machines)
        actors: defaultdict[Who, ActorSummary] = defaultdict(ActorSummary)
        for piece in self.catalog.chunks:
            rows = self._trace.rows(piece)
            events = events_of(rows)
            actors[piece.run, piece.actor].note(rows, events)
            for name, key, summary in summariser.summarise(piece, rows, events):
                self._keys.absorb(name, key, summary)
        return dict(actors)

    def conclude(self, stage: int, context: TraceContext) -> Found:
        return conclude(self._keys, self._states.places(self.machines, stage), context, self._keys.tell)

    def check_fully(self, stage: int, unproven: set[Place], context: TraceContext) -> Found:  # noqa: ARG002 - never asked
        raise AssertionError("there is no precheck that could leave a key unproven")

    def gather(self, wants: Sequence[Want]) -> Iterator[tuple[int, int, Row]]:
        return gather(self._trace, wants)


def gather(trace: Trace, wants: Sequence[Want]) -> Iterator[tuple[int, int, Row]]:
    """The rows of a trace that are wanted: one more pass."""
    for piece in trace.catalog.chunks:
        yield from pick(wants, trace.catalog.runs, piece, partial(trace.rows, piece))
