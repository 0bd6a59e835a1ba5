"""T1: an actor's rows have no gap, and their times rise."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter, lt
from typing import ClassVar

from warrenmq.replay.drive.columns import Rows
from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.rule import FORMAT, Exercised, Rule
from warrenmq.trace.catalog import Catalog, Chunk
from warrenmq.trace.index import Row

_T, _SEQ = attrgetter("t"), attrgetter("seq")

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
                (row, expected) for expected, row in enumerate(rows, piece.seq_first) if row.seq != expected
            )
            complaints.append((row.seq, row.t, f"seq {row.seq} stands where {expected} belongs"))
        if not all(map(lt, times, times[1:])):
            before, row = next((one, two) for one, two in pairwise(rows) if two.t <= one.t)
            complaints.append((row.seq, row.t, f"t goes from {before.t} to {row.t}"))
        if complaints:
            yield (piece.run, piece.actor), complaints

    def finish(self, key: Key, state: list[Complaint], context: TraceContext) -> Outcome:
        run, actor = int(key[0]), int(key[1])
        subject = f"actor {context.name((run, actor))}"
        return Outcome(
            [
                Finding("T1", subject, text, ((run, actor, seq - 1), (run, actor, seq)), t, ())
                for seq, t, text in state
            ]
        )

    def fold(self, piece: Chunk, rows: Rows) -> Iterator[tuple[Key, list[Complaint]]]:
        """Report no complaints: rows in arrays were checked when they were read."""
        return iter(())


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


_SQL = """
SELECT run, actor, seq FROM (
    SELECT run, actor, seq, t,
           lag(seq) OVER (PARTITION BY run, actor ORDER BY seq) AS seq_before,
           lag(t) OVER (PARTITION BY run, actor ORDER BY seq) AS t_before
    FROM stored) AS pairs
WHERE seq = seq_before OR t <= t_before
"""

RULE = Rule(
    id="T1",
    name="unbroken rows",
    text=("An actor numbers its rows without a gap, and their t rises."),
    sources=(FORMAT,),
    exercised=Exercised("every row", {}),
    sql=_SQL,
    machines=(Chain,),
)
