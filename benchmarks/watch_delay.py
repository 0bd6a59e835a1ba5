"""Measures the time from a violation's rows on disk to the line that `warrenmq trace watch` prints.

    python -m benchmarks.watch_delay --engine spark --rate 2000 --plants 10

A broker works under load and writes its trace; into the same directory a recorder writes rows that break
rules: a delivery out of order (Q1, decided by the queue's own rows) and a receive without a SEND (T2, decided
when everything of that time was read).  Measured from the return of the call that wrote the last row to the
line in the pipe.  The watch is killed (SIGKILL) and started again half way, so the figures are those of a
watch that goes on from its checkpoint, too.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import warrenmq
from warrenmq.trace.events import Deliver, Publish, Recv
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.writers import writer

_publish, _deliver, _recv = writer(Publish), writer(Deliver), writer(Recv)


class Watcher:
    """The command, and what it printed, with the time of each line."""

    def __init__(self, trace: str, engine: str, checkpoint: str):
        self.command = [
            sys.executable, "-m", "warrenmq", "trace", "watch", trace, "--engine", engine, "--json",
            "--checkpoint", checkpoint,
        ]  # fmt: skip
        self.lines: queue.Queue = queue.Queue()
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()

    def _read(self, pipe):
        for line in pipe:
            self.lines.put((time.monotonic(), json.loads(line)))

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wait_for(self, text: str, timeout: float):
        while True:
            at, line = self.lines.get(timeout=timeout)
            if line["event"] != "violation":
                continue
            if text in line["subject"] + line["text"]:
                return at
            print("printed too:", line, file=sys.stderr)


class Planter:
    """Writes rows that break rules, under actors that no other row names."""

    def __init__(self, trace: str):
        self._recorder = Recorder(trace, run="planted", node="planted")
        self._queue = self._recorder.actor("queue/planted", "QueueProcess")
        self._sender = self._recorder.actor("sender", "Application")
        self._receiver = self._recorder.actor("receiver", "QueueProcess")
        self._next = 0

    def out_of_order(self) -> str:
        first = self._next
        self._next += 2
        _publish(self._queue, 0, 0, 0, 0, first_seq_id=first, count=2, checksum=0)
        _deliver(self._queue, 0, 0, first_seq_id=first + 1, count=1, delivery_tag=0, checksum=0)
        _deliver(self._queue, 0, 0, first_seq_id=first, count=1, delivery_tag=0, checksum=0)
        return f"delivered {first + 1} while {first} was ready"

    def receive_of_nothing(self) -> str:
        self._next += 2
        _recv(self._receiver, 1, self._sender.id, send=1_000_000 + self._next)
        return f"{1_000_000 + self._next} of actor sender"


def load(broker, rate: int, stop: threading.Event):
    jobs = broker.declare_queue("jobs")

    def consume():
        with jobs.consume(prefetch=200) as consumer:
            for delivery in consumer:
                delivery.ack()
                if stop.is_set():
                    return

    threading.Thread(target=consume, daemon=True).start()
    while not stop.wait(0.1):
        jobs.publish_many([b"x" * 100] * max(rate // 10, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("spark", "python"), default="spark")
    parser.add_argument("--rate", type=int, default=2000, help="messages a second of the broker")
    parser.add_argument("--plants", type=int, default=10, help="of each kind")
    args = parser.parse_args()
    delays: dict[str, list[float]] = {"Q1": [], "T2": []}
    with (
        tempfile.TemporaryDirectory(prefix="warrenmq-delay-", ignore_cleanup_errors=True) as scratch,
        ExitStack() as opened,
    ):
        trace = str(Path(scratch) / "trace")
        stop = threading.Event()
        with warrenmq.open(str(Path(scratch) / "data"), trace=trace) as broker:
            opened.callback(stop.set)
            worker = threading.Thread(target=load, args=(broker, args.rate, stop))
            worker.start()
            planter = Planter(trace)
            watcher = opened.enter_context(Watcher(trace, args.engine, str(Path(scratch) / "checkpoint")))
            began = time.monotonic()
            started = [watcher.wait_for(planter.out_of_order(), 300) - began]
            for number in range(args.plants):
                for rule, plant in (("Q1", planter.out_of_order), ("T2", planter.receive_of_nothing)):
                    time.sleep(0.37)  # no multiple of the watch's interval
                    text = plant()
                    written = time.monotonic()
                    delays[rule].append(watcher.wait_for(text, 120) - written)
                if number == args.plants // 2:
                    watcher.kill()
                    text, began = planter.out_of_order(), time.monotonic()
                    watcher.start()
                    started.append(watcher.wait_for(text, 300) - began)
            stop.set()
            worker.join()
        events = sum(path.stat().st_size for path in Path(trace).glob("*.wtr"))
    for rule, found in delays.items():
        found.sort()
        print(
            f"{args.engine} {rule}: median {found[len(found) // 2]:.2f} s, longest {found[-1]:.2f} s of {len(found)}"
        )
    print(
        f"{args.engine}: first line {started[0]:.1f} s after the start, {started[1]:.1f} s after a restart; {events} bytes"
    )


if __name__ == "__main__":
    main()
