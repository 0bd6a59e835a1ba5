"""Counts the Python calls that one publish with its delivery and confirm makes in warrenmq's files.

    python -m benchmarks.walk [--calls] [--profile classic]

A persistent message of 100 bytes is published to a queue with one consumer, through the embedded API, until it is confirmed
and has been delivered; nothing else is going on, and messages before it have warmed up every cache.  `sys.setprofile` sees
each call of a Python function; those in warrenmq's own files are counted, in all threads, and

    calls    functions entered, generators once
    moves    calls of a function in another file than the function that was entered before it in the same thread
    files    different files among them

The message is acked before the next one is published, outside of what is counted.  The smallest of all walks
is printed: others met a timer or a look at the clock that is not theirs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from functools import cache
from inspect import CO_GENERATOR
from itertools import pairwise
from pathlib import Path
from types import FrameType

import warrenmq
from warrenmq import location

HOME = f"{location.HOME}/"
WARM_UP = 10
WALKS = 10
PARKED = 0.01
"""Seconds after which the queue process has parked; its timers come later."""
IDLE = 0.3
"""Seconds after which no timer of the message before runs any more."""


@cache
def file_of(name: str) -> str | None:
    """A file of warrenmq, from the root of the repository; None for others, and for code that was generated."""
    path = Path(name)
    if not path.is_file() or path.resolve() == Path(__file__).resolve():
        return None
    file = path.resolve().as_posix()
    return file.removeprefix(HOME) if file.startswith(HOME) else None


class Walk:
    """The calls that were seen while `on`, by thread, in order."""

    def __init__(self) -> None:
        self.on = False
        self.calls: dict[int, list[tuple[str, str]]] = {}

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        """The profile function for sys.setprofile: counts one call."""
        if not self.on or event != "call":
            return
        code = frame.f_code
        if code.co_flags & CO_GENERATOR and code.co_code[frame.f_lasti + 1]:  # RESUME of one that goes on
            return
        if (file := file_of(code.co_filename)) is not None:
            self.calls.setdefault(threading.get_ident(), []).append((file, code.co_qualname))

    def figures(self) -> tuple[int, int, int]:
        """Count (calls, moves between files, files)."""
        each = list(self.calls.values())
        moves = sum(a[0] != b[0] for calls in each for a, b in pairwise(calls))
        return sum(map(len, each)), moves, len({file for calls in each for file, _ in calls})


def walks(directory: str, profile: str) -> list[Walk]:
    """Publish one message after the other, and note the way of each."""
    found: list[Walk] = []
    walk = Walk()

    def look(frame: FrameType, event: str, argument: object) -> None:
        walk.profile(frame, event, argument)

    threading.setprofile(look)
    sys.setprofile(look)
    rest = threading.Event()
    try:
        with warrenmq.open(directory, settings=warrenmq.Settings(profile=profile)) as broker:
            queue = broker.declare_queue("jobs")
            consumer = queue.consume(prefetch=10)
            body = bytes(100)
            for _ in range(WARM_UP + WALKS):
                rest.wait(IDLE)
                walk = Walk()
                walk.on = True
                confirm = queue.publish(body)
                delivery = consumer.get()
                confirm.result()
                rest.wait(PARKED)
                walk.on = False
                assert delivery is not None
                if found:  # the first stays, so that the files are not deleted with their last message
                    delivery.ack()
                consumer.get(timeout=0)  # the queue hears that the delivery was taken
                found.append(walk)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", action="store_true", help="print each call")
    parser.add_argument("--profile", default="modern", choices=["modern", "classic"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        shortest = min(walks(directory, arguments.profile), key=lambda walk: walk.figures())
    if arguments.calls:
        for calls in shortest.calls.values():
            print("-- a thread")
            for file, name in calls:
                print(f"{file:50} {name}")
    print("{} calls, {} moves between {} files".format(*shortest.figures()))


if __name__ == "__main__":
    main()
