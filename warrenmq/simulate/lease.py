"""The lease of a queue with x-expires, as its client knows it: when it was renewed at the earliest and at the
latest, and what that promises.
"""

from __future__ import annotations

from math import inf

from warrenmq.simulate.messages import PromiseBroken

_MARGIN = 3.0
"""Seconds that a slow disk may take over a declare, or over the deletion."""


class Lease:
    """The time at which the queue was last used, as far as it is known."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._earliest = self._latest = -inf

    def renewed(self, now: float) -> None:
        """A use of the queue is about to begin at this virtual time, and may last until `used`."""
        self._earliest = self._latest = now

    def used(self, now: float) -> None:
        """The queue may have been used up to now."""
        self._latest = now

    def must_hold(self, now: float) -> bool:
        """True if the queue must be there."""
        return now < self._earliest + self._seconds - _MARGIN

    def check(self, now: float, *, is_there: bool, may_be_late: bool = False) -> None:
        """Raise PromiseBroken if the queue is there and must have expired, or is not there and must be;
        `may_be_late`: its deletion may wait.
        """
        if not is_there and self.must_hold(now):
            raise PromiseBroken(
                "expired too soon",
                f"the queue is gone {now - self._earliest:.1f} s after its last use; it expires after {self._seconds:g} s",
            )
        if is_there and not may_be_late and now > self._latest + self._seconds + _MARGIN:
            raise PromiseBroken(
                "not expired",
                f"the queue is there {now - self._latest:.1f} s after its last use; it expires after {self._seconds:g} s",
            )
