"""Measures delayed messages: the memory of a million that wait, how late one comes, and how many a second
come when all are due.

    python -m benchmarks.delays [--waiting 1000000] [--due 200] [--burst 20000] [--busy 0] [--dir SCRATCH]
    python -m benchmarks.delays --smoke

Fills a directory with `--waiting` messages of 100 bytes that are due in an hour, opens it again, and has
`--due` messages come one every 20 ms beside them; then `--burst` messages whose time comes at once.  Memory
is the process's resident set, of which some 50 MB are Python and the broker.  How late a message comes is
wall time, from its time to its delivery to a waiting consumer, so it says something on an idle machine only.
With `--busy N` the messages come beside N processes that compute without a pause, and a thread that does
nothing but sleep until the same times is measured before and after them: what is above that is the broker's.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import warrenmq

BODY = b"x" * 100
APART = 0.02
"""Seconds between messages that are due one after the other."""


def resident() -> int:
    """MB of this process's memory."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmRSS"))


def fill(directory: str, waiting: int) -> None:
    """Publish what waits for an hour and more."""
    chance, due = random.Random(1), datetime.now(UTC) + timedelta(hours=1)
    with warrenmq.open(directory) as broker:
        queue = broker.declare_queue("q")
        begin = time.process_time()
        confirm = None
        for _ in range(waiting):
            confirm = queue.publish(BODY, at=due + timedelta(milliseconds=chance.randrange(3_600_000)))
        if confirm is not None:
            confirm.result()
        spent = (time.process_time() - begin) / max(1, waiting) * 1e6
        print(f"published {waiting:,}: {spent:.1f} us of processor time each, {resident()} MB")


def lateness(queue: warrenmq.QueueHandle, count: int) -> list[float]:
    """Milliseconds between each message's time and its delivery."""
    first = datetime.now(UTC) + timedelta(seconds=0.5)
    for number in range(count):
        queue.publish(b"%d" % number, at=first + timedelta(seconds=number * APART))
    late = []
    with queue.consume() as consumer:
        for delivery in consumer:
            now = datetime.now(UTC)
            late.append((now - first - timedelta(seconds=int(delivery.body) * APART)).total_seconds() * 1e3)
            delivery.ack()
            if len(late) == count:
                return late
    return late


def sleeper(count: int) -> list[float]:
    """Milliseconds that a thread which only sleeps wakes up late, at the same distances."""
    first, late = time.time() + 0.5, []
    for number in range(count):
        due = first + number * APART
        time.sleep(max(0.0, due - time.time()))
        late.append((time.time() - due) * 1e3)
    return late


def compute() -> None:
    """Be busy until the process is ended."""
    while True:
        pass


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many processes computing meanwhile."""
    processes = [multiprocessing.Process(target=compute, daemon=True) for _ in range(count)]
    for each in processes:
        each.start()
    try:
        yield
    finally:
        for each in processes:
            each.kill()
            each.join()


def told(late: list[float]) -> str:
    """The figures of a measurement."""
    late.sort()
    return f"median {statistics.median(late):.1f} ms, p95 {late[len(late) * 95 // 100]:.1f}, the latest of {len(late)} {late[-1]:.1f}"


def burst(queue: warrenmq.QueueHandle, count: int) -> float:
    """Messages a second that come when all of them are due at once."""
    queue.publish_many([BODY] * count, delay=1.0).result()
    with queue.consume() as consumer:
        begin = 0.0
        for number, delivery in enumerate(consumer, 1):
            begin = begin or time.monotonic()
            delivery.ack()
            if number == count:
                break
    return count / (time.monotonic() - begin)


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=200)
    parser.add_argument("--burst", type=int, default=20_000)
    parser.add_argument("--busy", type=int, default=0, help="processes that compute meanwhile")
    parser.add_argument("--dir", default=None)
    parser.add_argument("--smoke", action="store_true", help="a small run, to see that it works")
    args = parser.parse_args()
    if args.smoke:
        args.waiting, args.due, args.burst = 2_000, 10, 2_000
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        directory = f"{folder}/data"
        fill(directory, args.waiting)
        begin = time.monotonic()
        with warrenmq.open(directory) as broker:
            print(f"opened again: {time.monotonic() - begin:.1f} s, {resident()} MB")
            queue = broker.queue("q")
            with busy(args.busy):
                if args.busy:
                    print(f"a thread that only sleeps: {told(sleeper(args.due))}")
                print(f"late: {told(lateness(queue, args.due))}")
                if args.busy:
                    print(f"a thread that only sleeps: {told(sleeper(args.due))}")
            print(f"all due at once: {burst(queue, args.burst):,.0f} messages a second")
            print(f"memory at the end: {resident()} MB")


if __name__ == "__main__":
    main()
