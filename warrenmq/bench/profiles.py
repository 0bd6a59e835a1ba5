"""One workload under several profiles, side by side: what each writes, syncs, collects and keeps in memory.

Two durable queues behind a fanout exchange, bodies that stay in the queue's own files (1 KB) and bodies that go to the
message store (16 KB, one record for both queues), and consumers that leave every fourth message for later, so that
garbage lies between living messages.  Then the rest is acknowledged and the stores get time to collect.  Every number
but the memory and the files at the end is counted from the run's trace; the same seed gives every profile the same bodies.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import warrenmq
from warrenmq.bench.measures import Numbers, Scale
from warrenmq.bench.resources import disk_used, peak_memory, settled_disk
from warrenmq.broker.broker import Broker
from warrenmq.settings import Settings
from warrenmq.trace.events import (
    CompactDone,
    CompactMove,
    FileDelete,
    FileSync,
    FileWrite,
    GcDone,
    GcMove,
    QiFlush,
    QiSync,
    QiWrite,
    Roll,
    SegmentDelete,
    Truncate,
)
from warrenmq.trace.reader import open_trace
from warrenmq.trace.schema import EVENTS, Event

SMALL, LARGE = 1_024, 16_384
LARGE_EVERY = 4
"""One body in four is a large one: most bytes are the store's, most messages the index's."""
KEEP_EVERY = 4
"""One message in four is left for later."""
ROUND = 1_000
QUEUES = ("invoices", "audit")
CONFIRM_TIMEOUT = 120.0
SETTLE = 4
"""The collectors get this many times the scale's seconds: in-place compaction looks at its candidates every 15 s."""


def profile(directory: str, scale: Scale, name: str) -> Numbers:
    """Run the workload under one profile and count its trace."""
    data, trace = os.path.join(directory, "data"), os.path.join(directory, "trace")
    started = time.perf_counter()
    with warrenmq.open(data, settings=Settings(profile=name), trace=trace) as broker:
        payload, peak_disk = _work(broker, data, scale.messages // 20)
        took = time.perf_counter() - started
        left = settled_disk(data, peak_disk * 0.05, SETTLE * scale.seconds)
    numbers = count(trace)
    written = numbers["index_written_mb"] + numbers["store_written_mb"] + numbers["gc_copied_mb"]
    return {
        "seconds": took,
        "payload_mb": payload / 1e6,
        "written_mb": written,
        "write_amplification": written * 1e6 / payload,
        **numbers,
        "peak_disk_mb": peak_disk / 1e6,
        "disk_left_mb": left / 1e6,
        "peak_memory_mb": peak_memory() / 1e6,
    }


def _work(broker: Broker, data: str, messages: int) -> tuple[int, int]:
    """Returns the bytes published, each body counted once a queue, and the most that lay on the disk."""
    for name in QUEUES:
        broker.declare_queue(name)
    broker.declare_exchange("both", "fanout")
    for name in QUEUES:
        broker.bind(name, "both")
    payload = peak = 0
    bodies = _bodies()
    kept: list[warrenmq.Delivery] = []
    for _ in range(max(1, messages // ROUND)):
        confirms = []
        for _ in range(ROUND):
            body = next(bodies)
            payload += len(body) * len(QUEUES)
            confirms.append(broker.publish("both", "", body))
        for confirm in confirms:
            confirm.result(CONFIRM_TIMEOUT)
        peak = max(peak, disk_used(data))
        for name in QUEUES:
            kept += _consume(broker, name, ROUND)
    for delivery in kept:
        delivery.ack()
    return payload, max(peak, disk_used(data))


def _consume(broker: Broker, name: str, messages: int) -> list[warrenmq.Delivery]:
    """Take messages and acknowledge most; returns the others."""
    kept = []
    queue = broker.queue(name)
    for number in range(messages):
        delivery = queue.get(CONFIRM_TIMEOUT)
        assert delivery is not None, "everything was confirmed"
        if number % KEEP_EVERY:
            delivery.ack()
        else:
            kept.append(delivery)
    return kept


def _bodies() -> Iterator[bytes]:
    rng = random.Random(10)
    small = [rng.randbytes(SMALL) for _ in range(256)]
    large = [rng.randbytes(LARGE) for _ in range(64)]
    while True:
        for number in range(256):
            yield small[number] if number % LARGE_EVERY else large[number // LARGE_EVERY % len(large)]


COUNTED: dict[type[Event[Any]], tuple[str, str]] = {
    QiWrite: ("index_written_mb", "size"),
    QiFlush: ("index_written_mb", "size"),
    FileWrite: ("store_written_mb", "size"),
    QiSync: ("index_syncs", ""),
    FileSync: ("store_syncs", ""),
    Roll: ("store_files_made", ""),
    FileDelete: ("store_files_deleted", ""),
    SegmentDelete: ("index_segments_deleted", ""),
    GcDone: ("gc_runs", ""),
    CompactDone: ("gc_runs", ""),
    GcMove: ("gc_copied_mb", "size"),
    CompactMove: ("gc_copied_mb", "size"),
}
"""The number that a row adds to, and by what: one of its columns, in bytes, or 1 for itself."""
RECLAIMED: dict[type[Event[Any]], str] = {GcDone: "reclaimed", Truncate: "size", FileDelete: "size"}
"""The column with how many bytes the file system got back."""


def count(path: str) -> Numbers:
    """The numbers of one traced run."""
    numbers = dict.fromkeys((name for name, _ in COUNTED.values()), 0.0) | {"gc_reclaimed_mb": 0.0}
    with open_trace(path) as trace:
        for chunk in trace.catalog.chunks:
            for row in trace.rows(chunk):
                event = EVENTS.get(row.event)
                if event in COUNTED:
                    name, column = COUNTED[event]
                    numbers[name] += getattr(event.of(row), column) * 1e-6 if column else 1
                if event in RECLAIMED:
                    numbers["gc_reclaimed_mb"] += getattr(event.of(row), RECLAIMED[event]) * 1e-6
    return numbers
