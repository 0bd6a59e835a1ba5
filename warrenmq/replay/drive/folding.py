"""Summaries of machines that have to see their rows in order, made from columns: the same that their `summarise` makes.

These machines are told of almost every message, and what they keep of a piece is little, or regular.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from warrenmq.replay.drive.columns import Bools, Ints, Places, Rows
from warrenmq.replay.drive.machines import Key, Summary
from warrenmq.replay.rules import fifo, files, garbage
from warrenmq.replay.rules.garbage import States
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.events import DIRECT, PRIORITY_SHIFT, Ev


def fold_fifo(runs: Sequence[Run], piece: Chunk, rows: Rows) -> Iterator[tuple[Key, list[fifo.Operation]]]:  # noqa: ARG001
    """What Fifo.summarise makes of rows of its events."""
    event, flag = rows.event, rows.flag
    rows = rows.where(~((event == Ev.DROP) & np.isin(flag, fifo.UNREADY)))
    if not len(rows):
        return
    event, flag, lo = rows.event, rows.flag, rows.a
    hi = lo + rows.b
    publishes, takes = event == Ev.PUBLISH, event == Ev.DELIVER
    begins = ~(publishes | takes)  # requeued, recovered, dropped: these join nothing
    barriers = np.cumsum(begins)
    begins[publishes] = ~_joins(lo[publishes], hi[publishes], barriers[publishes], below=1 << PRIORITY_SHIFT)
    barriers = np.cumsum(begins)
    begins[takes] = ~_joins(lo[takes], hi[takes], barriers[takes], below=1 << 62)
    kind = np.select(
        [publishes, takes, (event == Ev.DROP) & np.isin(flag, fifo.SHEDS), event == Ev.DROP],
        [fifo.NEW, fifo.TAKE, fifo.SHED, fifo.REMOVE],
        default=fifo.ADD,
    )
    end = hi.copy()
    for joined in (publishes, takes):
        end[joined] = _ends(hi[joined], begins[joined])
    operations = np.stack((kind, lo, end, rows.seq, rows.t), axis=1)[begins]
    yield (piece.run, piece.actor), operations.tolist()


def _joins(lo: Ints, hi: Ints, barriers: Ints, *, below: int) -> Bools:
    """Which ranges go on where the one before ended, with nothing in between that counts."""
    joins = np.zeros(len(lo), np.bool_)
    joins[1:] = (lo[1:] == hi[:-1]) & (barriers[1:] == barriers[:-1]) & (lo[1:] < below)
    return joins


def _ends(hi: Ints, begins: Bools) -> Ints:
    """For each range where the last one that it is joined with ends; right at the places where one begins."""
    places = np.flatnonzero(begins)
    lasts = np.append(places, len(hi))[1:] - 1
    found = hi.copy()
    found[places] = hi[lasts]
    return found


def fold_files(runs: Sequence[Run], piece: Chunk, rows: Rows) -> Iterator[tuple[Key, Summary]]:
    """What Files.summarise makes of rows of its events."""
    word = rows.who & 0xFFFF
    event = word >> 8
    collects = np.isin(event, list(files.COLLECTORS))
    store = np.where(collects, files.store_of_collector(runs[piece.run], piece.actor), piece.actor)
    last_went = (word == files.REMOVED) | (event == Ev.REF_DROPPED)
    of_record = (last_went & (rows.b == 0)) | ((word == files.REVIVED) & (rows.b == 1))
    of_two = np.isin(event, list(files.OF_TWO))
    read = (word == int(Ev.READ) << 8 | DIRECT) & (rows.pseq != 0)
    of_one = np.isin(event, list(files.OF_ONE))
    first = np.flatnonzero(of_record | of_two | of_one | read)
    second = np.flatnonzero(of_two & (rows.a != rows.b))
    table = np.concatenate(
        (
            _table(rows, first, np.where(read[first], 0, 1)),
            _table(rows, second, np.zeros(len(second), np.int64)),
        )
    )
    whose = np.concatenate((np.where(read, rows.peer, store)[first], store[second]))
    file = np.concatenate((np.where(of_record, rows.pseq, rows.a)[first], rows.b[second]))
    order = np.lexsort((table[:, 1], file, whose))
    table, whose, file = table[order], whose[order], file[order]
    starts = np.flatnonzero(
        np.concatenate(([True], (whose[1:] != whose[:-1]) | (file[1:] != file[:-1])))[: len(whose)]
    )
    for at, end in zip(starts.tolist(), np.append(starts, len(whose))[1:].tolist(), strict=True):
        if whose[at]:
            yield (piece.run, int(whose[at]), int(file[at])), array("q", table[at:end].tobytes())


def _table(rows: Rows, places: Places, mark: Ints) -> Ints:
    chosen = rows.at(places)
    word = (chosen.who & 0xFFFF) << 1 | mark
    return np.stack(
        (chosen.t, chosen.seq, chosen.who >> 16, word, chosen.msg, chosen.pseq, chosen.b, chosen.c), axis=1
    )


def fold_garbage(runs: Sequence[Run], piece: Chunk, rows: Rows) -> Iterator[tuple[Key, tuple[int, States]]]:
    """What Garbage.summarise makes of rows of its events."""
    event = rows.event
    collects = np.isin(event, list(garbage.COLLECTOR))
    collector_of = files.store_of_collector(runs[piece.run], piece.actor)
    for store, its in ((piece.actor, rows.where(~collects)), (collector_of, rows.where(collects))):
        if store and len(its):
            acts = its.t[its.event != Ev.FILE_STATE]
            told = its.where(its.event == Ev.FILE_STATE)
            states = list(
                zip(told.seq.tolist(), told.t.tolist(), told.b.tolist(), told.c.tolist(), strict=True)
            )
            yield (piece.run, store), (int(acts.max()) if len(acts) else 0, states)


FOLDS: dict[str, Callable[[Sequence[Run], Chunk, Rows], Iterator[tuple[Key, Summary]]]] = {
    "fifo": fold_fifo, "files": fold_files, "garbage": fold_garbage,
}  # fmt: skip
"""By machine."""
