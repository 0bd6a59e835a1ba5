"""Simulated runs of the package beside this file, until both judges have seen something: a line of JSON for each seed (tools/mutants.py)."""

from __future__ import annotations

import json
import sys

from warrenmq.replay.drive.engine import replay_trace
from warrenmq.simulate.fleet import Task, script_of
from warrenmq.simulate.run import PROFILES, run_traced
from warrenmq.simulate.script import HONEST_FAULTS, Script
from warrenmq.trace.reader import open_memory


def judges(seed: int, script: Script, profile: str) -> dict[str, str]:
    """The judges that do not pass a run, and what each found."""
    outcome, files = run_traced(seed, script, profile)
    if outcome.verdict == "ok":
        return {}
    found = replay_trace(open_memory(files))
    rules = [each.rule for each in [*found.violations, *found.indeterminate]]
    against = {"rules": rules[0]} if rules else {}
    if outcome.problem not in rules:  # the model is asked first
        against["model"] = outcome.problem
    return against


def main() -> None:
    first, stop = map(int, sys.argv[1:])
    known: set[str] = set()
    for seed in range(first, stop):
        for profile in PROFILES:
            script = script_of(Task(seed, profile, "", ",".join(HONEST_FAULTS)))
            for judge, by in judges(seed, script, profile).items():
                if judge not in known:
                    known.add(judge)
                    told = {
                        "judge": judge,
                        "by": by,
                        "seed": seed,
                        "profile": profile,
                        "seeds": seed + 1 - first,
                    }
                    print(json.dumps(told), flush=True)
        print(json.dumps({"seeds": seed + 1 - first}), flush=True)
        if len(known) == 2:
            return


if __name__ == "__main__":
    main()
