"""`warrenmq top DIR or URL`: rates, depths, memory, actors, syncs and restarts of a running broker, live."""

from __future__ import annotations

import argparse
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warrenmq.cli._parsers import add_verb, real, whole
from warrenmq.errors import CallerError
from warrenmq.terminal import columns, cut, plain

if TYPE_CHECKING:
    from warrenmq.cli._top_samples import Sample

_SHOWN = 30
"""Queues of a virtual host where no terminal says how many have room."""
_ENDS = ("q", "Q", "\x04", "")
"""Keys that end it; "" is the end of the input."""
_GAP = "   "


def add_parser(subparsers: Any) -> None:
    parser = add_verb(
        subparsers, "top",
        summary="watch a running broker: rates, depths, memory, actors, syncs, restarts",
        does="Ask the process that shares or serves DIR, or the management API at URL, for its state, again and again, until q or "
        "Ctrl-C. When another process takes the directory over, that one is asked.",
        example="warrenmq top data/",
        ends="0 it was ended, 2 no process shares or serves the directory, or the API refuses.",
    )  # fmt: skip
    parser.add_argument(
        "where",
        metavar="DIR_OR_URL",
        help="a data directory that is in use, or http://USER:PASSWORD@HOST:PORT of `warrenmq serve --management` or RabbitMQ",
    )
    parser.add_argument(
        "--interval", metavar="S", type=real(0.1, 3600), default=1.0, help="seconds between two looks"
    )
    parser.add_argument(
        "--count", metavar="N", type=whole(1, 1 << 31), help="end after so many looks (default: never)"
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One queue."""

    name: str
    ready: int
    unacked: int
    consumers: int
    rate_in: float | None
    """Messages a second; None at the first look."""
    rate_out: float | None


def lines(before: Sample | None, now: Sample) -> list[Line]:
    """The queues, the deepest first; what left a queue is what came in and is not there any more."""
    old = {} if before is None else {each.name: each for each in before.queues}
    found = []
    for queue in now.queues:
        came = left = None
        last = old.get(queue.name)
        if (
            before is not None
            and last is not None
            and queue.published is not None
            and last.published is not None
        ):
            seconds = max(now.at - before.at, 1e-9)
            came = max(0, queue.published - last.published) / seconds
            grown = queue.ready + queue.unacked - last.ready - last.unacked
            left = max(0.0, came - grown / seconds)
        found.append(Line(queue.name, queue.ready, queue.unacked, queue.consumers, came, left))
    return found


def picture(before: dict[str, Sample], now: Sequence[Sample], width: int, height: int) -> list[str]:
    """The lines of a screen; the virtual hosts share its height, and queues without room are counted."""
    parts = [_of_vhost(before.get(each.vhost), each, width) for each in now]
    room = height - sum(len(head) for head, _ in parts)
    shown: list[str] = []
    for left, (head, queues) in zip(range(len(parts), 0, -1), parts, strict=True):
        most = max(2, room // left)  # what one does not need is the next one's
        rows = queues if len(queues) <= most else queues[: most - 1]
        room -= len(rows) + (rows is not queues)
        shown += [*head, *rows]
        if rows is not queues:
            shown.append(f"... and {len(queues) - len(rows):,} more queues")
    return shown[:height]


_COLUMNS = ("READY", "UNACKED", "CONSUMERS", "IN/s", "OUT/s")


def _of_vhost(before: Sample | None, now: Sample, width: int) -> tuple[list[str], list[str]]:
    """The heading and the rows of a virtual host."""
    rates = "" if now.syncs is None else "- syncs/s"
    if before is not None and now.syncs is not None and before.syncs is not None:
        rates = f"{max(0, now.syncs - before.syncs) / max(now.at - before.at, 1e-9):,.0f} syncs/s"
    head = [
        _GAP.join((cut(plain(now.vhost), 20), *now.resources)),
        _GAP.join((*now.parts, *filter(None, [rates]))),
    ]
    if now.troubles:
        head.append(_GAP.join(map(plain, now.troubles)))
    cells = [[*_numbers(line)] for line in lines(before, now)]
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *cells, strict=True)]
    room = max(8, width - sum(widths) - 2 * len(widths))
    names = [cut(plain(each.name), room) for each in now.queues]
    of_names = max(map(columns, ["QUEUE", *names]))

    def row(name: str, numbers: Sequence[str]) -> str:
        padded = [number.rjust(each) for number, each in zip(numbers, widths, strict=True)]
        return "  ".join((name + " " * (of_names - columns(name)), *padded))

    head = [_begin(each, width) for each in head]
    return [*head, row("QUEUE", _COLUMNS)], [*map(row, names, cells)]


def _numbers(line: Line) -> Iterator[str]:
    yield from (f"{count:,}" for count in (line.ready, line.unacked, line.consumers))
    yield from ("-" if rate is None else f"{rate:,.0f}" for rate in (line.rate_in, line.rate_out))


def _begin(text: str, width: int) -> str:
    """A text without what does not fit, cut at its end."""
    while columns(text) > width:
        text = text[:-2].rstrip() + "…"
    return text


def run(args: argparse.Namespace) -> int:
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        from warrenmq.cli._top_samples import samples
    except ModuleNotFoundError as why:
        raise CallerError(f"top needs {why.name}; install warrenmq[terminal].") from why

    before: dict[str, Sample] = {}
    left = args.count
    console = Console()
    # a screen of its own, as editors have, unless the last picture is to stay
    live = Live(console=console, auto_refresh=False, screen=console.is_terminal and left is None)
    with _keys() as wait:
        try:
            now = samples(args.where)
            if not now:
                raise CallerError(
                    f"no process shares or serves {shown(args.where)}; open it with shared=True, or `warrenmq serve` it."
                )
            with live as screen:
                while True:
                    width, height = console.size if console.is_terminal else (80, _SHOWN * max(1, len(now)))
                    said = picture(before, now, width, height - 1) or [
                        f"nobody serves {shown(args.where)} now"
                    ]
                    screen.update(Text("\n".join(said), no_wrap=True), refresh=True)
                    before = {each.vhost: each for each in now} or before
                    if left is not None and (left := left - 1) == 0:
                        return 0
                    if wait(args.interval) in _ENDS:
                        return 0
                    now = _again(samples, args.where)
        except KeyboardInterrupt:
            return 0


def shown(where: str) -> str:
    """A directory or a URL for people who look on: without its password."""
    return re.sub(r"(?<=://)[^/@]*@", "", where)


def _again(samples: Callable[[str], list[Sample]], where: str) -> list[Sample]:
    try:
        return samples(where)
    except CallerError:  # an API that is gone may come again, as a directory's owner may
        return []


@contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """A function that waits for a key for so many seconds, and returns it, or None; without a terminal it waits only."""
    if not sys.stdin.isatty():
        yield time.sleep
        return
    import termios
    import tty

    number = sys.stdin.fileno()
    kept = termios.tcgetattr(number)

    def wait(seconds: float) -> str | None:
        if not select.select([number], [], [], seconds)[0]:
            return None
        return os.read(number, 1).decode(errors="replace")

    try:
        tty.setcbreak(number)
        yield wait
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, kept)
