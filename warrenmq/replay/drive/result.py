"""The result of a replay: the verdict, what it rests on, and the figures of queues, stores and actors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warrenmq.replay.drive import damage
from warrenmq.replay.drive.end_state import end_states
from warrenmq.replay.drive.findings import Found
from warrenmq.replay.drive.incidents import incidents
from warrenmq.replay.drive.machines import DELAY, EXERCISED, Finding
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.drive.verdict import Verdict
from warrenmq.replay.explain.links import ChainWords
from warrenmq.replay.explain.story import Chain
from warrenmq.replay.rules.rule import Rule
from warrenmq.trace.catalog import STRANGER, Catalog
from warrenmq.trace.events import Decision, Ev, Trigger

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


class RuleCounts(NamedTuple):
    """One line of the table: an invariant and how it fared."""

    id: str
    name: str
    text: str
    checked: int
    """Rows, or cases, that could have broken it (`Rule.exercised`); 0 = the rule was not exercised, and says nothing."""
    violated: int
    indeterminate: int


@dataclass(slots=True)
class Result:
    """The result of a replay."""

    verdict: str
    """ok, violated or indeterminate."""
    violations: list[Finding]
    """The first of each rule (findings.KEPT); `counts` has how many there are."""
    indeterminate: list[Finding]
    """The same of what missing rows leave open."""
    catalog: Catalog
    figures: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """All findings, by rule: {"violations": {"T1": 3}, "indeterminate": {}}."""
    rules: list[RuleCounts] = field(default_factory=list)
    """Every invariant and how it fared; those of the user behind ours."""
    chains: dict[int, Chain] = field(default_factory=dict)
    """Why, for the first violations of each rule: by their place in `violations`."""

    def as_dict(self) -> dict[str, Any]:
        """The result as plain values, for JSON (`replay --json`)."""
        words = ChainWords(self.catalog)
        return {
            "verdict": self.verdict,
            "violations": [
                finding_as_dict(finding, self.catalog)
                | ({"chain": words.as_dicts(self.chains[place])} if place in self.chains else {})
                for place, finding in enumerate(self.violations)
            ],
            "indeterminate": [finding_as_dict(finding, self.catalog) for finding in self.indeterminate],
            "counts": self.counts,
            "missing": [
                {name: value for name, value in row._asdict().items() if value is not None}
                for row in self.missing
            ],
            **self.figures,
        }

    @property
    def missing(self) -> list[damage.Row]:
        """The rows and files that are missing from the trace, and damage to its files."""
        return list(damage.damage_rows(self.catalog, self.catalog.files))


def make_result(
    verdict: Verdict, catalog: Catalog, context: TraceContext, found: Found, rules: Collection[Rule]
) -> Result:
    """Findings and figures put together, the same for every engine."""
    rows = Counter[int]()
    for summary in context.actor_summaries.values():
        rows.update(summary.counts)
    exercised = {rule.id: found.figures[EXERCISED, rule.id] + rule.exercised.count(rows) for rule in rules}
    violated, undecided = verdict.counts["violations"], verdict.counts["indeterminate"]
    return Result(
        verdict.word,
        verdict.violations,
        verdict.indeterminate,
        catalog,
        {
            "brokers": _brokers(verdict, catalog),
            "rules": {rule.id: rule.text for rule in rules},
            "exercised": exercised,
            **_figures(catalog, context, found),
        },
        verdict.counts,
        [
            RuleCounts(
                rule.id,
                rule.name,
                rule.text,
                exercised[rule.id],
                violated.get(rule.id, 0),
                undecided.get(rule.id, 0),
            )
            for rule in rules
        ],
    )


def _brokers(verdict: Verdict, catalog: Catalog) -> list[dict[str, Any]]:
    """Each virtual host of each data directory that wrote this trace, judged by itself."""
    words = verdict.by_scope
    return [
        {"broker": scope, "verdict": word, "runs": [run.name for run in catalog.runs if run.scope == scope]}
        for scope, word in words.items()
    ]


def _figures(catalog: Catalog, context: TraceContext, found: Found) -> dict[str, Any]:
    figures = found.figures
    queues: dict[str, dict[str, Any]] = {}
    for (_, name, what), n in sorted(each for each in figures.items() if each[0][0] == "queue"):
        queues.setdefault(str(name), {})[str(what)] = n
    messages = sum(queue.get("published", 0) for queue in queues.values())
    together: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for (kind, name, what), classes in sorted(found.histograms.items()):
        if kind == DELAY:
            queues[str(name)][f"{what}_ms"] = percentiles(classes.items())
            together[str(what)].update(classes)
    return {
        "runs": len(catalog.runs),
        "actors": sum(actor != STRANGER for _, actor in catalog.coverage),
        "events": catalog.rows,
        "events_of": _events_of(context),
        "messages": messages,
        "missing_rows": sum(coverage.missing_rows for coverage in catalog.coverage.values()),
        "damaged_bytes": sum(damage.size for damage in catalog.damage),
        "torn_rows": catalog.torn_rows,
        "incidents": incidents(catalog, context, figures),
        "queues": queues,
        "stores": _stores(context),
        "state": end_states(context, found),
        "delays_ms": {what: percentiles(classes.items()) for what, classes in sorted(together.items())},
    }


def _events_of(context: TraceContext) -> dict[str, int]:
    """Number of rows of each event."""
    found: Counter[int] = Counter()
    for mark in context.actor_summaries.values():
        for word, n in mark.counts.items():
            found[word >> 8] += n
    return {context.runs[0].event_name(event): n for event, n in sorted(found.items())}


def _stores(context: TraceContext) -> dict[str, dict[str, int]]:
    stores: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for who, mark in sorted(context.actor_summaries.items()):
        if mark.events & {Ev.GC_START, Ev.COMPACT_START}:
            entry = context.runs[who[0]].actors.get(who[1])
            if entry is not None and entry.parent:
                runs = mark.count(Ev.GC_DONE) + mark.count(Ev.COMPACT_DONE)
                stores[context.name((who[0], entry.parent))]["gc_runs"] += runs
        if not mark.events & {Ev.STORE_RECOVERED, Ev.STORE_WRITE}:
            continue
        counts = stores[context.name(who)]
        counts["writes"] += mark.count(Ev.STORE_WRITE)
        counts["cancelled_writes"] += mark.count(Ev.STORE_WRITE, Decision.IGNORE)
        counts["appends"] += mark.count(Ev.APPEND)
        counts["removes"] += mark.count(Ev.STORE_REMOVE)
        counts["files_rolled"] += mark.count(Ev.ROLL)
        counts["files_deleted"] += mark.count(Ev.FILE_DELETE)
        for trigger in Trigger:
            counts[f"syncs_{trigger.name.lower()}"] += mark.count(Ev.FILE_SYNC, trigger)
    return {name: {what: n for what, n in counts.items() if n} for name, counts in sorted(stores.items())}


def percentiles(classes: Iterable[tuple[int, int]]) -> dict[str, float]:
    """Percentiles in ms of delays counted in classes of ns."""
    ordered = sorted(classes)
    total = sum(n for _, n in ordered)
    found: dict[str, float] = {"count": total}
    for percent in PERCENTILES:
        wanted, seen = percent / 100 * total, 0
        for delay, n in ordered:
            seen += n
            if seen >= wanted:
                found[f"p{percent:g}"] = delay / 1e6
                break
    return found


def finding_as_dict(finding: Finding, catalog: Catalog) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "subject": finding.subject,
        "text": finding.text,
        "rows": [
            {"run": catalog.runs[run].name, "actor": catalog.runs[run].actor_name(actor), "seq": seq}
            for run, actor, seq in finding.rows
        ],
    }
