"""The figures that warrenmq wants to reach, measured beside what the disk gives in the same run.

    python -m benchmarks.figures --dir SCRATCH [--repeats 3] [--only publish_one,steady] [--out figures.json]
    python -m benchmarks.figures --dir SCRATCH --smoke

SCRATCH must be on the disk to measure.  Every measure (warrenmq/bench/measures.py) runs in a process of its own,
rounds of all of them one after the other, so that a slow minute of the machine hurts all alike; a figure is the
median of its rounds.  `--smoke` runs everything once with small numbers and judges nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from typing import NamedTuple

from benchmarks import ROOT
from warrenmq.bench import MEASURES


class Wanted(NamedTuple):
    """A figure to reach: `at_least` or at most `bound`."""

    what: str
    measure: str
    key: str
    bound: float
    at_least: bool
    unit: str


WANTED = [
    Wanted("publish_many until all are confirmed", "publish_many", "rate", 200_000, True, "/s"),
    Wanted("one publish a message, until all are confirmed", "publish_one", "rate", 80_000, True, "/s"),
    Wanted("publish-confirm round trip / bare write + fdatasync", "round_trip", "modern_ratio", 2, False, "x"),
    Wanted("the same with the classic profile", "round_trip", "classic_ratio", 2, False, "x"),
    Wanted("p99 of a confirm at 50,000/s", "paced", "p99_ms", 10, False, " ms"),
    Wanted("publish, deliver, ack: steady state", "steady", "rate", 80_000, True, "/s"),
    Wanted("backlog of 200,000 drained and acked", "backlog", "rate", 80_000, True, "/s"),
    Wanted("memory for that backlog", "backlog", "memory_mb", 300, False, " MB"),
    Wanted("disk after the drain / when full", "backlog", "disk_left_share", 0.05, False, ""),
    Wanted("memory of the process with a backlog of 1,000,000, memory_target", "long_backlog_memory_target", "peak_memory_mb", 250, False, " MB"),
    Wanted("the same, read_ahead", "long_backlog_read_ahead", "peak_memory_mb", 250, False, " MB"),
    Wanted("disk / live bytes, half of each file garbage, combine", "garbage_combine", "disk_to_live", 2.5, False, ""),
    Wanted("the same, compact", "garbage_compact", "disk_to_live", 2.5, False, ""),
    Wanted("rate with a trace / without, publish_many", "tracing", "many", 0.85, True, "x"),
    Wanted("rate with a trace / without, one a message", "tracing", "one", 0.85, True, "x"),
]  # fmt: skip


def measure(name: str, directory: str, smoke: bool) -> dict[str, float]:
    """One run in a fresh process, through the same command that users have."""
    command = [sys.executable, "-m", "warrenmq", "bench", "--json", "--only", name, "--dir", directory]
    child = subprocess.run(
        command + ["--quick"] * smoke, cwd=ROOT, stdout=subprocess.PIPE, check=False, timeout=600
    )
    if child.returncode:
        sys.exit(f"the measure {name} failed with exit code {child.returncode}")
    return json.loads(child.stdout)[name]


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}


def with_tracing(rounds: dict[str, list[dict[str, float]]]) -> dict[str, list[dict[str, float]]]:
    """The cost of tracing, as ratios of runs of the same round."""
    ratios = {}
    for kind in ("many", "one"):
        traced, plain = rounds.get(f"publish_{kind}_traced", []), rounds.get(f"publish_{kind}", [])
        ratios[kind] = [
            with_["rate"] / without["rate"] for with_, without in zip(traced, plain, strict=False)
        ]
    if not all(ratios.values()):
        return rounds
    return rounds | {
        "tracing": [
            {"many": many, "one": one} for many, one in zip(ratios["many"], ratios["one"], strict=True)
        ]
    }


def table(figures: dict[str, dict[str, float]], judge: bool) -> str:
    """Markdown: wanted, measured, and how the two compare (above 1 is better than wanted)."""
    lines = ["| figure | wanted | measured | better than wanted by |", "| --- | --- | --- | --- |"]
    for want in WANTED:
        if want.measure not in figures:
            continue
        value = figures[want.measure][want.key]
        ratio = value / want.bound if want.at_least else want.bound / value if value > 0 else float("inf")
        limit = f"{'≥' if want.at_least else '≤'} {want.bound:,g}{want.unit}"
        lines.append(
            f"| {want.what} | {limit} | {value:,.4g}{want.unit} | {f'x{ratio:.2f}' if judge else '-'} |"
        )
    return "\n".join(lines)


def rest(figures: dict[str, dict[str, float]]) -> str:
    """Format all measures, one a line."""
    return "\n".join(
        f"{name:20} " + "  ".join(f"{key} {value:,.4g}" for key, value in numbers.items())
        for name, numbers in figures.items()
    )


def machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", required=True, help="scratch folder on the disk to measure")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default=",".join(MEASURES), help="comma list of measures")
    parser.add_argument("--out", help="write all runs and medians to this JSON file")
    parser.add_argument("--smoke", action="store_true", help="small numbers, once: does everything run?")
    options = parser.parse_args()
    os.makedirs(options.dir, exist_ok=True)
    directory = os.path.abspath(options.dir)
    data: dict[str, object] = {"machine": machine()}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in options.only.split(",")}
    for number in range(1 if options.smoke else options.repeats):
        for name, results in rounds.items():
            results.append(measure(name, directory, options.smoke))
            print(f"round {number + 1}: {name} {results[-1]}", file=sys.stderr, flush=True)
    rounds = with_tracing(rounds)
    figures = {name: medians(results) for name, results in rounds.items()}
    print(table(figures, judge=not options.smoke))
    print(f"\n{rest(figures)}")
    if options.out:
        data |= {"rounds": rounds, "medians": figures}
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
