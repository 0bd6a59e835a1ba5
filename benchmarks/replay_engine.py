"""One engine in a process of its own: gets itself ready, replays one trace on request, and prints what it found.

    python -m benchmarks.replay_engine spark TRACE --cores 2 --warm SMALL_TRACE

Prints a line when it is ready, waits for one, prints a JSON line, and ends when its stdin does, so that the
process that started it can look at the process before and after.  Ready is what a session is after its first
replay: code imported, Java started, Python workers forked.  duckdb gets folders of Parquet instead of traces
(`warrenmq trace export --to parquet`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks import replay_sql
from warrenmq.replay.drive.result import Result

COUNTED = ("published", "confirmed", "acked")
"""Of each queue; what engines must agree upon."""

Found = dict[str, Any]
Replay = Callable[[str], Found]


@contextmanager
def python(_cores: int) -> Iterator[Replay]:
    from warrenmq.replay.drive.engine import replay

    yield lambda trace: _found(replay(trace))


@contextmanager
def arrays(_cores: int) -> Iterator[Replay]:
    from warrenmq.replay.drive.array_engine import replay_arrays
    from warrenmq.trace.reader import open_trace

    def replay(path: str) -> Found:
        with open_trace(path) as trace:
            return _found(replay_arrays(trace))

    yield replay


@contextmanager
def spark(cores: int) -> Iterator[Replay]:
    from warrenmq.replay.spark.engine import replay
    from warrenmq.replay.spark.session import spark_session

    with spark_session(
        master=f"local[{cores}]", short=True
    ) as session:  # as `warrenmq replay` does up to 1 GiB of trace
        yield lambda trace: _found(replay(session, trace))


@contextmanager
def duckdb(cores: int) -> Iterator[Replay]:
    yield partial(_pass_of_duckdb, cores)


ENGINES = {"python": python, "arrays": arrays, "spark": spark, "duckdb": duckdb}


def _found(result: Result) -> Found:
    return {
        "verdict": result.verdict,
        "queues": {
            name: {what: counts.get(what, 0) for what in COUNTED}
            for name, counts in result.figures["queues"].items()
        },
    }


def _pass_of_duckdb(cores: int, rows: str) -> Found:
    found = replay_sql.run(rows, cores)
    broken = any(found[rule] != [(0,)] for rule in replay_sql.VIOLATIONS)
    return {
        "verdict": "violated" if broken else "ok",
        "queues": {name: dict(zip(COUNTED, counts, strict=True)) for name, *counts in found["queues"]},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("trace")
    parser.add_argument("--warm", required=True)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--pin", action="store_true")
    args = parser.parse_args()
    if args.pin:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    with ENGINES[args.engine](args.cores) as replay:
        replay(args.warm)
        print("ready", flush=True)
        sys.stdin.readline()
        started = time.monotonic()
        found = replay(args.trace)
        print(json.dumps({"wall_s": time.monotonic() - started, **found}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
