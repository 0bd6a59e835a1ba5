"""`warrenmq trace`: export, compare and watch traces, show their history, and read those of RabbitMQ."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from warrenmq.cli import _trace_history, _trace_rabbitmq, _trace_show, _trace_watch, _trace_what_if
from warrenmq.cli._parsers import add_verb, real, require_writable, whole
from warrenmq.errors import CallerError

_LIMITS = {"perfetto": 1_000_000, "shiviz": 2_000}
"""Rows that the tools can draw."""


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "trace",
        summary="watch, export or compare traces, show their history, or read those of RabbitMQ",
        does="Work with traces: watch a live one, export one for other tools, compare two, ask what other settings would have "
        "done, show the trends over many replays, or read logs of RabbitMQ's tracing plugin. `warrenmq trace TASK --help` says more of each.",
        example="warrenmq trace export trace/ --to perfetto -o trace.json",
        ends="0 done, 1 a task found a problem, 2 it cannot be done.",
    )  # fmt: skip
    tasks = parser.add_subparsers(dest="task", metavar="TASK", title="tasks", required=True)
    _add_compare(tasks)
    _trace_history.add_task(tasks)
    _trace_watch.add_task(tasks)
    _trace_rabbitmq.add_task(tasks)
    _trace_show.add_task(tasks)
    _trace_what_if.add_task(tasks)
    export = add_verb(
        tasks, "export",
        summary="write a trace for Perfetto, ShiViz, Parquet, as the report, or as the lens",
        does="Write a trace in the format of another tool. perfetto: a timeline for ui.perfetto.dev, one track an actor, arrows for casts and messages. "
        "shiviz: a log for bestchai.bitbucket.io/shiviz with vector clocks. parquet: every row, with names, for DuckDB, "
        "pandas or Spark. html: the report of `warrenmq replay --report`. lens: one page that opens offline and shows the broker row by row, "
        "forwards and backwards (docs/lens.md).",
        example="warrenmq trace export trace/ --to perfetto -o trace.json",
        ends="0 done, 2 nothing was written, or not all.",
    )  # fmt: skip
    export.add_argument("trace", metavar="TRACE", help="a directory of trace files, or one file")
    export.add_argument(
        "--to", required=True, choices=("perfetto", "shiviz", "parquet", "html", "lens"), help="the format"
    )
    export.add_argument(
        "-o", "--output", metavar="PATH", help="a file (default: stdout), for parquet a new folder"
    )
    export.add_argument(
        "--actor", action="append", default=[], metavar="NAME", help="only this actor; may be repeated"
    )
    export.add_argument(
        "--message", type=whole(0, (1 << 63) - 1), metavar="N", help="only rows about this message id"
    )
    export.add_argument(
        "--from",
        dest="begin",
        type=real(0, 1e9),
        default=0.0,
        metavar="S",
        help="rows from then on, in seconds of the run",
    )
    export.add_argument(
        "--until",
        type=real(0, 1e9),
        metavar="S",
        help="rows up to then, in seconds of the run (default: its end)",
    )
    export.add_argument("--limit", type=whole(1, 1 << 40), metavar="ROWS",
                        help="the most rows to write (default: 1000000 for perfetto, 2000 for shiviz)")  # fmt: skip
    export.set_defaults(do=_export)
    return parser


def _add_compare(tasks: Any) -> None:
    compare = add_verb(
        tasks, "compare",
        summary="show two traces beside each other",
        does="Print what changed from trace A to trace B: messages, delays, waiting, syncs, bytes written, garbage collection. "
        "Lines whose numbers are 0 in both are left out.",
        example="warrenmq trace compare before/ after/",
        ends="0 done, 2 a trace cannot be read.",
    )  # fmt: skip
    compare.add_argument("one", metavar="A", help="a directory of trace files, or one file")
    compare.add_argument("other", metavar="B", help="another")
    compare.add_argument("--json", action="store_true", help="print a list of {name, a, b, ratio}")
    compare.set_defaults(do=_compare)


def run(args: argparse.Namespace) -> int:
    task: Callable[[argparse.Namespace], int] = args.do
    return task(args)


def _compare(args: argparse.Namespace) -> int:
    from warrenmq.replay.report.measures import measure_trace
    from warrenmq.replay.report.totals import changes, totals, waiting_totals
    from warrenmq.terminal import number, table
    from warrenmq.trace.reader import open_trace

    numbers = []
    for path in (args.one, args.other):
        with open_trace(path) as trace:
            measures = measure_trace(trace)
            numbers.append(totals(measures) | waiting_totals(measures, trace.catalog))
    found = changes(*numbers)
    if args.json:
        print(json.dumps([change.as_dict() for change in found]))
        return 0
    ratios = ["-" if change.ratio is None else f"{change.ratio:.2f}" for change in found]
    rows = [
        (change.name, number(change.one), number(change.other), ratio)
        for change, ratio in zip(found, ratios, strict=True)
    ]
    print(table(("", "A", "B", "B / A"), rows))
    return 0


def _export(args: argparse.Namespace) -> int:
    if args.to in _WHOLE:
        if args.output is None:
            raise CallerError(f"--to {args.to} needs -o PATH.")
        if (
            args.actor
            or args.message is not None
            or args.begin
            or args.until is not None
            or args.limit is not None
        ):
            raise CallerError(
                f"--to {args.to} writes the whole trace; leave the options out that choose rows."
            )
        return _WHOLE[args.to](args)
    return _rows(args)


def _rows(args: argparse.Namespace) -> int:
    from warrenmq.replay.export.perfetto import write_perfetto
    from warrenmq.replay.export.selection import Selection, select_rows
    from warrenmq.replay.export.shiviz import write_shiviz
    from warrenmq.trace.reader import open_trace

    limit = _LIMITS[args.to] if args.limit is None else args.limit
    until = None if args.until is None else round(args.until * 1e9)
    wanted = Selection(frozenset(args.actor), round(args.begin * 1e9), until, args.message)
    with open_trace(args.trace) as trace:
        rows = select_rows(trace, wanted)
        first = next(rows, None)
        if first is None:
            raise CallerError("no row of the trace is what was asked for; widen --from, --until or --actor.")
        with _output(args.output) as to:
            if args.to == "perfetto":
                written, more = write_perfetto(trace.catalog, _with(first, rows), to, limit)
            else:
                every = select_rows(trace, Selection(end_ns=until))
                chosen = {
                    (number, row.actor, row.seq) for number, row in _first(_with(first, rows), limit + 1)
                }
                written, more = write_shiviz(
                    trace.catalog,
                    every,
                    lambda number, row: (number, row.actor, row.seq) in chosen,
                    to,
                    limit,
                )
    if more:
        print(f"the first {written} rows were written; choose others with --from, --until, --actor, --message or --limit",
              file=sys.stderr)  # fmt: skip
    return 0


def _with(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _first(rows: Iterator[Any], count: int) -> Iterator[Any]:
    return (row for row, _ in zip(rows, range(count), strict=False))


def _parquet(args: argparse.Namespace) -> int:
    from warrenmq.trace.reader import open_trace

    try:
        from warrenmq.replay.export.parquet import write_parquet
    except ImportError as missing:
        raise CallerError("Parquet needs pyarrow: pip install 'warrenmq[spark]'.") from missing
    with open_trace(args.trace) as trace:
        rows, files = write_parquet(trace, args.output)
    print(f"{rows} rows in {files} files", file=sys.stderr)
    return 0


def _report(args: argparse.Namespace) -> int:
    from warrenmq.cli._reports import write_report_and_lens
    from warrenmq.replay import replay
    from warrenmq.replay.report.report import require_plotly

    require_plotly()
    require_writable(args.output)
    write_report_and_lens(replay(args.trace, engine="python", picture=True), args.output, args.trace)
    return 0


def _lens(args: argparse.Namespace) -> int:
    from warrenmq.lens.saved import save
    from warrenmq.trace.reader import open_trace

    require_writable(args.output)
    with open_trace(args.trace) as trace:
        save(trace, args.output, os.path.basename(os.path.abspath(args.trace)))
    print(f"{trace.catalog.rows} rows", file=sys.stderr)
    return 0


_WHOLE: dict[str, Callable[[argparse.Namespace], int]] = {"parquet": _parquet, "html": _report, "lens": _lens}
"""Formats that are written of a whole trace."""


@contextmanager
def _output(path: str | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
    else:
        with open(path, "w", encoding="utf-8") as file:
            yield file
