"""Mortal: what ends once, with a reason, and tells those who asked to be told.

One primitive, `on_close`, carries monitors, links, the release of names, failing calls and joins.

An end has two moments: `shut`, from when on the reason can be read and no mail gets in, and `mourn`, when all is
done and may be told.

Guarantees: every callback is called exactly once, in the order they were registered, and none before all is done;
one that is registered in between, or while others are being told, is told after those.  Callbacks run in the thread
that ends it, or, when it has ended, in the thread that asks: keep them short.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from warrenmq.log import Log
from warrenmq.runtime.messages import KILLED, Killed

if TYPE_CHECKING:
    from collections.abc import Callable

log = Log("warrenmq.runtime")


class _Alive:
    def __repr__(self) -> str:
        return "alive"


ALIVE = _Alive()
"""The reason of death of the living."""


class Mortal:
    """The end of an actor, seen from outside."""

    def __init__(self, tick: Callable[[], int]) -> None:
        self.reason: Any = ALIVE
        self._tick = tick
        self._lock = threading.Lock()  # never held across anything that may wait
        self._mourners: dict[int, Callable[[Any], object]] = {}
        self._mourned = False

    def on_close(self, tell: Callable[[Any], object], key: int = 0) -> int:
        """Have `tell(reason)` called at the end; at once if that has been."""
        key = key or self._tick()
        with self._lock:
            if not self._mourned:
                self._mourners[key] = tell
                return key
        tell(self.reason)
        return key

    def forget(self, key: int) -> None:
        """Do not tell after all; no matter if it has been told."""
        self._mourners.pop(key, None)

    def shut(self, reason: Any) -> bool:
        """Set the reason, if nobody has yet; the one who gets True owes a `mourn`."""
        with self._lock:
            if self.reason is not ALIVE:
                return False
            self.reason = reason
            return True

    def mourn(self) -> None:
        """Tell all who asked.  May be taken over by another, when the first is killed in the middle of it."""
        while (tell := self._next_mourner()) is not None:
            try:
                tell(self.reason)
            except (Exception, Killed):
                log.exception("a death notice failed")

    def _next_mourner(self) -> Callable[[Any], object] | None:
        with self._lock:
            for key in self._mourners:
                return self._mourners.pop(key)
            self._mourned = True
            return None

    def vanish(self) -> None:
        """End, and tell nobody."""
        with self._lock:
            self.reason = KILLED
            self._mourned = True
            self._mourners.clear()
