"""Erlang's process model on Pykka: servers, names, links, monitors, timers, credit flow, and three schedulers."""

from warrenmq.runtime.base import Name, Runtime
from warrenmq.runtime.calls import NO_REPLY, From
from warrenmq.runtime.credit_flow import CreditFlow, CreditSpec
from warrenmq.runtime.fence import Fence
from warrenmq.runtime.life import inbox_of
from warrenmq.runtime.mailbox import Timer
from warrenmq.runtime.messages import Down, Exit
from warrenmq.runtime.pool import Pool
from warrenmq.runtime.reasons import CallFailed, Stop
from warrenmq.runtime.scheduler import Deadlock
from warrenmq.runtime.seams import Channel, Event, Lock
from warrenmq.runtime.server import Server
from warrenmq.runtime.simulation import Simulation, SimulationCrashed
from warrenmq.runtime.threads import Threads

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
