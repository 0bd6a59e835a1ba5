"""The replay's engines side by side: plain Python, the same with arrays, Spark on one core and on two, and a
pass of DuckDB over the same rows.

    python -m benchmarks.trace_run RUN --events 10000000
    python -m benchmarks.replay RUN/trace [--engines python,arrays,spark,duckdb] [--cores 1,2] [--repeats 3] [--out replay.json]
    python -m benchmarks.replay --scale 1,10,100 --dir SCRATCH           # consistent traces of so many million events
    python -m benchmarks.replay --smoke --engines python,spark

Every measure is a fresh process (benchmarks/replay_engine.py), which has its session up and has replayed a
small trace before it counts; the engines take turns, and a figure is the median of its rounds.  Processor
time and memory are those of the whole process tree: driver, Java, Python workers.  Spark's cores are
`local[N]`, DuckDB's are threads, and the engines of one process use one; `--pin` also keeps the tree on so
many processors, which else has Java's compiler and collector on another one.

DuckDB reads Parquet, which is written beforehand: decoding the trace is not part of its time, and it does less
(benchmarks/replay_sql.py).  All engines must come to the same verdict and the same counts of each queue.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import ROOT
from benchmarks.process_tree import ProcessTree
from benchmarks.replay_engine import ENGINES
from tests.support.simulated_trace import write_large
from warrenmq.trace.reader import open_trace

MILLION = 1_000_000
SMALL = 20_000
"""Events of the trace that an engine gets ready with."""
WANTED = "wanted of Spark on two cores: at most 1.5 CPU µs and 2 µs of wall time an event, 3,000 MB, 1.6 x one core"

Round = dict[str, Any]


class Plan(NamedTuple):
    """One row of the table."""

    engine: str
    cores: int

    def __str__(self) -> str:
        return f"{self.engine}, {self.cores} {'core' if self.cores == 1 else 'cores'}"


class Subject(NamedTuple):
    """A trace, as each engine takes it."""

    events: int
    trace: Path
    rows: Path
    """The same as Parquet."""

    def read_by(self, engine: str) -> str:
        return str(self.rows if engine == "duckdb" else self.trace)


def plans(engines: Sequence[str], cores: Sequence[int]) -> list[Plan]:
    return [
        Plan(engine, count)
        for engine in engines
        for count in ([1] if engine in {"python", "arrays"} else cores)
    ]


def subject(trace: Path, scratch: Path, engines: Sequence[str]) -> Subject:
    """With its Parquet, if anybody reads that."""
    rows = scratch / "rows"
    if "duckdb" in engines and not rows.exists():
        command = [
            sys.executable,
            "-m",
            "warrenmq",
            "trace",
            "export",
            str(trace),
            "--to",
            "parquet",
            "-o",
            str(rows),
        ]
        subprocess.run(command, cwd=ROOT, check=True)
    with open_trace(trace) as read:
        return Subject(sum(each.rows for each in read.catalog.coverage.values()), trace, rows)


def made(events: int, scratch: Path, engines: Sequence[str]) -> Subject:
    """A trace of about so many events, kept in `scratch` for the next time: of a simulation, or of a real run
    if it is long.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    trace = scratch / "trace"
    if not trace.exists() and events < MILLION:
        write_large(trace, events)
    elif not trace.exists():
        command = [sys.executable, "-m", "benchmarks.trace_run", str(scratch), "--events", str(events)]
        subprocess.run(command, cwd=ROOT, check=True)
    return subject(trace, scratch, engines)


def measure(plan: Plan, each: Subject, warm: Subject, pin: bool) -> Round:
    """One round of one engine."""
    command = [sys.executable, "-m", "benchmarks.replay_engine", plan.engine, each.read_by(plan.engine)]
    command += ["--warm", warm.read_by(plan.engine), "--cores", str(plan.cores), *(["--pin"] if pin else [])]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes) as process:
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"{plan} did not get ready")
        with ProcessTree(process.pid) as tree:
            before = tree.cpu_seconds()
            process.stdin.write("go\n")
            process.stdin.flush()
            line = process.stdout.readline()
            cpu = tree.cpu_seconds() - before
        if not line:
            raise SystemExit(f"{plan} ended before it had replayed {each.trace}")
        return {"engine": plan.engine, "cores": plan.cores, "events": each.events, "cpu_s": cpu, "peak_mb": tree.peak_mb,
                **json.loads(line)}  # fmt: skip


def measured(
    each: Subject, wanted: Sequence[Plan], repeats: int, warm: Subject, pin: bool
) -> dict[Plan, list[Round]]:
    rounds: dict[Plan, list[Round]] = {plan: [] for plan in wanted}
    for number in range(repeats):
        for plan in wanted:
            rounds[plan].append(measure(plan, each, warm, pin))
            print(f"{each.events:,} events, round {number + 1}: {plan}", file=sys.stderr)
    told = [
        {name: one[name] for name in ("verdict", "queues")}
        for all_of_it in rounds.values()
        for one in all_of_it
    ]
    if any(one != told[0] for one in told):
        raise SystemExit(f"the engines do not agree: {json.dumps(told)}")
    return rounds


def middle(rounds: Sequence[Round], what: str) -> float:
    return statistics.median(one[what] for one in rounds)


def table(rounds: dict[Plan, list[Round]]) -> str:
    """The table of one trace."""
    columns = (
        "engine",
        "wall",
        "CPU",
        "CPU an event",
        "events a CPU second",
        "peak memory",
        "CPU / Python's",
        "rounds (wall; CPU)",
    )
    first = next(iter(rounds.values()))[0]
    lines = [f"{first['events']:,} events, {first['verdict']}; memory is PSS of all processes\n"]
    lines += [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    python = rounds.get(Plan("python", 1))
    for plan, each in rounds.items():
        events, cpu = each[0]["events"], middle(each, "cpu_s")
        share = f"{cpu / middle(python, 'cpu_s'):.2f}" if python else ""
        all_of_them = "; ".join(", ".join(f"{one[what]:.2f}" for one in each) for what in ("wall_s", "cpu_s"))
        lines.append(
            f"| {plan} | {middle(each, 'wall_s'):.2f} s | {cpu:.2f} s | {cpu / events * MILLION:.2f} µs | {events / cpu:,.0f} | "
            f"{middle(each, 'peak_mb'):,.0f} MB | {share} | {all_of_them} |"
        )
    for plan, each in rounds.items():
        alone = rounds.get(Plan(plan.engine, 1))
        if plan.cores > 1 and alone:
            lines.append(
                f"\n{plan}: {middle(alone, 'wall_s') / middle(each, 'wall_s'):.2f} x as fast as on one"
            )
    return "\n".join([*lines, f"\n{WANTED}"])


def table_of_sizes(sizes: Sequence[dict[Plan, list[Round]]]) -> str:
    """CPU microseconds an event by size, and how far they are from one another."""
    events = [next(iter(rounds.values()))[0]["events"] for rounds in sizes]
    lines = [
        f"CPU µs an event\n\n| engine | {' | '.join(f'{each:,} events' for each in events)} | largest / smallest |"
    ]
    lines.append("| --- " * (len(events) + 2) + "|")
    for plan in sizes[0]:
        costs = [
            middle(rounds[plan], "cpu_s") / each * MILLION for rounds, each in zip(sizes, events, strict=True)
        ]
        lines.append(
            f"| {plan} | {' | '.join(f'{cost:.2f}' for cost in costs)} | {max(costs) / min(costs):.2f} |"
        )
    return "\n".join(lines)


@contextmanager
def folder(given: Path | None) -> Iterator[Path]:
    """Context manager of the given folder, or of a temporary one."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", type=Path, nargs="?")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--cores", default="1,2")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scale", metavar="MILLIONS", help="runs of these sizes instead of TRACE")
    parser.add_argument("--pin", action="store_true", help="no more processors than cores")
    parser.add_argument("--smoke", action="store_true", help="a few thousand events, one round")
    parser.add_argument("--dir", type=Path, help="where traces and Parquet are made, and kept")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if not (args.trace or args.scale or args.smoke):
        parser.error("a TRACE, --scale or --smoke")
    engines = args.engines.split(",")
    wanted = plans(engines, [int(count) for count in args.cores.split(",")])
    with folder(args.dir) as scratch:
        warm = made(SMALL, scratch / f"events-{SMALL}", engines)
        if args.smoke:
            subjects = [warm]
        elif args.scale:
            sizes = [int(float(size) * MILLION) for size in args.scale.split(",")]
            subjects = [made(events, scratch / f"events-{events}", engines) for events in sizes]
        else:
            subjects = [subject(args.trace, scratch, engines)]
        found = [
            measured(each, wanted, 1 if args.smoke else args.repeats, warm, args.pin) for each in subjects
        ]
    if args.out:
        args.out.write_text(
            json.dumps([one for rounds in found for each in rounds.values() for one in each], indent=1)
        )
    print("\n\n".join(map(table, found)))
    if args.scale:
        print(f"\n{table_of_sizes(found)}")


if __name__ == "__main__":
    main()
