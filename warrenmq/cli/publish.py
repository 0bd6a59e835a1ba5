"""`warrenmq publish QUEUE`: the lines of stdin, each a message."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
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
_READ = 1 << 16


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
    stdin = sys.stdin.buffer
    published = (
        _to_broker(args.url, args.queue, stdin)
        if args.url
        else _to_directory(args.data, args.queue, _lines(stdin), args.delay)
    )
    print(f"{counted(published, 'message')} published to {args.queue}", file=sys.stderr)
    return 0


def _lines(file: Any, before_read: Callable[[], None] = lambda: None) -> Iterator[bytes]:
    """The lines of a file; `before_read` is called when the next one may have to be waited for."""
    begun: list[bytes] = []
    while True:
        before_read()
        try:
            data = file.read1(_READ)
        except OSError as why:
            raise CallerError(
                f"stdin cannot be read: {why.strerror}; what was read so far is published."
            ) from why
        *whole, rest = data.split(b"\n")
        for line in whole:
            yield b"".join((*begun, line)).removesuffix(b"\r")
            begun.clear()
        if rest:
            begun.append(rest)
        if not data:
            if begun:
                yield b"".join(begun).removesuffix(b"\r")
            return


def _may_wait(file: BinaryIO) -> bool:
    """True for a pipe, a socket and a terminal, which a poll can wait for."""
    try:
        mode = os.fstat(file.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or file.isatty()


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


def _to_broker(url: str, name: str, file: BinaryIO) -> int:
    from warrenmq.remote import Remote

    published = 0
    with closing(Remote(url)) as remote:
        try:
            remote.queue(name)  # whatever it was declared with
        except NotFound:
            remote.declare_queue(name)
        serve = partial(remote.serve_until_readable, file.fileno()) if _may_wait(file) else lambda: None
        for published, line in enumerate(_lines(file, serve), 1):  # noqa: B007
            remote.publish(name, line)
        remote.flush()
    return published
