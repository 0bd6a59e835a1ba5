"""Processor time a message of this checkout, and beside it of another one, in turns in one run.

    python -m benchmarks.processor --dir SCRATCH [--before CHECKOUT] [--traced] [--rounds 3] [--profiles modern,classic]

Bodies of 1 KB, one durable queue, `durability = "fsync"`, every measure in a process of its own.  The figures are processor time (user and
system, all threads) from the first publish to the last confirm or ack: on a machine that does other work they say more
than rates.  Prints the medians in microseconds, with those of `--before` first and the median of the pairs' ratios, and the
least of all rounds, to which other work on the machine has added the least.  With `--traced` a trace is written, and what is
compared, unless there is a `--before`, is the same without.
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

import warrenmq

BODY = b"x" * 1024
BATCH, WINDOW = 512, 8
MESSAGES = 512 * 120
LONE = MESSAGES // 10
HERE = Path(__file__).resolve()


def publish_many(queue: warrenmq.Queue) -> None:
    """Batches of 512, until all are confirmed."""
    for confirm in [queue.publish_many([BODY] * BATCH) for _ in range(MESSAGES // BATCH)]:
        confirm.result(60)


def publish_one(queue: warrenmq.Queue) -> None:
    """One publish a message, until all are confirmed."""
    for confirm in [queue.publish(BODY) for _ in range(MESSAGES)]:
        confirm.result(60)


def lone_confirm(queue: warrenmq.Queue) -> None:
    """Each waits for its confirm; on a disk without syncs (tmpfs) this is the change of threads and Python."""
    for _ in range(LONE):
        queue.publish(BODY).result(60)


def drain(queue: warrenmq.Queue) -> None:
    """Take up to 512, read their bodies, and ack them together."""
    with queue.consume(prefetch=2048) as consumer:
        left = MESSAGES
        while left:
            deliveries = consumer.take(BATCH)
            for delivery in deliveries:
                assert len(delivery.body) == len(BODY)
            deliveries[-1].ack(multiple=True)
            left -= len(deliveries)
    queue.info()


def get_and_ack(queue: warrenmq.Queue) -> None:
    """Each is taken and acked alone."""
    with queue.consume(prefetch=2048) as consumer:
        for _ in range(MESSAGES):
            delivery = consumer.get(60)
            assert delivery is not None
            delivery.ack()
    queue.info()


def steady(queue: warrenmq.Queue) -> None:
    """A thread publishes one by one, another one takes and acks one by one."""

    def publish() -> None:
        for confirm in [queue.publish(BODY) for _ in range(MESSAGES)]:
            confirm.result(60)

    publisher = threading.Thread(target=publish)
    publisher.start()
    get_and_ack(queue)
    publisher.join()


MEASURES: dict[str, Callable[[warrenmq.Queue], None]] = {
    "publish_many": publish_many, "publish_one": publish_one, "lone_confirm": lone_confirm, "drain": drain,
    "get_and_ack": get_and_ack, "steady": steady,
}  # fmt: skip
FILLED = {"drain", "get_and_ack"}
"""Measures that begin with a full queue."""


def measured(name: str, profile: str, directory: str, *, traced: bool) -> float:
    """Microseconds of processor time a message."""
    settings = warrenmq.Settings(profile=profile, durability="fsync")
    trace = os.path.join(directory, "trace") if traced else None
    with warrenmq.open(os.path.join(directory, "data"), settings=settings, trace=trace) as broker:
        queue = broker.declare_queue("jobs")
        if name in FILLED:
            publish_many(queue)
        start = time.process_time()
        MEASURES[name](queue)
        return (time.process_time() - start) / (LONE if name == "lone_confirm" else MESSAGES) * 1e6


def in_a_process(checkout: Path, traced: bool, name: str, profile: str, scratch: str) -> float:
    """`measured` by the warrenmq of this checkout."""
    directory = tempfile.mkdtemp(dir=scratch)
    try:
        command = [sys.executable, str(HERE), "--only", name, "--profiles", profile, "--dir", directory]
        command += ["--traced"] * traced
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(checkout)}, cwd=checkout, check=True, capture_output=True,
        )  # fmt: skip
        return float(done.stdout)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", required=True)
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument(
        "--traced", action="store_true", help="with a trace, beside none or the other checkout's"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profiles", default="modern,classic")
    parser.add_argument("--measures", default=",".join(MEASURES))
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        print(measured(arguments.only, arguments.profiles, arguments.dir, traced=arguments.traced))
        return
    here = HERE.parent.parent
    ways = [(here, arguments.traced)]
    if arguments.before or arguments.traced:
        ways.insert(0, (arguments.before or here, arguments.traced and bool(arguments.before)))
    print(
        "| measure | profile |"
        + (" before |" if arguments.before else " without |" if arguments.traced else "")
        + " here | ratio | least |"
    )
    print("| --- " * (4 + len(ways)) + "|")
    for profile in arguments.profiles.split(","):
        for name in arguments.measures.split(","):
            rounds = [
                [in_a_process(*way, name, profile, arguments.dir) for way in ways]
                for _ in range(arguments.rounds)
            ]
            medians = [statistics.median(each) for each in zip(*rounds, strict=True)]
            ratio = statistics.median(each[-1] / each[0] for each in rounds)
            print(
                f"| `{name}` | {profile} | "
                + " | ".join(f"{each:.1f}" for each in medians)
                + f" | {ratio:.2f} | "
                + " -> ".join(f"{min(each):.1f}" for each in zip(*rounds, strict=True))
                + " |"
            )


if __name__ == "__main__":
    main()
