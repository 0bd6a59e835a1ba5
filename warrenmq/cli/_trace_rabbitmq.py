"""`warrenmq trace rabbitmq`: queues, delays and order from logs of RabbitMQ's tracing plugin."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from warrenmq.cli._parsers import add_verb


def add_task(tasks: Any) -> None:
    task = add_verb(
        tasks, "rabbitmq",
        summary="read logs of RabbitMQ's tracing plugin",
        does="Rates, delays, depths and the order of deliveries, of each queue in log files of rabbitmq_tracing (JSON or "
        "text, also .gz). Several files are one trace.",
        example="warrenmq trace rabbitmq /var/tmp/rabbitmq-tracing/",
        ends="0 done, 1 a queue broke its order, 2 nothing was done.",
    )  # fmt: skip
    task.add_argument("logs", metavar="LOG", nargs="+", help="a log file, or a directory of *.log files")
    task.add_argument(
        "--json", action="store_true", help="print one JSON object, with a time line of each queue"
    )
    task.set_defaults(do=run)


def run(args: argparse.Namespace) -> int:
    from warrenmq.rabbit_logs.log_files import open_logs
    from warrenmq.rabbit_logs.order import VIOLATED
    from warrenmq.rabbit_logs.summary import as_dict, count, lines

    logs = open_logs(*args.logs)
    traffic = count(logs)
    told = as_dict(logs, traffic)
    if args.json:
        print(json.dumps(told))
    else:
        for line in lines(logs, traffic):
            print(line)
    for file in logs.files:
        if file.skipped:
            print(
                f"{file.path}: {file.skipped} bytes ahead of the first record belong to none", file=sys.stderr
            )
        if file.damaged:
            print(f"{file.path}: damaged in {file.damaged} places; the rest was read", file=sys.stderr)
        if file.in_bodies:
            print(
                f"{file.path}: {file.in_bodies} records with old times were taken for text of messages",
                file=sys.stderr,
            )
    return 1 if any(queue["order"]["verdict"] == VIOLATED for queue in told["queues"]) else 0
