"""`warrenmq trace what-if`: the same trace under other settings."""

from __future__ import annotations

import argparse
import json
from typing import Any

from warrenmq.cli._parsers import add_verb, real

_MILLISECONDS = real(0, 60_000, above=True)


def add_task(tasks: Any) -> None:
    task = add_verb(
        tasks, "what-if",
        summary="ask what a trace would have been under other settings",
        does="Compare a trace with itself under another sync interval or GC threshold, or without flying counters: what was recorded, and what it would have been. The basis says how that is known: recorded (the question does "
        "not touch it), replayed (exact), model (an estimate; the column model is what it says of the present settings).",
        example="warrenmq trace what-if trace/ --sync-interval 5",
        ends="0 done, 2 the trace cannot be read.",
    )  # fmt: skip
    task.add_argument("trace", metavar="TRACE", help="a directory of trace files, or one file")
    task.add_argument(
        "--sync-interval", type=_MILLISECONDS, metavar="MS", help="another msg_store_sync_interval"
    )
    task.add_argument("--was-sync-interval", type=_MILLISECONDS, default=25.0, metavar="MS",
                      help="the one that the trace was recorded with, which it does not say (default: 25)")  # fmt: skip
    task.add_argument(
        "--gc-threshold",
        type=real(0, 1, above=True, below=True),
        metavar="F",
        help="share of garbage that is collected (it was 0.5)",
    )
    task.add_argument(
        "--no-flying", action="store_true", help="without flying counters: no write is cancelled"
    )
    task.add_argument(
        "--json", action="store_true", help="print a list of {name, recorded, what_if, basis, model}"
    )
    task.set_defaults(do=run)


def run(args: argparse.Namespace) -> int:
    from warrenmq.replay.what_if.what_if import Question, what_if
    from warrenmq.terminal import number, table
    from warrenmq.trace.reader import open_trace

    question = Question(args.sync_interval, args.gc_threshold, not args.no_flying, args.was_sync_interval)
    with open_trace(args.trace) as trace:
        lines = what_if(trace, question)
    if args.json:
        print(json.dumps([line.as_dict() for line in lines]))
        return 0
    rows = [
        (line.name, number(line.recorded), number(line.what_if), number(line.model), line.basis)
        for line in lines
    ]
    print(table(("", "recorded", "what if", "model", "basis"), rows))
    return 0
