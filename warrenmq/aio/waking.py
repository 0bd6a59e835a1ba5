"""Callbacks and channels that wake an event loop out of other threads."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from contextlib import suppress

from warrenmq.broker.consumer import DOWN
from warrenmq.runtime import Channel


def waker(call: Callable[[], object]) -> Callable[[], None]:
    """A function for any thread that has `call` made in the loop that runs now; once that is closed it does nothing."""
    loop = asyncio.get_running_loop()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed: there is nothing to wake
            loop.call_soon_threadsafe(call)

    return wake


class WakingChannel:
    """A channel that wakes its event loop; `put` is called in other threads.

    The broker holds it, and must not hold the tasks that wait: those of a loop that was closed before they
    ended are collected with what they took, as long as only the event knows of them.
    """

    def __init__(self, channel: Channel, news: asyncio.Event, abandoned: Callable[[], object]) -> None:
        """`news` is set for whoever waits in the loop that runs now; once that is closed `abandoned` is
        called, in another thread.
        """
        self._channel = channel
        self._news = weakref.ref(news)
        self._loop = asyncio.get_running_loop()
        self._abandoned = abandoned
        self.subscribe_again = False
        """The queue process of a consumer died: the next take will wait for its successor."""
        self.get = channel.get
        self.get_nowait = channel.get_nowait
        self.empty = channel.empty
        self.qsize = channel.qsize

    def put(self, item: object, /) -> None:
        self._channel.put(item)
        if item is DOWN:
            self.subscribe_again = True
        if (news := self._news()) is not None:
            try:
                self._loop.call_soon_threadsafe(news.set)
            except RuntimeError:  # the loop is closed
                self._abandoned()
