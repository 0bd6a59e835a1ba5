"""SimulatedMemory: a memory seam of numbers that a test sets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class SimulatedMemory:
    """A `warrenmq.seams.memory.Memory` without an operating system."""

    used_bytes: int = 0
    total_bytes: int = 1 << 34
    releasable_bytes: int = 0
    """Part of what is used that `release` gives back."""

    def used(self) -> int:
        return self.used_bytes

    def total(self) -> int:
        return self.total_bytes

    def release(self) -> None:
        self.used_bytes -= self.releasable_bytes
        self.releasable_bytes = 0
