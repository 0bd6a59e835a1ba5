"""Explains findings: for each the shortest chain of rows that makes it understandable, with the rows that are
missing from it.

Each rule has a function that makes its chain (`explain`).  No row is read again for a trace without violations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby

from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.explain.evidence import Known, RowAt, Want
from warrenmq.replay.explain.story import LONGEST, Chain, Link, Story, links_of
from warrenmq.replay.rules.rule import Rule
from warrenmq.trace.catalog import Run
from warrenmq.trace.schema import Row

EXPLAINED = 20
"""Findings of a rule that get a chain; the terminal and the page show no more with one."""


Gather = Callable[[Sequence[Want]], Iterable[tuple[int, int, Row]]]
"""One pass over the pieces of a trace: the rows that `pick` finds in each."""


def explain(
    findings: Sequence[Finding], runs: Sequence[Run], rules: Collection[Rule], gather: Gather
) -> dict[int, Chain]:
    """The chains of the first findings of each rule, by their place in the list, which is sorted by rule."""
    chosen: dict[int, Finding] = {}
    numbered = enumerate(findings)
    for _, of_rule in groupby(numbered, key=lambda pair: pair[1].rule):
        chosen |= dict(list(of_rule)[:EXPLAINED])
    known, by_id = Known(), {rule.id: rule for rule in rules}
    while True:
        chains = {
            place: _chain(finding, by_id[finding.rule], runs, known) for place, finding in chosen.items()
        }
        wants = known.unanswered()
        if not wants:
            return chains
        known.learn(wants, gather(wants))


def _chain(finding: Finding, rule: Rule, runs: Sequence[Run], known: Known) -> Chain:
    found = [known.rows(RowAt(*place)) for place in finding.rows]
    evidence = [placed for rows in found for placed in rows]
    if not found or any(len(rows) != 1 for rows in found):
        # rows of the evidence are gone, or others claim their places: no rule's chain begins with what is left
        return links_of(evidence)
    story = Story(finding, runs, known, evidence)
    before = rule.explain(story)
    links = list(dict.fromkeys([*before, *(Link(*placed) for placed in evidence)]))
    # The evidence comes last; a row of it that the chain has already stays where its time puts it.
    return links[-LONGEST:]
