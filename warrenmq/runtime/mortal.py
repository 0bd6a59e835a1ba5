"""Mortal: what ends once, with a reason, and tells those who asked to be told.

One primitive, `on_close`, carries monitors, links, the release of names, failing calls and joins.

Guarantees: every callback is called exactly once, also when it is registered while the end is under way;
none is called before the end's reason can be read.  Callbacks run in the thread that ends it, or, when it has
already ended, in the thread that asks: keep them short.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from warrenmq.log import Log
from warrenmq.runtime.messages import Killed

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

    def on_close(self, tell: Callable[[Any], object], key: int = 0) -> int:
        """Have `tell(reason)` called at the end; at once if that has been."""
        key = key or self._tick()
        with self._lock:
            if self.reason is ALIVE:
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
        """Tell all who asked, in the order they asked."""
        mourners, self._mourners = self._mourners, {}
        for tell in mourners.values():
            try:
                tell(self.reason)
            except (Exception, Killed):
                log.exception("a death notice failed")
