"""A queue process's part in paging: it reports to the memory monitor, and goes on where its queue had to stop.

    UpdateRamDuration      its timer, every 5 s while anything moves: tell the monitor, which answers with a target
    SetRamDurationTarget   the monitor's answer, or its own word between two reports
    BumpReduceMemoryUse    to itself, of low priority, when more is to be paged out than may be at once: so deliveries
                           come between

One BumpReduceMemoryUse is in the mailbox at most.  A queue in which nothing moves does not report (RabbitMQ's
hibernates, and reports once before), and one that does not page by the monitor's target never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warrenmq.actors.node.memory_monitor import RABBIT_MEMORY_MONITOR, ReportRamDuration
from warrenmq.backing_queue.paging import INFINITE
from warrenmq.queue.messages import BumpReduceMemoryUse, UpdateRamDuration

if TYPE_CHECKING:
    from warrenmq.backing_queue.protocol import BackingQueue
    from warrenmq.runtime import Server, Timer

RAM_DURATION_UPDATE_INTERVAL = 5.0
"""Seconds."""


class QueuePaging:
    """The timer and the message to itself; it belongs to the queue process."""

    def __init__(self, server: Server, vq: BackingQueue) -> None:
        self._server = server
        self._vq = vq
        self._timer: Timer | None = None
        self._bumped = False

    def worked(self) -> None:
        """Messages may have moved."""
        vq = self._vq
        if self._timer is None and vq.has_ram_duration and vq.rates.anything_counted:
            self._timer = self._server.send_after(RAM_DURATION_UPDATE_INTERVAL, UpdateRamDuration())
        if vq.must_reduce_again and not self._bumped:
            self._bumped = True
            self._server.send_after(0, BumpReduceMemoryUse())

    def update(self) -> None:
        """UpdateRamDuration came."""
        self._timer = None
        duration = self._vq.ram_duration()
        self._server.cast(RABBIT_MEMORY_MONITOR, ReportRamDuration(self._server.actor_ref, duration))
        if duration != INFINITE:
            self._timer = self._server.send_after(RAM_DURATION_UPDATE_INTERVAL, UpdateRamDuration())

    def bumped(self) -> None:
        """BumpReduceMemoryUse came."""
        self._bumped = False
        self._vq.reduce_memory_use()
