"""`warrenmq check DIR`: what is in a directory, what of it would be given back, and what is wrong."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from warrenmq.cli._reading import add_directory, now


def add_parser(subparsers: Any) -> Any:
    parser = subparsers.add_parser(
        "check",
        help="say what a directory would give back and what is wrong with it",
        description="Look at every message of a directory, which may be in use, and write nothing. "
        "Exit status: 0 nothing is wrong, 1 something is, 2 it is no data directory.",
    )
    add_directory(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    from warrenmq.inspect.as_json import JsonWriter
    from warrenmq.inspect.inspection import Inspection

    inspection = Inspection(args.directory, now(args))
    writer = JsonWriter(inspection, sys.stdout.write)
    writer.everything()
    return 1 if writer.problems else 0
