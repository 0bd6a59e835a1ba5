"""What a replay prints on a terminal: a short table, and the verdict as the last line."""

from __future__ import annotations

import sys
from typing import TextIO

from warrenmq.replay.replayed import Replayed

SHOWN = 10
"""Findings that are printed; the rest is counted."""


def print_summary(replayed: Replayed, out: TextIO | None = None) -> None:
    """The table of invariants, the first findings, the verdict."""
    for line in summary_lines(replayed):
        print(line, file=out or sys.stdout)


def summary_lines(replayed: Replayed) -> list[str]:
    result = replayed.result
    width = max(len(rule.name) for rule in replayed.rules)
    lines = [f"rule  {'invariant':{width}}  violated  undecided"]
    lines += [
        f"{rule.id:4}  {rule.name:{width}}  {_or_dash(rule.violated):>8}  {_or_dash(rule.indeterminate):>9}"
        for rule in replayed.rules
    ]
    for title, findings in (("violated", result.violations), ("undecided", result.indeterminate)):
        lines += [
            f"{title}  {finding.rule}  {finding.subject}: {finding.text}" for finding in findings[:SHOWN]
        ]
        if len(findings) > SHOWN:
            lines.append(f"{title}  and {len(findings) - SHOWN:,} more (--json lists all)")
    return [*lines, verdict_line(replayed)]


def verdict_line(replayed: Replayed) -> str:
    """For instance "verdict ok: 15 invariants hold for 1,024 messages in 9,101 events"."""
    figures, result = replayed.result.figures, replayed.result
    said = {
        "ok": f"{len(replayed.rules)} invariants hold",
        "violated": f"{len(result.violations):,} violations",
        "indeterminate": f"no violation, but rows are missing: {len(result.indeterminate):,} cases are undecided",
    }[replayed.verdict]
    return (
        f"verdict {replayed.verdict}: {said}, in {figures['events']:,} events of {figures['messages']:,} messages "
        f"({replayed.engine}, {replayed.seconds:.1f} s)"
    )


def _or_dash(n: int) -> str:
    return f"{n:,}" if n else "-"
