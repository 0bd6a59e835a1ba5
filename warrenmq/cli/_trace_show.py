"""`warrenmq trace show`: the rows of a trace as sentences, in the order of their times."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from warrenmq.cli._parsers import add_verb, whole
from warrenmq.errors import CallerError
from warrenmq.terminal import plain

_WIDTH = 80


def add_task(tasks: Any) -> None:
    """Make the task known to the parser."""
    show = add_verb(
        tasks, "show",
        summary="print the rows of a trace as sentences",
        does="Print each row of a trace as a sentence, run by run, in the order of their times: its number in the trace, minutes and seconds "
        "since the run's first row, and what happened. `warrenmq.trace.events` has every event. With --at print the state after a row, as the lens draws it.",
        example="warrenmq trace show trace/ --actor queue:jobs --limit 20",
        ends="0 done, 2 the trace cannot be read, or no row is what was asked for.",
    )  # fmt: skip
    show.add_argument("trace", metavar="TRACE", help="a directory of trace files, or one file")
    show.add_argument(
        "--actor", action="append", default=[], metavar="NAME", help="only this actor; may be repeated"
    )
    show.add_argument(
        "--from",
        dest="first",
        type=whole(1, 1 << 62),
        default=1,
        metavar="ROW",
        help="rows from this number on (default: 1)",
    )
    show.add_argument(
        "--message", type=whole(0, (1 << 63) - 1), metavar="ID", help="only rows about this message id"
    )
    show.add_argument("--limit", type=whole(1, 1 << 62), metavar="ROWS", help="the most rows to print")
    show.add_argument(
        "--at",
        type=whole(0, 1 << 62),
        metavar="ROW",
        help="print the state after this row instead: processes, mailboxes, queues, index, stores; 0 = before all",
    )
    show.set_defaults(do=_show)


def _show(args: argparse.Namespace) -> int:
    if args.at is None:
        return _rows(args)
    if args.actor or args.first != 1 or args.message is not None or args.limit is not None:
        raise CallerError(
            "--at prints the state after one row; leave --actor, --from, --message and --limit out."
        )
    return _state(args.trace, args.at)


def _state(path: str, at: int) -> int:
    """The lens's picture after a row, in words."""
    from itertools import islice

    from warrenmq.lens.captions import render
    from warrenmq.lens.fold import Folding
    from warrenmq.lens.saved import require_known
    from warrenmq.lens.tables import named
    from warrenmq.lens.told import lines
    from warrenmq.replay.export.selection import rows_in_order
    from warrenmq.trace.reader import open_trace

    with open_trace(path) as trace:
        require_known(trace.catalog.runs)
        rows, folding = trace.catalog.rows, Folding(trace.catalog.runs)
        if at > rows:
            raise CallerError(f"the trace has rows 1 to {rows}; there is no row {at}.")
        said = "before the first row"
        for run, row in islice(rows_in_order(trace), at):
            step = folding.step(run, row)
        if at:
            said = render(step.caption)
        print(plain(f"row {at} of {rows}: {said}"))
        for line in lines(named(folding.tables)):
            print(line)
    return 0


def _rows(args: argparse.Namespace) -> int:
    from warrenmq.replay.export.selection import Choice, Selection, rows_in_order
    from warrenmq.trace.reader import open_trace
    from warrenmq.trace.sentences import Narrator

    shown = 0
    with open_trace(args.trace) as trace:
        choice = Choice(trace, Selection(actors=frozenset(args.actor), message=args.message))
        narrator = Narrator(trace.catalog)
        for number, (run, row) in enumerate(rows_in_order(trace), 1):
            if number < args.first or not choice.has(run, row):
                narrator.notice(run, row)
                continue
            if shown == args.limit:
                return 0
            shown += 1
            before = f"{number:>8} {narrator.time(run, row.t)} "
            print(textwrap.fill(narrator.sentence(run, row), _WIDTH, initial_indent=before, subsequent_indent=" " * len(before)))  # fmt: skip
    if not shown:
        raise CallerError("no row of the trace is what was asked for; widen --from, --actor or --message.")
    return 0
