"""`warrenmq check DIR`: the messages that a start would recover from a directory, and the damage in it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from warrenmq.cli._parsers import add_verb
from warrenmq.cli._reading import add_directory, complain, note_broker, now

if TYPE_CHECKING:
    from warrenmq.inspect.inspection import Inspection


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "check",
        summary="say what a directory would give back and what is wrong with it",
        does="Read every message of a directory, which may be in use, and write nothing.",
        example="warrenmq check /var/lib/rabbitmq/mnesia/rabbit@host",
        ends="0 nothing is wrong, 1 something is, 2 it is no data directory.",
    )  # fmt: skip
    add_directory(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    from warrenmq.inspect.as_json import JsonWriter
    from warrenmq.inspect.inspection import Inspection

    inspection = Inspection(args.directory, now(args))
    note_broker(inspection)
    if args.json:
        writer = JsonWriter(inspection, sys.stdout.write)
        writer.everything()
        return 1 if writer.problems else 0
    problems = _queues(inspection)
    for _ in inspection.stores():
        pass  # looked at, so that their damage is known
    status = complain(inspection, problems, stream=sys.stdout)
    if not status:
        print("Nothing is wrong.")
    return status


def _queues(inspection: Inspection) -> int:
    """Print a line for each queue with its problems below; returns how many messages have one."""
    from warrenmq.inspect.inspection import NO_RECORD
    from warrenmq.inspect.summary import check_table, verdict

    lines = []
    for vhost, queue in inspection.queues():
        lines.append((queue, verdict(vhost, queue)))
    if lines:
        print(check_table(lines))
    # without a record: they are among the damaged, unless the directory is in use
    return sum(found.problems - found.reasons[NO_RECORD] for _, found in lines)
