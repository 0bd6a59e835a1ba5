"""Replay in one process: the four steps of machines.py, in plain Python, in one pass over the rows.

It needs no Java and no package but msgpack, and up to some tens of millions of rows it is the faster way.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from warrenmq.replay.drive import damage
from warrenmq.replay.drive.end_state import end_states
from warrenmq.replay.drive.incidents import incidents
from warrenmq.replay.drive.machines import EXERCISED, FigureKey, Finding, Key, Machine, State, Summariser
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext
from warrenmq.replay.drive.verdict import Verdict, judge
from warrenmq.replay.explain.causes import explain
from warrenmq.replay.explain.evidence import Want, pick
from warrenmq.replay.explain.links import ChainWords
from warrenmq.replay.explain.story import Chain
from warrenmq.replay.rules.registry import RULES, all_machines
from warrenmq.trace.catalog import STRANGER, Catalog
from warrenmq.trace.events import Decision, Ev, Trigger
from warrenmq.trace.index import Row
from warrenmq.trace.reader import Trace, open_memory, open_trace

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


@dataclass(slots=True)
class Result:
    """What a replay found out."""

    verdict: str
    """ok, violated or indeterminate."""
    violations: list[Finding]
    indeterminate: list[Finding]
    catalog: Catalog
    figures: dict[str, Any] = field(default_factory=dict)
    chains: dict[int, Chain] = field(default_factory=dict)
    """Why, for the first violations of each rule: by their place in `violations`."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON (`replay --json`)."""
        words = ChainWords(self.catalog.runs)
        return {
            "verdict": self.verdict,
            "violations": [
                finding_as_dict(finding, self.catalog)
                | ({"chain": words.as_dicts(self.chains[place])} if place in self.chains else {})
                for place, finding in enumerate(self.violations)
            ],
            "indeterminate": [finding_as_dict(finding, self.catalog) for finding in self.indeterminate],
            "missing": [
                {name: value for name, value in row._asdict().items() if value is not None}
                for row in self.missing
            ],
            **self.figures,
        }

    @property
    def missing(self) -> list[damage.Row]:
        """What is missing from the trace, and what is wrong with its files."""
        return list(damage.damage_rows(self.catalog, self.catalog.files))


def replay(*paths: str | os.PathLike[str]) -> Result:
    """Replay trace directories or files; NotATrace if they hold none."""
    with open_trace(*paths) as trace:
        return replay_trace(trace)


def replay_memory(files: Mapping[str, bytes]) -> Result:
    """Replay what a MemorySink holds."""
    return replay_trace(open_memory(files))


def replay_trace(trace: Trace) -> Result:
    catalog = trace.catalog
    machines = all_machines(catalog.runs)
    summariser = Summariser(machines)
    context = TraceContext.of(catalog)
    states: dict[str, dict[Key, State]] = {machine.name: {} for machine in machines}
    actor_summaries: defaultdict[tuple[int, int], ActorSummary] = defaultdict(ActorSummary)
    for piece in catalog.chunks:
        rows = trace.rows(piece)
        actor_summaries[piece.run, piece.actor].note(rows)
        for name, key, summary in summariser.summarise(piece, rows):
            _absorb(summariser.machines[name], states[name], key, summary)
    context.actor_summaries = dict(actor_summaries)
    findings: list[Finding] = []
    figures: Counter[FigureKey] = Counter()
    for machine in sorted(machines, key=lambda each: each.stage):
        for key, state in states[machine.name].items():
            outcome = machine.finish(key, state, context)
            findings += outcome.findings
            figures.update(outcome.figures)
            for name, fact_key, fact in outcome.facts:
                _absorb(summariser.machines[name], states[name], fact_key, fact)
    verdict = judge(findings, figures, catalog, context)
    found = result(verdict, catalog, context, figures)
    found.chains = explain(found.violations, catalog.runs, partial(gather, trace))
    return found


def gather(trace: Trace, wants: Sequence[Want]) -> Iterator[tuple[int, int, Row]]:
    """One more pass, for what explains."""
    for piece in trace.catalog.chunks:
        yield from pick(wants, trace.catalog.runs, piece, partial(trace.rows, piece))


def _absorb(machine: Machine, states: dict[Key, State], key: Key, summary: Any) -> None:
    state = states.get(key)
    if state is None:
        state = states[key] = machine.start(key)
    machine.absorb(state, summary)


def result(verdict: Verdict, catalog: Catalog, context: TraceContext, figures: Counter[FigureKey]) -> Result:
    """The same for every engine: findings and figures put together."""
    return Result(
        verdict.word,
        verdict.violations,
        verdict.indeterminate,
        catalog,
        {"brokers": _brokers(verdict, catalog)} | _tell(catalog, context, figures),
    )


def _brokers(verdict: Verdict, catalog: Catalog) -> list[dict[str, Any]]:
    """Each virtual host of each data directory that wrote this trace, judged by itself."""
    words = verdict.by_scope(catalog.runs)
    return [
        {"broker": scope, "verdict": word, "runs": [run.name for run in catalog.runs if run.scope == scope]}
        for scope, word in words.items()
    ]


def _tell(catalog: Catalog, context: TraceContext, figures: Counter[FigureKey]) -> dict[str, Any]:
    queues: dict[str, dict[str, Any]] = {}
    delays: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for key, n in sorted(figures.items(), key=str):
        if key[0] == "queue":
            queues.setdefault(str(key[1]), {})[str(key[2])] = n
        elif key[0] == "delay":
            delays[str(key[1]), str(key[2])][int(key[3])] += n
    messages = sum(queue.get("published", 0) for queue in queues.values())
    together: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for (name, what), classes in sorted(delays.items()):
        queues[name][f"{what}_ms"] = percentiles(classes.items())
        together[what].update(classes)
    return {
        "rules": {rule.id: rule.text for rule in RULES.values()},
        "runs": len(catalog.runs),
        "actors": sum(actor != STRANGER for _, actor in catalog.coverage),
        "events": sum(coverage.rows for coverage in catalog.coverage.values()),
        "events_of": _events_of(context),
        "messages": messages,
        "exercised": {
            rule.id: figures[EXERCISED, rule.id] + rule.exercised.count(context.actor_summaries.values())
            for rule in RULES.values()
        },
        "missing_rows": sum(
            last - first + 1 for coverage in catalog.coverage.values() for first, last in coverage.missing
        ),
        "damaged_bytes": sum(damage.size for damage in catalog.damage),
        "torn_rows": catalog.torn_rows,
        "incidents": incidents(catalog, context, figures),
        "queues": queues,
        "stores": _stores(context),
        "state": end_states(context, figures),
        "delays_ms": {what: percentiles(classes.items()) for what, classes in sorted(together.items())},
    }


def _events_of(context: TraceContext) -> dict[str, int]:
    """How many rows of each event."""
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
        told = stores[context.name(who)]
        told["writes"] += mark.count(Ev.STORE_WRITE)
        told["cancelled_writes"] += mark.count(Ev.STORE_WRITE, Decision.IGNORE)
        told["appends"] += mark.count(Ev.APPEND)
        told["removes"] += mark.count(Ev.STORE_REMOVE)
        told["files_rolled"] += mark.count(Ev.ROLL)
        told["files_deleted"] += mark.count(Ev.FILE_DELETE)
        for trigger in Trigger:
            told[f"syncs_{trigger.name.lower()}"] += mark.count(Ev.FILE_SYNC, trigger)
    return {name: {what: n for what, n in told.items() if n} for name, told in sorted(stores.items())}


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
