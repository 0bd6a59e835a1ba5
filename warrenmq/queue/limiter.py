"""The limit that all consumers of one channel share: basic.qos with global=true (rabbit_limiter).

    channel ── limit(prefetch_count), ack(count) ──►┌─────────┐◄── reserve(queue, most) ── queue
                                                    │ Limiter │
                     queue ◄── Resume ──────────────└─────────┘

A channel makes one limiter and passes it to every queue that it consumes from; these compete for its room.
It counts deliveries that wait for an ack even without a limit, so that a limit that is set later includes those
on their way.  A queue that was refused sends the channel nothing until a Resume comes.  basic.get bypasses
the limiter, so acks of messages that were got must bypass it, too.

RabbitMQ's limiter is a process; this is an object with a lock, called from the threads of the channel and of its queues.
It sends nothing: a call that makes room returns the queues that are to be sent a Resume.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from pykka import ActorRef


class Limiter:
    """The shared limit of one channel's consumers."""

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._prefetch_count = 0
        self._volume = 0
        """Deliveries that wait for an ack."""
        self._refused: dict[ActorRef[Any], None] = {}
        """Queues that were refused, in that order."""
        self._served: ActorRef[Any] | None = None
        """The queue that was granted room last."""

    @property
    def prefetch_count(self) -> int:
        """The limit; 0 = none."""
        return self._prefetch_count

    def reserve(self, queue: ActorRef[Any], most: int, *, ack_required: bool) -> int:
        """The number of messages, `most` at the most, that a queue may deliver; if not all, a Resume follows
        when there is room again.

        Deliveries without ack are not counted, but they stop with the rest (rabbit_limiter:can_send).

        ==========  ========  ==========  ======  =======  =============
        limit       waiting   ack needed  most    granted  waiting after
        ==========  ========  ==========  ======  =======  =============
        none        7         yes         5       5        12
        10          7         yes         5       3        10
        10          10        yes         5       0        10
        10          12        yes         5       0        12
        10          7         no          5       5        7
        10          10        no          5       0        10
        ==========  ========  ==========  ======  =======  =============
        """
        with self._lock:
            room = most if not self._prefetch_count else self._prefetch_count - self._volume
            granted = max(0, min(most, room)) if ack_required or room <= 0 else most
            if ack_required:
                self._volume += granted
            if granted:
                self._served = queue
            if granted < most:
                self._refused[queue] = None
            return granted

    def limit(self, prefetch_count: int) -> list[ActorRef[Any]]:
        """Set another limit, 0 = none; returns the queues to resume.  A limit below the deliveries on their
        way makes the queues pause.
        """
        with self._lock:
            self._prefetch_count = prefetch_count
            return self._to_resume()

    def ack(self, count: int) -> list[ActorRef[Any]]:
        """`count` deliveries were acked, rejected, or never sent; returns the queues to resume."""
        with self._lock:
            self._volume -= count
            return self._to_resume()

    def _to_resume(self) -> list[ActorRef[Any]]:
        """The queues to resume when there is room: those that were refused, the one served last at the end,
        so that none starves.
        """
        if not self._refused or 0 < self._prefetch_count <= self._volume:
            return []
        refused = list(self._refused)
        self._refused.clear()
        if self._served in refused:
            refused.remove(self._served)
            refused.append(self._served)
        return refused
