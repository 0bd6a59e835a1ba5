"""The power of a simulated disk fails when its n-th operation would begin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from warrenmq.testing.disk import PowerCut, SimulatedDisk


class Outage:
    """Counts a disk's operations down, and lets none happen from the last one on."""

    def __init__(self, operation: int, *, reads: bool) -> None:
        self._left = operation
        self._reads = reads

    @property
    def came(self) -> bool:
        """Whether there were so many operations."""
        return self._left <= 0

    def before_op(self, op: str, _path: str) -> None:
        if not self.came and (self._reads or op != "pread"):
            self._left -= 1
        if self.came:
            raise PowerCut


@contextmanager
def power_fails_at(disk: SimulatedDisk, operation: int, *, reads: bool = True) -> Iterator[Outage]:
    """The block ends before the disk's n-th operation in it; `reads`: those count, too.

    The block's work is cut off without a word, as the machine would; what the disk has lost is the test's to say (`power_cut`).
    """
    outage = Outage(operation, reads=reads)
    disk.before_op = outage.before_op
    try:
        with suppress(PowerCut):
            yield outage
    finally:
        disk.before_op = None
