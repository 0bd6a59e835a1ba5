"""The segments of an index that have messages without an ack, for both versions.

Sequence ids may have gaps of any size (a damaged one may be far off), so nothing here walks over numbers that no
segment has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from warrenmq.message.runs import runs
from warrenmq.seams.disk import Disk


class Counted(Protocol):
    """A segment in memory."""

    unacked: int
    """Published, not acked."""


Segment = TypeVar("Segment", bound=Counted)


class LiveSegments(Generic[Segment]):
    """The segments in memory, which both versions of the index keep and count.

    base    added to sequence ids in the trace: of a queue with priorities each counts its own from 0
    """

    def __init__(self, disk: Disk, segment_entry_count: int) -> None:
        self._disk = disk
        self.segment_entry_count = segment_entry_count
        self.look_at_limit()
        self.base = 0
        self.next_seq_id = 0
        self._segments: dict[int, Segment] = {}
        self._lost: list[int] = []

    def look_at_limit(self) -> None:
        """See Index."""
        self.share = self._disk.longest() // self.segment_entry_count

    def next_live(self, seq_id: int) -> int:
        """`seq_id`, or where the next segment with a live message begins; `next_seq_id` if no later one has any.

        Readers ask before they look.
        """
        number = seq_id // self.segment_entry_count
        if self._live(number, number + 1):
            return seq_id
        later = [each for each, segment in self._segments.items() if each > number and segment.unacked]
        return min(later) * self.segment_entry_count if later else self.next_seq_id

    def live_messages(self) -> Iterator[tuple[int, int]]:
        """See Index."""
        raise NotImplementedError

    def live_runs(self) -> Iterator[tuple[int, int]]:
        """See Index; reads every file."""
        return runs(seq_id for seq_id, _ in self.live_messages())

    def take_lost(self) -> list[int]:
        """Sequence ids of messages that reads found damaged, since the last time."""
        lost, self._lost = self._lost, []
        return lost

    def read_alike(self, start: int, end: int, *, bodies: bool = True) -> list[bytes]:  # noqa: ARG002
        """See Index; version 1 has none."""
        return []

    @property
    def unacked(self) -> int:
        """Messages that are published and not acked."""
        return sum(segment.unacked for segment in self._segments.values())

    def bounds(self) -> tuple[int, int]:
        """(low, high): every message that is not acked lies in [low, high); (0, 0) without messages."""
        numbers = [number for number, segment in self._segments.items() if segment.unacked]
        entry_count = self.segment_entry_count
        return (min(numbers) * entry_count, (max(numbers) + 1) * entry_count) if numbers else (0, 0)

    def _live(self, first: int, end: int) -> list[int]:
        """The numbers from `first` up to `end` of segments with a message that is not acked, ascending."""
        segments = self._segments
        near = range(first, end) if end - first <= len(segments) else sorted(segments)
        return [
            number
            for number in near
            if first <= number < end and (segment := segments.get(number)) is not None and segment.unacked
        ]
