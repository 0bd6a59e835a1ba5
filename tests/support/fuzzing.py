"""How long the fuzz tests run.

    python3 tests/run.py tests/fuzz                       a short run, the same examples every time
    FUZZ=100 python3 tests/run.py tests/fuzz              a hundred times as many, other ones every time

What stops a test that hangs is the clock: a parser's endless loop passes no point that a simulation sees.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("FUZZ", "1"))
HANGS = 60.0
"""Seconds after which something hangs that takes milliseconds."""


def examples(count: int) -> Any:
    """The settings of a fuzz test that takes this many examples in a short run."""
    return settings(
        max_examples=count * TIMES,
        derandomize=TIMES == 1,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def no_hanging(seconds: float = HANGS) -> Iterator[None]:
    """Fail when what is inside does not come to an end."""

    def fail(_signal: int, _frame: FrameType | None) -> None:
        msg = "it does not come to an end"
        raise AssertionError(msg)

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
