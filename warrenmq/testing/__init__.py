"""A broker on a simulated machine for tests of applications: a seed decides its disk, memory, time and threads.

    from warrenmq.testing import SimulatedMachine

    with SimulatedMachine(seed=7) as machine:
        broker = machine.open()
        broker.declare_queue("jobs").publish(b"one").result()
        machine.crash(power_cut=True)
        assert machine.open().queue("jobs").get().body == b"one"

docs/testing.md shows how to crash at any disk operation, let time pass and fill the disk.  For tests whose
clients come over AMQP there is a pytest fixture, a real broker on a free port:

    from warrenmq.testing import server  # in conftest.py
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from warrenmq.runtime import Deadlock, Simulation, SimulationCrashed
from warrenmq.testing.disk import SimulatedDisk
from warrenmq.testing.machine import SimulatedMachine
from warrenmq.testing.memory import SimulatedMemory
from warrenmq.testing.outage import Outage, PowerCut

if TYPE_CHECKING:
    from warrenmq.testing.fixtures import server

__all__ = [
    "Deadlock",
    "Outage",
    "PowerCut",
    "SimulatedDisk",
    "SimulatedMachine",
    "SimulatedMemory",
    "Simulation",
    "SimulationCrashed",
    "server",
]


def __getattr__(name: str) -> Any:
    if name == "server":  # on demand: it needs pytest and the extra `amqp`, the rest neither
        return import_module("warrenmq.testing.fixtures").server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
