"""A fleet: many simulated runs, on all cores or on Spark (on_spark.py), in rounds guided by the coverage of earlier ones.

    for batch in fleet(Plan(seeds=range(10_000)), Cores(2)):
        ...                                                 # Progress after each round, with its outcomes

Run number n has the seed n.  Its script is random, or a change of a script that reached something new in an
earlier round; which of them depends on the seed alone and on what earlier rounds gave, never on which worker
was faster.  So the same plan gives the same runs on one core, on eight and on a cluster.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from random import Random
from typing import NamedTuple, Protocol, Self

from warrenmq.errors import Error
from warrenmq.simulate import pool_process
from warrenmq.simulate.generate import generate, mutate
from warrenmq.simulate.run import PROFILES, Outcome, run
from warrenmq.simulate.script import HONEST_FAULTS, Script, parse

ROUND = 400
"""Runs of a round: enough that no core waits long for the last one, few enough that scripts are soon changed further."""
_CHANGED = 0.6
"""Share of runs whose script is a change of one that is kept."""
_AT_ONCE = 4
"""Runs that one process is given at once; at the end of a round the other processes wait for so many."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The configuration of a fleet."""

    seeds: range
    faults: tuple[str, ...] = HONEST_FAULTS
    profiles: tuple[str, ...] = PROFILES
    script: str = ""
    """Run this one with every seed, instead of random ones."""
    size: str = "long"
    """The size of random scripts (generate.py)."""


class Task(NamedTuple):
    """One simulated run to carry out."""

    seed: int
    profile: str
    script: str
    """The script's text; empty: a random one."""
    faults: str
    """Kinds of faults, with commas."""
    size: str = "long"
    """The size of a random script (generate.py)."""


@dataclass(slots=True)
class Progress:
    """The progress of a fleet after a round."""

    outcomes: list[Outcome] = field(default_factory=list)
    """Outcomes of this round, in the order of their seeds."""
    runs: int = 0
    failed: int = 0
    events: int = 0
    lost: int = 0
    covered: set[int] = field(default_factory=set)
    """The coverage of all runs so far (coverage.py)."""


class Workers(Protocol):
    """Protocol of an executor of runs; outcomes may come in any order."""

    def __call__(self, tasks: Sequence[Task]) -> Iterable[Outcome]: ...


def fleet(plan: Plan, workers: Workers) -> Iterator[Progress]:
    """Carry out all runs of a plan, round by round."""
    progress = Progress()
    kept: list[str] = []
    for first in range(plan.seeds.start, plan.seeds.stop, ROUND):
        seeds = range(first, min(first + ROUND, plan.seeds.stop))
        done = sorted(workers([_task(plan, seed, kept) for seed in seeds]), key=lambda each: each.seed)
        for outcome in done:
            if not outcome.coverage <= progress.covered:
                progress.covered |= outcome.coverage
                kept.append(outcome.script)
            progress.runs += 1
            progress.failed += outcome.verdict != "ok"
            progress.events += outcome.events
            progress.lost += outcome.lost
        progress.outcomes = done
        yield progress


def first_task(plan: Plan, seed: int) -> Task:
    """Return the run of a seed whose script is no change of another."""
    profile = plan.profiles[seed % len(plan.profiles)]
    return Task(seed, profile, plan.script, ",".join(plan.faults), plan.size)


def _task(plan: Plan, seed: int, kept: Sequence[str]) -> Task:
    rng, task = Random(f"task {seed}"), first_task(plan, seed)
    if not task.script and kept and rng.random() < _CHANGED:
        script = mutate(rng, parse(rng.choice(kept)), plan.faults, plan.size)
        return task._replace(script="\n".join(map(str, script)))
    return task


def script_of(task: Task) -> Script:
    """Return the script of a task."""
    if task.script:
        return parse(task.script)
    return generate(Random(f"script {task.seed}"), task.faults.split(","), task.size)


def do(task: Task) -> Outcome:
    """Carry out one run."""
    return run(task.seed, script_of(task), task.profile)


def do_alone(task: Task) -> Outcome:
    """Carry out one run in a process that does nothing else: its garbage is collected while it is in the processor's caches.

    That costs less than a collection for every fortieth run, which takes a tenth of the time.  Only what was
    made since the last collection is looked at: what outlives a run is no garbage.
    """
    gc.disable()
    outcome = do(task)
    gc.collect(0)
    _leave_imports_alone()
    return outcome


@cache
def _leave_imports_alone() -> None:
    """Keep what exists by now out of every later collection; asking the collector whether it does takes it milliseconds."""
    gc.freeze()


def here(tasks: Sequence[Task]) -> Iterator[Outcome]:
    """Run tasks in this process, one after the other."""
    return map(do, tasks)


class Cores:
    """A pool of worker processes on this machine; a context manager."""

    def __init__(self, cores: int = 0) -> None:
        """Start `cores` processes; 0 = one for each core."""
        self._pool = ProcessPoolExecutor(
            cores or os.cpu_count() or 1, mp_context=get_context("spawn"), initializer=pool_process.begin
        )

    def __call__(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """Raises Error if a process of the pool has ended."""
        try:
            yield from self._pool.map(do_alone, tasks, chunksize=_AT_ONCE)
        except BrokenProcessPool as error:
            raise Error(
                "a process of the pool has ended, and its runs with it: it was killed, perhaps because the memory was short, or could "
                "not start, as in a script of yours without an `if __name__ == '__main__':`."
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
