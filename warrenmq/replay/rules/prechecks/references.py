"""Precheck of reference counts and flying decisions (references.py).

Row by row: the decision is the one that the table names for the counter seen.  Message by message, in the order of the
store's rows:

    WRITE           begins at 1, or again after 0
    CONFIRM         one more than the row before said
    REMOVE, DROPPED one less than the row before said, not below 0
    RECOVERED       begins

A message whose rows in a unit begin with a WRITE and end at 0 is over, and only that WRITE is kept; of others open rows
has all rows, flat (store, message, seq, word, count).  At the end each of these begins with a WRITE or RECOVERED, is in one
store, and has no reference where it began once more in another unit; and where a run ended cleanly, those that were written have as many references
as queues hold them (the ledger's facts).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

import numpy as np

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit, group_starts, groups
from warrenmq.replay.drive.machines import STATE, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import NEEDS_FULL_CHECK, OpenRows, Precheck
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.rules.life import SHIFT
from warrenmq.replay.rules.references import Held, References
from warrenmq.trace.events import Decision, Ev

_WIDTH = 5
_WRITTEN = int(Ev.STORE_WRITE) << 8 | Decision.WRITE
_MORE = int(Ev.STORE_WRITE) << 8 | Decision.CONFIRM
_LESS = int(Ev.STORE_REMOVE) << 8 | Decision.REMOVE


class ReferencesPrecheck(Precheck):
    """See the module."""

    machine: ClassVar[type[Machine]] = References

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(References.events)
        wrong = ~_decided(rows)
        word = rows.who & 0xFFFF
        event = rows.event
        counts = (
            (event == Ev.REF_RECOVERED) | (event == Ev.REF_DROPPED) | (word == _LESS) | (word == _WRITTEN)
            | (word == _MORE)
        )  # fmt: skip
        count = np.where(event == Ev.REF_RECOVERED, rows.pseq, rows.b)
        table = np.stack((rows.actor, rows.msg, rows.seq, word, count), axis=1)[counts]
        table = table[np.argsort(table[:, 1], kind="stable")]
        starts = group_starts(table[:, 1])
        _, fine = _walk(table, starts)
        ends = np.append(starts, len(table))[1:] - 1
        whole = fine & (table[starts, 3] == _WRITTEN) & (table[ends, 4] == 0)
        left = table[~np.repeat(whole, ends - starts + 1)]
        over = table[starts[whole]][:, [1, 0, 2]]
        unproven = np.unique(rows.msg[wrong] >> SHIFT).tolist()
        overs = dict(groups(over[:, 0] >> SHIFT))
        lefts = dict(groups(left[:, 1] >> SHIFT))
        scope = self.runs[unit.run].scope
        for bucket in sorted({*overs, *lefts}.difference(unproven)):
            its = left[lefts.get(bucket, slice(0))]
            began = over[overs.get(bucket, slice(0))]
            yield (scope, bucket), (its.reshape(-1), began.reshape(-1), np.array([unit.run], np.int64))
        for bucket in unproven:
            yield (scope, bucket), NEEDS_FULL_CHECK

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        scope = self.runs[run].scope
        found: Bools = np.isin(rows.msg >> SHIFT, [int(bucket) for whose, bucket in keys if whose == scope])
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Held], context: TraceContext
    ) -> Outcome | None:
        tables = [each[0].reshape(-1, _WIDTH) for each in open_rows]
        table = np.concatenate([np.zeros((0, _WIDTH), np.int64), *tables])
        runs = np.repeat([int(each[2][0]) for each in open_rows], [len(each) for each in tables]).astype(
            np.int64
        )
        order = np.lexsort((table[:, 2], table[:, 0], runs, table[:, 1]))
        table, runs = table[order], runs[order]
        starts = group_starts(table[:, 1])
        _, fine = _walk(table, starts)
        ends = np.append(starts, len(table))[1:] - 1
        begins = table[starts, 3]
        recovered = begins >> 8 == Ev.REF_RECOVERED
        over = np.concatenate([np.zeros((0, 3), np.int64), *(each[1].reshape(-1, 3) for each in open_rows)])
        again = over[np.isin(over[:, 0], table[starts, 1])]
        if not all(_has_none_before(table, *each) for each in again.tolist()):
            return None
        if not (
            np.all(fine) and np.all((begins == _WRITTEN) | recovered) and np.all(runs[starts] == runs[ends])
        ):
            return None
        outcome = Outcome()
        alive = Counter[tuple[int, int]]()
        for run, store, msg, count, found in zip(
            runs[ends].tolist(), table[ends, 0].tolist(), table[ends, 1].tolist(), table[ends, 4].tolist(), recovered.tolist(),
            strict=True,
        ):  # fmt: skip
            who = (run, store)
            outcome.figures[STATE, *who, "messages"] += count > 0
            outcome.figures[STATE, *who, "references"] += count
            outcome.figures[STATE, *who, "recovered"] += found
            if count and not found and _is_compared(context, who):
                alive[run, msg] = count
        holders = Counter((who[0], msg) for who, msg in facts)
        return outcome if alive == holders else None


def _decided(rows: Rows) -> Bools:
    """Which decisions are the table's."""
    event, flag, seen, known = rows.event, rows.flag, rows.a, rows.c != 0
    is_write, is_remove = event == Ev.STORE_WRITE, event == Ev.STORE_REMOVE
    passes = known & np.where(is_write, seen > 0, seen < 0)
    done = np.where(
        is_write,
        (flag == Decision.WRITE) | (flag == Decision.CONFIRM),
        (flag == Decision.REMOVE) | (flag == Decision.DEFER),
    )
    fine: Bools = ~(is_write | is_remove) | np.where(passes, done, flag == Decision.IGNORE)
    return fine


def _walk(table: Ints, starts: Ints) -> tuple[Bools, Bools]:
    """Rows of messages, each message's together and in order -> which steps are fine, which messages are throughout."""
    if not len(table):
        return np.zeros(0, np.bool_), np.zeros(0, np.bool_)
    word, count = table[:, 3], table[:, 4]
    before = np.empty_like(count)
    before[1:] = count[:-1]
    first = np.zeros(len(table), np.bool_)
    first[starts] = True
    same_store = np.ones(len(table), np.bool_)
    same_store[1:] = table[1:, 0] == table[:-1, 0]
    less = (word == _LESS) | (word >> 8 == Ev.REF_DROPPED)
    later = same_store & np.select(
        [word == _WRITTEN, word == _MORE, less],
        [(before == 0) & (count == 1), before + 1 == count, (before - 1 == count) & (count >= 0)],
        default=False,
    )
    alone = np.select([word == _WRITTEN, less], [count == 1, count >= 0], default=True)
    steps: Bools = np.where(first, alone, later)
    return steps, np.logical_and.reduceat(steps, starts)


def _has_none_before(table: Ints, msg: int, store: int, seq: int) -> bool:
    """Whether the last of a message's rows before one of its store said that there is no reference, if there is any."""
    its = table[table[:, 1] == msg]
    before = its[its[:, 2] < seq]
    return bool(np.all(its[:, 0] == store)) and (not len(before) or int(before[-1, 4]) == 0)


def _is_compared(context: TraceContext, who: Who) -> bool:
    return (
        not context.is_transient_store(who) and context.ended_cleanly(who[0]) and context.is_last_of_name(who)
    )
