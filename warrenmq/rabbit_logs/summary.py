"""The summary of a log, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from warrenmq.rabbit_logs.log_files import TracingLogs
from warrenmq.rabbit_logs.order import UNDECIDED, QueueOrder
from warrenmq.rabbit_logs.traffic import SECOND, QueueTraffic, Traffic
from warrenmq.terminal import plain, table

PERCENTS = (50, 90, 99)
_COLUMNS = (
    "queue", "published", "delivered", "again", "waiting", "at most", "in/s", "out/s", "p50 ms", "p99 ms", "order",
)  # fmt: skip


def count(logs: TracingLogs) -> Traffic:
    """Read logs to the end."""
    traffic = Traffic(several=len(logs.files) > 1)
    for record in logs.records():
        traffic.take(record)
    traffic.finish()
    return traffic


def as_dict(logs: TracingLogs, traffic: Traffic) -> dict[str, Any]:
    """The summary as plain values; times in seconds since 1970."""
    damaged = any(file.damaged for file in logs.files)
    return {
        "files": [
            {
                "path": file.path, "format": file.format, "records": file.records, "damaged": file.damaged,
                "in_bodies": file.in_bodies, "skipped_bytes": file.skipped,
            }
            for file in logs.files
        ],
        "records": traffic.records,
        "first": traffic.first_t / SECOND,
        "last": traffic.last_t / SECOND,
        "unrouted": traffic.unrouted,
        "forgotten": traffic.forgotten,
        "queues": [
            _queue(vhost, queue, found, traffic, damaged=damaged)
            for (vhost, queue), found in sorted(traffic.queues.items())
        ],
    }  # fmt: skip


def _queue(vhost: str, queue: str, found: QueueTraffic, traffic: Traffic, *, damaged: bool) -> dict[str, Any]:
    order = traffic.order.queues[vhost, queue]
    line = found.line
    return {
        "vhost": vhost,
        "queue": queue,
        "published": found.published,
        "published_bytes": found.bytes,
        "delivered": found.delivered,
        "redelivered": found.redelivered,
        "unpublished": found.unpublished,
        "dead_lettered": found.dead_lettered,
        "waiting": found.waiting,
        "most_waiting": found.most_waiting,
        "published_rate": _rate(found.published, traffic.seconds),
        "delivered_rate": _rate(found.delivered + found.redelivered, traffic.seconds),
        "delay_ms": {f"p{percent}": found.percentile(percent) for percent in PERCENTS}
        | {"max": found.longest / 1_000 if found.delays else None},
        "order": {
            "verdict": order.verdict(damaged=damaged),
            "compared": order.compared,
            "inversions": order.inversions.total(),
            "examples": [each.text for each in order.examples],
            "undecided": {reason: n for reason, n in order.undecided.items() if n},
        },
        "slice_s": line.width / SECOND,
        "slices": [
            {
                "begin": number * line.width / SECOND, "published": counts[0], "delivered": counts[1],
                "redelivered": counts[2], "waiting": waiting,
            }
            for (number, counts), (_, waiting) in zip(sorted(line.slices.items()), line.depths(), strict=True)
        ],
    }  # fmt: skip


def _rate(n: int, seconds: float) -> float | None:
    return n / seconds if seconds else None


def lines(logs: TracingLogs, traffic: Traffic) -> Iterator[str]:
    """A table of the queues, and below it what the verdicts rest on."""
    if not traffic.records:
        yield "no records"
        return
    damaged = any(file.damaged for file in logs.files)
    first, last = (datetime.fromtimestamp(t / SECOND, UTC) for t in (traffic.first_t, traffic.last_t))
    yield f"{traffic.records} records from {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"
    if traffic.unrouted:
        yield f"{traffic.unrouted} messages were routed to no queue"
    rows = list[tuple[str | int, ...]]()
    for (vhost, queue), found in sorted(traffic.queues.items()):
        numbers = (found.published, found.delivered, found.redelivered, found.waiting, found.most_waiting)
        measured = (
            _rate(found.published, traffic.seconds), _rate(found.delivered + found.redelivered, traffic.seconds),
            found.percentile(50), found.percentile(99),
        )  # fmt: skip
        verdict = traffic.order.queues[vhost, queue].verdict(damaged=damaged)
        shown = ("-" if each is None else f"{each:,.1f}" for each in measured)
        rows.append((plain(queue if vhost == "/" else f"{vhost} {queue}"), *numbers, *shown, verdict))
    yield from table(_COLUMNS, rows).splitlines()
    for (_, queue), order in sorted(traffic.order.queues.items()):
        yield from _reasons(plain(queue), order)
    if traffic.forgotten:
        yield f"{traffic.forgotten} messages were let go to save memory: what was delivered of them later counts as unpublished"


def _reasons(queue: str, order: QueueOrder) -> Iterator[str]:
    for example in order.examples:
        yield f"{queue}: {example.text}"
    if order.inversions.total() > len(order.examples):
        yield f"{queue}: ... and {order.inversions.total() - len(order.examples)} more"
    for reason, n in order.undecided.items():
        if n:
            yield f"{queue}: {n} not compared, {reason}: {UNDECIDED[reason]}"
    if not order.compared and not order.undecided.total():
        yield f"{queue}: nothing was delivered"
