"""`warrenmq demo`: the main job, end to end, on real input.

A child process (see _demo_worker) publishes the input through exchanges to five queues, consumes and acks it, and
kills a queue, a store and a garbage collector on the way.  Half way through, the whole child is killed with
SIGKILL; a second one recovers the directory and finishes.  Both wrote traces: they are replayed, in Spark unless
told otherwise, and their invariants checked.  Confirmed and consumed messages are compared here, too,
without any trace.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Self

from warrenmq.cli._failures import Problem
from warrenmq.cli._parsers import add_verb, require_writable, whole
from warrenmq.errors import CallerError

DEFAULT_MESSAGES = 5_000
MOST_MESSAGES = 10_000_000
REPORT = "warrenmq-demo.html"
"""The report's name in the working directory, where no data directory was given."""


class DemoFailed(Problem):
    """The demo's broker broke a promise."""


def add_parser(subparsers: Any) -> None:
    """The verb and its arguments."""
    parser = add_verb(
        subparsers, "demo",
        summary="run the whole system on real input, kill it, and verify its traces",
        does="Publish lines through exchanges to five queues, consume and acknowledge them, kill a queue, a store and a garbage "
        "collector on the way, and half way through the whole system with SIGKILL; recover, finish, replay the traces and check "
        "every invariant. Whether everything that was published was consumed is compared without the traces, too.",
        example="warrenmq demo --input /var/log/syslog",
        ends="0 every invariant holds and nothing was lost, 1 one does not, or something was lost, 2 the demo cannot run.",
    )  # fmt: skip
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="a data directory, fresh or of an earlier demo (default: a new one beside the report, which is kept)",
    )
    parser.add_argument("--messages", type=whole(1, MOST_MESSAGES), metavar="N",
                        help=f"publish N lines (default: all of FILE once, or {DEFAULT_MESSAGES:,} numbered lines)")  # fmt: skip
    parser.add_argument(
        "--input", metavar="FILE", help="publish the lines of this file (default: numbered lines)"
    )
    parser.add_argument(
        "--report",
        metavar="FILE.html",
        help=f"where the report goes (default: DIR/report.html, without --data {REPORT})",
    )
    parser.add_argument(
        "--engine", choices=("spark", "python"), default="spark", help="what replays the traces"
    )
    parser.add_argument(
        "--master", metavar="URL", help="where Spark runs (default: local[*], or what spark-submit says)"
    )


def run(args: argparse.Namespace) -> int:
    """0: every invariant holds; 1: one does not, or something was lost."""
    from warrenmq.replay.report.report import require_plotly

    require_plotly()
    if args.report or not args.data:
        require_writable(args.report or REPORT)
    if args.engine == "spark" and importlib.util.find_spec("pyspark") is None:
        raise CallerError("the replay needs pyspark: install warrenmq[demo], or use --engine python")
    with tempfile.TemporaryDirectory(prefix="warrenmq-demo-input-") as temporary:
        return _run(args, Path(temporary))


def _run(args: argparse.Namespace, temporary: Path) -> int:
    from warrenmq.cli._demo_worker import items, read_lines  # the broker, only when it is wanted

    source = _input(args, temporary)
    everything = list(items(read_lines(str(source), args.messages or 0)))
    if not everything:
        raise CallerError(f"{source} has no lines to publish")
    data = Path(args.data) if args.data else _beside(args.report or REPORT)
    data.mkdir(parents=True, exist_ok=True)
    trace = data / "trace"
    print(f"input   {args.input or 'numbered lines'}: {len(everything):,} messages (lines and bundles)")
    print(f"data    {data}")
    print(f"log     {data / 'demo.log'}")
    children = Children(args, data, trace, source, temporary / "consumed", len(everything))
    with _Progress("publishing", len(everything)) as progress:
        children.second_life(children.first_life(progress), progress)
    lost = _lost(everything, temporary / "consumed")
    print(f"check   every message consumed: {'no, ' + lost if lost else 'yes'}")
    ok, at = _replay(args, trace, data)
    if ok and not lost:
        print(
            f"proved  {len(everything):,} messages were published, {children.kills} actors and once the whole system killed: "
            "no confirmed message was lost, and every one was consumed"
        )
    print(f"next    warrenmq lens {shlex.quote(str(trace))} --at {at}      # the first kill, row by row")
    print(f"next    warrenmq stats {shlex.quote(str(data))}      # what is in the directory now")
    print("next    warrenmq learn crashes      # how a broker survives what was done to this one")
    return 0 if ok and not lost else 1


def _beside(report: str) -> Path:
    """A directory beside the report that is not there yet, called as it is."""
    stem = Path(report).with_suffix("")
    return next(
        path
        for n in count(1)
        if not (path := stem.with_name(f"{stem.name}-{n}" if n > 1 else stem.name)).exists()
    )


def _input(args: argparse.Namespace, temporary: Path) -> Path:
    if args.input is None:
        made = temporary / "numbered-lines"
        made.write_text("".join(f"line {i:07d}\n" for i in range(args.messages or DEFAULT_MESSAGES)))
        return made
    if not Path(args.input).is_file():
        raise CallerError(f"there is no file {args.input}; --input takes a file whose lines are published")
    return Path(args.input)


class Children:
    """The two lives of the broker process."""

    def __init__(
        self, args: argparse.Namespace, data: Path, trace: Path, source: Path, consumed: Path, total: int
    ) -> None:
        self._command = [
            sys.executable, "-m", "warrenmq.cli._demo_worker", "--data", str(data), "--trace", str(trace),
            "--input", str(source), "--messages", str(args.messages or 0), "--consumed", str(consumed),
        ]  # fmt: skip
        self._total = total
        self.kills = 0
        """Actors killed so far."""
        self._log = data / "demo.log"
        """stderr of the broker processes: their supervisors' reports of the kills."""

    def first_life(self, progress: _Progress) -> int:
        """Run a broker until half of the input is confirmed, then SIGKILL it; returns how many items were
        confirmed by then.
        """
        kills = [("0.15", "lines-1"), ("0.3", "store")]
        with self._started(0, kills) as child:
            confirmed = 0
            for told in _lines(child):
                confirmed = told.get("confirmed", confirmed)
                progress.at(confirmed)
                self._report_kill(told)
                if confirmed >= self._total // 2:
                    break
            child.kill()
            for told in _lines(child):  # its output before it died
                confirmed = told.get("confirmed", confirmed)
            if child.wait() != -9:
                raise DemoFailed(self._ended(child))
        print(f"SIGKILL the whole system, after {confirmed:,} confirms")
        return confirmed

    def second_life(self, confirmed: int, progress: _Progress) -> None:
        """Recover, publish the rest, consume everything, stop cleanly."""
        kills = [("0.65", "gc"), ("0.8", "archive-a")]
        with self._started(confirmed, kills) as child:
            closed = False
            for told in _lines(child):
                if "recovered" in told:
                    print(f"        recovered, {told['recovered']:,} messages ready")
                progress.at(told.get("confirmed", 0))
                self._report_kill(told)
                closed = closed or "closed" in told
            if child.wait() != 0 or not closed:
                raise DemoFailed(self._ended(child))
        print("closed  cleanly, all queues empty")

    def _report_kill(self, told: dict[str, Any]) -> None:
        if "killed" in told:
            self.kills += 1
            print(f"kill    {told['killed']}: back after {told['back_after_ms']} ms")

    @contextmanager
    def _started(self, first: int, kills: list[tuple[str, str]]) -> Iterator[subprocess.Popen[str]]:
        """Start one broker process, which is ended with this context whatever happens."""
        arguments = [word for kill in kills for word in ("--kill", *kill)]
        with self._log.open("ab") as log:
            child = subprocess.Popen(
                [*self._command, "--first", str(first), *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert child.stdout is not None
        with child.stdout:
            try:
                yield child
            finally:
                child.kill()
                child.wait()

    def _ended(self, child: subprocess.Popen[str]) -> str:
        kept = self._log.read_text(errors="replace").strip().splitlines()
        last = f": {kept[-1]}" if kept else ""
        return f"the broker process ended with status {child.returncode} before its work was done{last}"


def _lines(child: subprocess.Popen[str]) -> Any:
    assert child.stdout is not None
    for line in child.stdout:
        if line.endswith("\n"):
            told = json.loads(line)
            if "refused" in told:
                raise CallerError(told["refused"])
            yield told


def _lost(everything: list[tuple[str, str, bytes]], consumed: Path) -> str:
    """A sentence on items published but never consumed; empty if all were consumed."""
    raw = consumed.read_bytes()
    seen = Counter(int.from_bytes(raw[i : i + 8], "big") for i in range(0, len(raw) - 7, 8))
    missing = 0
    for number, (exchange, key, _body) in enumerate(everything):
        queues = [int(key)] if exchange == "lines" else [3, 4]
        missing += sum((queue << 56 | number) not in seen for queue in queues)
    return f"{missing:,} deliveries are missing" if missing else ""


def _replay(args: argparse.Namespace, trace: Path, data: Path) -> tuple[bool, int]:
    """Replay the traces and write the report; returns True if all invariants hold, and the row of the first kill."""
    from warrenmq.cli._reports import write_report_and_lens
    from warrenmq.replay import replay  # loads Spark
    from warrenmq.replay.report.summary import print_summary

    result = replay(str(trace), engine=args.engine, master=args.master)
    report = Path(args.report) if args.report else (data / "report.html" if args.data else Path(REPORT))
    marked = write_report_and_lens(result, str(report), str(trace))
    print(f"report  {os.path.abspath(report)}")
    print_summary(result)
    return bool(result.verdict == "ok"), marked.moments[0].row if marked and marked.moments else 1


class _Progress:
    """A progress bar on a terminal, which never goes back; nothing elsewhere."""

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._done = 0
        self._update: Callable[[int], None] = lambda _done: None
        self._bar: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and importlib.util.find_spec("rich") is not None:
            from rich.console import Console  # an extra
            from rich.progress import Progress

            # Lines between go through the bar's console only where both are the same terminal.
            self._bar = Progress(
                console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
            )
            task = self._bar.add_task(self._label, total=self._total)
            self._update = lambda done: self._bar.update(task, completed=done)
            self._bar.start()
        return self

    def at(self, done: int) -> None:
        """Move the bar to so many of the total, if it is further than now."""
        self._done = max(self._done, done)
        self._update(self._done)

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
