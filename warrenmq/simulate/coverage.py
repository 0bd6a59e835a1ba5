"""Coverage of a simulated run as a set of numbers: trace events with their flags, and pairs of adjacent events of one kind of actor.

A run that adds to the set reached something that no run before it had; its script is worth changing further.
"""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warrenmq.trace.reader import Trace

_EVENT_BITS, _FLAG_BITS = 8, 8
_WORD = (1 << _EVENT_BITS + _FLAG_BITS) - 1
"""An event and its flag, in the lowest bits of `who`."""
_PAIR_SHIFT = 32


def coverage_of(trace: Trace) -> frozenset[int]:
    """Compute the coverage of a trace: `event << 8 | flag` for each that occurs, and for each pair of adjacent events one above 2**32."""
    words: dict[tuple[int, int], list[int]] = {}
    for chunk in sorted(trace.catalog.chunks, key=attrgetter("order")):
        words.setdefault((chunk.run, chunk.actor), []).extend(row.who for row in trace.rows(chunk))
    seen: set[int] = set()
    for actor in words.values():
        events = [word & _WORD for word in actor]
        seen.update(events)
        seen.update(
            (1 + (first >> _FLAG_BITS) << _EVENT_BITS | second >> _FLAG_BITS) << _PAIR_SHIFT
            for first, second in set(pairwise(events))
        )
    return frozenset(seen)


def summary(seen: Iterable[int]) -> dict[str, int]:
    """Count the events, events with flags, and pairs of adjacent events in a coverage."""
    pairs = {each for each in seen if each >> _PAIR_SHIFT}
    words = set(seen) - pairs
    return {"events": len({word >> _FLAG_BITS for word in words}), "flags": len(words), "pairs": len(pairs)}
