"""`warrenmq peek DIR QUEUE`: the messages of one queue, as they would be delivered."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from warrenmq.cli._live import owners_looks, show_messages
from warrenmq.cli._parsers import add_verb, whole
from warrenmq.cli._reading import add_directory, add_files, complain, note_broker, now
from warrenmq.errors import NotFound, PreconditionFailed
from warrenmq.terminal import counted

if TYPE_CHECKING:
    from warrenmq.inspect.inspection import Inspection, Row, VhostInspection
    from warrenmq.inspect.layout import QueueFolder

_SHOWN = 10
_SHOWN_AS_JSON = 1000
"""The most messages that --json shows of a running owner, which reads them into memory; files have no limit."""


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "peek",
        summary="show the messages of a queue without taking them",
        does="Show the first messages of a queue in the order of delivery, from the files, or of a process that shares or serves the directory. Nothing is taken or changed, and "
        "the directory may be in use.",
        example="warrenmq peek data/ jobs --limit 3",
        ends="0 nothing is wrong, 1 a problem was found, 2 there is no such directory or queue.",
    )  # fmt: skip
    add_directory(parser)
    add_files(parser)
    parser.add_argument(
        "queue",
        metavar="QUEUE",
        nargs="?",
        help="its name, or its folder's; not needed where DIR is the queue's folder",
    )
    parser.add_argument(
        "--vhost", metavar="NAME", help="the virtual host, where queues of several have this name"
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=whole(0, (1 << 31) - 1),
        help=f"how many messages (default: {_SHOWN}, with --json all of them, 1,000 of a running owner)",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    with owners_looks(args.directory, files=args.files) as looks:
        if looks:
            return show_messages(looks, args.queue, args.vhost, _most(args), as_json=args.json)
    return _of_files(args)


def _most(args: argparse.Namespace) -> int:
    """Messages that a running owner is asked for."""
    if args.limit is not None:
        return int(args.limit)
    return _SHOWN_AS_JSON if args.json else _SHOWN


def _of_files(args: argparse.Namespace) -> int:
    from warrenmq.inspect.as_json import JsonWriter
    from warrenmq.inspect.inspection import Inspection

    inspection = Inspection(args.directory, now(args))
    note_broker(inspection)
    vhost, folders = _chosen(inspection, args)
    vhost.referring = [folder.path for folder in folders]
    if args.json:
        writer = JsonWriter(inspection, sys.stdout.write)
        writer.one_queue(vhost, folders, args.limit)
        return 1 if writer.problems else 0
    problems, shown = 0, 0
    limit = args.limit if args.limit is not None else _SHOWN
    for folder in folders:
        for row in vhost.rows(folder):
            if shown == limit:
                print(f"... {counted(limit, 'message')} shown; --limit shows more")
                return complain(inspection, problems)
            problems += not row.normal
            if row.reason is None:
                _show(row, shown)
                shown += 1
    if not shown:
        print("There are no messages in it.")
    return complain(inspection, problems)


def _chosen(inspection: Inspection, args: argparse.Namespace) -> tuple[VhostInspection, list[QueueFolder]]:
    """The folders of the named queue, in order of delivery."""
    known = [each for each in inspection.queues() if args.vhost is None or each[1].vhost == args.vhost]
    names = sorted({queue.name or inspection.findings.relative(queue.path) for _, queue in known})
    if args.queue is None:
        if len(names) != 1:
            raise NotFound(f"say which queue of {args.directory}: {', '.join(names) or 'it has none'}.")
        found = known
    else:
        found = [each for each in known if args.queue in {each[1].name, each[1].path.rpartition("/")[2]}]
    if not found:
        raise NotFound(f"{args.directory} has no queue {args.queue!r}; it has: {', '.join(names) or 'none'}.")
    vhosts = {queue.vhost for _, queue in found}
    if len(vhosts) > 1:
        raise PreconditionFailed(
            f"queues of {len(vhosts)} vhosts are called {args.queue!r}; add --vhost with one of: "
            f"{', '.join(sorted(str(each) for each in vhosts))}."
        )
    return found[0][0], [queue for _, queue in found]


def _show(row: Row, position: int) -> None:
    """A message in a few lines: where it came from, its properties, how its body begins."""
    from warrenmq.terminal import plain, preview, size

    message = row.message
    assert message is not None
    marks = ["redelivered"] * row.redelivered + ["salvaged"] * (row.salvaged is not None)
    keys = ", ".join(plain(key) for key in message.routing_keys)
    exchange = plain(message.exchange) or "(default exchange)"
    print(
        f"#{position}  {exchange} -> {keys}  {size(len(message.body))}"
        + "".join(f"  {mark}" for mark in marks)
    )
    if message.properties:
        print(f"    {preview(json.dumps(message.properties, ensure_ascii=False).encode(errors='replace'))}")
    print(f"    {preview(message.body)}")
