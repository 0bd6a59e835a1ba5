"""Drain: waiting for a queue's outstanding confirms, when the broker is being closed.

A drain waits for what was published before it: publishers who go on until the broker is closed do not hold it
up. A full disk keeps them back for as long as it is full, so a drain does not wait then: messages without a
confirm are not on the disk.
"""

from __future__ import annotations

from typing import Any

from warrenmq.queue.due import Delays
from warrenmq.queue.effects import Effect, Reply, StartTimer
from warrenmq.queue.index_sync import IndexSync
from warrenmq.queue.messages import CheckDrain
from warrenmq.queue.unconfirmed import Unconfirmed

LOOK_EVERY = 0.1
"""Seconds between checks of whether the disk has become full."""


def unwritten(lack: str, queue: str, messages: int) -> str:
    """The sentence on `messages` without a confirm that a want of room kept from being written when the broker was closed.

    >>> unwritten("the disk is full", "q", 0)
    "the disk is full: the state of queue 'q' was not written; nothing confirmed is lost, and the next start recovers it"
    >>> unwritten("the disk is full", "q", 3)
    "the disk is full: 3 messages of queue 'q' that were not confirmed were not written; publish them again"
    """
    if not messages:
        return f"{lack}: the state of queue {queue!r} was not written; nothing confirmed is lost, and the next start recovers it"
    return f"{lack}: {messages:,} messages of queue {queue!r} that were not confirmed were not written; publish them again"


class QueueDrain:
    """The Drain calls that wait for an answer."""

    def __init__(
        self, unconfirmed: Unconfirmed, delays: Delays | None, index_sync: IndexSync, effects: list[Effect]
    ) -> None:
        """A Drain ends the releases of delayed messages, and waits for those that are on their way."""
        self._unconfirmed = unconfirmed
        self._delays = delays
        self._index_sync = index_sync
        self._effects = effects
        self._outstanding = unconfirmed.outstanding()
        self.waiting: list[Any] = []

    def drain(self, sender: Any) -> bool | None:
        """Handle a Drain; returns the answer, None if it comes later."""
        if self._delays is not None:
            self._delays.is_stopping = True
        self._outstanding = self._unconfirmed.outstanding()
        if not self._owes or self._index_sync.is_full:
            return not self._owes
        self.waiting.append(sender)
        self._effects.append(StartTimer(LOOK_EVERY, CheckDrain()))
        return None

    def look(self) -> None:
        """Answer the waiting Drains if no confirm is owed any more, or if none can be given."""
        if not self.waiting:
            return
        if self._owes and not self._index_sync.is_full:
            self._effects.append(StartTimer(LOOK_EVERY, CheckDrain()))
            return
        while self.waiting:
            self._effects.append(Reply(self.waiting.pop(), not self._owes))

    @property
    def _owes(self) -> bool:
        return bool(self._outstanding) or (self._delays is not None and bool(self._delays.released))
