"""ThreadEvent: an event between threads which survives the exceptions of signal handlers.

threading.Event takes its lock in Python code.  An exception that a handler raises there (KeyboardInterrupt, a test's timeout) may leave the lock taken, and
then whoever sets the event, the process of a queue, waits for ever.  Here a waiter has a lock of its own, a bell, which only C code takes.
"""

from __future__ import annotations

import threading


def ring(bell: threading.Lock) -> None:
    """Wake the thread that waits for a lock."""
    try:
        bell.release()
    except RuntimeError:  # it rings already
        pass


class ThreadEvent:
    """An Event (seams.py).

    A waiter registers its bell first and looks whether it is set second; who sets it looks for bells second.
    """

    __slots__ = ("_set", "bells")

    def __init__(self) -> None:
        self._set = False
        self.bells: list[threading.Lock] = []

    def set(self) -> None:
        self._set = True
        for bell in tuple(self.bells):
            ring(bell)

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        if self._set:
            return True
        bell = threading.Lock()
        bell.acquire()
        self.bells.append(bell)
        try:
            if not self._set:
                bell.acquire(timeout=-1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX))
        finally:
            self.bells.remove(bell)
        return self._set
