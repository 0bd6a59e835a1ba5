"""Mutation testing of the broker: whether simulated runs, their two judges and the tests notice one that is wrong.

    python -m tools.mutants                                  every mutation
    python -m tools.mutants fan-out-misses --seeds 1000      one
    python -m tools.mutants --tests --out results.jsonl      the tests, too; goes on where the same file ends
    python -m tools.mutants --only-tests                     the tests alone
    python -m tools.mutants --script                         the workload of each mutation, for `warrenmq simulate --script`
    python -m tools.mutants --out results.jsonl --table      as the rows of docs/proof.md

Each mutation (tools/broker_mutations.py) is applied to a copy of the package in a temporary folder, never to
the package itself. The copy does the runs of the mutation's workload, and then those that `warrenmq simulate
--seed 0`, `--seed 1` and so on do, in each profile, until a judge has killed it or the seeds are used up:

    the model    a promise to the client was broken, or an exception reached the application
    the rules    the replay of the run's trace found a violation, or could not decide
    the tests    those of the module's room, up to the first that fails; where no judge has killed it, those of the
                 whole broker, too (--tests)

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
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from tools.broker_mutations import MUTATIONS, WORKLOADS, Mutation
from warrenmq.location import HOME

PACKAGE = HOME / "warrenmq"
WORKLOAD_SEEDS = 9
"""Seeds, that is orders of what can happen, with which a mutation's workload is run."""
SEEDS = 300
SECONDS = 300.0
TEST_SECONDS = 60
"""Seconds after which a single test is taken for hung, that is failed."""
BROKER_ROOMS = ("actors", "defects", "broker")
"""Rooms of tests that run all modules of the broker, the quickest first."""
BY_NAME = {each.name: each for each in MUTATIONS}


class Killed(NamedTuple):
    """The first run that one of the judges did not pass."""

    seed: int
    profile: str
    by: str
    """The promise that was broken, the exception, or the id of the rule."""
    is_random: bool
    """The script was that of the seed, not the mutation's workload."""

    def __str__(self) -> str:
        return f"{self.by}, {'seed' if self.is_random else 'workload'} {self.seed} {self.profile}"


class Result(NamedTuple):
    """The judges' verdict on one mutation."""

    name: str
    model: Killed | None
    rules: Killed | None
    seeds: int
    """How many were run, of random scripts."""
    hangs: bool = False
    tests: str = ""
    """How the tests ended: failed, passed, or none failed in the time they had; empty if they were not run."""

    @property
    def is_killed(self) -> bool:
        return bool(self.model or self.rules or self.hangs or self.tests == "failed")

    def __str__(self) -> str:
        if not self.is_killed:
            return f"{self.name}: SURVIVED {self.seeds} random scripts" + f"; tests: {self.tests}" * bool(
                self.tests
            )
        ways = [f"the model ({self.model})"] if self.model else []
        ways += [f"rule {self.rules}"] if self.rules else []
        ways += [f"time: it hangs after {self.seeds} seeds"] if self.hangs else []
        ways += ["tests"] if self.tests == "failed" else []
        return f"{self.name}: killed by {' and '.join(ways)}"

    def as_json(self) -> str:
        """A line of the file of results."""
        return json.dumps(self._asdict())

    @classmethod
    def of_json(cls, line: str) -> Result:
        """The result of such a line."""
        fields: dict[str, Any] = json.loads(line)
        for judge in ("model", "rules"):
            fields[judge] = fields[judge] and Killed(*fields[judge])
        return cls(**fields)


def read(mutation: Mutation) -> str:
    """The module that a mutation is for."""
    return (PACKAGE / mutation.module).read_text(encoding="utf-8")


def try_one(mutation: Mutation, seeds: range, seconds: float = SECONDS, *, both: bool = False) -> Result:
    """Run the mutated package with its workload and these seeds in a process of its own, for `seconds` at the most.

    With `both` the random scripts go on until each judge has killed it.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        _copy(mutation, folder)
        script = os.path.join(folder, "workload")
        with open(script, "w", encoding="utf-8") as file:
            file.write(WORKLOADS[mutation.workload])
        shutil.copy(os.path.join(os.path.dirname(__file__), "mutant_runs.py"), folder)
        numbers = map(str, (WORKLOAD_SEEDS, seeds.start, seeds.stop))
        command = [sys.executable, os.path.join(folder, "mutant_runs.py"), script, *numbers, *["both"] * both]
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


def run_tests(mutation: Mutation, seconds: float, *, all_rooms: bool) -> str:
    """Run the tests of the mutated module's room, with `all_rooms` then those of actors and of the whole broker, up to
    the first that fails.

    Returns failed or passed; "none failed" if they were not through after `seconds`.
    """
    rooms = dict.fromkeys((mutation.module.split("/")[0], *BROKER_ROOMS * all_rooms))
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        _copy(mutation, folder)
        for name in ("tests", "tools", "benchmarks"):
            shutil.copytree(
                HOME / name, os.path.join(folder, name), ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copy(HOME / "pyproject.toml", folder)
        where = [f"tests/{room}" for room in rooms if os.path.isdir(os.path.join(folder, "tests", room))]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-xq",
            "-p",
            "no:cacheprovider",
            f"--timeout={TEST_SECONDS}",
            *where,
        ]
        try:
            done = subprocess.run(
                command, check=False, cwd=folder, env={**os.environ, "PYTHONPATH": folder}, capture_output=True, timeout=seconds
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "none failed"
    if done.returncode not in (0, 1):
        raise RuntimeError(f"mutation {mutation.name}: pytest ended with {done.stdout.decode()[-2000:]}")
    return "failed" if done.returncode else "passed"


def _copy(mutation: Mutation, folder: str) -> None:
    """Copy the package with the mutation into a folder."""
    package = os.path.join(folder, "warrenmq")
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    with open(os.path.join(package, mutation.module), "w", encoding="utf-8") as file:
        file.write(mutation.applied(read(mutation)))


def _result(mutation: Mutation, output: str, *, hangs: bool) -> Result:
    """Read the lines of mutant_runs.py; the last one may have been cut off."""
    found: dict[str, Killed] = {}
    seeds = 0
    for line in output.splitlines(keepends=True):
        if line.endswith("\n"):
            each: dict[str, Any] = json.loads(line)
            if "judge" in each:
                found[each["judge"]] = Killed(each["seed"], each["profile"], each["by"], each["random"])
            elif each["random"]:
                seeds = each["seeds"]
    return Result(mutation.name, found.get("model"), found.get("rules"), seeds, hangs)


def table(results: Iterable[Result]) -> str:
    """The results as rows of docs/proof.md."""
    lines = [
        "| mutation | what is wrong then | workload | the model | the rules | the tests |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for each in results:
        mutation = BY_NAME[each.name]
        cells = (
            f"`{each.name}`",
            mutation.does,
            mutation.workload,
            _cell(each, each.model),
            _cell(each, each.rules),
            {"": "not run", "failed": "killed"}.get(each.tests, "-"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(result: Result, killed: Killed | None) -> str:
    if killed is not None:
        return f"{killed.by}, {'random ' * killed.is_random}{killed.seed + 1}"
    return f"hangs, {result.seeds + 1}" if result.hangs else "-"


def _known(path: str | None) -> dict[str, Result]:
    if path is None or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return {each.name: each for each in map(Result.of_json, file)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations (all)")
    parser.add_argument("--list", action="store_true", help="list the mutations and what each breaks")
    parser.add_argument(
        "--script", action="store_true", help="print the workload of each mutation, and run nothing"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help=f"how many seeds of random scripts ({SEEDS})"
    )
    parser.add_argument(
        "--both", action="store_true", help="go on until the model and the rules have each killed it"
    )
    parser.add_argument(
        "--tests",
        action="store_true",
        help="run the tests of its room, too, and of the broker if nothing has killed it",
    )
    parser.add_argument("--only-tests", action="store_true", help="run them alone")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"time for one mutation ({SECONDS:g})")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="seconds after which no other one is begun"
    )
    parser.add_argument("--cores", type=int, default=1, help="mutations at once (1)")
    parser.add_argument(
        "--out", help="file of results, a line of JSON each; those that it has are not tried again"
    )
    parser.add_argument("--table", action="store_true", help="print the rows of docs/proof.md at the end")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if unknown := [name for name in args.names if name not in BY_NAME]:
        parser.error(f"{unknown[0]!r} is no mutation; --list names them")
    chosen = [BY_NAME[name] for name in args.names] or [*MUTATIONS]
    if args.list or args.script:
        for each in chosen:
            print(
                f"# {each.name}: {each.does}\n{WORKLOADS[each.workload]}\n"
                if args.script
                else f"{each.name:32} {each.does}"
            )
        return 0
    results, seeds = _known(args.out), range(args.first, args.first + args.seeds)
    until = time.monotonic() + args.budget

    def attempt(mutation: Mutation) -> Result | None:
        if time.monotonic() > until:
            return None
        result = (
            Result(mutation.name, None, None, 0, hangs=False)
            if args.only_tests
            else try_one(mutation, seeds, args.seconds, both=args.both)
        )
        if args.tests or args.only_tests:
            found = run_tests(mutation, args.seconds, all_rooms=not result.is_killed)
            result = result._replace(tests=found)
        return result

    with ThreadPoolExecutor(args.cores) as pool:
        for result in pool.map(attempt, [each for each in chosen if each.name not in results]):
            if result is None:
                continue
            print(result, flush=True)
            results[result.name] = result
            if args.out:
                with open(args.out, "a", encoding="utf-8") as out:
                    print(result.as_json(), file=out)
    tried = [results[each.name] for each in chosen if each.name in results]
    killed = sum(each.is_killed for each in tried)
    print(f"{killed} of {len(tried)} killed")
    if args.table:
        print(table(tried))
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
