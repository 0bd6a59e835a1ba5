"""The two schedulers of production beside each other, in turns in one run: threads (one an actor) and pool.

    python -m benchmarks.schedulers --dir SCRATCH [--rounds 3] [--queues 1000,5000] [--profile modern]

Each measure runs in a process of its own.  Prints a table: wall time and processor time, the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import warrenmq

SCHEDULERS = ("threads", "pool")
BODY = b"x" * 1024
CONFIRMS, MESSAGES, BATCH, WRITERS = 800, 30_000, 512, 4

Result = dict[str, float]


@contextmanager
def measured(result: Result, name: str, per: int = 1) -> Iterator[None]:
    """Note the seconds that the body took, and its processor seconds, for each of `per` things."""
    wall, processor = time.perf_counter(), time.process_time()
    yield
    result[f"{name}, wall"] = (time.perf_counter() - wall) / per
    result[f"{name}, processor"] = (time.process_time() - processor) / per


def resident() -> float:
    """Megabytes of this process."""
    line = next(
        each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmRSS")
    )
    return int(line.split()[1]) / 1024


def lone(queue: warrenmq.Queue, result: Result) -> None:
    """Each message is confirmed before the next; the wall time is the median."""
    took = []
    with measured(result, "a confirm that is waited for", CONFIRMS):
        for _ in range(CONFIRMS):
            began = time.perf_counter()
            queue.publish(BODY).result(60)
            took.append(time.perf_counter() - began)
    result["a confirm that is waited for, wall"] = statistics.median(took)


def many(queue: warrenmq.Queue, result: Result) -> None:
    """publish_many, until all are confirmed."""
    with measured(result, "publish_many, a message", MESSAGES // BATCH * BATCH):
        for confirm in [queue.publish_many([BODY] * BATCH) for _ in range(MESSAGES // BATCH)]:
            confirm.result(60)


def single(queue: warrenmq.Queue, result: Result) -> None:
    """One publish a message, until all are confirmed."""
    with measured(result, "one publish a message", MESSAGES):
        for confirm in [queue.publish(BODY) for _ in range(MESSAGES)]:
            confirm.result(60)


def steady(queue: warrenmq.Queue, result: Result) -> None:
    """A publishing thread, and one that consumes and acks."""

    def publish() -> None:
        for _ in range(MESSAGES):
            confirm = queue.publish(BODY)
        confirm.result(60)

    publisher = threading.Thread(target=publish)
    with measured(result, "publish, deliver, ack: steady state", MESSAGES):
        publisher.start()
        with queue.consume(prefetch=500) as deliveries:
            for _ in range(MESSAGES):
                next(deliveries).ack()
        publisher.join()


def alone(queue: warrenmq.Queue, result: Result) -> None:
    """Each message is confirmed, delivered and acked before the next."""
    with (
        queue.consume(prefetch=10) as deliveries,
        measured(result, "confirm, deliver, ack, each alone", CONFIRMS),
    ):
        for _ in range(CONFIRMS):
            queue.publish(BODY).result(60)
            next(deliveries).ack()


def four(queue: warrenmq.Queue, result: Result) -> None:
    """Four threads, each waits for each of its confirms."""

    def publish() -> None:
        for _ in range(CONFIRMS // 2):
            queue.publish(BODY).result(60)

    threads = [threading.Thread(target=publish) for _ in range(WRITERS)]
    with measured(result, "four threads that wait, a confirm", WRITERS * (CONFIRMS // 2)):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


MEASURES: dict[str, Callable[[warrenmq.Queue, Result], None]] = {
    "lone": lone, "many": many, "single": single, "steady": steady, "alone": alone, "four": four,
}  # fmt: skip


def on_one_queue(measure: str, folder: str, settings: dict[str, str]) -> Result:
    """One measure, warmed up."""
    result: Result = {}
    with warrenmq.open(folder, settings=settings) as broker:
        queue = broker.declare_queue("jobs")
        for _ in range(100):
            queue.publish(BODY).result(60)
        queue.purge()
        MEASURES[measure](queue, result)
    return result


def idle(count: int, folder: str, settings: dict[str, str]) -> Result:
    """Declare queues, stop, and start again with them."""
    result: Result = {}
    broker = warrenmq.open(folder, settings=settings)
    before = resident()
    with measured(result, f"{count:,} queues declared"):
        for number in range(count):
            broker.declare_queue(f"queue-{number}")
    result[f"{count:,} idle queues, MB"] = resident() - before
    with measured(result, f"{count:,} queues stopped"):
        broker.close()
    with measured(result, f"{count:,} queues started"):
        broker = warrenmq.open(folder, settings=settings)
    broker.close()
    return result


def child(measure: str, scheduler: str, folder: str, profile: str) -> Result:
    """One measure in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.schedulers", "--dir", folder, "--profile", profile, "--child", f"{measure} {scheduler}"]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=900)
    result: Result = json.loads(done.stdout)
    return result


def cell(name: str, values: list[float]) -> str:
    """A measured value with its unit."""
    value = statistics.median(values)
    if name.endswith("MB"):
        return f"{value:.0f} MB"
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1e6:.1f} µs"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", required=True, help="scratch folder, on the disk that is meant")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queues", default="1000,5000", help="numbers of idle queues; empty for none")
    parser.add_argument("--measures", default=",".join(MEASURES))
    parser.add_argument("--profile", default="modern")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    Path(options.dir).mkdir(parents=True, exist_ok=True)
    if options.child:
        measure, scheduler = options.child.split()
        settings = {"scheduler": scheduler, "profile": options.profile}
        folder = tempfile.mkdtemp(dir=options.dir)
        try:
            if measure.isdigit():
                result = idle(int(measure), folder, settings)
            else:
                result = on_one_queue(measure, folder, settings)
        finally:
            shutil.rmtree(folder)
        print(json.dumps(result))
        return
    found: dict[str, dict[str, list[float]]] = {}
    plan = [(measure, options.rounds) for measure in options.measures.split(",") if measure]
    plan += [(number, 1) for number in options.queues.split(",") if number]
    for measure, rounds in plan:
        for turn in range(rounds):
            for scheduler in SCHEDULERS if turn % 2 else SCHEDULERS[::-1]:
                for name, value in child(measure, scheduler, options.dir, options.profile).items():
                    found.setdefault(name, {}).setdefault(scheduler, []).append(value)
    print("| figure | " + " | ".join(SCHEDULERS) + " | pool / threads |\n| --- | --- | --- | --- |")
    for name, by in found.items():
        ratio = statistics.median(by["pool"]) / statistics.median(by["threads"])
        print(f"| {name} | {cell(name, by['threads'])} | {cell(name, by['pool'])} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
