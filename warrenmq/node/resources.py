"""Resources: memory, disk space and alarms of a broker, shared by its processes and the face."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warrenmq.node.alarms import Alarms
from warrenmq.node.disk_space import DiskSpace
from warrenmq.node.memory_use import MemoryUse

if TYPE_CHECKING:
    from warrenmq.seams.disk import Disk
    from warrenmq.seams.memory import Memory
    from warrenmq.settings import Settings


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
    memory_use: MemoryUse = field(default_factory=MemoryUse)
    disk_space: DiskSpace = field(default_factory=DiskSpace)
    alarms: Alarms = field(default_factory=Alarms)

    def __post_init__(self) -> None:
        self.vm_memory_high_watermark = self.settings.vm_memory_high_watermark
        self.disk_free_limit = self.settings.disk_free_limit
