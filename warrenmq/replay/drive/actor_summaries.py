"""The ActorSummary of a piece (trace_context.py) from its columns."""

from __future__ import annotations

import numpy as np

from warrenmq.replay.drive.columns import Rows
from warrenmq.replay.drive.trace_context import FAREWELLS, RARE, UNDELIVERED, ActorSummary


def _table(events: frozenset[int]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.isin(np.arange(256), list(events))


_IS_FAREWELL, _IS_RARE = _table(FAREWELLS), _table(RARE)


def actor_summary_of(rows: Rows) -> ActorSummary:
    """The summary of rows (at least one) of one actor, as `ActorSummary.note` makes it."""
    marks = ActorSummary(first_t=int(rows.t[0]))
    word = rows.who & 0xFFFF
    event = (word >> 8).astype(np.uint8)
    counts = np.bincount(word)
    words = np.flatnonzero(counts)
    marks.counts.update(dict(zip(words.tolist(), counts[words].tolist(), strict=True)))
    acts = np.flatnonzero(~_IS_FAREWELL[event])
    if len(acts):
        marks.last_act = int(rows.t[acts[-1]]), int(rows.seq[acts[-1]])
    works = np.flatnonzero(event > UNDELIVERED)
    if len(works):
        marks.last_work = int(rows.t[works[-1]])
    marks.note_rare(rows.where(_IS_RARE[event]).tuples())
    return marks
