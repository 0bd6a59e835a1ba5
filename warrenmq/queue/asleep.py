"""Asleep: what is remembered of a queue that has no process, because it was not used yet or has not been for long.

It is empty, its files are as after a clean stop, and its declaration is in the definitions; what is here answers who only wants to
look.  Whoever wants more has the vhost process start a process for it (`Wake`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from warrenmq.backing_queue.parts import QueueMemory
from warrenmq.queue.messages import Declared, Drain, Info, ListConsumers, Purge, QueueFigures, QueueInfo, Stat

_NO_MEMORY = QueueMemory(0, 0, 0, 0, 0, 0, math.inf)
NEEDS_PROCESS = object()
"""The answer to a request that only a process can answer."""


class Asleep(NamedTuple):
    """One queue without a process."""

    counts: QueueFigures = QueueFigures(0, 0, 0, None, 0, (0, 0, 0, 0), 0)
    next_seq_id: int = 0
    damaged: int = 0

    def figures(self) -> QueueFigures:
        """The counts, as a running queue tells them."""
        return self.counts

    def answer(self, request: Any) -> Any:
        """Answer a request that only looks, or NEEDS_PROCESS."""
        match request:
            case Stat():
                return Declared(0, 0)
            case Info():
                return QueueInfo(0, 0, 0, _NO_MEMORY, False, self.next_seq_id, self.damaged)
            case ListConsumers():
                return []
            case Drain():
                return None
            case Purge():
                return 0
        return NEEDS_PROCESS


NEVER_USED = Asleep()
FIGURES_OF_NEVER_USED = NEVER_USED.figures
"""One for all: a bound method is made anew each time."""
