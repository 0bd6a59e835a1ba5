"""`warrenmq compact DIR`: message files without their garbage, while no broker runs."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from warrenmq.cli._parsers import add_verb


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "compact",
        summary="rewrite message files without their garbage, while no broker runs",
        does="Rewrite the message store's files of a RabbitMQ or warrenmq directory whose broker is stopped, "
        "with nothing in them but messages that a queue refers to. A crash at any point loses nothing.",
        example="warrenmq compact data/",
        ends="0 done, 1 a file is damaged, 2 it cannot be done; then nothing was changed.",
    )  # fmt: skip
    parser.add_argument("directory", metavar="DIR", help="a node's data directory, a vhost's or a store's")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(args: argparse.Namespace) -> int:
    from warrenmq.mend.compact import compact

    done = compact(args.directory)
    if done.rabbitmqs:
        print("this is RabbitMQ's directory: make sure that its broker is stopped", file=sys.stderr)
    before = sum(store.before for store in done.stores)
    after = sum(store.after for store in done.stores)
    if args.json:
        stores = [store._asdict() for store in done.stores]
        print(json.dumps({"bytes_before": before, "bytes_after": after, "stores": stores}))
    else:
        for store in done.stores:
            print(f"{store.directory}: {store.before} bytes in {store.files_before} files before, "
                  f"{store.after} in {store.files_after} after")  # fmt: skip
        print(f"{before} bytes before, {after} bytes after")
    return 0
