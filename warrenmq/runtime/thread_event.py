"""ThreadEvent and News: what threads wait for, which survives the exceptions of signal handlers.

threading.Event and Condition take their lock in Python code.  An exception that a handler raises there
(KeyboardInterrupt, a test's timeout) may leave the lock taken, and then whoever sets the event, the process
of a queue, waits for ever.  Here a waiter has a lock of its own, a bell, which only C code takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from sys import is_finalizing
from time import monotonic
from typing import TypeVar

from warrenmq.errors import BrokerClosed

T = TypeVar("T")


def ring(bell: threading.Lock) -> None:
    """Wake the thread that waits for a lock."""
    try:
        bell.release()
    except RuntimeError:  # it rings already
        pass


def interpreter_ends() -> BrokerClosed:
    """The error of a wait while the interpreter ends: no other thread runs any more, so nobody would wake one that waits."""
    return BrokerClosed("the interpreter is ending, and the broker has ended with it; close it before")


def new_bell() -> threading.Lock:
    """A lock that is held, until somebody rings; MemoryError where there is no memory for it, which Python
    calls a RuntimeError.
    """
    try:
        bell = threading.Lock()
    except RuntimeError as why:
        raise MemoryError(str(why)) from why
    bell.acquire()
    return bell


def hold(lock: threading.Lock, timeout: float | None, late: type[Exception], act: Callable[[], T]) -> T:
    """Call `act` while the lock is held; raises `late` if another thread holds it for longer than `timeout` seconds."""
    patience = -1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)
    taken: list[bool] = []
    try:  # `extend` notes that it is held before a signal's handler can run
        taken.extend(map(lock.acquire, [True], [patience]))
        if not taken[0]:
            raise late
        return act()
    finally:
        if taken and taken[0]:
            lock.release()


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
        if is_finalizing():
            raise interpreter_ends()
        bell = new_bell()
        self.bells.append(bell)
        try:
            if not self._set:
                bell.acquire(timeout=-1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX))
        finally:
            self.bells.remove(bell)
        return self._set


class News:
    """Wakes those who wait for a condition, whenever what it depends on has changed (a Condition without a lock)."""

    def __init__(self) -> None:
        self._waiting: list[ThreadEvent] = []

    def tell(self) -> None:
        """Something has changed; called behind the change."""
        for each in tuple(self._waiting):
            each.set()

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until the condition holds; False if it does not after `timeout` seconds."""
        end = None if timeout is None else monotonic() + timeout
        while not condition():
            change = ThreadEvent()
            self._waiting.append(change)
            try:
                if condition():
                    return True
                if not change.wait(None if end is None else end - monotonic()):
                    return condition()
            finally:
                self._waiting.remove(change)
        return True
