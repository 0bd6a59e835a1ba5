"""Every rule of this folder, by its id, and the machines that decide them: found, not listed."""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any

from warrenmq.replay import rules as folder
from warrenmq.replay.drive.machines import Finding, Machine
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.rule import Rule
from warrenmq.trace.catalog import Run

_ORDER = "TCQXASDERW"
"""The order of the ids' letters in tables: mail and clocks first, then queues, the store, the whole; then other letters."""


def _found() -> list[Rule]:
    modules = (
        import_module(f"{folder.__name__}.{each.name}") for each in pkgutil.iter_modules(folder.__path__)
    )
    rules = [rule for module in modules if isinstance(rule := getattr(module, "RULE", None), Rule)]
    return sorted(rules, key=lambda rule: (len(_ORDER.partition(rule.id[0])[0]), rule.id))


RULES: dict[str, Rule] = {rule.id: rule for rule in _found()}


def all_machines(runs: Sequence[Run], rules: Collection[Rule] = tuple(RULES.values())) -> list[Machine]:
    """Every machine that these rules need, once, for the runs of a catalogue."""
    needed: dict[type[Machine], dict[str, Any]] = {machine: {} for rule in rules for machine in rule.machines}
    for rule in rules:
        for machine, judge in rule.judge.items():
            if machine in needed:
                needed[machine][rule.id] = judge
    return [machine(runs, judges) for machine, judges in needed.items()]


def is_final(finding: Finding, context: TraceContext) -> bool:
    """True if a finding stands while the trace is still being written."""
    return RULES[finding.rule].is_final(finding, context)
