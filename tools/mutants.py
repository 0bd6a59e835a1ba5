"""Mutation testing of the simulation's judges: whether `warrenmq simulate` notices a broker that is wrong.

    python -m tools.mutants                                  every mutation, 300 seeds in both profiles
    python -m tools.mutants fan-out-misses --seeds 1000      one
    python -m tools.mutants --table                          as the rows of docs/proof.md

Each mutation (tools/broker_mutations.py) is applied to a copy of the package in a temporary folder, never to the package itself,
and the copy does the runs that `warrenmq simulate --seed 0`, `--seed 1` and so on do, in each profile, until both judges have
killed it or the seeds are used up:

    the model    a promise to the client was broken, or an exception reached the application
    the rules    the replay of the run's trace found a violation, or could not decide

A mutation that makes a run go on for ever is killed when its time is up, and told as `hangs`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from tools.broker_mutations import MUTATIONS, Mutation
from warrenmq.location import HOME

PACKAGE = HOME / "warrenmq"
SEEDS = 300
SECONDS = 300.0


class Killed(NamedTuple):
    """The first run that one of the judges did not pass."""

    seed: int
    profile: str
    by: str
    """The promise that was broken, the exception, or the id of the rule."""


class Result(NamedTuple):
    """The judges' verdict on one mutation."""

    mutation: Mutation
    model: Killed | None
    rules: Killed | None
    seeds: int
    """How many were run."""
    hangs: bool = False

    @property
    def is_killed(self) -> bool:
        return bool(self.model or self.rules or self.hangs)

    def __str__(self) -> str:
        name = self.mutation.name
        if not self.is_killed:
            return f"{name}: SURVIVED {self.seeds} seeds"
        ways = [f"the model ({_told(self.model)})"] if self.model else []
        ways += [f"rule {_told(self.rules)}"] if self.rules else []
        ways += [f"time: it hangs after {self.seeds} seeds"] if self.hangs else []
        return f"{name}: killed by {' and '.join(ways)}"


def _told(killed: Killed) -> str:
    return f"{killed.by}, seed {killed.seed} {killed.profile}"


def mutated(source: str, mutation: Mutation) -> str:
    """The module with the mutation; ValueError when its text is not there exactly once, so that no mutation is silently none."""
    found = source.count(mutation.old)
    if found != 1:
        msg = f"mutation {mutation.name}: its text is {found} times in {mutation.module}, not once; adapt it to the code"
        raise ValueError(msg)
    return source.replace(mutation.old, mutation.new)


def read(mutation: Mutation) -> str:
    """The module that a mutation is for."""
    return (PACKAGE / mutation.module).read_text(encoding="utf-8")


def try_one(mutation: Mutation, seeds: range, seconds: float = SECONDS) -> Result:
    """Run the mutated package with these seeds in a process of its own, for `seconds` at the most."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        package = os.path.join(folder, "warrenmq")
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        with open(os.path.join(package, mutation.module), "w", encoding="utf-8") as file:
            file.write(mutated(read(mutation), mutation))
        shutil.copy(os.path.join(os.path.dirname(__file__), "mutant_runs.py"), folder)
        command = [sys.executable, os.path.join(folder, "mutant_runs.py"), str(seeds.start), str(seeds.stop)]
        try:
            done = subprocess.run(
                command, check=False, cwd=folder, env={**os.environ, "PYTHONPATH": folder}, capture_output=True, text=True, timeout=seconds
            )  # fmt: skip
            output, hangs = done.stdout, False
            if done.returncode:
                raise RuntimeError(f"mutation {mutation.name}: the runs ended with {done.stderr[-2000:]}")
        except subprocess.TimeoutExpired as late:
            output, hangs = (late.stdout or b"").decode(), True
    return _result(mutation, output, hangs=hangs)


def _result(mutation: Mutation, output: str, *, hangs: bool) -> Result:
    """Read the lines of mutant_runs.py; the last one may have been cut off."""
    found: dict[str, Killed] = {}
    seeds = 0
    for line in output.splitlines(keepends=True):
        if line.endswith("\n"):
            each: dict[str, Any] = json.loads(line)
            if "judge" in each:
                found[each["judge"]] = Killed(each["seed"], each["profile"], each["by"])
            seeds = each["seeds"]
    return Result(mutation, found.get("model"), found.get("rules"), seeds, hangs)


def table(results: Iterable[Result]) -> str:
    """The results as rows of docs/proof.md."""
    lines = ["| mutation | what is wrong then | the model | the rules |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{each.mutation.name}` | {each.mutation.does} | {_cell(each, each.model)} | {_cell(each, each.rules)} |"
        for each in results
    ]
    return "\n".join(lines)


def _cell(result: Result, killed: Killed | None) -> str:
    if killed is not None:
        return f"{killed.by}, {killed.seed + 1}"
    return f"hangs, {result.seeds + 1}" if result.hangs else "-"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations (all)")
    parser.add_argument("--list", action="store_true", help="list the mutations and what each breaks")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help=f"how many seeds, each in both profiles ({SEEDS})"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"time for one mutation ({SECONDS:g})")
    parser.add_argument("--cores", type=int, default=1, help="mutations at once (1)")
    parser.add_argument("--table", action="store_true", help="print the rows of docs/proof.md at the end")
    args = parser.parse_args(argv)
    by_name = {each.name: each for each in MUTATIONS}
    if unknown := [name for name in args.names if name not in by_name]:
        parser.error(f"{unknown[0]!r} is no mutation; --list names them")
    chosen = [by_name[name] for name in args.names] or [*MUTATIONS]
    if args.list:
        print("\n".join(f"{each.name:28} {each.does}" for each in chosen))
        return 0
    seeds = range(args.first, args.first + args.seeds)
    results = []
    with ThreadPoolExecutor(args.cores) as pool:
        for result in pool.map(lambda each: try_one(each, seeds, args.seconds), chosen):
            print(result, flush=True)
            results.append(result)
    killed = sum(each.is_killed for each in results)
    print(f"{killed} of {len(results)} killed")
    if args.table:
        print(table(results))
    return 0 if killed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
