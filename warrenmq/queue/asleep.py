"""Asleep: what is remembered of a queue that has no process, because it was not used yet or has not been for long.

Its files, messages included, are as after a clean stop, and its declaration is in the definitions; what is
here answers requests that only look.  For all others the vhost process starts a process for it (`Wake`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from warrenmq.backing_queue.parts import QueueMemory
from warrenmq.queue.messages import (
    CountBytes,
    Declared,
    Drain,
    Info,
    ListConsumers,
    Purge,
    QueueFigures,
    QueueInfo,
    Stat,
)

_NO_MEMORY = QueueMemory(0, 0, 0, 0, 0, 0, math.inf)
NEEDS_PROCESS = object()
"""The answer to a request that only a process can answer."""


class Asleep(NamedTuple):
    """One queue without a process."""

    counts: QueueFigures = QueueFigures(0, 0, 0, 0, 0, (0, 0, 0, 0), 0, 0, 0)
    next_seq_id: int = 0
    damaged: int = 0

    def figures(self) -> QueueFigures:
        """The counts, as those of a running queue."""
        return self.counts

    def answer(self, request: Any) -> Any:
        """Answer a request that only looks, or NEEDS_PROCESS."""
        ready = self.counts.ready
        match request:
            case Stat():
                return Declared(ready, 0)
            case Info():
                memory = replace(_NO_MEMORY, delta=ready)
                return QueueInfo(ready, 0, 0, memory, False, self.next_seq_id, self.damaged)
            case ListConsumers():
                return []
            case Drain():
                return True
            case Purge() if not ready:
                return 0
            case CountBytes() if self.counts.ready_bytes is not None:
                return None
        return NEEDS_PROCESS


NEVER_USED = Asleep()
FIGURES_OF_NEVER_USED = NEVER_USED.figures
"""One for all: a bound method is made anew each time."""
