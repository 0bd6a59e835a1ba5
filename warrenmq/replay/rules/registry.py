"""Every rule of this folder, by its id, and the machines that decide them: found, not listed."""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Sequence
from importlib import import_module

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
    needed = dict.fromkeys(machine for rule in rules for machine in rule.machines)
    return [
        machine(runs, {rule.id: rule.judge[machine] for rule in rules if machine in rule.judge})
        for machine in needed
    ]


def is_final(finding: Finding, context: TraceContext) -> bool:
    """True if a finding stands while the trace is still being written."""
    return RULES[finding.rule].is_final(finding, context)
