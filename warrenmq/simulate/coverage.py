"""Coverage of a simulated run as a set of numbers: trace events with their flags, and pairs of adjacent
events of one kind of actor.

A run that adds to the set reached something that no run before it had; its script is worth changing further.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from warrenmq.trace.block import ROW

_FLAG_BITS = 8
_PAIR_SHIFT = 32
_FLAGS, _EVENTS = (slice(ROW.size - 8 + byte, None, ROW.size) for byte in range(2))
"""The flags and the events of packed rows: `who`, their last word, begins with them."""


def coverage_of(actors: Iterable[bytes]) -> frozenset[int]:
    """Compute the coverage of the packed rows of each actor: `event << 8 | flag` for each that occurs, and
    for each pair of adjacent events one above 2**32.
    """
    words: set[tuple[int, int]] = set()
    pairs: set[tuple[int, int]] = set()
    for rows in actors:
        events = rows[_EVENTS]
        words.update(zip(events, rows[_FLAGS], strict=True))
        pairs.update(pairwise(events))
    seen = {event << _FLAG_BITS | flag for event, flag in words}
    seen.update((1 + first << _FLAG_BITS | second) << _PAIR_SHIFT for first, second in pairs)
    return frozenset(seen)


def summary(seen: Iterable[int]) -> dict[str, int]:
    """Count the events, events with flags, and pairs of adjacent events in a coverage."""
    pairs = {each for each in seen if each >> _PAIR_SHIFT}
    words = set(seen) - pairs
    return {"events": len({word >> _FLAG_BITS for word in words}), "flags": len(words), "pairs": len(pairs)}
