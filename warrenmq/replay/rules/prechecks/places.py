"""Precheck of direct reads (places.py): each is at a place that a store or its collector told of that message.

Open rows are the records (message, store, file, offset, t), each once, and the reads that have not met theirs in the unit, flat;
and how many reads there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit, groups
from warrenmq.replay.drive.machines import JUDGED, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import OpenRows, Precheck
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.files import store_of_collector
from warrenmq.replay.rules.life import SHIFT
from warrenmq.replay.rules.places import MOVES, READ, RECORDS, DirectReads

_WIDTH = 5
_T = 4


class PlacesPrecheck(Precheck):
    """See the module."""

    machine: ClassVar[type[Machine]] = DirectReads

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(DirectReads.events)
        read = (rows.who & 0xFFFF == READ) & (rows.peer != 0)
        told = np.isin(rows.event, list(RECORDS))
        store = rows.actor.copy()
        for actor in np.unique(rows.actor[np.isin(rows.event, list(MOVES))]).tolist():
            store[(rows.actor == actor) & np.isin(rows.event, list(MOVES))] = store_of_collector(
                self.runs[unit.run], actor
            )
        store[read] = rows.peer[read]
        places = np.stack((rows.msg, store, rows.a, rows.b, rows.t), axis=1)
        records, reads = _firsts(places[told]), places[read]
        tables = (records, reads[~_are_in(reads, records)], reads)
        parts = [_by_bucket(each) for each in tables]
        nothing = np.zeros((0, _WIDTH), np.int64)
        for bucket in sorted(set().union(*parts)):
            its, lost, asked = (part.get(bucket, nothing) for part in parts)
            yield (unit.run, bucket), (its.reshape(-1), lost.reshape(-1), np.array([len(asked)], np.int64))

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        found: Bools = np.isin(rows.msg >> SHIFT, [int(key[1]) for key in keys if key[0] == run])
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        records, reads = (
            np.concatenate([each[part].reshape(-1, _WIDTH) for each in open_rows]) for part in (0, 1)
        )
        if not np.all(_are_in(reads, records)):
            return None
        outcome = Outcome()
        outcome.figures[JUDGED, "D1"] = sum(int(each[2][0]) for each in open_rows)
        return outcome


def _firsts(places: Ints) -> Ints:
    """Each place once, with its lowest t."""
    places = places[np.lexsort((places[:, _T], *places[:, :_T].T))]
    begins = np.ones(len(places), np.bool_)
    begins[1:] = np.any(np.diff(places[:, :_T], axis=0) != 0, axis=1)
    return places[begins]


def _by_bucket(table: Ints) -> dict[int, Ints]:
    buckets = table[:, 0] >> SHIFT
    order = np.argsort(buckets, kind="stable")
    return {bucket: table[order[where]] for bucket, where in groups(buckets[order])}


def _are_in(wanted: Ints, known: Ints) -> Bools:
    """Which places of one table are in the other, with a t that is not above theirs."""
    if not len(wanted):
        return np.zeros(0, np.bool_)
    both = np.concatenate((known, wanted))
    of_wanted = np.repeat([0, 1], [len(known), len(wanted)])
    order = np.lexsort((of_wanted, both[:, _T], *both[:, :_T].T))
    of_wanted = of_wanted[order]
    begins = np.ones(len(both), np.bool_)
    begins[1:] = np.any(np.diff(both[order, :_T], axis=0) != 0, axis=1)
    # within a place the first entry decides: what is known first is known to all that follow
    starts = np.flatnonzero(begins)
    told_first = of_wanted[starts][np.cumsum(begins) - 1] == 0
    found = np.zeros(len(both), np.bool_)
    found[order] = told_first
    return found[len(known) :]
