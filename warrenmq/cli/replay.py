"""`warrenmq replay TRACE`: check the invariants on a trace, in Spark or in this process."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from warrenmq.cli._parsers import add_verb, require_writable
from warrenmq.errors import CallerError


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "replay",
        summary="replay a trace and check the invariants",
        does="Replay the state machines of every actor from a trace, in Spark or in this process, and check "
        "the invariants.",
        example="warrenmq serve --data data/ --trace trace/\nwarrenmq replay trace/ --report report.html",
        ends="0 none is violated and nothing was lost or damaged, 1 one is or something was (--allow-damage: 0), 2 the trace cannot be read, or Spark is not there or failed.",
    )  # fmt: skip
    parser.add_argument("trace", metavar="TRACE", help="a directory of trace files, or one file")
    parser.add_argument(
        "--engine",
        choices=("spark", "python"),
        default="spark",
        help="spark (default), or one plain Python process, which is quicker below some tens of millions of events",
    )
    parser.add_argument(
        "--master", metavar="URL", help="where Spark runs (default: local[*], or what spark-submit says)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument(
        "--report",
        metavar="FILE.html",
        help="write a page with plots (needs plotly), and beside it FILE.lens.html, to which its kills and crashes are linked",
    )
    parser.add_argument(
        "--history",
        metavar="DIR",
        help="add the results to a table of Parquet files, for `warrenmq trace history DIR`, pandas or Spark; the same trace is replaced",
    )
    parser.add_argument(
        "--allow-damage",
        action="store_true",
        help="exit with 0 though messages were lost to damage, records of a store are damaged, or the broker crashed until it was down",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    from warrenmq.cli._reports import write_report_and_lens
    from warrenmq.replay import SparkUnavailable, add_to_history, check_history, replay
    from warrenmq.replay.report.report import require_plotly
    from warrenmq.replay.report.summary import print_summary

    if args.report:  # before minutes of work, not after
        require_plotly()
        require_writable(args.report)
    if args.history:
        check_history(args.history)
    if args.engine == "spark" and sys.stderr.isatty():
        print("starting Spark ...", file=sys.stderr)
    try:
        found = replay(args.trace, engine=args.engine, master=args.master, picture=bool(args.report))
    except SparkUnavailable as unavailable:
        raise CallerError(f"{unavailable} Or use --engine python, which needs neither.") from unavailable
    if args.report:
        write_report_and_lens(found, args.report, args.trace)
        print(f"report {args.report}", file=sys.stderr)
    if args.history:
        replaced = add_to_history(found, args.history)
        print(f"{'replaced in' if replaced else 'added to'} history {args.history}", file=sys.stderr)
    if args.json:
        print(json.dumps(found.as_dict()))
    else:
        print_summary(found)
    return 1 if found.verdict == "violated" or (found.told and not args.allow_damage) else 0
