"""`warrenmq ls DIR`: the queues in a directory."""

from __future__ import annotations

import argparse
from typing import Any

from warrenmq.cli._live import owners_looks, show_queues
from warrenmq.cli._parsers import add_verb
from warrenmq.cli._reading import add_directory, add_files, complain, note_broker, now, print_json


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "ls",
        summary="list the queues in a directory",
        does="List vhosts and queues with their ready messages, counted from the index files alone: what the next start gives back. Where a process shares or serves the "
        "directory, it is asked for the state now. Nothing "
        "is written, and the directory may be in use.",
        example="warrenmq ls data/",
        ends="0 nothing is wrong, 1 a file is damaged, 2 it is no data directory.",
    )  # fmt: skip
    add_directory(parser)
    add_files(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    with owners_looks(args.directory, files=args.files) as looks:
        if looks:
            return show_queues(looks, as_json=args.json)
    return _of_files(args)


def _of_files(args: argparse.Namespace) -> int:
    from warrenmq.inspect.inspection import Inspection
    from warrenmq.inspect.summary import as_dict, list_table, queue_line

    inspection = Inspection(args.directory, now(args))
    note_broker(inspection)
    lines = [queue_line(inspection, vhost, queue) for vhost, queue in inspection.queues()]
    if args.json:
        print_json(inspection, queues=[as_dict(line) for line in lines])
    else:
        print(list_table(lines) if lines else "There are no queues here.")
    return complain(inspection)
