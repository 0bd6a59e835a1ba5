"""warrenmq and RabbitMQ as servers, side by side: the same clients, in turn, in one run.

    python -m benchmarks.amqp --dir SCRATCH [--repeats 3] [--brokers warrenmq,rabbitmq] [--out amqp.json]
    python -m benchmarks.amqp --dir SCRATCH --smoke --brokers warrenmq

SCRATCH must be on the disk to measure.  Both servers run all the time, with fresh directories, and are
measured in turn, so that a slow minute of the machine hurts both; benchmarks/amqp_load.py is the client, a
process for each measure.  A figure is the median of its rounds.  For the memory of idle connections and
queues each server is started anew: it is what /proc tells of its process, after and before.  RabbitMQ is
Debian's rabbitmq-server, bound to loopback (benchmarks/rabbit_node.py).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

from benchmarks import ROOT, rabbit_node

WANTED = [
    ("persistent publish, 1,000 outstanding confirms, 1 KB", "publish", "rate", "/s", "at least RabbitMQ's"),
    ("publish, deliver, ack: round trip, median", "round_trip", "median_ms", " ms", "at most 2 x RabbitMQ's"),
    ("the same, 99th percentile", "round_trip", "p99_ms", " ms", ""),
    ("memory with 500 connections and 5,000 queues idle", "idle", "memory_mb", " MB", "below 500 MB"),
    ("of which they took", "idle", "added_mb", " MB", ""),
]


class Warrenmq:
    """`warrenmq serve` on a directory that is made anew by each start."""

    def __init__(self, directory: str) -> None:
        self._data = os.path.join(directory, "warrenmq")

    def start(self) -> None:
        shutil.rmtree(self._data, ignore_errors=True)
        command = [sys.executable, "-m", "warrenmq", "serve", "--data", self._data, "--port", "0"]
        log = open(self._data + ".log", "ab")
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        self.url = self._process.stdout.readline().split()[1].replace("://", "://guest:guest@")
        self.pid = self._process.pid

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


class RabbitMQ:
    """A node of its own, with fresh data."""

    def __init__(self, directory: str) -> None:
        self._base = os.path.join(directory, "rabbitmq")
        os.environ["BENCH_RABBIT_BASE"] = self._base

    def start(self) -> None:
        shutil.rmtree(self._base, ignore_errors=True)
        os.makedirs(self._base)
        rabbit_node.start()
        self.url = f"amqp://guest:guest@127.0.0.1:{rabbit_node.port()}"
        self.pid = rabbit_node.pid()

    def stop(self) -> None:
        rabbit_node.stop()
        rabbit_node.stop_epmd()


BROKERS = {"warrenmq": Warrenmq, "rabbitmq": RabbitMQ}


def load(broker, measure: str, **numbers: int) -> dict[str, float]:
    """One run of the client."""
    arguments = [f"--{name}={number}" for name, number in numbers.items()]
    command = [sys.executable, "-m", "benchmarks.amqp_load", measure, broker.url, *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    return json.loads(done.stdout)


def idle(broker, connections: int, queues: int) -> dict[str, float]:
    """The memory of the server while a client holds connections and queues."""
    before = memory_mb(broker.pid)
    command = [sys.executable, "-m", "benchmarks.amqp_load", "idle", broker.url]
    command += [f"--connections={connections}", f"--queues={queues}"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        took = json.loads(client.stdout.readline())
        time.sleep(3)
        after = memory_mb(broker.pid)
        client.stdin.close()
    return {"memory_mb": after, "added_mb": after - before, **took}


def memory_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def measured(brokers: dict, repeats: int, smoke: bool) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Rounds of each measure of each broker."""
    found = {name: {"publish": [], "round_trip": [], "idle": []} for name in brokers}
    many, few = (2_000, 200) if smoke else (50_000, 3_000)
    for broker in brokers.values():
        broker.start()
    for _ in range(repeats):
        for name, broker in brokers.items():
            found[name]["publish"].append(load(broker, "publish", messages=many))
        for name, broker in brokers.items():
            found[name]["round_trip"].append(load(broker, "round_trip", messages=few))
    for broker in brokers.values():
        broker.stop()
    for name, broker in brokers.items():
        broker.start()
        found[name]["idle"].append(idle(broker, *((10, 20) if smoke else (500, 5_000))))
        broker.stop()
    return found


def table(found: dict[str, dict[str, list[dict[str, float]]]]) -> str:
    names = list(found)
    lines = [f"| figure | wanted | {' | '.join(names)} | rounds |", "| --- " * (len(names) + 3) + "|"]
    for what, measure, key, unit, wanted in WANTED:
        rounds = {name: [each[key] for each in found[name][measure]] for name in names}
        middle = [f"{statistics.median(rounds[name]):,.4g}{unit}" for name in names]
        all_of_them = "; ".join(", ".join(f"{each:,.4g}" for each in rounds[name]) for name in names)
        lines.append(f"| {what} | {wanted} | {' | '.join(middle)} | {all_of_them} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--brokers", default="warrenmq,rabbitmq")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    directory = os.path.abspath(args.dir)
    os.makedirs(directory, exist_ok=True)
    brokers = {name: BROKERS[name](directory) for name in args.brokers.split(",")}
    found = measured(brokers, 1 if args.smoke else args.repeats, args.smoke)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    print(table(found))


if __name__ == "__main__":
    main()
