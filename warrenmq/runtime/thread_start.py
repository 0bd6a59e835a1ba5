"""start_thread: begin a thread, or say that the system has none.

CPython's `Thread.start` waits until the new thread says that it runs.  One that finds no memory for its first
steps (the limit of the address space was used up by its stack) dies before it can say so, and its starter
would wait for ever, with every lock that it holds.  An interpreter in which this is mended
(https://github.com/python/cpython/issues/140746) takes no notice of what is put in place here.

The new thread holds the only reference to its first steps: when they are over, or gone, and it has not said
that it runs, it is dead.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress

_LOOK = 0.05
"""Seconds between two looks whether a thread that has not said that it runs is dead."""


class _FirstSteps:
    """The function that a new thread calls."""

    __slots__ = ("__weakref__", "_run", "over")

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self.over = False

    def __call__(self) -> None:
        try:
            self._run()
        finally:
            self.over = True


class _Started(threading.Event):
    """Set by a new thread that runs; its starter waits for it."""

    def __init__(self, thread: threading.Thread, steps: weakref.ref[_FirstSteps]) -> None:
        super().__init__()
        self._attributes = [vars(thread)]
        self._steps = steps

    def wait(self, timeout: float | None = None) -> bool:
        """Wait as an Event does; without a limit, as `Thread.start` waits, RuntimeError once the thread is dead."""
        if timeout is not None:
            return super().wait(timeout)
        while self._attributes:
            self._attributes.pop().pop("_bootstrap", None)
        while not self.is_set():
            steps = self._steps()
            if (steps is None or steps.over) and not self.is_set():
                raise RuntimeError("can't start new thread")
            del steps
            with suppress(RuntimeError, MemoryError):  # it may run all the same
                super().wait(_LOOK)
        return True


def start_thread(thread: threading.Thread) -> None:
    """Start a thread; RuntimeError or MemoryError when the system has none, or no memory for its first steps."""
    steps = _FirstSteps(thread._bootstrap)  # type: ignore[attr-defined]  # noqa: SLF001  # Thread has no hook for this
    thread._started = _Started(thread, weakref.ref(steps))  # type: ignore[attr-defined]  # noqa: SLF001
    thread._bootstrap = steps  # type: ignore[attr-defined]  # noqa: SLF001
    del steps
    thread.start()
