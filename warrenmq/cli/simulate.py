"""`warrenmq simulate`: run the whole broker in simulation, thousands of times, and judge every run."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from warrenmq.cli._parsers import add_verb, require_writable, whole
from warrenmq.errors import CallerError

if TYPE_CHECKING:
    from warrenmq.simulate.fleet import Plan, Progress, Workers
    from warrenmq.simulate.kept_rounds import KeptRounds
    from warrenmq.simulate.run import Outcome
    from warrenmq.simulate.table import Parquet

_REPORT_EVERY = 30.0
"""Seconds between two lines of progress that go to a file."""
_MOST_SHOWN = 5
"""The most failures that are printed, each of another kind."""
_FILE = ".parquet"
_ALL = "all"
_OK = "ok: all promises held"


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "simulate",
        summary="run the broker in simulation, with faults, and judge every run",
        does="Run the whole broker on simulated machines: random scripts of publishes, gets, acks, transactions and declares, with "
        "kills, power cuts, full and slow disks, memory pressure and clocks that jump. Each run is judged twice, by what a client was "
        "promised and by the replay of its trace. A run is a number: the same seed gives the same run on any machine. "
        "Scripts that reach something new are changed further. Needs the extra `simulation`; --out and --master need `spark`.",
        example="warrenmq simulate --runs 1000\nwarrenmq simulate --seed 17 --trace trace/\nwarrenmq simulate --script failing.txt --seed 17",
        ends="0 every run was ok, 1 one failed, 2 it cannot be done.",
    )  # fmt: skip
    parser.add_argument("--runs", metavar="N", type=whole(1, 10**9), default=1000, help="how many runs")
    parser.add_argument(
        "--first", metavar="SEED", type=whole(0, 10**12), default=0, help="the seed of the first run"
    )
    parser.add_argument(
        "--seed",
        metavar="SEED",
        type=whole(0, 10**12),
        help="one run: this one, which is printed step by step",
    )
    parser.add_argument(
        "--script", metavar="FILE", help="a script of your own (docs/simulate.md), for each seed"
    )
    parser.add_argument(
        "--profile", choices=("classic", "modern"), help="one profile (default: both in turn)"
    )
    parser.add_argument(
        "--faults", metavar="KINDS", default=_ALL,
        help="kinds of faults, with commas: kill, crash, unordered, full, slow, memory, clock, flip; none; "
        "all (default) is all but flip, which may cost messages",
    )  # fmt: skip
    parser.add_argument(
        "--size", choices=("short", "long", "wide"), default="long",
        help="of random scripts: short ones of 2 to 8 steps take half the time, and find less in the same time; wide ones "
        "draw from all verbs",
    )  # fmt: skip
    parser.add_argument("--cores", metavar="N", type=whole(1, 1024), help="processes (default: one a core)")
    parser.add_argument(
        "--master", metavar="URL", help="run on Spark, at this master or Spark Connect server"
    )
    parser.add_argument(
        "--out", metavar="FILE.parquet|DIR",
        help="write a row for each run; a folder has a file for each 400 runs, and the same command goes on there "
        "after an interruption",
    )  # fmt: skip
    parser.add_argument("--trace", metavar="DIR", help="with --seed: write the trace of the run there")
    return parser


def run(args: argparse.Namespace) -> int:
    plan = _plan(args)
    if args.seed is not None:
        if args.out or args.master:
            raise CallerError(
                "--out and --master are for many runs, --seed is one; --first SEED --runs 1 is it, too."
            )
        return _one(plan, args)
    if args.trace:
        raise CallerError("--trace is for one run; give its --seed as well.")
    with ExitStack() as stack:
        if not args.out:
            return _many(plan, _workers(args, stack))
        if args.out.endswith(_FILE) and not os.path.isdir(args.out):
            from warrenmq.simulate.table import Parquet

            require_writable(args.out)
            return _many(plan, _workers(args, stack), stack.enter_context(Parquet(args.out)))
        from warrenmq.simulate.kept_rounds import KeptRounds

        kept = stack.enter_context(KeptRounds(args.out, _workers(args, stack)))
        return _many(plan, kept, kept=kept)


def _plan(args: argparse.Namespace) -> Plan:
    from warrenmq.simulate.fleet import Plan
    from warrenmq.simulate.run import PROFILES
    from warrenmq.simulate.script import FAULTS, HONEST_FAULTS

    chosen = HONEST_FAULTS if args.faults == _ALL else tuple(args.faults.split(","))
    if args.faults == "none":
        chosen = ()
    if unknown := [each for each in chosen if each not in FAULTS]:
        raise CallerError(f"{unknown[0]!r} is no kind of fault; there are {', '.join(FAULTS)}, none and all.")
    script = _read_script(args.script) if args.script else ""
    first, runs = (args.first, args.runs) if args.seed is None else (args.seed, 1)
    profiles = (args.profile,) if args.profile else PROFILES
    return Plan(range(first, first + runs), chosen, profiles, script, args.size)


def _read_script(path: str) -> str:
    from warrenmq.simulate.script import parse

    try:
        with open(path, encoding="utf-8-sig") as file:  # some editors begin a text with a mark of its coding
            script = file.read()
    except UnicodeDecodeError as error:
        raise CallerError(
            f"{path} is no script: it is no text ({error.reason} at byte {error.start})."
        ) from None
    if not parse(script):
        raise CallerError(f"{path} has no step.")
    return script


def _workers(args: argparse.Namespace, stack: ExitStack) -> Workers:
    from warrenmq.simulate.fleet import Cores

    if args.master is None:
        return stack.enter_context(Cores(args.cores or 0))
    from warrenmq.replay.spark.session import require_pyspark, spark_session

    require_pyspark()
    from warrenmq.replay.spark.failures import told_in_a_sentence
    from warrenmq.simulate.on_spark import OnSpark

    stack.enter_context(told_in_a_sentence())
    return OnSpark(stack.enter_context(spark_session(master=args.master)))


def _many(plan: Plan, workers: Workers, table: Parquet | None = None, kept: KeptRounds | None = None) -> int:
    from warrenmq.simulate.coverage import summary
    from warrenmq.simulate.fleet import fleet

    reporter = _Reporter(len(plan.seeds))
    failures: dict[str, Outcome] = {}
    progress: Progress | None = None
    interrupted: KeyboardInterrupt | None = None
    try:
        for progress in fleet(plan, workers):
            for outcome in progress.outcomes:
                if outcome.verdict != "ok" and outcome.problem not in failures:
                    failures[outcome.problem] = outcome
                    reporter.failed(outcome)
            if table is not None:
                table.add(progress.outcomes)
            reporter.show(progress, kept.found if kept else 0)
    except KeyboardInterrupt as error:  # hours of runs are worth their summary
        interrupted = error
    if progress is None:
        raise interrupted or AssertionError("a plan has at least one seed")
    seen = summary(progress.covered)
    print(
        f"{progress.runs:,} runs, {progress.events:,} events; {seen['events']} kinds of events, {seen['flags']} with their flags, "
        f"{seen['pairs']} pairs of adjacent ones"
    )
    for outcome in list(failures.values())[:_MOST_SHOWN]:
        _tell(outcome)
    lost = f"; {progress.lost} messages lost to flipped bits, all told" if progress.lost else ""
    print(f"{progress.failed:,} failed{lost}" if progress.failed else f"{_OK}{lost}")
    if interrupted is not None:
        raise interrupted
    return 1 if progress.failed else 0


class _Reporter:
    """Says on stderr how far a fleet is: on a terminal in a line that is written over, elsewhere in a line
    from time to time.
    """

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._began = self._said = time.monotonic()
        self._over = sys.stderr.isatty()

    def failed(self, outcome: Outcome) -> None:
        """Name the first failure of its kind at once, with its script: the summary comes at the end of a run of hours.

        The seed alone gives another run where the script is a change of an earlier one.
        """
        problem = outcome.text.partition("\n")[0]
        start = "\n" if self._over else ""
        said = f"{start}failed: seed {outcome.seed}, profile {outcome.profile}: {problem}"
        script = [f"    {line}" for line in outcome.script.splitlines()]
        print(said, *script, sep="\n", file=sys.stderr, flush=True)

    def show(self, progress: Progress, found: int) -> None:
        """Called after each round; `found` runs of all were there before."""
        now, last = time.monotonic(), progress.runs == self._runs
        if not (self._over or last or now >= self._said + _REPORT_EVERY):
            return
        self._said = now
        rate = (progress.runs - found) / (now - self._began)
        line = f"{progress.runs:,} of {self._runs:,} runs, {rate:,.0f}/s, {progress.failed} failed, {len(progress.covered)} covered"
        print(
            f"\r{line} " if self._over else line,
            end="" if self._over and not last else "\n",
            file=sys.stderr,
            flush=True,
        )


def _tell(outcome: Outcome) -> None:
    """A failure, with the smallest script that fails so, and what that fails with: another queue's message, perhaps."""
    from warrenmq.simulate.run import run as simulated
    from warrenmq.simulate.script import parse, write
    from warrenmq.simulate.shrink import shrink

    script = shrink(
        parse(outcome.script),
        lambda each: simulated(outcome.seed, each, outcome.profile).problem == outcome.problem,
    )
    text = simulated(outcome.seed, script, outcome.profile).text
    print(f"\nseed {outcome.seed}, profile {outcome.profile}: {text}\n")
    for line in write(script).splitlines():
        print(f"    {line}")
    print(
        f"\n  (write these lines to a file: warrenmq simulate --script FILE --seed {outcome.seed} --profile {outcome.profile} --trace DIR)\n"
    )


def _one(plan: Plan, args: argparse.Namespace) -> int:
    from warrenmq.simulate.fleet import first_task, script_of
    from warrenmq.simulate.run import is_untraced, run, run_traced
    from warrenmq.simulate.script import write

    task = first_task(plan, plan.seeds.start)
    seed, profile, script = task.seed, task.profile, script_of(task)
    print(write(script), end="")
    outcome = run(seed, script, profile)
    if is_untraced(seed):
        print("a run without a trace, as one seed in sixteen gives")
    else:
        print(f"{outcome.events:,} events, digest {outcome.digest}")
    print(outcome.text or _OK)
    if args.trace:
        traced, files = run_traced(seed, script, profile)
        os.makedirs(args.trace, exist_ok=True)
        for name, data in files.items():
            with open(os.path.join(args.trace, name), "wb") as file:
                file.write(data)
        if is_untraced(seed):
            print(f"with the trace, which changes the order of things: {traced.text or _OK}")
    return 1 if outcome.verdict != "ok" else 0
