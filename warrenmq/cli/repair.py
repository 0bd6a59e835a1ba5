"""`warrenmq repair DIR`: mend a damaged directory in place."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from warrenmq.cli._parsers import add_verb


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "repair",
        summary="mend a damaged directory, so that its broker starts again",
        does="Mend a RabbitMQ or warrenmq directory whose broker is stopped, so that its broker starts and "
        "gives back all that is readable. Files are copied to DIR/repair-backup-N before they are changed.",
        example="warrenmq repair data/ --dry-run",
        ends="0 nothing is left to do, 1 a dry run found something to do, 2 it cannot be done.",
    )  # fmt: skip
    parser.add_argument("directory", metavar="DIR", help="a node's data directory, a vhost's or a queue's")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and write nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(args: argparse.Namespace) -> int:
    from warrenmq.mend.repair import repair
    from warrenmq.terminal import plain

    done = repair(args.directory, dry_run=args.dry_run)
    if done.rabbitmqs:
        print("this is RabbitMQ's directory: make sure that its broker is stopped", file=sys.stderr)
    if args.json:
        found = {
            "dry_run": args.dry_run,
            "changes": [change._asdict() for change in done.changes],
            "left": [damage._asdict() for damage in done.left],
            "backup": done.backup,
        }
        print(json.dumps(found))
    else:
        for change in done.changes:
            print(f"{plain(change.file)}: {plain(change.done)}")
        if not done.changes:
            print("nothing to do")
        if not args.dry_run:
            for damage in done.left:
                print(f"not mended: {plain(damage.file)} at byte {damage.offset}: {plain(damage.reason)}")
        if done.backup is not None:
            print(f"what was changed is as it was in {done.backup}")
    return 1 if args.dry_run and done.changes else 0
