"""Measures the time to open a directory, to its first message, and to stop.

    python -m benchmarks.starting --dir SCRATCH [--only backlog,queues,kills,large] [--profile modern]

    backlog    200,000 messages of 1 KB in one queue, the process killed: to the first message
    large      10 million of 100 bytes, the same; wants 3 GB of disk, and is measured only when it is asked for
    queues     5,000 queues of ten messages of 100 bytes: opened after a clean stop, after a kill then, and after one while all are in use
    kills      249,000 messages of 200 to 6,000 bytes, published and acked in 234 queues over 30 lives that all end in a kill

Every open is a process of its own, and `first` counts from the call of `open` to the first delivery, without
Python's own start. Files are in the page cache, as they are after a kill; `cpu` is the processor time of the
same span, all threads, the kernel's included; `read` is how long reading every file of the directory takes in
the same run, which is what a start is held against.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import warrenmq
from warrenmq.settings import Settings

BATCH = 500
TEN = 10
QUEUES = 5_000
LIVES = 30
CLOSE_TIMEOUT = 300.0

Numbers = dict[str, float]


def cpu() -> float:
    """Processor time of this process so far, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def killed() -> None:
    """End as a kill -9 does."""
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


# -- what fills a directory, each in a process of its own


def fill_backlog(directory: str, profile: str, count: int, size: int) -> None:
    """One queue with `count` messages, all confirmed."""
    broker = warrenmq.open(directory, settings=Settings(profile=profile))
    queue = broker.declare_queue("q")
    body, confirms = os.urandom(size), []
    for _ in range(0, count, BATCH):
        confirms.append(queue.publish_many([body] * BATCH))
        if len(confirms) > TEN:
            confirms.pop(0).result(CLOSE_TIMEOUT)
    for confirm in confirms:
        confirm.result(CLOSE_TIMEOUT)
    killed()


def fill_queues(directory: str, profile: str, count: int, end: str) -> Numbers | None:
    """`count` queues of ten messages, and a clean stop or a kill."""
    broker = warrenmq.open(directory, settings=Settings(profile=profile))
    confirms = [
        broker.declare_queue(f"q{number}").publish_many([os.urandom(100)] * TEN) for number in range(count)
    ]
    for confirm in confirms:
        confirm.result(CLOSE_TIMEOUT)
    if end == "kill":
        return {}
    before, started = cpu(), time.perf_counter()
    broker.close(CLOSE_TIMEOUT)
    return {"stop": time.perf_counter() - started, "stop_cpu": cpu() - before}


def live_once(directory: str, profile: str, life: int) -> None:
    """One of 30 lives: publish to all queues, take and ack some of what is there, and be killed."""
    rng = random.Random(life)
    broker = warrenmq.open(directory, settings=Settings(profile=profile))
    queues = [broker.declare_queue(f"q{number}") for number in range(234)]
    confirms = []
    for queue in queues:
        bodies = [os.urandom(rng.choice((200, 200, 200, 1_000, 6_000))) for _ in range(rng.randrange(20, 64))]
        confirms.append(queue.publish_many(bodies))
    for confirm in confirms:
        confirm.result(CLOSE_TIMEOUT)
    for queue in queues:
        for _ in range(rng.randrange(0, 12)):
            if (delivery := queue.get(timeout=5)) is not None and rng.random() < 0.9:
                delivery.ack()
    time.sleep(0.2)
    killed()


# -- what is measured


def measure_open(directory: str, profile: str, queue: str, end: str) -> Numbers:
    """Open, take one message, and stop, or be killed."""
    before, started = cpu(), time.perf_counter()
    broker = warrenmq.open(directory, settings=Settings(profile=profile))
    opened = time.perf_counter()
    delivery = broker.queue(queue).get(timeout=60)
    first, used = time.perf_counter(), cpu()
    assert delivery is not None
    found: Numbers = {"open": opened - started, "first": first - started, "cpu": used - before}
    found["mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    if end == "stop":
        before, started = cpu(), time.perf_counter()
        broker.close(CLOSE_TIMEOUT)
        found |= {"stop": time.perf_counter() - started, "stop_cpu": cpu() - before}
    return found


def read_all(directory: str) -> Numbers:
    """Read every file."""
    started, size = time.perf_counter(), 0
    for path in Path(directory).rglob("*"):
        if path.is_file():
            size += len(path.read_bytes())
    return {"read": time.perf_counter() - started, "size_mb": size / 1e6}


def child(*words: object) -> Numbers:
    """Run one of the functions above in another process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.starting", "--child", json.dumps(words)],
        stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    if done.returncode not in (0, -signal.SIGKILL):
        sys.exit(f"{words[0]} failed")
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}


def backlog(directory: str, profile: str, count: int = 200_000, size: int = 1_024) -> dict[str, Numbers]:
    """First message after a kill, and the same again after the clean stop that follows."""
    child("fill_backlog", directory, profile, count, size)
    read = child("read_all", directory)
    killed_ = child("measure_open", directory, profile, "q", "stop") | read
    return {"after a kill": killed_, "after a stop": child("measure_open", directory, profile, "q", "stop")}


def large(directory: str, profile: str) -> dict[str, Numbers]:
    """Measure a start with ten million messages."""
    return backlog(directory, profile, 10_000_000, 100)


def queues(directory: str, profile: str) -> dict[str, Numbers]:
    """Many queues with a few messages each."""
    first_stop = child("fill_queues", directory, profile, QUEUES, "stop")
    read = child("read_all", directory)
    stopped = child("measure_open", directory, profile, "q77", "stop") | read
    child("measure_open", directory, profile, "q77", "kill")
    found = {"all in use": first_stop, "after a stop": stopped}
    found["after a kill"] = child("measure_open", directory, profile, "q77", "stop")
    shutil.rmtree(directory)
    child("fill_queues", directory, profile, QUEUES, "kill")
    found["killed in use"] = child("measure_open", directory, profile, "q77", "stop")
    return found


def kills(directory: str, profile: str) -> dict[str, Numbers]:
    """The time to open a directory whose process was killed 30 times."""
    for life in range(LIVES):
        child("live_once", directory, profile, life)
    read = child("read_all", directory)
    return {"after a kill": child("measure_open", directory, profile, "q77", "stop") | read}


CASES: dict[str, Callable[[str, str], dict[str, Numbers]]] = {
    "backlog": backlog, "large": large, "queues": queues, "kills": kills,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", help="a folder for scratch data, on the disk to be measured")
    parser.add_argument("--only", default="backlog,queues,kills")
    parser.add_argument("--profile", default="modern,classic")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, *words = json.loads(options.child)
        found = globals()[name](*words)
        if found is not None:
            print(json.dumps(found), flush=True)
            if words[-1] == "kill":
                killed()
        return
    for case in options.only.split(","):
        for profile in options.profile.split(","):
            directory = os.path.join(options.dir, f"{case}-{profile}")
            shutil.rmtree(directory, ignore_errors=True)
            for when, numbers in CASES[case](directory, profile).items():
                row = "  ".join(f"{name} {value:.3f}" for name, value in numbers.items())
                print(f"{case:8} {profile:8} {when:13} {row}", flush=True)
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
