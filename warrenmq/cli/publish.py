"""`warrenmq publish QUEUE`: the lines of stdin, each a message."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, BinaryIO

from warrenmq.cli._endpoint import add_endpoint
from warrenmq.cli._parsers import add_verb, real
from warrenmq.errors import CallerError, NotFound
from warrenmq.routing.delayed import LONGEST_DELAY
from warrenmq.terminal import counted

if TYPE_CHECKING:
    from warrenmq.actors.sending.confirms import Confirm

WINDOW = 1000
"""Messages that may be unconfirmed."""


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "publish",
        summary="put the lines of stdin into a queue",
        does="Publish each line of stdin as a persistent message, without its line end, and wait until all are confirmed. "
        "The queue is declared durable if it is not there.",
        example="seq 3 | warrenmq publish jobs --data data/",
        ends="0 all are confirmed, 1 some are not, 2 the queue cannot be reached.",
    )  # fmt: skip
    add_endpoint(parser, data="it may be new")
    parser.add_argument(
        "--delay",
        metavar="SECONDS",
        type=real(0, LONGEST_DELAY / 1_000),
        help="deliver them not before so many seconds; with --data",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    if sys.stdin is None:
        raise CallerError("stdin is closed; the lines to publish come from there.")
    if args.url and args.delay is not None:
        raise CallerError(
            "--delay needs --data: over AMQP a message is delayed by an exchange of type x-delayed-message and a header x-delay."
        )
    lines = _lines(sys.stdin.buffer)
    published = (
        _to_broker(args.url, args.queue, lines)
        if args.url
        else _to_directory(args.data, args.queue, lines, args.delay)
    )
    print(f"{counted(published, 'message')} published to {args.queue}", file=sys.stderr)
    return 0


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while True:
        try:
            line = file.readline()
        except OSError as why:
            raise CallerError(
                f"stdin cannot be read: {why.strerror}; what was read so far is published."
            ) from why
        if not line:
            return
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _to_directory(data: str, name: str, lines: Iterator[bytes], delay: float | None) -> int:
    import warrenmq

    confirms: deque[Confirm] = deque()
    published = 0
    with warrenmq.open(data) as broker:
        try:
            queue = broker.queue(name)  # whatever it was declared with
        except NotFound:
            queue = broker.declare_queue(name)
        for published, line in enumerate(lines, 1):  # noqa: B007
            confirms.append(queue.publish(line, delay=delay))
            if len(confirms) > WINDOW:
                confirms.popleft().result()
        for confirm in confirms:
            confirm.result()
    return published


def _to_broker(url: str, name: str, lines: Iterator[bytes]) -> int:
    from warrenmq.remote import Remote

    published = 0
    with closing(Remote(url)) as remote:
        try:
            remote.queue(name)  # whatever it was declared with
        except NotFound:
            remote.declare_queue(name)
        for published, line in enumerate(lines, 1):  # noqa: B007
            remote.publish(name, line)
        remote.flush()
    return published
