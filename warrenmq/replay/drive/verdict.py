"""Derive the verdict from findings: those that are final, and rules that missing rows leave open.

A finding stands if every row that could have changed it is here: each actor it needs is known up to the finding's t
(trace/catalog.py).  Otherwise it is indeterminate.  And where rows of an actor are missing, each rule that reads such
rows is indeterminate for that actor, whether or not something was found: never violated, never fine.  A file that cannot
be read may have been a run of any broker, so of each of them all rules are indeterminate for it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from warrenmq.replay.drive.end_state import disagreements
from warrenmq.replay.drive.findings import Found
from warrenmq.replay.drive.machines import FOUND, Finding
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.rules.rule import Rule
from warrenmq.replay.rules.unbroken_rows import broken_chains
from warrenmq.trace.catalog import FOREVER, STRANGER, Catalog, Coverage

_NAMED = 10
"""Gaps of an actor that a sentence names."""


@dataclass(slots=True)
class Verdict:
    """The outcome of a replay, over all its rules."""

    violations: list[Finding]
    indeterminate: list[Finding]
    counts: dict[str, dict[str, int]]
    """All findings, kept or not: "violations" and "indeterminate", each by rule."""
    by_scope: dict[str, str]
    """The word for each broker of the trace."""

    @property
    def word(self) -> str:
        """violated, else indeterminate, else ok: the worst of all brokers."""
        return _word({kind for kind, by_rule in self.counts.items() if by_rule})


def judge(found: Found, catalog: Catalog, context: TraceContext, rules: Collection[Rule]) -> Verdict:
    """Add what only the sums of all keys decide, and what missing rows leave open."""
    for finding in (*broken_chains(catalog), *disagreements(context, found)):
        found.judge(finding, context)
    for finding in (*_undecided(catalog, context, rules), *_unread(catalog, rules)):
        found.judge(finding, context)
    counts: dict[str, Counter[str]] = {"violations": Counter(), "indeterminate": Counter()}
    kinds: dict[str, set[str]] = {run.scope: set() for run in catalog.runs}
    for key, n in found.figures.items():
        if key[0] == FOUND:
            _, kind, rule, scope = map(str, key)
            counts[kind][rule] += n
            kinds[scope].add(kind)
    return Verdict(
        list(found.violations),
        list(found.indeterminate),
        {kind: dict(sorted(by_rule.items())) for kind, by_rule in counts.items()},
        {scope: _word(its) for scope, its in kinds.items()},
    )


def _word(kinds: Collection[str]) -> str:
    if "violations" in kinds:
        return "violated"
    return "indeterminate" if "indeterminate" in kinds else "ok"


def _undecided(catalog: Catalog, context: TraceContext, rules: Collection[Rule]) -> Iterator[Finding]:
    incomplete = sorted(who for who, coverage in catalog.coverage.items() if not coverage.complete)
    kinds = _events_of_kinds(context) if incomplete else {}
    for who in incomplete:
        coverage = catalog.coverage[who]
        events = kinds.get(_kind(context, who), frozenset()) | context.actor_summary(who).events
        run = catalog.runs[who[0]]
        missing = run.why_undecidable or (
            run.why_strangers if coverage.actor == STRANGER else _missing(coverage)
        )
        for rule in rules:
            # An actor of whom nothing at all is known may have been anything.
            if not events or rule.reads(events):
                subject = f"run {run.name}" if who[1] == STRANGER else f"actor {context.name(who)}"
                yield Finding(rule.id, subject, missing, (), FOREVER, (who,))


def _unread(catalog: Catalog, rules: Collection[Rule]) -> Iterator[Finding]:
    """Findings that files leave open of which nothing can be read, for the last run of each broker."""
    lasts = {run.scope: number for number, run in enumerate(catalog.runs)}
    for name, why in catalog.unread.items():
        text = f"{why}: there may have been rows, or runs, of which nothing is known"
        for rule in rules:
            for number in lasts.values():
                unknown = (number, STRANGER)
                yield Finding(rule.id, f"file {os.path.basename(name)}", text, (), FOREVER, (unknown,))


def _events_of_kinds(context: TraceContext) -> dict[str, frozenset[int]]:
    """The events that actors of each kind are known to write."""
    kinds: dict[str, frozenset[int]] = {}
    for who, mark in context.actor_summaries.items():
        kind = _kind(context, who)
        kinds[kind] = kinds.get(kind, frozenset()) | mark.events
    return kinds


def _kind(context: TraceContext, who: Who) -> str:
    entry = context.runs[who[0]].actors.get(who[1])
    return entry.kind if entry is not None else "?"


def _missing(coverage: Coverage) -> str:
    gaps = [f"{first} to {last}" if first < last else f"{first}" for first, last in coverage.missing[:_NAMED]]
    if coverage.gaps > len(gaps):
        gaps.append(f"and more in {coverage.gaps - len(gaps)} other places")
    if not coverage.end_known:
        gaps.append(f"perhaps some after {coverage.last_seq}")
    return f"rows {', '.join(gaps)} are missing"
