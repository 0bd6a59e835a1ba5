"""A queue's timers of paging: reports to the memory monitor, and steps that follow one another.

    UpdateRamDuration      its timer, every 5 s while anything moves: report to the monitor, which answers with a target
    SetRamDurationTarget   the monitor's answer, or a shorter target between two reports
    BumpReduceMemoryUse    a timer of 0 s and low priority, when more is to be paged out than may be at once: so deliveries
                           come between

One BumpReduceMemoryUse is on its way at most.  A queue in which nothing moves does not report (RabbitMQ's hibernates, and
reports once before), and one that does not page by the monitor's target never does.
"""

from __future__ import annotations

from warrenmq.backing_queue.paging import INFINITE
from warrenmq.backing_queue.protocol import BackingQueue
from warrenmq.queue.effects import Effect, ReportDuration, StartTimer
from warrenmq.queue.messages import BumpReduceMemoryUse, UpdateRamDuration

UPDATE_INTERVAL = 5.0
"""Seconds (RAM_DURATION_UPDATE_INTERVAL)."""


class RamDuration:
    """The two timers.

    Each runs once at most:

    updating    an UpdateRamDuration is on its way
    _bumped     a BumpReduceMemoryUse is on its way
    """

    def __init__(self, vq: BackingQueue, effects: list[Effect]) -> None:
        self._vq = vq
        self._effects = effects
        self.updating = self._bumped = False

    def worked(self) -> None:
        """Messages may have moved: start the timers that are needed."""
        vq = self._vq
        if vq.has_ram_duration and not self.updating and vq.anything_counted:
            self._start_updating()
        if vq.must_reduce_again and not self._bumped:
            self._bumped = True
            self._effects.append(StartTimer(0, BumpReduceMemoryUse()))

    def update(self) -> None:
        """UpdateRamDuration came."""
        self.updating = False
        duration = self._vq.ram_duration()
        self._effects.append(ReportDuration(duration))
        if duration != INFINITE:
            self._start_updating()

    def bump(self) -> None:
        """BumpReduceMemoryUse came."""
        self._bumped = False
        self._vq.reduce_memory_use()

    def _start_updating(self) -> None:
        self.updating = True
        self._effects.append(StartTimer(UPDATE_INTERVAL, UpdateRamDuration()))
