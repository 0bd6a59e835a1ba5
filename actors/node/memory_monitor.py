"""The process that decides how much memory the queues may have together (rabbit_memory_monitor;
docs/reference/classic-queue.md#paging).

    queue --ReportRamDuration, every 5 s--> memory monitor --SetRamDurationTarget--> queue
                                                 ^ every 2.5 s: memory used of the limit (vm_memory_monitor), disk alarm

A queue that reports gets the duration that is desired at present at once; between its reports it hears only
of a shorter duration, so that memory that runs short is noticed sooner than memory that is there again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pykka import ActorRef

from warrenmq.backing_queue.paging import INFINITE, desired_duration, must_inform
from warrenmq.log import Log
from warrenmq.node.memory_use import memory_ratio
from warrenmq.node.resources import Resources
from warrenmq.queue.messages import SetRamDurationTarget
from warrenmq.runtime import Down, Server

RABBIT_MEMORY_MONITOR = "rabbit_memory_monitor"

log = Log("warrenmq.memory_monitor")


@dataclass(slots=True)
class ReportRamDuration:
    """Queue -> monitor: what it has in memory would last so many seconds (infinite: nothing moves)."""

    queue: ActorRef[Any]
    duration: float


class Update:
    """Timer: look again."""


@dataclass(slots=True)
class _Process:
    """The last report of a queue, and the duration that was sent to it (the record `process`)."""

    queue: ActorRef[Any]
    reported: float
    told: float = INFINITE


class MemoryMonitor(Server):
    """rabbit_memory_monitor: its state is the queues that report, and the duration desired of all of them."""

    background = True

    def init(self, resources: Resources) -> None:
        """Start without reports; a queue that ran before this process registers with its next report."""
        self._resources = resources
        self._processes: dict[int, _Process] = {}
        self._monitor_of: dict[ActorRef[Any], int] = {}
        self._desired = INFINITE
        self._interval = resources.settings.memory_monitor_interval / 1000
        self.send_after(self._interval, Update())

    def handle_cast(self, message: ReportRamDuration) -> None:
        """Note a report, and say what is desired."""
        queue = message.queue
        key = self._monitor_of.get(queue)
        if key is None:
            key = self._monitor_of[queue] = self.monitor(queue)
        self._processes[key] = _Process(queue, message.duration, self._desired)
        self.cast(queue, SetRamDurationTarget(self._desired))

    def handle_info(self, message: Any) -> None:
        """A queue is gone, or it is time to look."""
        if isinstance(message, Down):
            if (process := self._processes.pop(message.monitor, None)) is not None:
                del self._monitor_of[process.queue]
        elif isinstance(message, Update):
            self._update()
            self.send_after(self._interval, Update())

    def _update(self) -> None:
        """Decide, and tell those queues that must hear of it now (internal_update)."""
        resources, before = self._resources, self._desired
        disk_alarm = resources.alarms.is_set("disk")
        finite = [each.reported for each in self._processes.values() if each.reported != INFINITE]
        ratio = memory_ratio(*resources.memory_use)
        paging_ratio = resources.settings.vm_memory_high_watermark_paging_ratio
        if finite and ratio >= paging_ratio:
            # Memory that was paged out is free here but still counted as used: without this, queues page
            # until nothing is left.
            resources.memory.release()
            ratio = memory_ratio(resources.memory.used(), resources.memory_use.limit)
        self._desired = desired = desired_duration(
            ratio, paging_ratio, math.fsum(finite), len(finite), disk_alarm=disk_alarm
        )
        if (before == INFINITE) is not (desired == INFINITE):
            said = "queues keep in memory what they have" if desired == INFINITE else "queues page to disk"
            log.info(said, seconds=desired, queues=len(finite))
        for process in self._processes.values():
            if must_inform(process.told, process.reported, desired, disk_alarm=disk_alarm):
                process.told = desired
                self.cast(process.queue, SetRamDurationTarget(desired))
