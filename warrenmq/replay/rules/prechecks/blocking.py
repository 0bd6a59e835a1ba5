"""Precheck of those who wait (blocking.py): nobody waits twice, nobody goes on who did not wait, and a thread writes nothing meanwhile.

What a thread sends is most of what it writes; by their numbers its rows tell that there is none between the beginning of a wait
for credit and its end, and no SEND has to be looked at.  Leftovers are all rows about waiting, flat (event, peer, seq).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit, groups
from warrenmq.replay.drive.machines import Key, Machine, Outcome
from warrenmq.replay.drive.precheck import OpenRows, Precheck
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.blocking import BLOCKING_EVENTS, Blocking, is_a_thread
from warrenmq.trace.events import Ev

_WIDTH = 3
_EVENT, _PEER, _SEQ = range(_WIDTH)


class BlockingPrecheck(Precheck):
    """See the module."""

    machine: ClassVar[type[Machine]] = Blocking

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(BLOCKING_EVENTS)
        table = np.stack((rows.event, rows.peer, rows.seq), axis=1)
        for actor, where in groups(rows.actor):
            yield (unit.run, actor), (table[where].reshape(-1),)

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        found: Bools = np.isin(rows.actor, [int(key[1]) for key in keys if key[0] == run])
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        run, actor = int(key[0]), int(key[1])
        rows = np.concatenate([each[0].reshape(-1, _WIDTH) for each in open_rows])
        rows = rows[np.argsort(rows[:, _SEQ])]
        is_credit = (rows[:, _EVENT] == Ev.CREDIT_BLOCKED) | (rows[:, _EVENT] == Ev.CREDIT_UNBLOCKED)
        alarms, credit = rows[~is_credit], rows[is_credit]
        if not _take_turns(alarms[:, _EVENT] == Ev.ALARM_BLOCKED):
            return None
        if is_a_thread(context.runs[run], actor):
            last = context.coverage[run, actor].last_seq
            return Outcome() if _stands_still(credit, last) else None
        credit = credit[np.argsort(credit[:, _PEER], kind="stable")]
        begins = credit[:, _EVENT] == Ev.CREDIT_BLOCKED
        fine = all(_take_turns(begins[where]) for _, where in groups(credit[:, _PEER]))
        return Outcome() if fine else None


def _take_turns(begins: Bools) -> bool:
    """Whether every other row begins a wait, from the first one on."""
    return bool(np.all(begins[::2]) and not np.any(begins[1::2]))


def _stands_still(rows: Ints, last: int) -> bool:
    """Whether each wait for credit is over with the next row of the thread, or the thread wrote none."""
    if not _take_turns(rows[:, _EVENT] == Ev.CREDIT_BLOCKED):
        return False
    begins, ends = rows[::2], rows[1::2]
    over = begins[: len(ends)]
    same = np.all(over[:, _PEER] == ends[:, _PEER]) and np.all(over[:, _SEQ] + 1 == ends[:, _SEQ])
    return bool(same and np.all(begins[len(ends) :, _SEQ] == last))
