"""`warrenmq trace history`: the replays of a history and their trends."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from warrenmq.cli._parsers import add_verb, require_writable


def add_task(tasks: Any) -> None:
    task = add_verb(
        tasks, "history",
        summary="show the trends over the replays of a history",
        does="Print a line for each replay in DIR, to which `warrenmq replay TRACE --history DIR` added it: the verdict, events, violations, and "
        "how long confirms took (median and 99th percentile); then how the newest compares with those before it.",
        example="warrenmq replay trace/ --history history/\nwarrenmq trace history history/ --report trends.html",
        ends="0 done, 2 DIR is no history.",
    )  # fmt: skip
    task.add_argument("history", metavar="DIR", help="the directory of a history")
    task.add_argument("--report", metavar="FILE.html", help="write a page with plots (needs plotly)")
    task.add_argument(
        "--json", action="store_true", help="print a list of the replays with all their figures"
    )
    task.set_defaults(do=run)


def run(args: argparse.Namespace) -> int:
    from warrenmq.replay import history
    from warrenmq.replay.report.report import require_plotly
    from warrenmq.replay.report.trends import replays, trend_lines, write_trends

    if args.report:
        require_plotly()
        require_writable(args.report)
    found = replays(history(args.history))
    if args.report:
        write_trends(found, args.history, args.report)
        print(f"report {args.report}", file=sys.stderr)
    if args.json:
        print(json.dumps([each.as_dict() for each in found]))
    else:
        print("\n".join(trend_lines(found)))
    return 0
