"""Outage: a countdown of disk operations to a sudden end."""

from __future__ import annotations

from collections.abc import Callable


class PowerCut(BaseException):
    """The machine, or the process, ended in the middle of a disk operation.

    Not an `Exception`: no handler may treat it as an error that it can go on after.
    """


class Outage:
    """Counts disk operations down; the n-th one, and each after it, raises PowerCut before it does anything."""

    def __init__(
        self, operation: int, *, reads: bool = True, counts: Callable[[str], bool] = lambda _op: True
    ) -> None:
        """`reads`: operations that only read are counted, too; `counts(op)` may leave out others."""
        self._left = operation
        self._reads = reads
        self._counts = counts

    @property
    def came(self) -> bool:
        """True if there were that many operations."""
        return self._left <= 0

    def before_op(self, op: str) -> None:
        """Count one operation."""
        if not self.came and (self._reads or op != "pread") and self._counts(op):
            self._left -= 1
        if self.came:
            raise PowerCut
