"""`warrenmq top DIR`: rates, depths, memory, actors and restarts of a directory's owner, live."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warrenmq.cli._live import owners_looks
from warrenmq.cli._parsers import add_verb, real, whole
from warrenmq.errors import BrokerClosed, CallerError, NotFound
from warrenmq.terminal import plain, size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warrenmq.broker.stats import Stats
    from warrenmq.shared.looking import Look

_SHOWN = 30
"""Queues."""


def add_parser(subparsers: Any) -> None:
    parser = add_verb(
        subparsers, "top",
        summary="watch a running broker: rates, depths, memory, actors, restarts",
        does="Ask the process that shares or serves DIR for its state, again and again, until Ctrl-C. When another process takes the "
        "directory over, that one is asked.",
        example="warrenmq top data/",
        ends="0 it was ended, 2 no process shares or serves the directory.",
    )  # fmt: skip
    parser.add_argument("directory", metavar="DIR", help="a data directory that is in use")
    parser.add_argument(
        "--interval", metavar="S", type=real(0.1, 3600), default=1.0, help="seconds between two looks"
    )
    parser.add_argument(
        "--count", metavar="N", type=whole(1, 1 << 31), help="end after so many looks (default: never)"
    )


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a virtual host."""

    at: float
    """Seconds, by a clock that only goes on."""
    vhost: str
    stats: Stats
    published: dict[str, int]
    """Messages that ever came into each queue."""


@dataclass(frozen=True, slots=True)
class Line:
    """One queue."""

    vhost: str
    name: str
    ready: int
    unacked: int
    consumers: int
    rate_in: float | None
    """Messages a second; None at the first look."""
    rate_out: float | None


def lines(before: Sample | None, now: Sample) -> list[Line]:
    """The queues, the deepest first; what left a queue is what came in and is not there any more."""
    old = {} if before is None else {each.name: each for each in before.stats.queues}
    found = []
    for queue in now.stats.queues:
        came = left = None
        last = old.get(queue.name)
        if (
            before is not None
            and last is not None
            and queue.name in before.published
            and queue.name in now.published
        ):
            seconds = max(now.at - before.at, 1e-9)
            came = max(0, now.published[queue.name] - before.published[queue.name]) / seconds
            grown = queue.ready + queue.unacked - last.ready - last.unacked
            left = max(0.0, came - grown / seconds)
        found.append(Line(now.vhost, queue.name, queue.ready, queue.unacked, queue.consumers, came, left))
    return sorted(found, key=lambda each: (-each.ready - each.unacked, each.name))


def heading(now: Sample) -> str:
    """Alarms, actors, stores of a virtual host in a line."""
    stats = now.stats
    alarms = []
    for each in stats.alarms:
        measured = "?" if each.measured is None else size(each.measured)
        limit = "?" if each.limit is None else size(each.limit)
        what = "in use, limit" if each.source == "memory" else "free, at least"
        alarms.append(f"{each.source} {measured} {what} {limit}{' ALARM' if each.is_set else ''}")
    restarts, mail = sum(each.restarts for each in stats.actors), sum(each.mailbox for each in stats.actors)
    held = sum(file.file_size for store in stats.stores for file in store.files)
    return (
        f"{now.vhost}   {'   '.join(alarms)}   {len(stats.actors)} actors, {mail} mails wait, {restarts} restarts   "
        f"stores {size(held)}   blocked publishers {len(stats.blocked_publishers)}   damage {len(stats.damage)}"
    )


def sample(look: Look) -> Sample:
    """Look at one virtual host."""
    from warrenmq.broker.stats import Stats

    stats = Stats.from_dict(look.ask("stats"))
    deepest = sorted(stats.queues, key=lambda each: -each.ready - each.unacked)[:_SHOWN]
    published = {}
    for each in deepest:
        try:
            published[each.name] = int(look.ask("info", queue=each.name)["next_seq_id"])
        except NotFound:  # it was deleted meanwhile
            continue
    return Sample(time.monotonic(), look.vhost, stats, published)


def run(args: argparse.Namespace) -> int:
    try:
        from rich.console import Console
        from rich.live import Live
    except ModuleNotFoundError as why:
        raise CallerError("top needs rich; install warrenmq[terminal].") from why

    before: dict[str, Sample] = {}
    left = args.count
    with Live(console=Console(), auto_refresh=False) as screen:
        while True:
            now, waits = _look(args.directory), f"nobody serves {args.directory} now"
            if not now and not before:
                raise CallerError(
                    f"no process shares or serves {args.directory}; open it with shared=True, or `warrenmq serve` it."
                )
            screen.update(_picture(before, now) if now else waits, refresh=True)
            before = {each.vhost: each for each in now} or before
            if left is not None and (left := left - 1) == 0:
                return 0
            try:
                time.sleep(args.interval)
            except KeyboardInterrupt:
                return 0


def _look(directory: str) -> list[Sample]:
    try:
        with owners_looks(directory) as looks:
            return [sample(look) for look in looks]
    except BrokerClosed:  # it has just ended
        return []


def _picture(before: dict[str, Sample], now: Iterable[Sample]) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = []
    for each in now:
        table = Table(box=None, pad_edge=False)
        for name in ("QUEUE", "READY", "UNACKED", "CONSUMERS", "IN/s", "OUT/s"):
            table.add_column(name, justify="left" if name == "QUEUE" else "right")
        every = lines(before.get(each.vhost), each)
        for line in every[:_SHOWN]:
            rates = ["-" if rate is None else f"{rate:,.0f}" for rate in (line.rate_in, line.rate_out)]
            counts = [f"{count:,}" for count in (line.ready, line.unacked, line.consumers)]
            table.add_row(Text(plain(line.name)), *counts, *rates)
        parts += [Text(heading(each)), table]
        if len(every) > _SHOWN:
            parts.append(Text(f"... and {len(every) - _SHOWN} more queues"))
    return Group(*parts)
