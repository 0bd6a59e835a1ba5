"""`warrenmq consume QUEUE`: its messages, each a line of stdout."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from enum import Enum, auto
from functools import partial
from typing import Any

from warrenmq.cli._endpoint import add_endpoint
from warrenmq.cli._parsers import add_verb, whole
from warrenmq.errors import CallerError, NotFound

PREFETCH = 500
ACK_EVERY = 100
IDLE_TIMEOUT = 0.5
"""Seconds without a message after which the queue is checked for being empty."""


class Empty(Enum):
    """Sentinel for a pause: no message has come for a while, so the queue may be empty, or slow."""

    FOR_CERTAIN = auto()
    PERHAPS = auto()


Messages = Generator[tuple[bytes, Callable[[], None]] | Empty]
"""A body and how to ack it and all before it."""


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "consume",
        summary="take messages out of a queue, as lines of stdout",
        does="Write the bodies of a queue's messages to stdout, each with a line end behind it, and acknowledge what was "
        "written. Ends when the queue is empty. Messages that were written and not yet acknowledged when this is killed come again.",
        example="warrenmq consume jobs --data data/ --count 10",
        ends="0 done, 2 there is no such queue, or it cannot be reached.",
    )  # fmt: skip
    add_endpoint(parser, data="it must be there")
    parser.add_argument(
        "--count",
        type=whole(0, 1 << 62),
        metavar="N",
        help="end after N messages (default: when it is empty)",
    )
    parser.add_argument("--follow", action="store_true", help="when the queue is empty, wait for more")
    return parser


def run(args: argparse.Namespace) -> int:
    if args.follow and args.data:
        raise CallerError(
            "while this has the directory open no other process can publish into it, so --follow is for --url."
        )
    if args.count == 0:
        return 0
    prefetch = PREFETCH if args.count is None else min(PREFETCH, args.count)
    messages = (
        _of_broker(args.url, args.queue, prefetch)
        if args.url
        else _of_directory(args.data, args.queue, prefetch)
    )
    with closing(messages):
        _write(messages, args.count, follow=args.follow)
    return 0


def _write(messages: Messages, count: int | None, *, follow: bool) -> None:
    """Write messages, and ack them afterwards: in batches, or when the next one has not arrived yet."""
    out, written, ack = sys.stdout.buffer, 0, None
    for message in messages:
        if isinstance(message, Empty):
            last = message is Empty.FOR_CERTAIN and not follow
        else:
            body, ack = message
            out.write(body + b"\n")
            written += 1
            last = written == count
        if ack is not None and (last or isinstance(message, Empty) or written % ACK_EVERY == 0):
            out.flush()
            ack()
            ack = None
        if last:
            return


def _of_directory(data: str, name: str, prefetch: int) -> Messages:
    import warrenmq

    _require_directory(data, name)
    with warrenmq.open(data) as broker:
        queue = broker.queue(name)
        with queue.consume(prefetch) as consumer:
            while True:
                delivery = consumer.get(timeout=IDLE_TIMEOUT)
                if delivery is not None:
                    yield delivery.body, partial(delivery.ack, multiple=True)
                else:
                    yield Empty.FOR_CERTAIN if not queue.info().ready else Empty.PERHAPS


def _require_directory(data: str, name: str) -> None:
    """Raise CallerError unless this is a data directory: opening a mistyped path would create one."""
    from warrenmq.inspect.layout import recognise
    from warrenmq.inspect.reading import Findings

    try:
        kind = recognise(Findings(data)).kind
    except CallerError as why:
        raise NotFound(f"there is no queue {name!r} in {data}: {why}") from why
    if kind != "node":
        raise NotFound(
            f"there is no queue {name!r} in {data}: it is only a part of a data directory; name the whole."
        )


def _of_broker(url: str, name: str, prefetch: int) -> Messages:
    from warrenmq.remote import Subscription

    with closing(Subscription(url, name, prefetch, IDLE_TIMEOUT)) as messages:
        for message in messages:
            if message is not None:
                yield message
            else:
                yield Empty.FOR_CERTAIN if messages.is_empty() else Empty.PERHAPS
