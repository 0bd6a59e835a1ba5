"""`warrenmq trace watch`: the invariants on a trace that is still being written."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from warrenmq.cli._parsers import add_verb
from warrenmq.errors import CallerError

if TYPE_CHECKING:
    from warrenmq.replay.drive.watch import Watch
    from warrenmq.replay.spark.watch import StreamedWatch


def add_task(tasks: Any) -> None:
    task = add_verb(
        tasks, "watch",
        summary="check the invariants while the broker runs",
        does="Print violations of a live trace as they come, until Ctrl-C. What is open is in flight, and never called lost.",
        example="warrenmq trace watch trace/ --engine python",
        ends="0 none was found and nothing was lost or damaged, 1 one was or something was (--allow-damage: 0), 2 there is no trace, or Spark is not there or failed.",
    )  # fmt: skip
    task.add_argument(
        "trace", metavar="TRACE", nargs="+", help="a directory into which a broker writes its trace"
    )
    task.add_argument(
        "--engine", choices=("spark", "python"), default="spark",
        help="a streaming query of Spark (default), or one plain Python process",
    )  # fmt: skip
    task.add_argument(
        "--master", metavar="URL", help="where Spark runs (default: local[*], or what spark-submit says)"
    )
    task.add_argument(
        "--checkpoint", metavar="DIR",
        help="go on where the last watch with this directory ended (with Spark: or an address); without it nothing is kept",
    )  # fmt: skip
    task.add_argument(
        "--until-closed",
        action="store_true",
        help="end when every run in the trace was closed, or was killed and is over",
    )
    task.add_argument(
        "--allow-damage",
        action="store_true",
        help="exit with 0 though messages or records were lost to damage, or runs crashed until they were down",
    )
    task.add_argument("--json", action="store_true", help="print a JSON object a line")
    task.set_defaults(do=run)


def run(args: argparse.Namespace) -> int:
    from warrenmq.trace.reader import require_live

    require_live(args.trace)  # before Spark is started
    checkpoint = args.checkpoint or tempfile.mkdtemp(prefix="warrenmq-watch-")
    try:
        return (_in_spark if args.engine == "spark" else _in_this_process)(args, checkpoint)
    finally:
        if args.checkpoint is None:
            shutil.rmtree(checkpoint, ignore_errors=True)


def _in_this_process(args: argparse.Namespace, checkpoint: str) -> int:
    from warrenmq.replay.drive.watch import Watch, watch
    from warrenmq.replay.spark.addresses import is_of_spark

    if is_of_spark(checkpoint):
        raise CallerError(
            f"{checkpoint} is an address; with --engine python a watch keeps its state in a directory of this machine."
        )
    with closing(Watch(checkpoint, as_json=args.json)) as taken_by:
        with suppress(KeyboardInterrupt):  # how a watch ends
            watch(args.trace, taken_by, wait=time.sleep, until_closed=args.until_closed)
        return _end(args, taken_by)


def _in_spark(args: argparse.Namespace, checkpoint: str) -> int:
    from warrenmq.replay import SparkUnavailable
    from warrenmq.replay.spark.session import require_pyspark, spark_session

    try:
        require_pyspark()
        from warrenmq.replay.spark.failures import told_in_a_sentence
        from warrenmq.replay.spark.watch import StreamedWatch, watch

        taken_by = StreamedWatch(as_json=args.json)
        with (
            suppress(KeyboardInterrupt),
            told_in_a_sentence(),
            spark_session(master=args.master, short=True) as spark,
        ):
            watch(spark, args.trace, checkpoint, taken_by, wait=time.sleep, until_closed=args.until_closed)
        return _end(args, taken_by)
    except SparkUnavailable as unavailable:
        raise CallerError(f"{unavailable} Or use --engine python, which needs neither.") from unavailable


def _end(args: argparse.Namespace, taken_by: Watch | StreamedWatch) -> int:
    from warrenmq.replay.drive.watch import unread_lines

    for line in unread_lines(args.trace, as_json=args.json):
        print(line, flush=True)
    print(taken_by.summary(), file=sys.stdout if args.json else sys.stderr, flush=True)
    return 1 if taken_by.violations or (taken_by.losses and not args.allow_damage) else 0
