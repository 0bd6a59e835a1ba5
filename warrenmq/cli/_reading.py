"""Helpers of the verbs that read a directory without changing it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from warrenmq.errors import DirectoryInUse, PreconditionFailed

if TYPE_CHECKING:
    from warrenmq.inspect.inspection import Inspection


_MOST_LINES = 20
_END_OF_TIME = 253_402_300_800
"""The year 10000, in seconds since 1970."""


def add_directory(parser: Any) -> None:
    parser.add_argument(
        "directory",
        metavar="DIR",
        help="a data directory of warrenmq or RabbitMQ (3.6 to 4.x), or a vhost's, queue's or store's",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_now(parser)


def add_files(parser: Any) -> None:
    parser.add_argument(
        "--files", action="store_true",
        help="look at the files alone: what the next start would give back. Otherwise an owner that shares the directory, "
        "or serves it, is asked for the state now",
    )  # fmt: skip


def add_now(parser: Any) -> None:
    parser.add_argument(
        "--now", metavar="TIME", type=moment,
        help="the time that messages expire by: seconds since 1970 or ISO 8601 (default: the present)",
    )  # fmt: skip


def moment(text: str) -> int:
    """Microseconds since 1970."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is neither seconds nor a time like 2026-11-20T10:16:24Z"
            ) from None
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds < _END_OF_TIME:
        raise argparse.ArgumentTypeError(f"{text} is not between 1970 and 9999")
    return int(seconds * 1_000_000)


def now(args: argparse.Namespace) -> int:
    return args.now if args.now is not None else time.time_ns() // 1000


def note_broker(inspection: Inspection) -> None:
    """Warn on stderr if a broker runs in the directory: its files show what the next start gives."""
    from warrenmq.directory.owner_lock import owner_of
    from warrenmq.mend.living import node_of, refuse_living_rabbitmq

    node = node_of(inspection.findings.root)
    running: Exception | None = owner_of(node)
    if running is None:
        try:
            refuse_living_rabbitmq(node)
        except PreconditionFailed as found:
            running = found
    if running is None:
        return
    inspection.findings.broker_runs = True
    whose = f"process {running.pid} on {running.host}" if isinstance(running, DirectoryInUse) else "RabbitMQ"
    print(f"{node} is in use by {whose}: this is what the next start would give back, from the files as they are now; "
          "what the broker has in memory is not in it.", file=sys.stderr)  # fmt: skip


def print_json(inspection: Inspection, **found: Any) -> None:
    """Print what was found as one object, with the damage, and whether the directory is in use."""
    findings = inspection.findings
    damaged = [each._asdict() for each in findings.damaged()]
    print(json.dumps({**found, "damaged": damaged, "in_use": findings.in_use()}))


def complain(inspection: Inspection, problems: int = 0, stream: TextIO | None = None) -> int:
    """Print which bytes are damaged; returns the exit status."""
    from warrenmq.terminal import plain

    damaged = inspection.findings.damaged()
    stream = stream or sys.stderr
    for each in damaged[:_MOST_LINES]:
        print(f"{plain(each.file)}, byte {each.offset}: {plain(each.reason)}", file=stream)
    if len(damaged) > _MOST_LINES:
        print(f"... and {len(damaged) - _MOST_LINES} more places; --json lists them all", file=stream)
    return 1 if damaged or problems else 0
