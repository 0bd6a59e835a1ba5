"""Precheck of what stores told queues (on_disk.py): a STORE_CONFIRM and the ON_DISK row of the same queue and message.

Open rows are what was told (queue, message, flag) and not heard, and what was heard and not told, flat.  At the end
something may be left that was told, for a queue that died does not hear it; nothing that was heard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit, doubles, groups, look_up
from warrenmq.replay.drive.machines import Key, Machine, Outcome
from warrenmq.replay.drive.precheck import OpenRows, Precheck
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.life import SHIFT
from warrenmq.replay.rules.on_disk import OnDisk
from warrenmq.trace.events import Ev

_MIX = (-0x61C8864680B583EB, 0x2545F4914F6CDD1D, 0x369DEA0F31A53F85)
"""Odd numbers that spread bits; the rows are compared themselves afterwards."""


class OnDiskPrecheck(Precheck):
    """See the module."""

    machine: ClassVar[type[Machine]] = OnDisk

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        said = unit.of(frozenset({Ev.STORE_CONFIRM}))
        heard = unit.of(frozenset({Ev.ON_DISK}))
        told = np.stack((said.peer, said.msg, said.flag), axis=1)
        took = np.stack((heard.actor, heard.msg, heard.flag), axis=1)
        open_told, open_took = _cancel(told, took)
        for bucket, rows_left in _by_bucket(told[open_told], took[open_took]).items():
            yield (unit.run, bucket), rows_left

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        found: Bools = np.isin(rows.msg >> SHIFT, [int(key[1]) for key in keys if key[0] == run])
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        told, took = (np.concatenate([each[side].reshape(-1, 3) for each in open_rows]) for side in (0, 1))
        _, open_took = _cancel(told, took)
        return None if open_took.any() else Outcome()


def _cancel(told: Ints, took: Ints) -> tuple[Bools, Bools]:
    """Which rows of each have no equal in the other; rows that are there twice have none."""
    told_codes, took_codes = _mixed(told), _mixed(took)
    order, other = np.argsort(told_codes, kind="stable"), np.argsort(took_codes, kind="stable")
    told_codes, took_codes = told_codes[order], took_codes[other]
    at, found = look_up(told_codes, took_codes)
    found &= ~doubles(took_codes)
    if len(told):
        found &= ~doubles(told_codes)[at] & np.all(told[order[at]] == took[other], axis=1)
    open_told, open_took = np.ones(len(told), np.bool_), np.ones(len(took), np.bool_)
    open_told[order[at[found]]] = False
    open_took[other[found]] = False
    return open_told, open_took


def _mixed(rows: Ints) -> Ints:
    mixed: Ints = rows[:, 0] * _MIX[0] ^ rows[:, 1] * _MIX[1] ^ rows[:, 2] * _MIX[2]
    return mixed


def _by_bucket(told: Ints, took: Ints) -> dict[int, OpenRows]:
    nothing = np.zeros(0, np.int64)
    found: dict[int, OpenRows] = {}
    for bucket, rows in _split(told):
        found[bucket] = (rows.reshape(-1), nothing)
    for bucket, rows in _split(took):
        found[bucket] = (found.get(bucket, (nothing,))[0], rows.reshape(-1))
    return found


def _split(rows: Ints) -> Iterator[tuple[int, Ints]]:
    buckets = rows[:, 1] >> SHIFT
    order = np.argsort(buckets, kind="stable")
    for bucket, where in groups(buckets[order]):
        yield bucket, rows[order[where]]
