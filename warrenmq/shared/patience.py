"""The time that a thread may still wait for the owner of the directory.

A call with a timeout is made with `limited`: whatever waits for the owner inside it, however deep, raises
Unanswered when the time is over. That is no Error, so what gives up after an interrupt (a channel that was
being opened, a message on its way) gives up after this, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty
from time import monotonic
from typing import TypeVar

from warrenmq.runtime.thread_event import ThreadEvent

T = TypeVar("T")
GRACE = 0.25
"""Seconds beyond a timeout in which an answer that is on its way may come."""


class Unanswered(Empty):
    """The owner did not answer within the caller's timeout."""


class _Thread(threading.local):
    end: float | None = None
    """The monotonic time at which this thread's call gives up; None while it has no timeout."""


_thread = _Thread()


def limited(seconds: float | None, call: Callable[[], T]) -> T:
    """Call; waits for the owner inside raise Unanswered after so many seconds and GRACE."""
    before = _thread.end
    try:
        if seconds is not None:
            _thread.end = monotonic() + seconds + GRACE
        return call()
    finally:
        _thread.end = before


def left() -> float | None:
    """The seconds that this thread may still wait; None without a limit."""
    return None if _thread.end is None else max(0.0, _thread.end - monotonic())


def at_most(seconds: float) -> float:
    """The seconds that this thread may wait for what may take so many."""
    return seconds if _thread.end is None else min(seconds, max(0.0, _thread.end - monotonic()))


def check() -> None:
    """Raise Unanswered when this thread's time is over."""
    if _thread.end is not None and monotonic() >= _thread.end:
        raise Unanswered


def wait(event: ThreadEvent) -> None:
    """Wait for an event as long as this thread may; Unanswered then."""
    if not event.wait(left()):
        raise Unanswered
