"""Benchmark of the commit log: a lone confirm, a message to each of a thousand queues, one busy queue.

    python -m benchmarks.commit_log DIR [--rounds 12] [--scheduler pool]

With and without the log, both profiles, and a raw file that is appended to and synced: all in one process, in turns of half a second
(lone confirms: of one confirm), so that whatever else the machine does meets all of them alike.  Figures are medians over the
turns; CPU is the process's own.
DIR is made, used and removed; it decides which disk is measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from collections import defaultdict
from contextlib import ExitStack

import warrenmq

BODY = os.urandom(1024)
TURN = 0.5
QUEUES = 1_000
PATIENCE = 60.0


class Raw:
    """One growing file, one sync a round."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self._at = 0

    def round(self, count):
        self._at += os.pwrite(self._fd, BODY * count, self._at)
        os.fdatasync(self._fd)

    def close(self):
        os.close(self._fd)


def lone_confirm(queues):
    """Milliseconds of a confirm that is waited for."""
    begun = time.perf_counter()
    queues[0].publish(BODY).result(PATIENCE)
    return (time.perf_counter() - begun) * 1e3, 1


def raw_sync(raw):
    """Milliseconds of a bare write and sync."""
    begun = time.perf_counter()
    raw.round(1)
    return (time.perf_counter() - begun) * 1e3


def a_message_to_each(queues):
    """Messages a second: to each queue in turn, confirms waited for when the next round begins."""
    begun, sent, waiting = time.perf_counter(), 0, []
    while time.perf_counter() - begun < TURN:
        confirms = [queue.publish(BODY) for queue in queues]
        for confirm in waiting:
            confirm.result(PATIENCE)
        waiting, sent = confirms, sent + len(confirms)
    for confirm in waiting:
        confirm.result(PATIENCE)
    return sent / (time.perf_counter() - begun), sent


def busy(batch):
    def measure(queues):
        """Messages a second into one queue, in batches, some on their way."""
        queue, bodies = queues[0], [BODY] * batch
        begun, sent, waiting = time.perf_counter(), 0, []
        while time.perf_counter() - begun < TURN:
            waiting.append(queue.publish_many(bodies))
            sent += batch
            if len(waiting) > 4096 // batch:
                waiting.pop(0).result(PATIENCE)
        for confirm in waiting:
            confirm.result(PATIENCE)
        return sent / (time.perf_counter() - begun), sent

    return measure


def steady(queues):
    """Messages a second through one queue: published, consumed and acked, 64 at a time."""
    queue, bodies = queues[0], [BODY] * 64
    begun, sent, waiting = time.perf_counter(), 0, []
    with queue.consume(prefetch=2_000) as consumer:
        while time.perf_counter() - begun < TURN:
            waiting.append(queue.publish_many(bodies))
            sent += 64
            if len(waiting) > 16:
                waiting.pop(0).result(PATIENCE)
            if deliveries := consumer.take(256, 0.05):
                deliveries[-1].ack(multiple=True)
        for confirm in waiting:
            confirm.result(PATIENCE)
        left = sent
        while left > 0 and (deliveries := consumer.take(2_000, 0.05)):
            deliveries[-1].ack(multiple=True)
    return sent / (time.perf_counter() - begun), sent


def raw_rounds(count):
    def measure(raw):
        begun, sent = time.perf_counter(), 0
        while time.perf_counter() - begun < TURN:
            raw.round(count)
            sent += count
        return sent / (time.perf_counter() - begun)

    return measure


# what is measured, in how many queues, its raw limit, turns in a round
WORKLOADS = {
    "lone confirm, ms": (lone_confirm, 1, raw_sync, 100),
    "1,000 queues, a message each, msg/s": (a_message_to_each, QUEUES, raw_rounds(QUEUES), 1),
    "one queue, 64 a batch, msg/s": (busy(64), 1, raw_rounds(64), 1),
    "one queue, 512 a batch, msg/s": (busy(512), 1, raw_rounds(512), 1),
    "one queue, in and out, msg/s": (steady, 1, raw_rounds(64), 1),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--scheduler", default="threads", choices=("threads", "pool"))
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    for title in WORKLOADS:
        if args.only in title:
            run(args, title)


def run(args, title):
    measure, count, raw_measure, often = WORKLOADS[title]
    shutil.rmtree(args.directory, ignore_errors=True)
    os.makedirs(args.directory)
    found, cpu = defaultdict(list), defaultdict(list)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, args.directory, ignore_errors=True)
        brokers = {}
        for profile in ("modern", "classic"):
            for log in (False, True):
                name = f"{profile}, {'log' if log else 'no log'}"
                settings = {"profile": profile, "commit_log": log, "scheduler": args.scheduler}
                broker = warrenmq.open(os.path.join(args.directory, name), settings=settings)
                stack.callback(broker.close)
                queues = [broker.declare_queue(f"q{number}") for number in range(count)]
                for confirm in [queue.publish(BODY) for queue in queues]:
                    confirm.result(PATIENCE)
                brokers[name] = queues
        raw = Raw(os.path.join(args.directory, "raw"))
        stack.callback(raw.close)
        for _ in range(args.rounds * often):
            for name, queues in brokers.items():
                begun = time.process_time()
                figure, messages = measure(queues)
                cpu[name].append((time.process_time() - begun) / messages * 1e6)
                found[name].append(figure)
            found["raw"].append(raw_measure(raw))
    for name, figures in found.items():
        figure = statistics.median(figures)
        ratio = statistics.median([each / of_raw for each, of_raw in zip(figures, found["raw"], strict=True)])
        spent = f"{statistics.median(cpu[name]):7.1f} us CPU a message" if name in cpu else ""
        print(f"{title:40} {name:16} {figure:12,.3f} {ratio:7.2f} x raw {spent}", flush=True)


if __name__ == "__main__":
    main()
