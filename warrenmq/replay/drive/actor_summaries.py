"""The ActorSummary of a piece (trace_context.py) from its columns."""

from __future__ import annotations

import numpy as np

from warrenmq.replay.drive.columns import Rows
from warrenmq.replay.drive.trace_context import IS_ACT, IS_RARE, IS_WORK, ActorSummary


def actor_summary_of(rows: Rows) -> ActorSummary:
    """The summary of rows (at least one) of one actor, as `ActorSummary.note` makes it."""
    marks = ActorSummary(first_t=int(rows.t[0]))
    counts = np.bincount(rows.who & 0xFFFF)
    words = np.flatnonzero(counts)
    marks.counts.update(dict(zip(words.tolist(), counts[words].tolist(), strict=True)))
    events = rows.event.tobytes()
    if (act := events.translate(IS_ACT).rfind(1)) >= 0:
        marks.last_act = int(rows.t[act]), int(rows.seq[act])
    if (work := events.translate(IS_WORK).rfind(1)) >= 0:
        marks.last_work = int(rows.t[work])
    if 1 in (rare := events.translate(IS_RARE)):
        marks.note_rare(rows.where(np.frombuffer(rare, np.bool_)).tuples())
    return marks
