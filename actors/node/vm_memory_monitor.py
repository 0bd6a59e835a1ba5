"""The process that looks at the memory every second.

Source: vm_memory_monitor; docs/reference/classic-queue.md#memory-alarm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warrenmq.actors.node.alarm import RABBIT_ALARM, ClearAlarm, SetAlarm
from warrenmq.log import Log
from warrenmq.node.alarms import alarm_change
from warrenmq.node.memory_use import (
    DEFAULT_MEMORY_CHECK_INTERVAL,
    is_memory_short,
    memory_limit,
    total_memory,
)
from warrenmq.node.resources import Measured, Resources
from warrenmq.runtime import From, Server

VM_MEMORY_MONITOR = "vm_memory_monitor"

log = Log("warrenmq.vm_memory_monitor")


class Update:
    """Timer: look again."""


@dataclass(slots=True)
class SetVmMemoryHighWatermark:
    """Call: another watermark, until the broker is closed; the reply is what it means in bytes."""

    watermark: float


class VmMemoryMonitor(Server):
    """vm_memory_monitor: its state is the limit in bytes; how much there is in all is read when that is set."""

    background = True

    def init(self, resources: Resources) -> None:
        """Look at once, then every second."""
        self._resources = resources
        self._set_limit()
        self.send_after(DEFAULT_MEMORY_CHECK_INTERVAL / 1000, Update())

    def handle_call(self, request: SetVmMemoryHighWatermark, sender: From) -> int:  # noqa: ARG002  # OTP's signature
        """Take the new watermark and look at once."""
        self._resources.vm_memory_high_watermark = request.watermark
        self._set_limit()
        return self._limit

    def handle_info(self, message: Any) -> None:
        """Look, and again a second later."""
        if isinstance(message, Update):
            self._update()
            self.send_after(DEFAULT_MEMORY_CHECK_INTERVAL / 1000, Update())

    def _set_limit(self) -> None:
        total = total_memory(self._resources.settings, self._resources.memory)
        self._limit = memory_limit(self._resources.vm_memory_high_watermark, total)
        log.info("memory high watermark set", limit=self._limit, total=total)
        self._update()

    def _update(self) -> None:
        memory, limit = self._resources.memory, self._limit
        if is_memory_short(used := memory.used(), limit):
            memory.release()  # RabbitMQ runs background_gc when the alarm is due
            used = memory.used()
        self._resources.memory_use = Measured(used, limit)
        is_set = self._resources.alarms.is_set("memory")
        match alarm_change(is_set=is_set, due=is_memory_short(used, limit)):
            case "set":
                self.cast(RABBIT_ALARM, SetAlarm("memory", used or 0, limit))
            case "clear":
                self.cast(RABBIT_ALARM, ClearAlarm("memory", used or 0, limit))
