"""For tests of applications: a broker on a simulated machine, whose disk, memory, time and threads a seed decides.

    from warrenmq.testing import SimulatedMachine

    with SimulatedMachine(seed=7) as machine:
        broker = machine.open()
        broker.declare_queue("jobs").publish(b"one").result()
        machine.crash(power_cut=True)
        assert machine.open().queue("jobs").get().body == b"one"

docs/testing.md shows how to crash at any disk operation, let time pass and fill the disk.
"""

from warrenmq.runtime import Deadlock, Simulation, Vanished
from warrenmq.testing.disk import SimulatedDisk
from warrenmq.testing.machine import SimulatedMachine
from warrenmq.testing.memory import SimulatedMemory
from warrenmq.testing.outage import Outage, PowerCut

__all__ = [
    "Deadlock",
    "Outage",
    "PowerCut",
    "SimulatedDisk",
    "SimulatedMachine",
    "SimulatedMemory",
    "Simulation",
    "Vanished",
]
