"""`warrenmq recover SOURCE --to DIR or amqp://...`: move a stopped broker's messages into a warrenmq
directory or a running broker.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from warrenmq.cli._parsers import add_verb
from warrenmq.cli._reading import add_now, now
from warrenmq.errors import CallerError

if TYPE_CHECKING:
    from warrenmq.mend.recover import Report


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "recover",
        summary="move a dead broker's messages into a directory or to a running broker",
        does="Read a RabbitMQ (3.6 to 4.x) or warrenmq directory whose broker is dead, and move its messages "
        "into DIR, which may be new or a data directory of warrenmq, or publish them to a running "
        "broker, RabbitMQ or `warrenmq serve`. SOURCE is not changed.\n\nA run that is repeated gives no "
        "message twice, nor does one that was interrupted on its way into a DIR; on its way to a running "
        "broker it may give some messages twice.",
        example="warrenmq recover /var/lib/rabbitmq/mnesia/rabbit@host --to data/\nwarrenmq recover data/ --to "
        "amqp://guest:guest@localhost",
        ends="0 everything was given back, 1 something could not be, 2 it cannot be done.",
    )  # fmt: skip
    parser.add_argument("source", metavar="SOURCE", help="a node's data directory, a vhost's or a queue's")
    parser.add_argument(
        "--to",
        required=True,
        metavar="DIR or URL",
        help="where the messages go; amqp://USER:PASSWORD@HOST:PORT is a running broker",
    )
    parser.add_argument(
        "--ledger",
        metavar="DIR",
        help="with a URL: where the list of what was moved is kept (default: SOURCE.recovered)",
    )
    add_now(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the summary")
    return parser


def run(args: argparse.Namespace) -> int:
    progress = _progress if sys.stderr.isatty() else lambda _: None
    if args.to.startswith(("amqp://", "amqps://")):
        from warrenmq.mend.to_broker import recover_to_broker

        report = recover_to_broker(args.source, args.to, now(args), args.ledger, progress)
    elif args.ledger:
        raise CallerError("--ledger is for --to amqp://; a directory keeps its ledger itself.")
    else:
        from warrenmq.mend.recover import recover

        report = recover(args.source, args.to, now(args), progress)
    if args.json:
        print(json.dumps(_as_dict(report)))
    else:
        _print(report)
    return 0 if report.fine else 1


def _progress(queue: str) -> None:
    print(f"moving {queue} ...", file=sys.stderr)


def _as_dict(report: Report) -> dict[str, Any]:
    return {
        "source": report.source,
        "to": report.to,
        "moved": sum(queue.moved for queue in report.queues),
        "queues": [
            {
                "vhost": queue.vhost,
                "name": queue.name,
                "directories": queue.directories,
                "moved": queue.moved,
                "already": queue.already,
                "salvaged": dict(queue.salvaged),
                "not_recovered": dict(queue.not_recovered),
                "altered": dict(queue.altered),
                "expiring": queue.expiring,
                "redelivered": queue.redelivered,
                "redelivered_unmarked": queue.unmarked,
            }
            for queue in report.queues
        ],
        "damaged": [damage._asdict() for damage in report.damaged],
        "notes": report.notes,
    }


def _print(report: Report) -> None:
    from warrenmq.routing.delayed import is_store
    from warrenmq.terminal import counted, plain

    several = len({queue.vhost for queue in report.queues}) > 1
    for queue in report.queues:
        already = f", {queue.already} were there already" if queue.already else ""
        where = f" (vhost {plain(queue.vhost)})" if several or queue.vhost != "/" else ""
        print(f"{plain(queue.name)}{where}: {counted(queue.moved, 'message')} moved{already}")
        for reason, count in sorted(queue.salvaged.items()):
            print(f"  {count} of them RabbitMQ itself would lose: {reason}")
        for reason, count in sorted(queue.not_recovered.items()):
            print(f"  {count} not given back: {plain(reason)}")
        for what, count in sorted(queue.altered.items()):
            print(f"  {count} altered: {what}")
        if queue.expiring:
            waits = "are to be delivered later" if is_store(queue.name) else "have a time to live"
            print(f"  {queue.expiring} {waits}; what was left of the time counts from now on")
        if queue.unmarked:
            print(
                f"  {queue.unmarked} had been delivered before, and come as new ones: the queue has priorities, or had messages already"
            )
        if queue.marked_too:
            print(
                f"  {queue.marked_too} had not been delivered before, and come as redelivered, as those behind them do"
            )
    for damage in report.damaged:
        print(f"damaged: {plain(damage.file)} at byte {damage.offset}: {plain(damage.reason)}")
    for note in report.notes:
        print(f"note: {plain(note)}")
    moved = sum(queue.moved for queue in report.queues)
    print(f"{counted(moved, 'message')} of {counted(len(report.queues), 'queue')} moved to {report.to}")
