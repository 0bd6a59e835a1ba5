"""Rules of users, judged beside ours (docs/rules.md): a `Rule` with machines, which every setting drives, or a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warrenmq.errors import ArgumentTypeError, CallerError
from warrenmq.replay.drive.findings import Found
from warrenmq.replay.drive.machines import EXERCISED, Finding
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.registry import RULES, all_machines
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.replay.rules.sql import found_in
from warrenmq.trace.reader import Trace

EVERY_ROW = "SELECT run, actor, seq FROM stored"


@dataclass(frozen=True)
class SqlRule:
    """A rule as a query of its violations: a row (run, actor, seq) of the trace for each (tables: rules/sql.py)."""

    id: str
    """The rule's id in tables and before each violation; no other rule may have it."""
    text: str
    """The sentence that does not hold."""
    sql: str
    cases: str = EVERY_ROW
    """A query of the rows that could have broken it: without any, it was not exercised.  The default is every row."""

    def as_rule(self) -> Rule:
        """Wrap it as a Rule without machines, which may read any row."""
        return Rule(
            id=self.id, name=self.id, text=self.text, exercised=Exercised("a row of its second query")
        )


OwnRule = Rule | SqlRule


def split_own(rules: Sequence[OwnRule]) -> tuple[list[Rule], list[SqlRule]]:
    """Rules that machines decide, and queries; CallerError unless ids and machines have names of their own."""
    if strange := [each for each in rules if not isinstance(each, Rule | SqlRule)]:
        raise ArgumentTypeError(f"a rule is of type {type(strange[0]).__name__}; give a Rule or an SqlRule.")
    ids = [rule.id for rule in rules]
    if taken := sorted({each for each in ids if each in RULES or ids.count(each) > 1}):
        raise CallerError(f"there is a rule {taken[0]} already; give yours another id.")
    decided = [rule for rule in rules if isinstance(rule, Rule)]
    names = [machine.name for machine in all_machines([], (*RULES.values(), *decided))]
    if taken := sorted({each for each in names if names.count(each) > 1}):
        raise CallerError(f"there is a machine {taken[0]} already; give yours another name.")
    return decided, [rule for rule in rules if isinstance(rule, SqlRule)]


def ask_queries(trace: Trace, queries: Sequence[SqlRule]) -> Found:
    """The findings of these queries in a trace, and how many cases there were."""
    context, found = TraceContext.of(trace.catalog), Found()
    answers = found_in(trace, [query for rule in queries for query in (rule.sql, rule.cases)])
    for rule, rows, cases in zip(queries, answers[::2], answers[1::2], strict=True):
        found.figures[EXERCISED, rule.id] = len(cases)
        for run, actor, seq, t in rows:
            who = run, actor
            subject = f"actor {context.name(who)}"
            found.judge(Finding(rule.id, subject, rule.text, ((*who, seq),), t, (who,)), context)
    return found
