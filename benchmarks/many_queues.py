"""Measures many durable queues in one process: declaring, memory of each, first use, sleep, listing, stopping and starting.

    python -m benchmarks.many_queues --dir SCRATCH --queues 100000 --used 1000 --scheduler pool

`used` of them, spread evenly, get two messages, of which one is taken; then the other is, they fall asleep,
are used once more, and fall asleep with a message before the stop.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import warrenmq
from warrenmq.broker.broker import Broker
from warrenmq.settings import Settings

SLEEP_AFTER_MS = 1_000


def resident() -> int:
    """Bytes of memory that the process holds."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def timed(what: str, count: int = 0) -> Iterator[None]:
    """Print how long a block took, by the clock and the processor, and how many a second that is."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    each = f"{count / wall:10,.0f}/s {cpu / count * 1e6:8,.0f} µs of processor each" if count else ""
    print(f"{what:28} {wall:8.2f} s, processor {cpu:6.2f} s {each}", flush=True)


def tell(what: str, before: int, queues: int) -> None:
    """Print what the process holds."""
    memory, descriptors = (resident() - before) / queues, len(os.listdir("/proc/self/fd"))
    print(
        f"{what:28} {memory:8,.0f} bytes a queue, {threading.active_count()} threads, {descriptors} descriptors",
        flush=True,
    )


def use(broker: Broker, names: list[str]) -> None:
    """Publish two messages to each queue, confirmed, and take one."""
    for name in names:
        queue = broker.queue(name)
        queue.publish_many([b"x", b"y"]).result()
        queue.get().ack()


def empty(broker: Broker, names: list[str]) -> None:
    """Take the other message."""
    for name in names:
        delivery = broker.queue(name).get()
        assert delivery.body == b"y"
        delivery.ack()


def sleep(broker: Broker) -> None:
    """Wait until no queue has a process."""
    with timed("until they sleep"):
        while any(each.kind == "QueueProcess" for each in broker.stats().actors):
            time.sleep(1)


def measure(folder: str, queues: int, used: int, settings: Settings) -> None:
    """Carry out all steps in a new directory."""
    names = [f"queue-{number}" for number in range(queues)]
    some = names[:: max(1, queues // used)]
    broker = warrenmq.open(folder, settings=settings)
    before = resident()
    with timed("declare", queues):
        for name in names:
            broker.declare_queue(name)
    tell("declared", before, queues)
    with timed("list", queues):
        assert len(broker.queues()) == queues
    with timed("stats", queues):
        assert len(broker.stats().queues) == queues
    with timed("first use", len(some)):
        use(broker, some)
    tell("some have a message", before, queues)
    with timed("take it", len(some)):
        empty(broker, some)
    sleep(broker)
    tell("all asleep", before, queues)
    with timed("use of those that slept", len(some)):
        use(broker, some)
    sleep(broker)
    tell("asleep, some with a message", before, queues)
    with timed("stop"):
        broker.close()
    with timed("start"):
        broker = warrenmq.open(folder, settings=settings)
    with timed("take a message", len(some)):
        empty(broker, some)
    broker.close()


def main() -> None:
    """Measure in a folder below `--dir`, which is removed at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--used", type=int, default=1_000)
    parser.add_argument("--scheduler", choices=("threads", "pool"), default="pool")
    parser.add_argument("--profile", choices=("classic", "modern"), default="modern")
    args = parser.parse_args()
    settings = Settings(profile=args.profile, scheduler=args.scheduler, queue_sleep_after=SLEEP_AFTER_MS)
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        measure(folder, args.queues, args.used, settings)


if __name__ == "__main__":
    main()
