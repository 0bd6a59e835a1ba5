"""Closable: a one-shot close with a reason and callbacks, which is how an actor's end is seen from outside.

One primitive, `on_close`, carries monitors, links, the release of names, failing calls and joins.

A close has two moments.  `begin_close` sets the reason: from then on it can be read and no mail gets in.
`notify_closed` runs the callbacks, once everything that belongs to the end has been done.

Guarantees: each callback is called exactly once, in the order of registration, and none before `notify_closed`.  One
that is registered between the two moments, or while callbacks run, is called after those.  Callbacks run in the thread
that calls `notify_closed`, or, after it, in the thread that registers them: keep them short.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from warrenmq.log import Log
from warrenmq.runtime.reasons import KILLED, Killed

log = Log("warrenmq.runtime")


_TRIES = 100
"""Calls of what finds no memory."""


class _Alive:
    def __repr__(self) -> str:
        return "alive"


ALIVE = _Alive()
"""The `reason` of an actor that has not begun to close."""


class Closable:
    """A thing that closes once.

    reason      why it closed; ALIVE until `begin_close`
    _callbacks  by key, those that are still to be called
    _notified   `notify_closed` is done: a callback that is registered now is called at once
    """

    def __init__(self, tick: Callable[[], int]) -> None:
        """`tick` draws the keys of callbacks; they are unique in a runtime, so that one key can stand in two Closables."""
        self.reason: Any = ALIVE
        self._tick = tick
        self._lock = threading.Lock()  # never held across anything that may wait
        self._callbacks: dict[int, Callable[[Any], object]] = {}
        self._notified = False

    def on_close(self, callback: Callable[[Any], object], key: int = 0) -> int:
        """Register `callback(reason)` to be called after the close, or now if that is over; returns the key for `forget`."""
        key = key or self._tick()
        with self._lock:
            if not self._notified:
                self._callbacks[key] = callback
                return key
        callback(self.reason)
        return key

    def forget(self, key: int) -> None:
        """Drop a callback; without effect when it has been called."""
        self._callbacks.pop(key, None)

    def begin_close(self, reason: Any) -> bool:
        """Set the reason.  False if it was set before; after True the caller has to call `notify_closed`."""
        with self._lock:
            if self.reason is not ALIVE:
                return False
            self.reason = reason
            return True

    def notify_closed(self) -> None:
        """Run the callbacks.  Another thread may take over when the first one is killed in the middle of it."""
        for _ in range(_TRIES):
            try:
                self._call_all()
            except MemoryError:  # for a moment; what was not called is still there
                continue
            return

    def _call_all(self) -> None:
        while keys := self._keys():
            for key in keys:
                if (callback := self._callbacks.pop(key, None)) is None:
                    continue  # forgotten, or called by another thread
                self._call(callback)

    def _call(self, callback: Callable[[Any], object]) -> None:
        """Call a callback; again where there was no memory for a moment, since links and monitors hang on it."""
        for _ in range(_TRIES):
            try:
                callback(self.reason)
            except MemoryError:
                continue
            except (Exception, Killed):
                log.exception("a callback of on_close failed")
            return
        log.error("there was no memory for a callback of on_close")

    def _keys(self) -> list[int]:
        """Keys of the callbacks that are still to be called; the close is over when there are none.

        All at once: a look for the first one goes past the empty places that the others left in the dict, each time anew.
        """
        with self._lock:
            if not self._callbacks:
                self._notified = True
            return [*self._callbacks]  # no call: behind one a signal's handler may run, and want the lock

    def vanish(self) -> None:
        """Close without running any callback: the simulated process is gone."""
        with self._lock:
            self.reason = KILLED
            self._notified = True
            self._callbacks.clear()
