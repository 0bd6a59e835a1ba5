"""Time a message of two ways, in turns in one run: of another checkout and this one, of other settings and
the defaults, or without and with a trace.

    python -m benchmarks.processor --dir SCRATCH --before CHECKOUT
    python -m benchmarks.processor --dir SCRATCH --against scheduler=threads,commit_log=false
    python -m benchmarks.processor --dir SCRATCH --traced

Bodies of 1 KB, one durable queue, `durability = "fsync"`, every measure in a process of its own.  Prints wall
time and processor time (user and system, all threads) in microseconds, from the first publish to the last
confirm or ack: on a machine that does other work the second says more.  The figures are medians, the first
way's first, with the median of the pairs' ratios; `least` is the least processor time of all rounds, to which
other work on the machine has added the least.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import warrenmq

BODY = b"x" * 1024
BATCH = 512
MESSAGES = 512 * 120
LONE = MESSAGES // 10
WRITERS, QUEUES = 4, 1_000
HERE = Path(__file__).resolve()


def publish_many(queues: list[warrenmq.Queue], batch: int) -> None:
    """Batches, until all are confirmed."""
    for confirm in [queues[0].publish_many([BODY] * batch) for _ in range(MESSAGES // batch)]:
        confirm.result(60)


def publish_one(queues: list[warrenmq.Queue], _batch: int) -> None:
    """One publish a message, until all are confirmed."""
    for confirm in [queues[0].publish(BODY) for _ in range(MESSAGES)]:
        confirm.result(60)


def lone_confirm(queues: list[warrenmq.Queue], _batch: int, messages: int = LONE) -> None:
    """Each waits for its confirm; on a disk without syncs (tmpfs) this is the change of threads and Python."""
    for _ in range(messages):
        queues[0].publish(BODY).result(60)


def four_that_wait(queues: list[warrenmq.Queue], batch: int) -> None:
    """Four threads, each waits for each of its confirms."""
    threads = [
        threading.Thread(target=lone_confirm, args=(queues, batch, LONE // WRITERS)) for _ in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def there_and_back(queues: list[warrenmq.Queue], _batch: int) -> None:
    """Each is confirmed, delivered and acked before the next."""
    with queues[0].consume(prefetch=10) as consumer:
        for _ in range(LONE):
            queues[0].publish(BODY).result(60)
            next(consumer).ack()


def drain(queues: list[warrenmq.Queue], _batch: int) -> None:
    """Take up to 512, read their bodies, and ack them together."""
    with queues[0].consume(prefetch=2048) as consumer:
        left = MESSAGES
        while left:
            deliveries = consumer.take(BATCH)
            for delivery in deliveries:
                assert len(delivery.body) == len(BODY)
            deliveries[-1].ack(multiple=True)
            left -= len(deliveries)
    queues[0].info()


def get_and_ack(queues: list[warrenmq.Queue], _batch: int) -> None:
    """Each is taken and acked alone."""
    with queues[0].consume(prefetch=2048) as consumer:
        for _ in range(MESSAGES):
            consumer.get(60).ack()
    queues[0].info()


def steady(queues: list[warrenmq.Queue], batch: int) -> None:
    """A thread publishes one by one, another one takes and acks one by one."""
    publisher = threading.Thread(target=publish_one, args=(queues, batch))
    publisher.start()
    get_and_ack(queues, batch)
    publisher.join()


def one_to_each(queues: list[warrenmq.Queue], _batch: int) -> None:
    """A message to each of a thousand queues in turn; its confirms are waited for when the next round has been sent."""
    waiting: list[warrenmq.Confirm] = []
    for _ in range(MESSAGES // 10 // QUEUES):
        confirms = [queue.publish(BODY) for queue in queues]
        for confirm in waiting:
            confirm.result(60)
        waiting = confirms
    for confirm in waiting:
        confirm.result(60)


def publish_and_get(queues: list[warrenmq.Queue], _batch: int) -> None:
    """One thread publishes to each queue in turn, waits for the confirm, gets the message, and acks it."""
    for number in range(LONE):
        queue = queues[number % len(queues)]
        queue.publish(BODY).result(60)
        queue.get().ack()


class Measure(NamedTuple):
    """A measure, and how many messages it sends, to how many queues."""

    run: Callable[[list[warrenmq.Queue], int], None]
    messages: int = MESSAGES
    queues: int = 1
    filled: bool = False
    """It begins with a full queue."""


MEASURES = {
    "publish_many": Measure(publish_many),
    "publish_one": Measure(publish_one),
    "lone_confirm": Measure(lone_confirm, LONE),
    "four_that_wait": Measure(four_that_wait, LONE),
    "there_and_back": Measure(there_and_back, LONE),
    "drain": Measure(drain, filled=True),
    "get_and_ack": Measure(get_and_ack, filled=True),
    "steady": Measure(steady),
    "publish_and_get": Measure(publish_and_get, LONE),
    "publish_and_get_each": Measure(publish_and_get, LONE, QUEUES),
    "one_to_each": Measure(one_to_each, MESSAGES // 10 // QUEUES * QUEUES, QUEUES),
}


class Way(NamedTuple):
    """One of the two sides: whose warrenmq, with which settings beside the profile, with or without a trace."""

    checkout: Path
    settings: str = ""
    traced: bool = False


def measured(name: str, profile: str, directory: str, batch: int, *, traced: bool) -> None:
    """Print microseconds a message: wall time, processor time."""
    measure, settings = MEASURES[name], warrenmq.Settings.load(profile=profile, durability="fsync")
    trace = os.path.join(directory, "trace") if traced else None
    with warrenmq.open(os.path.join(directory, "data"), settings=settings, trace=trace) as broker:
        queues = [broker.declare_queue(f"jobs-{number}") for number in range(measure.queues)]
        for confirm in [queue.publish(BODY) for queue in queues]:
            confirm.result(60)
        for queue in queues:
            queue.purge()
        if measure.filled:
            publish_many(queues, BATCH)
        wall, processor = time.perf_counter(), time.process_time()
        measure.run(queues, batch)
        for each in (time.perf_counter() - wall, time.process_time() - processor):
            print(each / measure.messages * 1e6)


def in_a_process(way: Way, name: str, profile: str, scratch: str, batch: int) -> tuple[float, float]:
    """`measured` by the warrenmq of this way's checkout."""
    directory = tempfile.mkdtemp(dir=scratch)
    try:
        command = [sys.executable, str(HERE), "--only", name, "--profiles", profile, "--dir", directory]
        command += ["--batch", str(batch)] + ["--traced"] * way.traced
        env = {**os.environ, "PYTHONPATH": str(way.checkout)}
        for key, _, value in (each.partition("=") for each in way.settings.split(",") if each):
            env[f"WARRENMQ_{key.upper()}"] = value
        done = subprocess.run(command, env=env, cwd=way.checkout, check=True, stdout=subprocess.PIPE)
        wall, processor = map(float, done.stdout.split())
        return wall, processor
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def row(name: str, profile: str, rounds: list[list[tuple[float, float]]]) -> str:
    """The cells of a measure: for wall and processor time the medians of each way and the ratio, then the least."""
    cells = [f"`{name}`", profile]
    for kind in (0, 1):
        ways = [[each[kind] for each in way] for way in zip(*rounds, strict=True)]
        ratio = statistics.median(last / first for first, last in zip(ways[0], ways[-1], strict=True))
        cells.append(" -> ".join(f"{statistics.median(way):.1f}" for way in ways) + f" ({ratio:.2f})")
    cells.append(" -> ".join(f"{min(way):.1f}" for way in ways))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", required=True, help="scratch folder, on the disk that is meant")
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--against", default="", metavar="K=V,...", help="settings of the other way")
    parser.add_argument(
        "--traced", action="store_true", help="with a trace, beside none or the other checkout's"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=BATCH, help="messages of one publish_many")
    parser.add_argument("--profiles", default="modern,classic")
    parser.add_argument("--measures", default=",".join(MEASURES))
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        measured(options.only, options.profiles, options.dir, options.batch, traced=options.traced)
        return
    os.makedirs(options.dir, exist_ok=True)
    ways = [Way(HERE.parent.parent, traced=options.traced)]
    if options.before or options.against or options.traced:
        traced = options.traced and bool(options.before or options.against)
        ways.insert(0, Way(options.before or ways[0].checkout, options.against, traced))
    print("| measure | profile | wall (ratio) | processor (ratio) | least |\n" + "| --- " * 5 + "|")
    for profile in options.profiles.split(","):
        for name in options.measures.split(","):
            rounds = [
                [in_a_process(way, name, profile, options.dir, options.batch) for way in ways]
                for _ in range(options.rounds)
            ]
            print(row(name, profile, rounds), flush=True)


if __name__ == "__main__":
    main()
