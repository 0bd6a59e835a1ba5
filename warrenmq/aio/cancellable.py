"""Calls in worker threads for tasks that may be cancelled: what such a call brings is given back.

A thread cannot be interrupted.  When the task that waits for it is cancelled (`asyncio.timeout`, a
TaskGroup), the call goes on, and what it returns reaches nobody: a message that was fetched would stay
unacked, a broker that was opened would keep its directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

from warrenmq.errors import Error

T = TypeVar("T")


async def in_thread(call: Callable[[], T], give_back: Callable[[T], object]) -> T:
    """Call in a worker thread, as `asyncio.to_thread` does.

    A task that is cancelled meanwhile ends at once; `give_back` is called with the result as soon as there is
    one, in a worker thread.
    """
    errand = _Errand(call, give_back)
    try:
        return await asyncio.to_thread(errand.run)
    except asyncio.CancelledError:
        if errand.abandon():  # the result was on its way here
            asyncio.get_running_loop().run_in_executor(None, errand.take_back)
        raise


async def to_the_end(call: Callable[[], T]) -> T:
    """Call in a worker thread; a task that is cancelled meanwhile ends at once, and the call is made all the same.

    `asyncio.to_thread` takes back a call that no thread has begun.
    """
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, call))


class _Errand(Generic[T]):
    """A call whose result one side has: the task, or once that is cancelled `give_back`."""

    def __init__(self, call: Callable[[], T], give_back: Callable[[T], object]) -> None:
        self._call = call
        self._give_back = give_back
        self._lock = Lock()
        self._results: list[T] = []
        """The result, once the call has returned; until then empty."""
        self._abandoned = False

    def run(self) -> T:
        result = self._call()
        with self._lock:
            self._results.append(result)
            abandoned = self._abandoned
        if abandoned:
            self.take_back()
        return result

    def abandon(self) -> bool:
        """The task is cancelled; True if the call has returned already."""
        with self._lock:
            self._abandoned = True
            return bool(self._results)

    def take_back(self) -> None:
        with suppress(Error):  # the broker is closed, or the queue gone: there is nothing to give back
            self._give_back(self._results[0])
