"""The process that looks at the disk, the more often the fuller it is.

Source: rabbit_disk_monitor; docs/reference/classic-queue.md#disk-alarm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warrenmq.actors.node.alarm import RABBIT_ALARM, ClearAlarm, SetAlarm
from warrenmq.log import Log
from warrenmq.node.alarms import alarm_change
from warrenmq.node.disk_space import (
    FAILURE_RETRIES,
    FAILURE_RETRY_INTERVAL,
    check_interval,
    disk_limit,
    is_disk_short,
)
from warrenmq.node.memory_use import total_memory
from warrenmq.node.resources import Measured, Resources
from warrenmq.runtime import From, Server
from warrenmq.runtime.mailbox import Timer

RABBIT_DISK_MONITOR = "rabbit_disk_monitor"

log = Log("warrenmq.disk_monitor")


class Update:
    """Timer: look again."""


@dataclass(slots=True)
class SetDiskFreeLimit:
    """Call: another limit, until the broker is closed; the reply is what it means in bytes."""

    limit: float


class DiskMonitor(Server):
    """rabbit_disk_monitor.

    _limit      bytes that must be free (#state.limit)
    _timer      the next look; None once it is not looked at any more (#state.timer, enabled)
    _retries    failed looks in a row that are still tolerated (#state.retries)
    """

    background = True

    def init(self, resources: Resources) -> None:
        """Look at once, then as often as `check_interval` says."""
        self._resources = resources
        self._retries = FAILURE_RETRIES
        self._timer: Timer | None = None
        self._set_limit()

    def handle_call(self, request: SetDiskFreeLimit, sender: From) -> int:  # noqa: ARG002  # OTP's signature
        """Take the new limit and look at once."""
        self._resources.disk_free_limit = request.limit
        self._retries = FAILURE_RETRIES
        self._set_limit()
        return self._limit

    def handle_info(self, message: Any) -> None:
        """Measure when the timer fires."""
        if isinstance(message, Update):
            self._update()

    def _set_limit(self) -> None:
        resources = self._resources
        total = total_memory(resources.settings, resources.memory)
        self._limit = disk_limit(resources.disk_free_limit, total)
        log.info("disk free limit set", limit=self._limit)
        self._update()

    def _update(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        resources, limit = self._resources, self._limit
        try:
            free = resources.disk.free_space(resources.path)
        except OSError as error:
            self._cannot_tell(error)
            return
        self._retries = FAILURE_RETRIES
        resources.disk_space = Measured(free, limit)
        due = is_disk_short(free, limit)
        match alarm_change(is_set=resources.alarms.is_set("disk"), due=due):
            case "set":
                self.cast(RABBIT_ALARM, SetAlarm("disk", free, limit))
            case "clear":
                self.cast(RABBIT_ALARM, ClearAlarm("disk", free, limit))
        self._timer = self.send_after(check_interval(free, limit, alarmed=due) / 1000, Update())

    def _cannot_tell(self, error: OSError) -> None:
        """Clear the alarm when measuring fails, as nothing would clear it later."""
        resources = self._resources
        resources.disk_space = Measured(None, self._limit)
        if resources.alarms.is_set("disk"):
            self.cast(RABBIT_ALARM, ClearAlarm("disk", 0, self._limit))
        self._timer = None
        log.warning(
            "free disk space is unknown", path=resources.path, retries_left=self._retries, exc_info=error
        )
        if self._retries:
            self._retries -= 1
            self._timer = self.send_after(FAILURE_RETRY_INTERVAL / 1000, Update())
