"""The delays of the messages of each queue: one table for the terminal and the page, the busiest queue first.

The figures are the ledger's (rules/passes/message_life.py): from a publish to its confirm and to the first
delivery, and from the last one to the ack, of messages that were published, or delivered, in the same
incarnation of the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from warrenmq.replay.report.plots import short_time

KINDS = {
    "confirm_ms": "publish to confirm",
    "deliver_ms": "publish to first delivery",
    "ack_ms": "last delivery to ack",
}
"""Key in a queue's figures -> its title."""


class QueueDelays(NamedTuple):
    """One queue."""

    name: str
    counts: dict[str, int]
    """published, delivered, acked, ...: messages."""
    delays: dict[str, dict[str, float]]
    """Key of KINDS -> count, and p50 to p99.9 in ms; keys that never occurred are absent."""

    def time(self, kind: str, percentile: str) -> str:
        """A percentile with its unit; "-" for None."""
        found = self.delays.get(kind)
        return short_time(found[percentile] / 1e3) if found else "-"


def queue_delays(figures: Mapping[str, Any]) -> list[QueueDelays]:
    """Every queue of which messages were published, confirmed, delivered, ..."""
    found = [
        QueueDelays(
            name,
            {what: n for what, n in told.items() if what not in KINDS},
            {kind: told[kind] for kind in KINDS if kind in told},
        )
        for name, told in figures["queues"].items()
    ]
    return sorted(
        found,
        key=lambda queue: (-queue.counts.get("published", 0), -queue.counts.get("delivered", 0), queue.name),
    )
