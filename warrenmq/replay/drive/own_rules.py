"""Rules of users, judged beside ours (docs/rules.md): a query, or a `Rule` with a machine of one's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from warrenmq.errors import CallerError
from warrenmq.replay.drive.machines import EXERCISED, FigureKey, Finding, Key, State, Summariser
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext, Who
from warrenmq.replay.rules.registry import RULES, all_machines
from warrenmq.replay.rules.rule import Rule, is_known
from warrenmq.replay.rules.sql import found_in
from warrenmq.trace.reader import Trace


@dataclass(frozen=True)
class SqlRule:
    """A rule as a query of its violations: a row (run, actor, seq) of the trace for each (tables: rules/sql.py)."""

    id: str
    """In tables, and before each violation; none of ours."""
    text: str
    """The sentence that does not hold."""
    sql: str
    cases: str = "SELECT run, actor, seq FROM stored"
    """A query of the rows that could have broken it: without any, it was not exercised.  As it is, every row."""


OwnRule = Rule | SqlRule


class Judged(NamedTuple):
    """What rules of users came to."""

    violations: list[Finding]
    undecided: list[Finding]
    exercised: dict[str, int]


class Verdict(Protocol):
    """What a replay found, as far as rules of users add to it."""

    verdict: str
    violations: list[Finding]
    indeterminate: list[Finding]
    figures: dict[str, Any]
    counts: dict[str, dict[str, int]]


def judge_own(trace: Trace, rules: Sequence[OwnRule]) -> Judged:
    """What breaks these rules, what missing rows leave undecided, and how many cases there were."""
    context = TraceContext.of(trace.catalog)
    by_machine = [each for each in rules if isinstance(each, Rule)]
    queries = [each for each in rules if isinstance(each, SqlRule)]
    found, figures = _by_machines(trace, by_machine, context)
    summaries = context.actor_summaries.values()
    exercised = {
        rule.id: figures[EXERCISED, rule.id] + rule.exercised.count(summaries) for rule in by_machine
    }
    told = found_in(trace, [query for each in queries for query in (each.sql, each.cases)]) if queries else []
    for rule, rows, cases in zip(queries, told[::2], told[1::2], strict=True):
        exercised[rule.id] = len(cases)
        for run, actor, seq, t in rows:
            who = run, actor
            found.append(Finding(rule.id, f"actor {context.name(who)}", rule.text, ((*who, seq),), t, (who,)))
    final = {each.id: each.is_final for each in by_machine}
    judged = Judged([], [], exercised)
    for finding in sorted(found, key=lambda each: (each.rule, each.t)):
        stands = final.get(finding.rule, is_known)(finding, context)
        (judged.violations if stands else judged.undecided).append(finding)
    return judged


def add_own(result: Verdict, judged: Judged) -> None:
    """The result of a replay with that of rules of users."""
    result.violations += judged.violations
    result.indeterminate += judged.undecided
    result.figures["exercised"] |= judged.exercised
    result.counts["violations"] |= Counter(finding.rule for finding in judged.violations)
    result.counts["indeterminate"] |= Counter(finding.rule for finding in judged.undecided)
    if judged.violations:
        result.verdict = "violated"
    elif judged.undecided and result.verdict == "ok":
        result.verdict = "indeterminate"


def require_own(rules: Sequence[OwnRule]) -> None:
    """CallerError unless the ids are new, and differ."""
    ids = [rule.id for rule in rules]
    taken = sorted({each for each in ids if each in RULES or ids.count(each) > 1})
    if taken:
        raise CallerError(f"there is a rule {taken[0]} already; give yours another id.")


def _by_machines(
    trace: Trace, rules: Sequence[Rule], context: TraceContext
) -> tuple[list[Finding], Counter[FigureKey]]:
    machines = all_machines(trace.catalog.runs, rules)
    if not machines:
        return [], Counter()
    summariser = Summariser(machines)
    states: dict[tuple[str, Key], State] = {}
    summaries: dict[Who, ActorSummary] = {}
    for piece in trace.catalog.chunks:
        rows = trace.rows(piece)
        summaries.setdefault((piece.run, piece.actor), ActorSummary()).note(rows)
        for name, key, summary in summariser.summarise(piece, rows):
            machine = summariser.machines[name]
            if (name, key) not in states:
                states[name, key] = machine.start(key)
            machine.absorb(states[name, key], summary)
    context.actor_summaries = summaries
    outcomes = [
        summariser.machines[name].finish(key, state, context) for (name, key), state in states.items()
    ]
    wanted = {rule.id for rule in rules}
    figures: Counter[FigureKey] = Counter()
    for outcome in outcomes:
        figures.update(outcome.figures)
    return [each for outcome in outcomes for each in outcome.findings if each.rule in wanted], figures
