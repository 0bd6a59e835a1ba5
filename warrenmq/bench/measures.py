"""One function a measure: it gets an empty folder on the disk to measure and returns plain numbers.

Bodies have 1 KB (those of the garbage measures 16 KB), there is one durable queue, every message is
persistent, and a rate counts only what was confirmed (or acknowledged).  Each measure wants a process of its
own: a heap left by another one makes the cyclic collector slower, and peak memory is a number of the whole
process.

Rates are messages a second, `_us` and `_ms` are times, `_mb` are megabytes of 10^6 bytes.
"""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice

import warrenmq
from warrenmq.bench.resources import disk_used, memory_used, peak_memory, settled_disk
from warrenmq.broker.handles import QueueHandle
from warrenmq.settings import Settings

SIZE = 1024
LARGE = 16_384  # of the measures of garbage: in the message store
BATCH = 500
WINDOW = 5_000  # unconfirmed messages; RabbitMQ's credit for a message store is 4,000
PACE = 50_000  # messages a second of the paced measure
TICK = 0.001  # its publisher wakes this often, as sleep is no finer
CONFIRM_TIMEOUT = 60.0  # seconds to wait for a confirm; a broker that needs longer has failed
ACK_EVERY = 128

clock = time.perf_counter


@dataclass(frozen=True)
class Scale:
    """The size of a run: messages published, messages of the backlog, seconds."""

    messages: int
    backlog: int
    seconds: float


THOROUGH = Scale(messages=400_000, backlog=200_000, seconds=5.0)
QUICK = Scale(messages=4_000, backlog=4_000, seconds=0.3)

Numbers = dict[str, float]


def publish_many(directory: str, scale: Scale, trace: str | None = None) -> Numbers:
    """Pipelined in batches of 500, until all are confirmed."""
    with _queue(directory, trace) as queue:
        _publish_batches(queue, scale.messages // 20)
        started = clock()
        _publish_batches(queue, scale.messages)
        return {"rate": scale.messages / (clock() - started)}


def publish_one(directory: str, scale: Scale, trace: str | None = None) -> Numbers:
    """Pipelined with one call a message, until all are confirmed."""
    with _queue(directory, trace) as queue:
        _publish_singles(queue, scale.messages // 20)
        started = clock()
        _publish_singles(queue, scale.messages)
        return {"rate": scale.messages / (clock() - started)}


def publish_many_traced(directory: str, scale: Scale) -> Numbers:
    """`publish_many` with a trace being written."""
    return publish_many(directory, scale, os.path.join(directory, "trace"))


def publish_one_traced(directory: str, scale: Scale) -> Numbers:
    """`publish_one` with a trace being written."""
    return publish_one(directory, scale, os.path.join(directory, "trace"))


def round_trip(directory: str, scale: Scale) -> Numbers:
    """Publish and wait for the confirm; in turn, both profiles and the disk's own round trip: a bare write and fdatasync."""
    times: dict[str, list[float]] = {"modern": [], "classic": [], "bare": []}
    bodies = _bodies()
    file = os.open(os.path.join(directory, "bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def bare(body: bytes) -> None:
        os.write(file, body)
        os.fdatasync(file)

    try:
        with (
            _queue(os.path.join(directory, "2"), settings=Settings(profile="modern")) as modern,
            _queue(os.path.join(directory, "1"), settings=Settings(profile="classic")) as classic,
        ):
            ways: dict[str, Callable[[bytes], object]] = {
                "modern": lambda body: modern.publish(body).result(CONFIRM_TIMEOUT),
                "classic": lambda body: classic.publish(body).result(CONFIRM_TIMEOUT),
                "bare": bare,
            }
            end = clock() + 3 * scale.seconds
            while clock() < end:
                for name, way in ways.items():
                    for body in islice(bodies, 50):
                        started = clock()
                        way(body)
                        times[name].append(clock() - started)
    finally:
        os.close(file)
    median = {name: _percentile(each, 50) for name, each in times.items()}
    found = {f"{name}_p50_us": each * 1e6 for name, each in median.items()}
    found |= {f"{name}_p99_us": _percentile(each, 99) * 1e6 for name, each in times.items()}
    found |= {f"{name}_ratio": median[name] / median["bare"] for name in ("modern", "classic")}
    return found | {"modern_to_classic": median["modern"] / median["classic"]}


def paced(directory: str, scale: Scale) -> Numbers:
    """50,000 single publishes a second, open loop: from the call to the confirm's callback."""
    latencies: list[float] = []
    late = 0.0
    bodies = _bodies()
    with _queue(directory) as queue:
        _publish_singles(queue, WINDOW)
        gc.collect()
        first = clock()
        for tick in range(int(scale.seconds / TICK)):
            wait = first + tick * TICK - clock()
            if wait > 0:
                time.sleep(wait)
            late = max(late, -wait)
            for body in islice(bodies, int(PACE * TICK)):
                note = partial(_note, latencies, clock())
                last = queue.publish(body)
                last.add_done_callback(note)
        rate = int(scale.seconds / TICK) * int(PACE * TICK) / (clock() - first)
        last.result(CONFIRM_TIMEOUT)
    return {
        "rate": rate,
        "p50_ms": _percentile(latencies, 50) * 1e3,
        "p99_ms": _percentile(latencies, 99) * 1e3,
        "max_ms": max(latencies) * 1e3,
        "publisher_late_ms": late * 1e3,
    }


def steady(directory: str, scale: Scale) -> Numbers:
    """A publisher and a consumer that acknowledges, at most 4,096 messages between them."""
    room = threading.Semaphore(4_096 // ACK_EVERY)
    batches = scale.messages // ACK_EVERY
    bodies = _bodies()
    failed: list[BaseException] = []

    def publish() -> None:
        try:
            for _ in range(batches):
                room.acquire()
                confirm = queue.publish_many(list(islice(bodies, ACK_EVERY)))
            confirm.result(CONFIRM_TIMEOUT)
        except BaseException as error:  # noqa: BLE001  (raised again in the thread that waits)
            failed.append(error)

    with _queue(directory) as queue:
        publisher = threading.Thread(target=publish, daemon=True)
        started = clock()
        publisher.start()
        _consume(queue, batches * ACK_EVERY, room.release)
        took = clock() - started
        publisher.join(CONFIRM_TIMEOUT)
    if failed:
        raise failed[0]
    return {"rate": batches * ACK_EVERY / took}


def backlog(directory: str, scale: Scale) -> Numbers:
    """Fill a queue, then drain and acknowledge all: rates, memory, and what is left on the disk."""
    count = scale.backlog
    with _queue(directory) as queue:
        empty, memory = disk_used(directory), memory_used()
        started = clock()
        _publish_batches(queue, count)
        filled = clock() - started
        full, held = disk_used(directory), memory_used()
        started = clock()
        _consume(queue, count)
        drained = clock() - started
        left = settled_disk(directory, empty + (full - empty) * 0.05)
    return {
        "fill_rate": count / filled,
        "rate": count / drained,
        "memory_mb": (held - memory) / 1e6,
        "peak_memory_mb": peak_memory() / 1e6,
        "disk_full_mb": full / 1e6,
        "disk_left_mb": left / 1e6,
        "disk_left_share": (left - empty) / (full - empty),
    }


def long_backlog_memory_target(directory: str, scale: Scale) -> Numbers:
    """`_long_backlog` with queues that page by a memory target, as those of the classic profile."""
    return _long_backlog(directory, scale, "classic")


def long_backlog_read_ahead(directory: str, scale: Scale) -> Numbers:
    """`_long_backlog` with queues that read ahead, as those of the modern profile."""
    return _long_backlog(directory, scale, "modern")


def _long_backlog(directory: str, scale: Scale, profile: str) -> Numbers:
    """A backlog five times as long as the other one (a million), in one queue, and its drain: memory of the process."""
    count = 5 * scale.backlog
    with _queue(directory, settings=Settings(profile=profile)) as queue:
        started = clock()
        _publish_batches(queue, count)
        filled = clock() - started
        held = memory_used()
        started = clock()
        _consume(queue, count)
        drained = clock() - started
    return {
        "fill_rate": count / filled,
        "rate": count / drained,
        "memory_mb": held / 1e6,
        "peak_memory_mb": peak_memory() / 1e6,
    }


def garbage_combine(directory: str, scale: Scale) -> Numbers:
    """`_garbage` with files that are combined."""
    return _garbage(directory, scale, "combine")


def garbage_compact(directory: str, scale: Scale) -> Numbers:
    """`_garbage` with files that are compacted in place."""
    return _garbage(directory, scale, "compact")


def _garbage(directory: str, scale: Scale, collector: str) -> Numbers:
    """Publish, consume and ack bodies of 16 KB; every second message is held until two fifths of all have come after it.

    So half of each file is garbage soon after it was written.  Disk against live bytes, from when as much is live as
    ever will be.
    """
    count = scale.messages // 10
    settings = Settings(msg_store_gc=collector)
    bodies = _bodies(LARGE)
    held: deque[warrenmq.Delivery] = deque()
    shares: list[float] = []
    with warrenmq.open(os.path.join(directory, "data"), settings=settings) as broker:
        queue = broker.declare_queue("bench")
        started = clock()
        with queue.consume(prefetch=0) as consumer:
            deliveries = iter(consumer)
            for done in range(0, count, ACK_EVERY):
                queue.publish_many(list(islice(bodies, ACK_EVERY))).result(CONFIRM_TIMEOUT)
                for number, delivery in enumerate(islice(deliveries, ACK_EVERY)):
                    if number % 2:
                        held.append(delivery)
                    else:
                        delivery.ack()
                while len(held) > count // 5:
                    held.popleft().ack()
                if done > count // 2:
                    shares.append(disk_used(directory) / (len(held) * LARGE))
        took = clock() - started
    return {"rate": count / took, "disk_to_live": max(shares), "disk_to_live_p50": _percentile(shares, 50)}


def disk(directory: str, scale: Scale) -> Numbers:
    """The ceiling: 1 MiB appended and synced at a time, as messages of 1 KB a second."""
    block = random.Random(1).randbytes(1 << 20)
    written = 0
    file = os.open(os.path.join(directory, "bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        started = clock()
        while clock() - started < scale.seconds and written < 1 << 31:
            os.write(file, block)
            os.fdatasync(file)
            written += len(block)
        return {"rate": written / SIZE / (clock() - started)}
    finally:
        os.close(file)


MEASURES: dict[str, Callable[[str, Scale], Numbers]] = {
    "disk": disk,
    "publish_many": publish_many,
    "publish_many_traced": publish_many_traced,
    "publish_one": publish_one,
    "publish_one_traced": publish_one_traced,
    "round_trip": round_trip,
    "paced": paced,
    "steady": steady,
    "backlog": backlog,
    "long_backlog_memory_target": long_backlog_memory_target,
    "long_backlog_read_ahead": long_backlog_read_ahead,
    "garbage_combine": garbage_combine,
    "garbage_compact": garbage_compact,
}


@contextmanager
def _queue(
    directory: str, trace: str | None = None, settings: Settings | None = None
) -> Iterator[QueueHandle]:
    with warrenmq.open(os.path.join(directory, "data"), settings=settings, trace=trace) as broker:
        yield broker.declare_queue("bench")


def _bodies(size: int = SIZE) -> Iterator[bytes]:
    """Endless bodies; 512 different ones, so that making them costs nothing and no page repeats at once."""
    rng = random.Random(7)
    pool = [rng.randbytes(size) for _ in range(512)]
    while True:
        yield from pool


def _publish_batches(queue: QueueHandle, count: int) -> None:
    bodies = _bodies()
    unconfirmed: deque[warrenmq.Confirm] = deque()
    for _ in range(count // BATCH):
        unconfirmed.append(queue.publish_many(list(islice(bodies, BATCH))))
        if len(unconfirmed) > WINDOW // BATCH:
            unconfirmed.popleft().result(CONFIRM_TIMEOUT)
    for confirm in unconfirmed:
        confirm.result(CONFIRM_TIMEOUT)


def _publish_singles(queue: QueueHandle, count: int) -> None:
    bodies = _bodies()
    unconfirmed: deque[warrenmq.Confirm] = deque()
    for _ in range(count // 64):
        for body in islice(bodies, 64):
            unconfirmed.append(queue.publish(body))
        while len(unconfirmed) > WINDOW:
            unconfirmed.popleft().result(CONFIRM_TIMEOUT)
    for confirm in unconfirmed:
        confirm.result(CONFIRM_TIMEOUT)


def _consume(queue: QueueHandle, count: int, acked: Callable[[], None] = lambda: None) -> None:
    """Take `count` messages and acknowledge each 128 with one ack."""
    with queue.consume(prefetch=2_000) as consumer:
        for number, delivery in enumerate(consumer, 1):
            if number % ACK_EVERY == 0 or number == count:
                delivery.ack(multiple=True)
                acked()
            if number == count:
                return


def _note(latencies: list[float], called: float, _confirm: warrenmq.Confirm) -> None:
    latencies.append(clock() - called)


def _percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
