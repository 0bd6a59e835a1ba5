"""Machines about actors as such: unbroken rows (T1), restarts (R1), dead incarnations (R2)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from operator import itemgetter, lt
from typing import ClassVar

from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.trace.catalog import Catalog, Chunk
from warrenmq.trace.events import Ev
from warrenmq.trace.index import Row

_T, _SEQ = itemgetter(0), itemgetter(1)

Complaint = tuple[int, int, str]
"""(seq, t, what is wrong)."""


class Chain(Machine):
    """T1 within pieces: seq goes up by one, t rises.  A piece in order says nothing.

    Key: (run, actor).  Between pieces the catalogue has seen it already (`broken_chains`); a gap is no violation, it
    makes the rows after it undecidable.
    """

    name: ClassVar[str] = "chain"
    events: ClassVar[frozenset[int]] = frozenset()

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Complaint]]]:
        seqs = list(map(_SEQ, rows))
        times = list(map(_T, rows))
        complaints: list[Complaint] = []
        if seqs != list(range(piece.seq_first, piece.seq_first + len(rows))):
            row, expected = next(
                (row, expected) for expected, row in enumerate(rows, piece.seq_first) if row[1] != expected
            )
            complaints.append((row[1], row[0], f"seq {row[1]} stands where {expected} belongs"))
        if not all(map(lt, times, times[1:])):
            before, row = next((one, two) for one, two in pairwise(rows) if two[0] <= one[0])
            complaints.append((row[1], row[0], f"t goes from {before[0]} to {row[0]}"))
        if complaints:
            yield (piece.run, piece.actor), complaints

    def start(self, key: Key) -> list[Complaint]:
        return []

    def absorb(self, state: list[Complaint], summary: list[Complaint]) -> None:
        state += summary

    def finish(self, key: Key, state: list[Complaint], context: TraceContext) -> Outcome:
        run, actor = int(key[0]), int(key[1])
        subject = f"actor {context.name((run, actor))}"
        return Outcome(
            [
                Finding("T1", subject, text, ((run, actor, seq - 1), (run, actor, seq)), t, ())
                for seq, t, text in state
            ]
        )


def broken_chains(catalog: Catalog) -> Iterator[Finding]:
    """T1 between pieces: the same rows twice, or a t that falls."""
    for earlier, later in catalog.overlaps:
        name = catalog.runs[later.run].actor_name(later.actor)
        if later.seq_first < earlier.seq_end:
            text = f"rows {later.seq_first} to {min(earlier.seq_end, later.seq_end) - 1} are there twice"
        else:
            text = f"t goes from {earlier.t_last} to {later.t_first}"
        evidence = ((later.run, later.actor, earlier.seq_end - 1), (later.run, later.actor, later.seq_first))
        yield Finding("T1", f"actor {name}", text, evidence, later.t_first, ())


class Supervisor(Machine):
    """R1: a RESTART only while the count is within the intensity, an ESCALATE only beyond it.  Key: (run, actor).

    ==========  =====================  ========
    row         restarts ? intensity   verdict
    ==========  =====================  ========
    RESTART     <=                     fine
    RESTART     >                      violated
    ESCALATE    >                      fine
    ESCALATE    <=                     violated
    ==========  =====================  ========
    """

    name: ClassVar[str] = "supervisor"
    events: ClassVar[frozenset[int]] = frozenset({Ev.RESTART, Ev.ESCALATE})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Complaint]]]:
        complaints: list[Complaint] = []
        for t, seq, _, _, _, restarts, intensity, period, who in rows:
            count = f"{restarts} restarts in {period} ms, intensity {intensity}"
            if who >> 8 & 0xFF == Ev.RESTART and restarts > intensity:
                complaints.append((seq, t, f"restarted a child beyond its intensity: {count}"))
            if who >> 8 & 0xFF == Ev.ESCALATE and restarts <= intensity:
                complaints.append((seq, t, f"gave up within its intensity: {count}"))
        if complaints:
            yield (piece.run, piece.actor), complaints

    def start(self, key: Key) -> list[Complaint]:
        return []

    def absorb(self, state: list[Complaint], summary: list[Complaint]) -> None:
        state += summary

    def finish(self, key: Key, state: list[Complaint], context: TraceContext) -> Outcome:
        run, actor = int(key[0]), int(key[1])
        subject = f"supervisor {context.name((run, actor))}"
        return Outcome([Finding("R1", subject, text, ((run, actor, seq),), t, ()) for seq, t, text in state])


class Names(Machine):
    """R2: incarnations of a name take turns.  Key: (run, name of the actor).

    The last row of an incarnation must be before its successor's ACTOR_START.  Its farewell does not count: an actor that
    was killed says ACTOR_STOP, and what mail it leaves, when its thread comes to.
    """

    name: ClassVar[str] = "names"
    events: ClassVar[frozenset[int]] = frozenset({Ev.ACTOR_START})

    def summarise(
        self, piece: Chunk, rows: list[Row]
    ) -> Iterator[tuple[Key, list[tuple[int, int, int, int]]]]:
        name = self.runs[piece.run].actor_name(piece.actor)
        yield (piece.run, name), [(row[5], piece.actor, row[0], row[1]) for row in rows]

    def start(self, key: Key) -> list[tuple[int, int, int, int]]:
        return []

    def absorb(
        self, state: list[tuple[int, int, int, int]], summary: list[tuple[int, int, int, int]]
    ) -> None:
        state += summary

    def finish(self, key: Key, state: list[tuple[int, int, int, int]], context: TraceContext) -> Outcome:
        run, name = int(key[0]), str(key[1])
        outcome = Outcome()
        state.sort()
        for (incarnation, dead, _, _), (successor, alive, started, seq) in pairwise(state):
            last = context.actor_summary((run, dead)).last_act
            if incarnation < successor and last is not None and last[0] > started:
                text = f"incarnation {incarnation} still acted after incarnation {successor} had started"
                evidence = ((run, alive, seq), (run, dead, last[1]))
                outcome.findings.append(Finding("R2", f"actor {name}", text, evidence, last[0], ()))
        return outcome
