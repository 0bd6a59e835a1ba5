"""From findings to a verdict: what stands, and what missing rows leave open.

A finding stands if every row that could have changed it is here: each actor it needs is known up to the finding's t
(trace/catalog.py).  Otherwise it is indeterminate.  And where rows of an actor are missing, each rule that reads such
rows is indeterminate for that actor, whether or not something was found: never violated, never fine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from warrenmq.replay.drive.end_state import disagreements
from warrenmq.replay.drive.machines import FigureKey, Finding
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.rules.registry import RULES
from warrenmq.replay.rules.unbroken_rows import broken_chains
from warrenmq.trace.catalog import FOREVER, STRANGER, Catalog, Coverage, Run


@dataclass(slots=True)
class Verdict:
    """What the rules came to."""

    violations: list[Finding] = field(default_factory=list)
    indeterminate: list[Finding] = field(default_factory=list)

    @property
    def word(self) -> str:
        """violated, else indeterminate, else ok."""
        if self.violations:
            return "violated"
        return "indeterminate" if self.indeterminate else "ok"

    def by_scope(self, runs: Sequence[Run]) -> dict[str, str]:
        """The word for each broker of the trace; that of all is the worst of these."""
        found = {run.scope: Verdict() for run in runs}
        for finding in self.violations:
            found[_scope(finding, runs)].violations.append(finding)
        for finding in self.indeterminate:
            found[_scope(finding, runs)].indeterminate.append(finding)
        return {scope: verdict.word for scope, verdict in found.items()}


def judge(
    findings: Iterable[Finding], figures: Mapping[FigureKey, int], catalog: Catalog, context: TraceContext
) -> Verdict:  # fmt: skip
    """Sort findings into those that stand and those that do not, and add what cannot be decided."""
    verdict = Verdict()
    for finding in sorted([*findings, *broken_chains(catalog), *disagreements(context, figures)], key=_place):
        stands = all(context.known_until(who) >= finding.t for who in finding.needs)
        (verdict.violations if stands else verdict.indeterminate).append(finding)
    verdict.indeterminate += _undecided(catalog, context)
    return verdict


def _scope(finding: Finding, runs: Sequence[Run]) -> str:
    who = finding.rows[0] if finding.rows else finding.needs[0]
    return runs[who[0]].scope


def _place(finding: Finding) -> tuple[str, str, int, str]:
    return finding.rule, finding.subject, finding.t, finding.text


def _undecided(catalog: Catalog, context: TraceContext) -> Iterator[Finding]:
    kinds = _events_of_kinds(context)
    for who, coverage in sorted(catalog.coverage.items()):
        if coverage.complete:
            continue
        events = kinds.get(_kind(context, who), frozenset()) | context.actor_summary(who).events
        run = catalog.runs[who[0]]
        missing = (
            f"version {run.version} of the format is not known here" if run.is_newer else _missing(coverage)
        )
        for rule in RULES.values():
            # An actor of whom nothing at all is known may have been anything.
            if not events or rule.reads(events):
                subject = f"run {run.name}" if who[1] == STRANGER else f"actor {context.name(who)}"
                yield Finding(rule.id, subject, missing, (), FOREVER, (who,))


def _events_of_kinds(context: TraceContext) -> dict[str, frozenset[int]]:
    """What actors of each kind are known to write."""
    kinds: dict[str, frozenset[int]] = {}
    for who, mark in context.actor_summaries.items():
        kind = _kind(context, who)
        kinds[kind] = kinds.get(kind, frozenset()) | mark.events
    return kinds


def _kind(context: TraceContext, who: Who) -> str:
    entry = context.runs[who[0]].actors.get(who[1])
    return entry.kind if entry is not None else "?"


def _missing(coverage: Coverage) -> str:
    if coverage.actor == STRANGER:
        return "parts of it, or the run before it, are missing: there may have been actors of whom nothing is known"
    gaps = [f"{first} to {last}" if first < last else f"{first}" for first, last in coverage.missing]
    if not coverage.end_known:
        gaps.append(f"perhaps some after {coverage.last_seq}")
    return f"rows {', '.join(gaps)} are missing"
