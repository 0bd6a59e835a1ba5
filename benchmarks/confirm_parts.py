"""Shows where the time of a lone confirm goes (W1), part by part.

    python -m benchmarks.confirm_parts --dir SCRATCH [--profile classic] [--messages 3000]

One thread publishes a message of 1 KB, waits for its confirm, and publishes the next one.  Functions at the borders of the
parts note the clock, which costs half a microsecond each; the parts are, in their order,

    to the queue      from `publish` until the queue's process has the message
    queue             until the index is synced: take in, encode, decide; without what is told apart below
    writes            the system's: to the queue's files and the commit log
    sync              the system's: one fdatasync
    to the publisher  from the confirm until the publishing thread has it

Beside them a file of the same size, written and synced alone in the same rounds: back to back, and with as much Python in between
as a confirm has, since a processor that was idle, or had other things in its caches, takes longer for the same sync.
Medians of microseconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import warrenmq
from warrenmq.actors.queue.process import QueueProcess
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.seams import real_disk

BODY = b"x" * 1024
WARM_UP = 300
ALLOCATED = 8 << 20
ROUND = 100

now = time.perf_counter_ns


class Clock:
    """The times of one message, in nanoseconds."""

    def __init__(self) -> None:
        self.began = self.arrived = self.confirmed = self.writes = self.sync = 0

    def start(self) -> None:
        self.arrived = self.confirmed = self.writes = self.sync = 0
        self.began = now()

    def parts(self) -> dict[str, int]:
        """The parts of a message whose confirm has just come."""
        ended = now()
        inside = self.confirmed - self.arrived
        return {
            "to the queue": self.arrived - self.began,
            "queue": inside - self.writes - self.sync,
            "writes": self.writes,
            "sync": self.sync,
            "to the publisher": ended - self.confirmed,
            "whole": ended - self.began,
        }


def watch(clock: Clock) -> None:
    """Have the borders of the parts note the clock."""

    def first(name: str) -> Callable[[Any], Any]:
        def noted(function: Any) -> Any:
            @wraps(function)
            def noting(*arguments: Any) -> Any:
                if not getattr(clock, name):
                    setattr(clock, name, now())
                return function(*arguments)

            return noting

        return noted

    def timed(name: str) -> Callable[[Any], Any]:
        def noted(function: Any) -> Any:
            @wraps(function)
            def noting(*arguments: Any) -> Any:
                began = now()
                try:
                    return function(*arguments)
                finally:
                    setattr(clock, name, getattr(clock, name) + now() - began)

            return noting

        return noted

    QueueProcess.handle_cast = first("arrived")(QueueProcess.handle_cast)  # type: ignore[method-assign]
    Confirm.confirm = first("confirmed")(Confirm.confirm)  # type: ignore[method-assign]
    for name in ("append", "pwrite"):
        setattr(real_disk.RealFile, name, timed("writes")(getattr(real_disk.RealFile, name)))
    real_disk._sync = timed("sync")(real_disk._sync)


def compute(nanoseconds: int) -> None:
    """Compute for so long, in Python."""
    until = now() + nanoseconds
    while now() < until:
        sorted(range(8))


class Bare:
    """A preallocated file that is written and synced by itself."""

    def __init__(self, directory: str) -> None:
        self._fd = os.open(f"{directory}/bare", os.O_RDWR | os.O_CREAT)
        os.pwrite(self._fd, bytes(ALLOCATED), 0)
        os.fsync(self._fd)
        self._at = 0

    def write_and_sync(self) -> int:
        """Write one message and sync it; returns the nanoseconds."""
        began = now()
        os.pwrite(self._fd, BODY, self._at)
        os.fdatasync(self._fd)
        self._at = (self._at + len(BODY)) % ALLOCATED
        return now() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", required=True, help="an empty folder on the disk to measure")
    parser.add_argument("--profile", default="modern", choices=["modern", "classic"])
    parser.add_argument("--messages", type=int, default=3_000)
    arguments = parser.parse_args()
    clock = Clock()
    watch(clock)
    found: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.dir) as directory:
        bare = Bare(directory)
        with warrenmq.open(
            f"{directory}/data", settings=warrenmq.Settings(profile=arguments.profile)
        ) as broker:
            queue = broker.declare_queue("jobs")
            for number in range(WARM_UP + arguments.messages):
                clock.start()
                queue.publish(BODY).result()
                parts = clock.parts()
                if number >= WARM_UP:
                    for name, took in parts.items():
                        found.setdefault(name, []).append(took)
                if number % ROUND == ROUND - 1:
                    own = parts["whole"] - parts["sync"] - parts["writes"]
                    for _ in range(ROUND):
                        found.setdefault("bare, back to back", []).append(bare.write_and_sync())
                    for _ in range(ROUND):
                        compute(own)
                        found.setdefault("bare, with Python in between", []).append(bare.write_and_sync())
    for name, times in found.items():
        print(f"{name:30} {statistics.median(times) / 1e3:8.1f}")


if __name__ == "__main__":
    main()
