"""The outcomes of keys added up: findings, figures, and the keys that need a full check.

Findings are counted in full.  Of each rule the first KEPT are kept with their evidence, in an order that does
not depend on which engine found them or when, so the memory for them grows with the rules and not with the
trace.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from warrenmq.replay.drive.machines import FOUND, FigureKey, Figures, FileEnd, Finding, Key, Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who

KEPT = 1_000
"""Findings of a rule that are kept with their evidence, of those that stand and of those that do not; files of a store."""

Place = tuple[str, Key]
"""A machine, by its name, and one of its keys."""


class LastFiles:
    """The files at the end of each store, the KEPT youngest of them; how many there are is a figure."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, int], list[FileEnd]] = {}

    def add(self, file: FileEnd) -> None:
        its = self._of.setdefault((file.run, file.store), [])
        its.append(file)
        if len(its) >= 2 * KEPT:
            its.sort()
            del its[:-KEPT]

    def of(self, who: Who) -> list[FileEnd]:
        """The file ends of a store, by file number."""
        return sorted(self._of.get(who, ()))[-KEPT:]

    def __iter__(self) -> Iterator[FileEnd]:
        """Store by store."""
        for who in sorted(self._of):
            yield from self.of(who)


class FirstFindings:
    """The first KEPT findings of each rule, in the order of subjects, times and texts."""

    def __init__(self) -> None:
        self._of: dict[str, list[Finding]] = {}

    def add(self, finding: Finding) -> None:
        its = self._of.setdefault(finding.rule, [])
        its.append(finding)
        if len(its) >= 2 * KEPT:
            its.sort(key=order_of)
            del its[KEPT:]

    def __iter__(self) -> Iterator[Finding]:
        """Iterate over the findings in order, rule by rule."""
        for _, its in sorted(self._of.items()):
            yield from sorted(its, key=order_of)[:KEPT]


def order_of(finding: Finding) -> tuple[str, int, str, tuple[tuple[int, int, int], ...]]:
    """Sorts the findings of a rule, whichever engine found them."""
    return finding.subject, finding.t, finding.text, finding.rows


@dataclass(slots=True)
class Found:
    """The outcomes of keys, added up.  `add` is associative and commutative."""

    violations: FirstFindings = field(default_factory=FirstFindings)
    indeterminate: FirstFindings = field(default_factory=FirstFindings)
    figures: Figures = field(default_factory=Figures)
    """The figures, and the number of findings: (FOUND, "violations" or "indeterminate", rule, scope)."""
    histograms: defaultdict[FigureKey, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    largest: dict[FigureKey, int] = field(default_factory=dict)
    """Figures of which the largest counts."""
    files: LastFiles = field(default_factory=LastFiles)
    unproven: set[Place] = field(default_factory=set)
    """Keys that need a full check."""

    def take(self, place: Place, outcome: Outcome, context: TraceContext) -> None:
        """Add the outcome of one key."""
        if outcome.needs_full_check:
            self.unproven.add(place)
            return
        if outcome.figures:
            self.figures.add(outcome.figures)
        if outcome.histograms:
            self.note_histograms(outcome.histograms)
        if outcome.largest:
            self.note_largest(outcome.largest)
        if outcome.file is not None:
            self.files.add(outcome.file)
        for finding in outcome.findings:
            self.judge(finding, context)

    def note_histograms(self, histograms: Mapping[FigureKey, Mapping[int, int]]) -> None:
        """Add these counts to those of the same figure and number."""
        for key, counts in histograms.items():
            if counts:
                self.histograms[key].update(counts)

    def note_largest(self, figures: Mapping[FigureKey, int]) -> None:
        """Figures of one kind, each of which counts if it is larger than what is known."""
        for key, n in figures.items():
            self.largest[key] = max(n, self.largest.get(key, n))

    def judge(self, finding: Finding, context: TraceContext) -> None:
        """A finding stands if its rows prove something and every row that could have changed it is here: its
        actors are known up to its t.
        """
        stands = context.can_prove(finding.rows) and all(
            context.known_until(who) >= finding.t for who in finding.needs
        )
        who = finding.rows[0] if finding.rows else finding.needs[0]
        kind = "violations" if stands else "indeterminate"
        self.figures[FOUND, kind, finding.rule, context.runs[who[0]].scope] += 1
        (self.violations if stands else self.indeterminate).add(finding)

    def add(self, other: Found) -> None:
        """Add those of other keys."""
        for finding in other.violations:
            self.violations.add(finding)
        for finding in other.indeterminate:
            self.indeterminate.add(finding)
        self.figures.add(other.figures)
        self.note_histograms(other.histograms)
        self.note_largest(other.largest)
        for file in other.files:
            self.files.add(file)
        self.unproven |= other.unproven
