"""Which segments of an index have messages that are not acked: the same questions for both versions.

Sequence ids may have gaps of any size (a damaged one may be far off), so nothing here walks over numbers that no
segment has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class Counted(Protocol):
    """A segment in memory."""

    unacked: int
    """Published, not acked."""


def live_segments(segments: Mapping[int, Counted], first: int, end: int) -> list[int]:
    """The numbers from `first` up to `end` of segments with a message that is not acked, ascending."""
    near = range(first, end) if end - first <= len(segments) else sorted(segments)
    return [
        number
        for number in near
        if first <= number < end and (segment := segments.get(number)) is not None and segment.unacked
    ]


def next_live(segments: Mapping[int, Counted], seq_id: int, entry_count: int) -> int | None:
    """`seq_id`, or where the next segment with a live message begins; None when there is none."""
    number = seq_id // entry_count
    if live_segments(segments, number, number + 1):
        return seq_id
    later = [each for each, segment in segments.items() if each > number and segment.unacked]
    return min(later) * entry_count if later else None


def unacked(segments: Mapping[int, Counted]) -> int:
    """Messages that are not acked."""
    return sum(segment.unacked for segment in segments.values())


def bounds(segments: Mapping[int, Counted], entry_count: int) -> tuple[int, int]:
    """(low, high): every message that is not acked lies in [low, high); (0, 0) when there is none."""
    numbers = [number for number, segment in segments.items() if segment.unacked]
    return (min(numbers) * entry_count, (max(numbers) + 1) * entry_count) if numbers else (0, 0)
