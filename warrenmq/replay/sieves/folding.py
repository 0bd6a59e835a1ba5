"""Summaries of machines that have to see their rows in order, made from columns: the same that their `summarise` makes.

These machines are told of almost every message, and what they keep of a piece is little, or regular.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from warrenmq.replay import fifo, files, garbage
from warrenmq.replay.garbage import States
from warrenmq.replay.machines import Key, Summary
from warrenmq.replay.sieves.columns import Bools, Ints, Places, Rows, groups
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
    reads = np.flatnonzero((word == int(Ev.READ) << 8 | DIRECT) & (rows.peer != 0))
    for store, where in _by(rows.peer[reads]):
        yield from _of_each_file(piece.run, store, rows, reads[where], rows.a, 0)
    store = _store(runs, piece) if np.isin(event, list(files.COLLECTORS)).any() else piece.actor
    if not store:
        return
    last_went = (word == files.REMOVED) | (event == Ev.REF_DROPPED)
    revived = word == files.REVIVED
    of_one = np.isin(event, list(files.OF_ONE))
    of_two = np.isin(event, list(files.OF_TWO))
    of_record = (last_went & (rows.b == 0)) | (revived & (rows.b == 1))
    first = np.flatnonzero(of_one | of_two | of_record)
    second = np.flatnonzero(of_two & (rows.a != rows.b))
    yield from _of_each_file(piece.run, store, rows, first, np.where(of_record, rows.pseq, rows.a), 1, second, rows.b)


def _of_each_file(run: int, store: int, rows: Rows, first: Places, file: Ints, mark: int,
                  second: Places | None = None, other: Ints | None = None) -> Iterator[tuple[Key, Summary]]:  # fmt: skip
    tables = [_table(rows, first, mark)]
    whose = [file[first]]
    if second is not None and other is not None:
        tables.append(_table(rows, second, 0))
        whose.append(other[second])
    table, number = np.concatenate(tables), np.concatenate(whose)
    for each, where in _by(number):
        # of two entries of one row each file gets one, so the order of rows is all that matters
        its = table[where]
        yield (run, store, each), array("q", its[np.argsort(its[:, 1], kind="stable")].tobytes())


def _table(rows: Rows, places: Places, mark: int) -> Ints:
    chosen = rows.at(places)
    word = (chosen.who & 0xFFFF) << 1 | mark
    return np.stack((chosen.t, chosen.seq, chosen.who >> 16, word, chosen.msg, chosen.pseq, chosen.b, chosen.c), axis=1)


def _by(numbers: Ints) -> Iterator[tuple[int, Places]]:
    """Each number, and the places where it stands."""
    order = np.argsort(numbers, kind="stable")
    for number, where in groups(numbers[order]):
        yield number, order[where]



def fold_garbage(runs: Sequence[Run], piece: Chunk, rows: Rows) -> Iterator[tuple[Key, tuple[int, States]]]:
    """What Garbage.summarise makes of rows of its events."""
    event = rows.event
    acts = rows.t[event != Ev.FILE_STATE]
    told = rows.where(event == Ev.FILE_STATE)
    states = list(zip(told.seq.tolist(), told.t.tolist(), told.b.tolist(), told.c.tolist(), strict=True))
    actor = _store(runs, piece) if np.isin(event, list(garbage.COLLECTOR)).any() else piece.actor
    if actor:
        yield (piece.run, actor), (int(acts.max()) if len(acts) else 0, states)


def _store(runs: Sequence[Run], piece: Chunk) -> int:
    """The store that a collector works for; 0 = nobody said."""
    entry = runs[piece.run].actors.get(piece.actor)
    return entry.parent if entry is not None else 0


FOLDS: dict[str, Callable[[Sequence[Run], Chunk, Rows], Iterator[tuple[Key, Summary]]]] = {
    "fifo": fold_fifo, "files": fold_files, "garbage": fold_garbage,
}  # fmt: skip
"""By machine."""
