"""Precheck of what consumers settle (settles.py): each delivery with the row that settles it, side by side.

Rows become entries of single messages.  Sorted by sequence id, a delivery and a settling take turns, and each pair is fine if what was
named fits what was delivered.  Of a unit there are left, by queue process:

    entries   (sequence id, which, consumer and tag, seq): deliveries and settlings that have not met, and pairs that a
              CONSUMER_GONE row of the unit, or of another one, may speak of
    gone      (consumer, last tag that was taken, seq, seq of the next row of the unit that gives nothing back, or 0)
    lasts     (consumer, seq of its last delivery)
    first     seq of the unit's first row that gives nothing back
    judged    how many messages and consumers the rules were asked about

A pair that met in one unit can only matter to a CONSUMER_GONE row of that unit, unless it was delivered after one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit, expand, groups
from warrenmq.replay.drive.machines import JUDGED, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import NEEDS_FULL_CHECK, OpenRows, Precheck
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.settles import (
    DELIVERED,
    EACH,
    GIVEN_BACK,
    GONE,
    NO_ACK_DELIVERED,
    UNTOLD,
    UP_TO,
    Settles,
    step_of,
)
from warrenmq.trace.events import Ev
from warrenmq.trace.settled import CONSUMER_SHIFT

_LONGEST_ROW = 1 << 20
"""Messages in one row that are looked at one by one."""
_ID, _WHICH, _WORD, _SEQ = range(4)
_TAG = (1 << CONSUMER_SHIFT) - 1
_NOTHING = -1
_NEVER = 1 << 62


def _steps_table() -> Ints:
    """step_of for each word, and peer, pseq and c = 0 or not; -1 = none."""
    table = np.full((1 << 16, 2, 2, 2), _NOTHING, np.int64)
    for event in (Ev.DELIVER, Ev.ACK, Ev.REQUEUE, Ev.DROP, Ev.CONSUMER_GONE):
        for flag in range(256):
            for said in product((0, 1), repeat=3):
                which = step_of(event << 8 | flag, *said)
                table[event << 8 | flag, *said] = _NOTHING if which is None else which
    return table


_STEPS = _steps_table()


class SettlesPrecheck(Precheck):
    """See the module."""

    machine: ClassVar[type[Machine]] = Settles

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(Settles.events)
        said = [(column != 0).astype(np.int64) for column in (rows.peer, rows.pseq, rows.c)]
        which = _STEPS[rows.who & 0xFFFF, *said]
        chosen = which != _NOTHING
        rows, which = rows.where(chosen), which[chosen]
        for actor, where in groups(rows.actor):
            yield (unit.run, actor), _left_of(rows.between(where.start, where.stop), which[where])

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        found: Bools = np.isin(rows.actor, [int(key[1]) for key in keys if key[0] == run])
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        entries, gone, lasts = (
            np.concatenate([each[part].reshape(-1, width) for each in open_rows])
            for part, width in ((0, 4), (1, 4), (2, 2))
        )
        firsts = np.sort(np.concatenate([each[3] for each in open_rows]))
        pairs = _pairs(entries)
        if pairs is None or not _come_back(entries, pairs, gone, lasts, firsts):
            return None
        judged = np.sum([each[4] for each in open_rows], axis=0).tolist()
        outcome = Outcome()
        outcome.figures.update(
            {(JUDGED, rule): n for rule, n in zip(("A1", "A2", "A3"), judged, strict=True)}
        )
        return outcome


def _left_of(rows: Rows, which: Ints) -> OpenRows:
    """The rows of one queue process in a unit."""
    is_gone = which == GONE
    if np.any(rows.b[~is_gone] > _LONGEST_ROW):
        return NEEDS_FULL_CHECK
    of_delivery = which <= NO_ACK_DELIVERED
    of_consumer = of_delivery | is_gone
    word = np.where(of_consumer, (rows.peer & (1 << 31) - 1) << CONSUMER_SHIFT | rows.c & _TAG, rows.c)
    held = np.flatnonzero(~is_gone & (which != NO_ACK_DELIVERED))
    row, ids = expand(rows.a[held], rows.b[held])
    row = held[row]
    one_by_one = (which[row] == DELIVERED) | (which[row] == EACH)
    words = word[row] + np.where(one_by_one, ids - rows.a[row], 0)
    entries = np.stack((ids, which[row], words, rows.seq[row]), axis=1)
    pairs = _pairs(entries)
    if pairs is None:
        return NEEDS_FULL_CHECK
    others = rows.seq[(which != GONE) & (which != GIVEN_BACK)]
    gone = np.stack(
        (
            word[is_gone] >> CONSUMER_SHIFT,
            rows.a[is_gone],
            rows.seq[is_gone],
            _next_of(others, rows.seq[is_gone]),
        ),
        axis=1,
    )
    keep = np.ones(len(entries), np.bool_)
    delivered, settled = pairs
    rest = (entries[settled, _WHICH] != GIVEN_BACK) & ~np.isin(
        entries[delivered, _WORD] >> CONSUMER_SHIFT, gone[:, 0]
    )
    keep[delivered[rest]] = keep[settled[rest]] = False
    told = (which == EACH) | (which == UP_TO)
    judged = [
        int(np.maximum(rows.b[told], 0).sum()),
        int(np.maximum(rows.b[which == EACH], 0).sum()),
        len(gone),
    ]
    return (
        entries[keep].reshape(-1), gone.reshape(-1), _lasts(word[of_delivery] >> CONSUMER_SHIFT, rows.seq[of_delivery]).reshape(-1),
        others[:1], np.array(judged, np.int64),
    )  # fmt: skip


def _next_of(ordered: Ints, wanted: Ints) -> Ints:
    """For each number the next larger one of rising ones; 0 = there is none."""
    if not len(ordered):
        return np.zeros(len(wanted), np.int64)
    at = np.searchsorted(ordered, wanted, side="right")
    found: Ints = np.where(at < len(ordered), ordered[np.minimum(at, len(ordered) - 1)], 0)
    return found


def _lasts(consumers: Ints, seqs: Ints) -> Ints:
    """(consumer, the last of its rising seqs)"""
    found, places = np.unique(consumers[::-1], return_index=True)
    return np.stack((found, seqs[::-1][places]), axis=1)


def _pairs(entries: Ints) -> tuple[Ints, Ints] | None:
    """Places of deliveries, and for each of its settling; None if any is not fine, or something is there without the other."""
    order = np.lexsort((entries[:, _SEQ], entries[:, _ID]))
    id_, which = entries[order, _ID], entries[order, _WHICH]
    is_delivery = which == DELIVERED
    same = id_[1:] == id_[:-1]
    if np.any(same & (is_delivery[1:] == is_delivery[:-1])):
        return None
    at = np.flatnonzero(same & is_delivery[:-1])
    delivered, settled = order[at], order[at + 1]
    has, named, how = entries[delivered, _WORD], entries[settled, _WORD], entries[settled, _WHICH]
    fine = np.select(
        [how == EACH, how == UP_TO],
        [has == named, (has >> CONSUMER_SHIFT == named >> CONSUMER_SHIFT) & (has <= named)],
        default=(how == UNTOLD) | (how == GIVEN_BACK),
    )
    return (delivered, settled) if np.all(fine) else None


def _come_back(entries: Ints, pairs: tuple[Ints, Ints], gone: Ints, lasts: Ints, firsts: Ints) -> bool:
    """Whether consumers that are gone got nothing more, and what they gave back came back at once."""
    if not len(gone):
        return True
    last_of: dict[int, int] = {}
    for consumer, seq in lasts.tolist():
        last_of[consumer] = max(last_of.get(consumer, 0), seq)
    delivered, settled = pairs
    deliveries = np.flatnonzero(entries[:, _WHICH] == DELIVERED)
    how, when = np.full(len(entries), _NOTHING, np.int64), np.full(len(entries), _NEVER, np.int64)
    how[delivered], when[delivered] = entries[settled, _WHICH], entries[settled, _SEQ]
    consumers = entries[deliveries, _WORD] >> CONSUMER_SHIFT
    order = np.argsort(consumers, kind="stable")
    deliveries, consumers = deliveries[order], consumers[order]
    for consumer, taken, seq, next_other in gone.tolist():
        if last_of.get(consumer, 0) > seq:
            return False
        if taken < 0:
            continue
        its = deliveries[
            np.searchsorted(consumers, consumer) : np.searchsorted(consumers, consumer, side="right")
        ]
        its = its[(entries[its, _WORD] & _TAG > taken) & (when[its] > seq)]
        later = next_other or int(_next_of(firsts, np.array([seq]))[0]) or _NEVER
        if np.any((how[its] != GIVEN_BACK) | (when[its] >= later)):
            return False
    return True
