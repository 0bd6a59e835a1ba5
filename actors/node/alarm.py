"""The process that sets and clears alarms (rabbit_alarm): updates the table, the trace and the log, and
notifies registered processes.

The monitors ask it to set or clear; asking twice changes nothing, so a monitor asks again at its next look if this
process was just being restarted.  Publishers of this program wait at the table (node/alarms.py); a process that wants
to know, as that of a connection does for connection.blocked, registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykka import ActorRef

from warrenmq.log import Log
from warrenmq.node.alarms import Alarm, Alarms, Source
from warrenmq.runtime import Down, From, Server
from warrenmq.trace.events import ALARM_DISK, ALARM_MEMORY, AlarmClear, AlarmSet
from warrenmq.trace.writers import writer

_write_set, _write_clear = writer(AlarmSet), writer(AlarmClear)

RABBIT_ALARM = "rabbit_alarm"
_FLAGS: dict[Source, int] = {"memory": ALARM_MEMORY, "disk": ALARM_DISK}

log = Log("warrenmq.alarm")


@dataclass(slots=True)
class SetAlarm:
    """Monitor -> rabbit_alarm: there is too little."""

    source: Source
    measured: int
    limit: int


@dataclass(slots=True)
class ClearAlarm:
    """Monitor -> rabbit_alarm: there is enough again."""

    source: Source
    measured: int
    limit: int


@dataclass(slots=True)
class Register:
    """Call: `who` receives every change from now on; the reply is the alarms that are set."""

    who: ActorRef[Any]


@dataclass(slots=True)
class GetAlarms:
    """Call: the alarms that are set, once all that was asked before has been done."""


@dataclass(frozen=True, slots=True)
class ResourceAlert:
    """rabbit_alarm -> each registered process: an alarm changed."""

    source: Source
    is_set: bool


class RabbitAlarm(Server):
    """rabbit_alarm; its state is the registered processes (alertees); the alarms are in the table."""

    helpable = True
    background = True

    def init(self, alarms: Alarms) -> None:
        """The table is as the last incarnation left it."""
        self._alarms = alarms
        self._alertees: dict[int, ActorRef[Any]] = {}

    def handle_cast(self, message: Any) -> None:
        """Set or clear an alarm for a monitor."""
        match message:
            case SetAlarm(source, measured, limit):
                if self._alarms.set(Alarm(source, measured, limit, self.runtime.wall_ns())):
                    log.warning("resource limit alarm set: publishers are blocked until it clears",
                                source=source, measured=measured, limit=limit)  # fmt: skip
                    self._tell(source, measured, limit, is_set=True)
            case ClearAlarm(source, measured, limit):
                if self._alarms.clear(source):
                    log.warning("resource limit alarm cleared", source=source, measured=measured, limit=limit)
                    self._tell(source, measured, limit, is_set=False)

    def handle_call(self, request: Any, sender: From) -> tuple[Alarm, ...]:  # noqa: ARG002  # OTP's signature
        """Answer Register or GetAlarms."""
        if isinstance(request, Register):
            self._alertees[self.monitor(request.who)] = request.who
        return self._alarms.active

    def handle_info(self, message: Any) -> None:
        """Forget a connection that has ended."""
        if isinstance(message, Down):
            self._alertees.pop(message.monitor, None)

    def _tell(self, source: Source, measured: int, limit: int, *, is_set: bool) -> None:
        if self.trace is not None:
            (_write_set if is_set else _write_clear)(self.trace, _FLAGS[source], measured, limit)
        alert = ResourceAlert(source, is_set)
        for alertee in list(self._alertees.values()):
            self.cast(alertee, alert)
