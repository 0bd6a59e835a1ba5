"""Waiting for the confirms that a queue owes, when the broker is being closed.

A full disk keeps them back for as long as it is full, so a drain does not wait then: what has no confirm is not on the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warrenmq.queue.effects import Reply, StartTimer
from warrenmq.queue.messages import LookAtDrain

if TYPE_CHECKING:
    from warrenmq.queue.effects import Effect
    from warrenmq.queue.index_sync import IndexSync
    from warrenmq.queue.unconfirmed import Unconfirmed

LOOK_EVERY = 0.1
"""Seconds between looks whether the disk has become full."""


def unwritten(queue: str, messages: int) -> str:
    """Messages that a full disk kept from being written when the broker was closed; `messages` have no confirm.

    >>> unwritten("q", 0)
    "the disk is full: the state of queue 'q' was not written; nothing confirmed is lost, and the next start recovers it"
    >>> unwritten("q", 3)
    "the disk is full: 3 messages of queue 'q' that were not confirmed were not written; publish them again"
    """
    if not messages:
        return f"the disk is full: the state of queue {queue!r} was not written; nothing confirmed is lost, and the next start recovers it"
    return f"the disk is full: {messages:,} messages of queue {queue!r} that were not confirmed were not written; publish them again"


class QueueDrain:
    """The Drain calls that wait for an answer."""

    def __init__(self, unconfirmed: Unconfirmed, index_sync: IndexSync, effects: list[Effect]) -> None:
        self._unconfirmed = unconfirmed
        self._index_sync = index_sync
        self._effects = effects
        self.waiting: list[Any] = []

    def drain(self, sender: Any) -> bool:
        """A Drain came; True when it can be answered now."""
        if not self._unconfirmed or self._index_sync.is_full:
            return True
        self.waiting.append(sender)
        self._effects.append(StartTimer(LOOK_EVERY, LookAtDrain()))
        return False

    def look(self) -> None:
        """Answer when no confirm is owed any more, or none can be given."""
        if not self.waiting:
            return
        if self._unconfirmed and not self._index_sync.is_full:
            self._effects.append(StartTimer(LOOK_EVERY, LookAtDrain()))
            return
        while self.waiting:
            self._effects.append(Reply(self.waiting.pop(), None))
