"""`warrenmq stats DIR`: how the bytes of a directory are used."""

from __future__ import annotations

import argparse
from typing import Any

from warrenmq.cli._live import owners_looks, show_stats
from warrenmq.cli._parsers import add_verb
from warrenmq.cli._reading import add_directory, add_files, complain, note_broker, now, print_json


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "stats",
        summary="say how the bytes of a directory are used",
        does="Count files, live bytes and garbage of each store, and messages and segments of each queue, from the files; where a process "
        "shares or serves the directory, that is asked. Nothing is written, and the directory may be in use.",
        example="warrenmq stats data/",
        ends="0 nothing is wrong, 1 a file is damaged, 2 it is no data directory.",
    )  # fmt: skip
    add_directory(parser)
    add_files(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    with owners_looks(args.directory, files=args.files) as looks:
        if looks:
            return show_stats(looks, as_json=args.json)
    return _of_files(args)


def _of_files(args: argparse.Namespace) -> int:
    from warrenmq.inspect.inspection import Inspection
    from warrenmq.inspect.store import summary
    from warrenmq.inspect.summary import as_dict, queue_line, queue_table, store_table

    inspection = Inspection(args.directory, now(args))
    note_broker(inspection)
    queues = [queue_line(inspection, vhost, queue) for vhost, queue in inspection.queues()]
    stores = [(vhost.vhost.name, summary(inspection.findings, store)) for vhost, store in inspection.stores()]
    if args.json:
        print_json(inspection, queues=[as_dict(each) for each in queues], stores=[each for _, each in stores])
    else:
        for part in (store_table(stores) if stores else "", queue_table(queues) if queues else ""):
            if part:
                print(part, end="\n\n")
    return complain(inspection)
