"""`warrenmq trace what-if`: the same trace under other settings."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_task(tasks: Any) -> None:
    task = tasks.add_parser(
        "what-if",
        help="the same trace under another sync interval, GC threshold or without flying counters",
        description="What was recorded, and what it would have been. The basis says how that is known: recorded (the question does "
        "not touch it), replayed (exact), model (an estimate; the column model is what it says of the present settings).",
    )
    task.add_argument("trace", metavar="TRACE", help="a directory of trace files, or one file")
    task.add_argument("--sync-interval", type=_milliseconds, metavar="MS", help="msg_store_sync_interval")
    task.add_argument("--was-sync-interval", type=_milliseconds, default=25.0, metavar="MS",
                      help="the one that the trace was recorded with, which it does not say (default: 25)")  # fmt: skip
    task.add_argument("--gc-threshold", type=_share, metavar="F", help="share of garbage that is collected (it was 0.5)")
    task.add_argument("--no-flying", action="store_true", help="without flying counters: no write is cancelled")
    task.add_argument("--json", action="store_true", help="print a list of {name, recorded, what_if, basis, model}")
    task.set_defaults(do=run)


def run(args: argparse.Namespace) -> int:
    from warrenmq.inspect.tables import number, table
    from warrenmq.replay.what_if import Question, what_if
    from warrenmq.trace.reader import open_trace

    question = Question(args.sync_interval, args.gc_threshold, not args.no_flying, args.was_sync_interval)
    with open_trace(args.trace) as trace:
        lines = what_if(trace, question)
    if args.json:
        print(json.dumps([line.as_dict() for line in lines]))
        return 0
    rows = [(line.name, number(line.recorded), number(line.what_if), number(line.model), line.basis) for line in lines]
    print(table(("", "recorded", "what if", "model", "basis"), rows))
    return 0


def _milliseconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 60_000:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 60000 ms")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value
