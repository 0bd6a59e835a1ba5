"""Benchmark of processes attached to a shared directory, beside its owner.

python -m benchmarks.shared [--rounds 5] [--messages 50000] [--confirms 2000]

Each round measures, in turn, the owner with nobody else (its own calls), and an attached process in front of
an owner that does nothing else.  Processor time is that of both processes together; rates are wall time, and
mean little on a busy machine, but both sides of a ratio were measured one after the other.

publish_many   batches of 500 persistent messages of 1 KB into a durable queue, until all are confirmed
confirm        one publish at a time, each waited for
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time

import warrenmq

BODY, BATCH = b"x" * 1024, 500


def measure(path, messages, confirms):
    """Seconds of wall and processor time of this process, by workload."""
    found = {}
    with warrenmq.open(path, shared=True) as broker:
        queue = broker.declare_queue("q")
        queue.publish_many([BODY] * BATCH).result()  # both sides are warm
        for name, work in (
            ("publish_many", lambda: many(queue, messages)),
            ("confirm", lambda: single(queue, confirms)),
        ):
            queue.purge()
            cpu, wall = time.process_time(), time.perf_counter()
            work()
            found[name] = time.perf_counter() - wall, time.process_time() - cpu
    return found


def many(queue, messages):
    waiting = [queue.publish_many([BODY] * BATCH) for _ in range(messages // BATCH)]
    for confirm in waiting:
        confirm.result()


def single(queue, confirms):
    for _ in range(confirms):
        queue.publish(BODY).result()


def attached(path, messages, confirms, pipe) -> None:
    pipe.send(measure(path, messages, confirms))


def round_of(messages, confirms):
    """(owner, attached), each workload -> (wall, processor of both processes)."""
    with tempfile.TemporaryDirectory() as path:
        alone = measure(path, messages, confirms)
    with tempfile.TemporaryDirectory() as path, warrenmq.open(path, shared=True):
        processes = multiprocessing.get_context("spawn")
        here, there = processes.Pipe()
        cpu = {}
        child = processes.Process(target=attached, args=(path, messages, confirms, there))
        child.start()
        before = time.process_time()
        cpu = here.recv()
        owner = time.process_time() - before
        child.join()
    return alone, cpu, owner


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--confirms", type=int, default=2_000)
    chosen = parser.parse_args()
    rounds = []
    for _ in range(chosen.rounds):
        many_only = round_of(chosen.messages, 1)
        confirms_only = round_of(BATCH, chosen.confirms)
        rounds.append((many_only, confirms_only))
    for name, which, count in (("publish_many", 0, chosen.messages), ("confirm", 1, chosen.confirms)):
        walls = [each[which][1][name][0] / each[which][0][name][0] for each in rounds]
        alone = [each[which][0][name] for each in rounds]
        there = [each[which][1][name] for each in rounds]
        both = [each[which][2] + each[which][1][name][1] for each in rounds]
        print(json.dumps({
            "workload": name,
            "owner_us": round(statistics.median(wall for wall, _ in alone) / count * 1e6, 1),
            "owner_cpu_us": round(statistics.median(cpu for _, cpu in alone) / count * 1e6, 1),
            "attached_us": round(statistics.median(wall for wall, _ in there) / count * 1e6, 1),
            "attached_cpu_us_of_both": round(statistics.median(both) / count * 1e6, 1),
            "wall_ratio": round(statistics.median(walls), 2),
            "wall_ratios": [round(each, 2) for each in walls],
            "load": round(os.getloadavg()[0], 1),
        }))  # fmt: skip


if __name__ == "__main__":
    main()
