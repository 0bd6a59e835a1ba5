"""The trace's clock: a hybrid logical clock (HLC) in one 64-bit integer of nanoseconds.

Each actor keeps `last`, the t of its last row.  A row takes

    t = max(monotonic_ns(), last + 1)

and every message carries the t of its SEND row; the receiver does last = max(last, t of the message) before it
writes its receive row.  So t rises strictly within an actor, a send is before its receive, also between hosts, and
otherwise t is the machine's monotonic time.  CLOCK_MONOTONIC is one clock for all processes of a host.

The writers (writers.py) and `ActorTrace.observe` apply the two rules; this module has the clocks that they read.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The source of a recorder's times; a Runtime is one."""

    def monotonic_ns(self) -> int: ...

    def wall_ns(self) -> int: ...


class SystemClock:
    """The machine's clocks."""

    # The builtin itself, not a method around it: a row costs one call of it (53 ns).
    monotonic_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)


class SteppingClock:
    """Makes each reading of a clock later than the one before, also where time stands still (simulation).

    So the rows of all actors are in one total order.  For one thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read = clock.monotonic_ns
        self._last = 0

    def monotonic_ns(self) -> int:
        now = self._read()
        if now <= self._last:
            now = self._last + 1
        self._last = now
        return now

    def wall_ns(self) -> int:
        return self._clock.wall_ns()
