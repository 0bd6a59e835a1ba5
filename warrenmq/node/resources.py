"""Resources: memory, disk space and alarms of a broker, shared by its processes and the face."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from warrenmq.node.alarms import Alarms
from warrenmq.seams.disk import Disk
from warrenmq.seams.memory import Memory
from warrenmq.settings import Settings


class Measured(NamedTuple):
    """The last measurement of a resource, in bytes; None = not known.  Replaced as a whole, so that no reader
    sees half of it new.
    """

    bytes: int | None = None
    """In use, of memory; free, of the disk."""
    limit: int | None = None
    """Publishers are blocked above it, of memory; below it, of the disk."""


@dataclass(slots=True)
class Resources:
    """Memory and disk."""

    memory: Memory
    disk: Disk
    path: str
    """The path of the data directory, whose file system is watched."""
    settings: Settings
    vm_memory_high_watermark: float = field(init=False)
    """The setting, or what it was changed to since the broker was opened; likewise the next."""
    disk_free_limit: float = field(init=False)
    memory_use: Measured = field(default_factory=Measured)
    """Written by vm_memory_monitor alone, the next by rabbit_disk_monitor."""
    disk_space: Measured = field(default_factory=Measured)
    alarms: Alarms = field(default_factory=Alarms)

    def __post_init__(self) -> None:
        self.vm_memory_high_watermark = self.settings.vm_memory_high_watermark
        self.disk_free_limit = self.settings.disk_free_limit
