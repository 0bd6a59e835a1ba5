"""Fence: a Python thread cannot be killed, so an actor that is given up must at least write no more.

Each incarnation of an actor has one.  Code that writes to disk on its behalf holds the fence's guard around
each write; a supervisor that gives the actor up cuts the fence first and starts a successor afterwards.

Guarantees: once `cut_off` has returned no guarded write is in progress, and none will begin.
"""

from __future__ import annotations

import threading
from typing import NoReturn

from warrenmq.errors import Fenced
from warrenmq.runtime.seams import Lock


class Fence:
    """The right to write, until it is cut off."""

    def __init__(self, lock: Lock | None = None) -> None:
        self.cut = False
        self.lock = lock or threading.Lock()
        """Held around each write; `seams/fenced_disk.py` takes it itself, as this is on the way of every message."""

    def guard(self) -> Fence:
        """`with fence.guard():` around one write; raises Fenced once the fence is cut.  Not reentrant."""
        return self

    def cut_off(self) -> None:
        """Refuse all writes from now on; waits for a write in flight."""
        self.cut = True
        with self.lock:
            pass

    def refuse(self) -> NoReturn:
        """Raise Fenced."""
        raise Fenced("this actor was given up and may not write any more")

    def __enter__(self) -> None:
        self.lock.acquire()
        if self.cut:
            self.lock.release()
            self.refuse()

    def __exit__(self, *_: object) -> None:
        self.lock.release()
