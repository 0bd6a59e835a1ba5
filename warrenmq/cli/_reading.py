"""What the verbs share that look at a directory without changing it."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from warrenmq.inspect.inspection import Inspection


_MOST_LINES = 20


def add_directory(parser: Any) -> None:
    parser.add_argument(
        "directory", metavar="DIR", help="a data directory of warrenmq or RabbitMQ (3.6 to 4.x), or a vhost's, queue's or store's"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--now", metavar="TIME", type=moment, help="the time that messages expire by: seconds since 1970 or ISO 8601"
    )


def moment(text: str) -> int:
    """Microseconds since 1970."""
    try:
        return int(float(text) * 1_000_000)
    except (ValueError, OverflowError):
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither seconds nor a time like 2026-11-20T10:16:24Z") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def now(args: argparse.Namespace) -> int:
    return args.now if args.now is not None else time.time_ns() // 1000


def complain(inspection: Inspection, problems: int = 0, stream: TextIO | None = None) -> int:
    """Say which bytes are damaged, and return the exit status."""
    from warrenmq.inspect.tables import plain

    damaged = inspection.findings.damaged()
    stream = stream or sys.stderr
    for each in damaged[:_MOST_LINES]:
        print(f"{plain(each.file)}, byte {each.offset}: {plain(each.reason)}", file=stream)
    if len(damaged) > _MOST_LINES:
        print(f"... and {len(damaged) - _MOST_LINES} more places; --json lists them all", file=stream)
    return 1 if damaged or problems else 0
