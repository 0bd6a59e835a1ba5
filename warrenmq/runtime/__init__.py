"""Erlang's process model on Pykka: servers, names, links, monitors, timers, credit flow, and three schedulers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from warrenmq.runtime.base import Name, Runtime
from warrenmq.runtime.calls import NO_REPLY, From
from warrenmq.runtime.credit_flow import CreditFlow, CreditSpec
from warrenmq.runtime.fence import Fence
from warrenmq.runtime.life import inbox_of
from warrenmq.runtime.mailbox import Timer
from warrenmq.runtime.messages import Down, Exit
from warrenmq.runtime.pool import Pool
from warrenmq.runtime.reasons import CallFailed, Stop
from warrenmq.runtime.seams import Channel, Event, Lock
from warrenmq.runtime.server import Server
from warrenmq.runtime.threads import Threads

if TYPE_CHECKING:
    from warrenmq.runtime.scheduler import Deadlock
    from warrenmq.runtime.simulation import Simulation, SimulationCrashed

__all__ = [
    "NO_REPLY",
    "CallFailed",
    "Channel",
    "CreditFlow",
    "CreditSpec",
    "Deadlock",
    "Down",
    "Event",
    "Exit",
    "Fence",
    "From",
    "Lock",
    "Name",
    "Pool",
    "Runtime",
    "Server",
    "Simulation",
    "SimulationCrashed",
    "Stop",
    "Threads",
    "Timer",
    "inbox_of",
]


_SIMULATED = {"Deadlock": "scheduler", "Simulation": "simulation", "SimulationCrashed": "simulation"}


def __getattr__(name: str) -> Any:
    """Import the simulation when it is first asked for: a broker on threads does without."""
    if name not in _SIMULATED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_SIMULATED[name]}"), name)
    return found
