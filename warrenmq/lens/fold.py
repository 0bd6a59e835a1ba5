"""The fold: turn the rows of a trace into changes of the picture's tables.

    with open_trace("trace/") as trace:
        fold = Fold(trace)
        for step in fold.steps():          # each row, from the first on
            ...
        tables = fold.at(12_000)           # the state after row 12,000; row 0 is before all
        tables["file"]["p/0"]              # (bytes appended, handed to the system, synced, garbage, state)

    folding = Folding(runs)                # the same for rows as they come: a simulation, a live trace
    step = folding.step(run, row)          # `runs[run]` has the names of the row's actors and message kinds
    folding.number                         # of the row, from 1
    folding.tables                         # the state now, a dict for each name in tables.NAMES

A Step has the changes (table, key, new, old), the caption (captions.render), the message, what travels, the
mark and the cause; tables.py describes all of it and every table.  Rows are numbered from 1, run by run in
the order of their times, as in `warrenmq trace show`.

A reader that keeps the changes can go both ways without knowing what a broker is: tables.apply and
tables.undo, and static/tape.js in the page.  `at` goes back by way of checkpoints.

Rows may also begin anywhere: what was there before is then not known, and only what was told since is shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from warrenmq.lens.rows import collector, index, lives, mail, queues, remarks, routing, stores
from warrenmq.lens.rows.handler import merged
from warrenmq.lens.scene import ActorNotes, Scene
from warrenmq.lens.tables import Caption, Change, Key, Step, Tables, named
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.trace.catalog import Run
from warrenmq.trace.reader import Trace
from warrenmq.trace.schema import Row


def _other(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    """Handle an event of a later version."""
    name = scene.runs[scene.run].event_name(row.event)
    return "{0}: " + name.lower().replace("_", " ") + ".", me.name


_HANDLERS = merged(
    (module.HANDLERS for module in (collector, index, lives, mail, queues, remarks, routing, stores)), _other
)
_CHECKPOINT_ROWS = 1_000
_MOST_CHECKPOINTS = 64
_MOST_KEPT = 100_000
"""The most rows of tables in all checkpoints together, so that a broker with many messages is not copied sixty times."""
_new = tuple.__new__
"""Makes a Step in half the time that its class takes."""


class Folding:
    """Folds rows one by one."""

    def __init__(self, runs: Sequence[Run], first: int = 0) -> None:
        """`runs` may grow while rows come; `first` is the number of rows before them."""
        self._scene = Scene(runs)
        self._scene.number = first

    @property
    def number(self) -> int:
        """The number of the last folded row."""
        return self._scene.number

    @property
    def tables(self) -> Tables:
        """The state after the last folded row; do not change it."""
        return self._scene.tables

    def number_of(self, msg: int) -> int:
        """The display number of a message id of this boot or of an earlier one."""
        return self._scene.message(msg)

    def copied(self) -> Folding:
        """Copy the fold; the copy is independent, and does not know which of the rows so far are causes of later ones."""
        other = object.__new__(Folding)
        other._scene = self._scene.copied()
        return other

    def step(self, run: int, row: Row) -> Step:
        """Fold one row; `run` is the index of its run."""
        scene = self._scene
        scene.number += 1
        changes: list[Change] = []
        scene.changes = changes
        scene.move, scene.mark = None, 0
        if run != scene.run:
            scene.new_run(run)
        who, msg = row.who, row.msg
        me = scene.actors.get(who >> 16)
        if me is None or not me.is_met:
            me = scene.meet(who >> 16)
        scene.about = scene.message(msg) if msg else 0
        scene.cause = me.handling
        caption = _HANDLERS[who >> 8 & 0xFF](scene, me, row)
        me.last = scene.number
        return _new(Step, (changes, caption, scene.about, scene.move, scene.mark, scene.cause))


class _Checkpoint(NamedTuple):
    """A state on the way, and where the rows behind it begin."""

    number: int
    """The number of the last row in it."""
    folding: Folding
    since: tuple[int, int]
    """(run, time) of the next row; no earlier row has this time."""

    @property
    def size(self) -> int:
        """The number of rows in its tables."""
        return sum(map(len, self.folding.tables))


class Fold:
    """The fold of a trace, with checkpoints."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._checkpoints = [_Checkpoint(0, Folding(trace.catalog.runs), (0, 0))]
        self._every = _CHECKPOINT_ROWS

    @property
    def rows(self) -> int:
        """The number of rows in the trace."""
        return self._trace.catalog.rows

    def steps(self) -> Iterator[Step]:
        """Iterate over the step of each row, from the first on."""
        return self._steps(self._checkpoints[0])[1]

    def at(self, row: int) -> dict[str, dict[Key, Any]]:
        """The tables after a row, by name; IndexError if there is no such row."""
        if not 0 <= row <= self.rows:
            raise IndexError(f"row {row} is not between 0 and {self.rows}")
        begin = self._checkpoints[bisect_right(self._checkpoints, row, key=lambda each: each.number) - 1]
        folding, steps = self._steps(begin)
        deque(islice(steps, row - begin.number), maxlen=0)
        return named(folding.tables)

    def _steps(self, begin: _Checkpoint) -> tuple[Folding, Iterator[Step]]:
        """A fold that goes on from a checkpoint, and its steps, each made when it is asked for."""
        folding = begin.folding.copied()
        return folding, self._kept(folding, rows_in_order(self._trace, since=begin.since))

    def _kept(self, folding: Folding, rows: Iterator[tuple[int, Row]]) -> Iterator[Step]:
        """Fold rows, and keep checkpoints between two of different times when they are due."""
        before = -1, -1
        for run, row in rows:
            now = run, row.t
            if now != before and folding.number >= self._checkpoints[-1].number + self._every:
                self._keep(_Checkpoint(folding.number, folding.copied(), now))
            before = now
            yield folding.step(run, row)

    def _keep(self, checkpoint: _Checkpoint) -> None:
        self._checkpoints.append(checkpoint)
        while len(self._checkpoints) > _MOST_CHECKPOINTS or (
            len(self._checkpoints) > 2 and sum(each.size for each in self._checkpoints) > _MOST_KEPT
        ):
            self._every *= 2
            del self._checkpoints[1::2]  # the first one stays
