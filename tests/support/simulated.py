"""Brokers on a simulated machine (warrenmq.testing), with settings under which everything overflows soon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from warrenmq.broker.broker import Broker
from warrenmq.broker.handles import QueueHandle
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedMachine
from warrenmq.trace.events import Ev
from warrenmq.trace.reader import open_memory

_SMALL: dict[str, Any] = {
    "commit_log": False,  # so that a test may say what happens at which sync of which file; EVERY_KIND has logs
    "msg_store_file_size_limit": 4096,
    "queue_index_embed_msgs_below": 100,
    "queue_index_max_journal_entries": 12,
    "queue_index_segment_entry_count": 8,
    "vhost_restart_intensity": (1000, 1),
    "classic_queue_index_v2_segment_entry_count": 8,
    "msg_store_io_batch_size": 2,
    "queue_ram_bytes": 3_000,
}
SMALL = Settings(**_SMALL)
"""Everything that can overflow does so soon; the profile is the default one, modern."""
SMALL_CLASSIC = Settings(profile="classic", **_SMALL)
BOTH_PROFILES = {"classic": SMALL_CLASSIC, "modern": SMALL}

QUEUE_VERSIONS = (1, 2)
COLLECTORS = ("combine", "compact")
PAGINGS = ("memory_target", "read_ahead")
EVERY_KIND = [
    replace(
        SMALL, queue_version=version, msg_store_gc=gc, queue_paging=paging,
        commit_log=(version == 1) ^ (gc == "combine") ^ (paging == "memory_target"),
    )
    for version, gc, paging in product(QUEUE_VERSIONS, COLLECTORS, PAGINGS)
]  # fmt: skip
"""Every combination of what a profile presets, half of them with a commit log.  One directory may be opened
with any of them after any other.
"""


def take_all(queue: QueueHandle) -> list[bytes]:
    """Take all ready messages off a queue; returns their bodies."""
    taken = []
    while (delivery := queue.get()) is not None:
        taken.append(delivery.body)
        delivery.ack()
    return taken


class SimulatedHost(SimulatedMachine):
    """A machine with small limits whose runs are traced and can be replayed."""

    def __init__(self, seed: int, settings: Settings = SMALL, *, traced: bool = True) -> None:
        super().__init__(seed, settings, traced=traced)

    @contextmanager
    def at_most(self, operations: int) -> Iterator[None]:
        """Fail when the broker takes more disk operations than these: it does not come to an end."""
        left = operations

        def before_op(op: str, path: str) -> None:
            nonlocal left
            left -= 1
            assert left >= 0, "it does not come to an end"
            simulate(op, path)

        simulate = self.before_op
        self.before_op = before_op  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.before_op = simulate  # type: ignore[method-assign]
            self.disk.before_op = simulate

    def check_trace(self) -> None:
        """Replay all runs: every invariant holds."""
        assert self.sink is not None
        result = replay_memory(self.sink.files())
        assert result.verdict == "ok", "\n".join(
            map(str, (result.verdict, *result.violations, *result.indeterminate))
        )


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
                found.append(
                    Said(Ev(row[8] >> 8 & 0xFF), row[8] & 0xFF, run.actor_name(piece.actor), peer, row[0])
                )
    return sorted(found, key=lambda row: row.t)


def hold_disk(host: SimulatedHost, seconds: float) -> None:
    """The next operation on the disk takes so long; whoever asked for it handles no mail meanwhile."""

    def before_op(op: str, path: str) -> None:
        host.disk.before_op = host.before_op
        host.sleep(seconds)
        host.before_op(op, path)

    host.disk.before_op = before_op


def stuck_queue(host: SimulatedHost, broker: Broker, seconds: float) -> QueueHandle:
    """A queue whose process does nothing for some time, and that has got all that this thread may send."""
    queue = broker.declare_queue("q")
    queue.get()  # its process starts
    hold_disk(host, seconds)
    queue.publish_many([b"m"] * broker.settings.credit_flow_default_credit[0])
    return queue
