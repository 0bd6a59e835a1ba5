"""Simulated runs of the package beside this file: a line of JSON for each seed (tools/mutants.py).

    mutant_runs.py FILE WORKLOAD FIRST STOP [both]

The script in FILE with the seeds 0 to WORKLOAD, then the random scripts of the seeds FIRST to STOP, each in
both profiles, until a judge has seen something, with `both` until each has.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from warrenmq.replay.drive.engine import replay_trace
from warrenmq.replay.drive.incidents import FALLEN
from warrenmq.simulate.fleet import Task, script_of
from warrenmq.simulate.run import PROFILES, run, run_traced
from warrenmq.simulate.script import HONEST_FAULTS, Script
from warrenmq.trace.reader import open_memory


def judges(seed: int, script: Script, profile: str) -> dict[str, str]:
    """The judges that do not pass a run, and what each found."""
    outcome = run(seed, script, profile)
    if outcome.verdict == "ok":
        return {}
    _, files = run_traced(seed, script, profile)
    found = replay_trace(open_memory(files))
    rules = [each.rule for each in [*found.violations, *found.indeterminate]]
    if not rules and found.figures["incidents"][FALLEN]:
        rules = ["told"]
    against = {"rules": rules[0]} if rules else {}
    if outcome.problem not in rules:  # the model is asked first
        against["model"] = outcome.problem
    return against


def tasks(workload: str, seeds: int, first: int, stop: int) -> Iterator[tuple[bool, Task]]:
    """The runs in their order; True for those of the workload."""
    faults = ",".join(HONEST_FAULTS)
    for script, numbers in ((workload, range(seeds)), ("", range(first, stop))):
        for seed in numbers:
            for profile in PROFILES:
                yield not script, Task(seed, profile, script, faults)


def main() -> None:
    path, *numbers = sys.argv[1:5]
    enough = 2 if sys.argv[5:] else 1
    with open(path, encoding="utf-8") as file:
        workload = file.read()
    known: set[str] = set()
    for is_random, task in tasks(workload, *map(int, numbers)):
        if len(known) == 2 or (is_random and len(known) >= enough):
            return
        for judge, by in judges(task.seed, script_of(task), task.profile).items():
            if judge not in known:
                known.add(judge)
                told = {
                    "judge": judge,
                    "by": by,
                    "seed": task.seed,
                    "profile": task.profile,
                    "random": is_random,
                }
                print(json.dumps(told), flush=True)
        print(
            json.dumps({"seeds": task.seed + 1 - (int(numbers[1]) if is_random else 0), "random": is_random}),
            flush=True,
        )


if __name__ == "__main__":
    main()
