"""Waiting for the confirms that a queue owes, when the broker is being closed.

A full disk keeps them back for as long as it is full, so nobody waits for them then: what has no confirm is not on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warrenmq.runtime import NO_REPLY

if TYPE_CHECKING:
    from warrenmq.actors.queue.sync import QueueSync
    from warrenmq.queue.unconfirmed import Unconfirmed
    from warrenmq.runtime import From, Server

LOOK_EVERY = 0.1
"""Seconds between looks whether the disk has become full."""


@dataclass(slots=True)
class LookAtDrain:
    """Info: a Drain has not been answered for a while."""


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
    """The calls of Drain that one queue process has not answered."""

    def __init__(self, process: Server, unconfirmed: Unconfirmed, safety: QueueSync) -> None:
        self._process = process
        self._unconfirmed = unconfirmed
        self._safety = safety
        self._waiting: list[From] = []

    def asked(self, sender: From) -> Any:
        """A Drain came."""
        if not self._unconfirmed or self._safety.is_full:
            return None
        self._waiting.append(sender)
        self._process.send_after(LOOK_EVERY, LookAtDrain())
        return NO_REPLY

    def look(self) -> None:
        """Answer if nothing is owed any more, or nothing can be given."""
        if not self._waiting:
            return
        if self._unconfirmed and not self._safety.is_full:
            self._process.send_after(LOOK_EVERY, LookAtDrain())
            return
        while self._waiting:
            self._waiting.pop().reply(None)

    def settled(self) -> None:
        """Confirms were given."""
        if self._waiting and not self._unconfirmed:
            self.look()
