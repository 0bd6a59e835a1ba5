"""Precheck of confirms (confirms.py, the queue's side of C1, and C3): a PUBLISH that wants a confirm, and what must lie between.

By the numbers of a queue's rows, where `p < x < c` means that there is an x between PUBLISH and CONFIRM:

    CONFIRM                 message                fine when
    nack                    any                    p < c
    transient               not persistent         p < c
    durable                 embedded               p < QI_SYNC < c
    durable                 in the store           p < its one ON_DISK < c, and if that is no IGNORED, p < QI_SYNC < c

Of a unit there are left: the publishes and the confirms that have not met (or met, and it was not fine yet), the ON_DISK rows of
messages that are not confirmed, and the first and the last sync.  That is enough: between rows of two units lies a sync
if one of them has one after the first or before the second, or one between them has any.

A sequence id or a body in the store that comes a second time is for the machine: sequence ids must rise, in each unit and
from unit to unit, and no open message may be among those that were answered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from warrenmq.replay.drive.columns import (
    Bools,
    Ints,
    Rows,
    Unit,
    doubles,
    expand,
    group_starts,
    groups,
    look_up,
)
from warrenmq.replay.drive.machines import Key, Machine, Outcome
from warrenmq.replay.drive.precheck import OpenRows, Precheck
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.confirms import Confirms
from warrenmq.trace.events import (
    CONFIRM_DURABLE,
    CONFIRM_NACK,
    CONFIRM_TRANSIENT,
    IGNORED,
    IN_STORE,
    PERSISTENT,
    PRIORITY_SHIFT,
    WANTS_CONFIRM,
    WRITTEN,
    Ev,
)

_LONGEST = 1 << 20
"""Messages in one row that are looked at one by one."""


@dataclass(frozen=True, slots=True)
class Open:
    """What is open of one queue."""

    published: Ints
    """(sequence id, message, flags, seq), by rising sequence ids."""
    confirmed: Ints
    """(sequence id, flag, seq)"""
    on_disk: Ints
    """(message, flag, seq)"""
    syncs: Ints
    """seqs, rising."""
    answered: Ints
    """Messages in the store that need nothing more."""
    spans: Ints
    """(priority, seq of the first PUBLISH, first sequence id, last)."""

    def packed(self) -> OpenRows:
        return (
            self.published.reshape(-1), self.confirmed.reshape(-1), self.on_disk.reshape(-1), self.syncs, self.answered,
            self.spans.reshape(-1),
        )  # fmt: skip


class ConfirmsPrecheck(Precheck):
    """See the module."""

    machine: ClassVar[type[Machine]] = Confirms

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(Confirms.events)
        for actor, where in groups(rows.actor):
            found = _open_of(rows.between(where.start, where.stop))
            yield (unit.run, actor), () if found is None else found.packed()

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        found: Bools = np.isin(rows.actor, [int(key[1]) for key in keys if key[0] == run])
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        published, confirmed, on_disk = (
            np.concatenate([each[part].reshape(-1, width) for each in open_rows])
            for part, width in ((0, 4), (1, 3), (2, 3))
        )
        syncs, answered, spans = (np.concatenate([each[part] for each in open_rows]) for part in (3, 4, 5))
        if not _rise(spans.reshape(-1, 4)):
            return None
        published = published[np.argsort(published[:, 0], kind="stable")]
        left = _match(Open(published, confirmed, on_disk, np.sort(syncs), answered, spans))
        if left is None or len(left.confirmed) or np.isin(published[:, 1], answered).any():
            return None
        who = int(key[0]), int(key[1])
        if len(left.published) and context.actor_summary(who).closed is not None and np.any(_owed(left)):
            return None
        if (
            len(left.published)
            and len(left.syncs)
            and np.any(_owed(left) & (left.published[:, 3] < left.syncs[-1]))
        ):
            return None  # C4
        return Outcome()


def _owed(left: Open) -> Bools:
    """Which open publishes lack nothing but their confirm, or what was published together with them does."""
    found: Bools = (left.published[:, 2] & IN_STORE == 0) | np.isin(left.published[:, 1], left.on_disk[:, 0])
    return found


def _rise(spans: Ints) -> bool:
    """Whether each priority's sequence ids rise from unit to unit."""
    spans = spans[np.lexsort((spans[:, 1], spans[:, 0]))]
    return bool(np.all((spans[1:, 0] != spans[:-1, 0]) | (spans[1:, 2] > spans[:-1, 3])))


def _spans(ids: Ints, seqs: Ints) -> Ints | None:
    """Of sequence ids in the order of their rows; None if those of a priority do not rise."""
    priority = ids >> PRIORITY_SHIFT
    order = np.argsort(priority, kind="stable")
    ids, seqs, priority = ids[order], seqs[order], priority[order]
    if np.any((np.diff(ids) <= 0) & (np.diff(priority) == 0)):
        return None
    starts = group_starts(priority)
    ends = np.append(starts, len(ids))[1:] - 1
    return np.stack((priority[starts], seqs[starts], ids[starts], ids[ends]), axis=1)


def _open_of(rows: Rows) -> Open | None:
    """The rows of one queue in a unit; None if there is something that is never fine."""
    event = rows.event
    if np.any(rows.b[(event == Ev.PUBLISH) | (event == Ev.CONFIRM)] > _LONGEST):
        return None
    publish, confirm = rows.where(event == Ev.PUBLISH), rows.where(event == Ev.CONFIRM)
    heard = rows.where(event == Ev.ON_DISK)
    row, ids = expand(publish.a, publish.b)
    messages = publish.msg[row] + ids - publish.a[row]
    published = np.stack((ids, messages, publish.flag[row], publish.seq[row]), axis=1)
    spans = _spans(ids, publish.seq[row])
    if spans is None:
        return None
    published = published[np.argsort(ids, kind="stable")]
    row, ids = expand(confirm.a, confirm.b)
    confirmed = np.stack((ids, confirm.flag[row], confirm.seq[row]), axis=1)
    on_disk = np.stack((heard.msg, heard.flag, heard.seq), axis=1)
    nothing = np.zeros(0, np.int64)
    left = _match(Open(published, confirmed, on_disk, rows.seq[event == Ev.QI_SYNC], nothing, spans))
    return (
        None if left is None else replace(left, syncs=left.syncs[[0, -1]] if len(left.syncs) else left.syncs)
    )


def _match(rows: Open) -> Open | None:
    """Take away what is fine; None if ids, or bodies that the store was given, are there twice."""
    published, confirmed, on_disk = rows.published, rows.confirmed, rows.on_disk
    wants = published[:, 2] & WANTS_CONFIRM != 0
    bodies = np.sort(published[published[:, 2] & IN_STORE != 0, 1])
    if any(np.any(doubles(each)) for each in (published[:, 0], np.sort(confirmed[:, 0]), bodies)):
        return None
    at, known = look_up(published[:, 0], confirmed[:, 0])
    if len(published):
        met = published[at]
        told, tells = _heard_of(published, on_disk)
        fine = known & wants[at] & _is_fine(met, confirmed, on_disk, told[at], rows.syncs)
    else:
        fine, tells = known, np.zeros(len(on_disk), np.bool_)
    answered = ~wants
    answered[at[fine]] = True
    settled = np.zeros(len(on_disk), np.bool_)
    if len(published):
        owners, _ = _owner(published, on_disk)
        settled = tells & answered[owners]
    over = published[answered & (published[:, 2] & IN_STORE != 0), 1]
    return Open(published[~answered], confirmed[~fine], on_disk[~settled], rows.syncs, over, rows.spans)


def _owner(published: Ints, on_disk: Ints) -> tuple[Ints, Bools]:
    """For each ON_DISK row the place of the message that it speaks of, and whether there is one."""
    order = np.argsort(published[:, 1], kind="stable")
    at, known = look_up(published[order, 1], on_disk[:, 0])
    owners: Ints = order[at] if len(order) else at
    return owners, known


def _heard_of(published: Ints, on_disk: Ints) -> tuple[Ints, Bools]:
    """For each message the place of its one ON_DISK row (-1: none or several), and which rows speak of a message."""
    owners, known = _owner(published, on_disk)
    places = np.flatnonzero(known)
    told = np.full(len(published), -1, np.int64)
    told[owners[places]] = places
    several = np.bincount(owners[places], minlength=len(published)) > 1
    told[several] = -1
    return told, known


def _is_fine(met: Ints, confirmed: Ints, on_disk: Ints, told: Ints, syncs: Ints) -> Bools:
    """Publish by publish, with its confirm."""
    _, _, flags, begins = met.T
    _, kind, ends = confirmed.T
    synced = np.searchsorted(syncs, begins) < np.searchsorted(syncs, ends)
    in_store = flags & IN_STORE != 0
    said = told >= 0
    if len(on_disk):
        reason, heard = on_disk[told, 1], on_disk[told, 2]
        said &= (begins < heard) & (heard < ends)
        stored = said & ((reason == IGNORED) | ((reason == WRITTEN) & synced))
    else:
        stored = said
    fine: Bools = (begins < ends) & np.select(
        [kind == CONFIRM_NACK, kind == CONFIRM_TRANSIENT, kind == CONFIRM_DURABLE],
        [np.ones(len(met), np.bool_), flags & PERSISTENT == 0, np.where(in_store, stored, synced)],
        default=False,
    )
    return fine
