"""The length that a policy allows a queue, and which of its messages cannot have been dropped for it: the newest."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from warrenmq.simulate.messages import Copy, Message


@dataclass(slots=True)
class Length:
    """The messages and bytes that a queue was sent, and how many its policies have allowed.

    A queue that is too long drops its oldest messages.  So one is there as long as it and all that may be
    newer are no more than was allowed: those that its publisher sent later, and all of others.
    """

    messages: int | None = None
    """More cannot be ready."""
    bytes: int | None = None
    """Bodies with more bytes cannot be ready."""
    _least: tuple[float, float] = float("inf"), float("inf")
    """The fewest messages and bytes that may have been allowed since the policy changed."""
    _sent: list[int] = field(default_factory=lambda: [0, 0])
    """Messages and bytes that the queue was sent."""
    _by: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    """The same of each publisher."""

    def sent(self, copy: Copy) -> None:
        """A copy is about to come to the queue."""
        by, size = self._by[copy.message.publisher], len(copy.message.body)
        for sums in (self._sent, by):
            sums[0] += 1
            sums[1] += size
        copy.place = by[0], by[1] - size

    def may_come_again(self, message: Message) -> None:
        """A message that was sent may come once more, behind everything else."""
        self._sent[0] += 1
        self._sent[1] += len(message.body)

    def allow(self, messages: int | None, size: int | None) -> None:
        """A policy is about to allow so much; the bounds of the one before may hold until `holds`."""
        self.messages, self.bytes = messages, size
        most, most_bytes = self._bounds
        self._least = min(self._least[0], most), min(self._least[1], most_bytes)

    def holds(self) -> None:
        """The policy holds by now: nothing else is allowed."""
        self._least = self._bounds

    def is_in_doubt(self) -> None:
        """The policy may hold, or the one before."""
        self.messages = self.bytes = None

    @property
    def _bounds(self) -> tuple[float, float]:
        return (
            float("inf") if self.messages is None else self.messages,
            float("inf") if self.bytes is None else self.bytes,
        )

    def may_drop(self, copy: Copy) -> bool:
        """True if a copy may have been one of too many."""
        own, older_bytes = copy.place
        return self._sent[0] - own >= self._least[0] or self._sent[1] - older_bytes > self._least[1]
