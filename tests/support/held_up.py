"""Brokers whose publishers have to wait, and what their trace says of that."""

from __future__ import annotations

from typing import NamedTuple

from tests.support.simulated import SimulatedHost
from warrenmq.broker import Broker
from warrenmq.handles import Queue
from warrenmq.trace.events import Ev
from warrenmq.trace.reader import open_memory

WAITS = (Ev.CREDIT_BLOCKED, Ev.CREDIT_UNBLOCKED, Ev.ALARM_BLOCKED, Ev.ALARM_UNBLOCKED)


class Said(NamedTuple):
    """A row, with names."""

    event: Ev
    flag: int
    actor: str
    peer: str
    t: int


def said(host: SimulatedHost, *events: Ev) -> list[Said]:
    """The rows of these events, in the order of t."""
    assert host.sink is not None
    trace = open_memory(host.sink.files())
    found = []
    for piece in trace.catalog.chunks:
        run = trace.catalog.runs[piece.run]
        for row in trace.rows(piece):
            if row[8] >> 8 & 0xFF in events:
                peer = run.actor_name(row[3]) if row[3] else ""
                found.append(Said(Ev(row[8] >> 8 & 0xFF), row[8] & 0xFF, run.actor_name(piece.actor), peer, row[0]))
    return sorted(found, key=lambda row: row.t)


def hold_disk(host: SimulatedHost, seconds: float) -> None:
    """The next operation on the disk takes so long; whoever asked for it handles no mail meanwhile."""

    def before_op(op: str, path: str) -> None:
        host.disk.before_op = host.before_op
        host.sleep(seconds)
        host.before_op(op, path)

    host.disk.before_op = before_op


def stuck_queue(host: SimulatedHost, broker: Broker, seconds: float) -> Queue:
    """A queue whose process does nothing for some time, and that has got all that this thread may send."""
    queue = broker.declare_queue("q")
    hold_disk(host, seconds)
    queue.publish_many([b"m"] * broker.settings.credit_flow_default_credit[0])
    return queue
