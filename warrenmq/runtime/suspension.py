"""Suspension: an actor that waits for a shared sync gives its thread back, and is run again when the sync is done.

A thousand queues that are published to in turn share a sync, and need not hold a thread each until it is done:

    worker       runs q1, which submits its writes; q2, too; q3; ... then the job that writes and syncs all of them
    q1, q2, ...  go on where they were, one after another

The actor stays claimed: it handles no mail meanwhile, as if it stood in the sync.  Two threads have a last
word: the one that ran it, when it has come out of the actor, and the one that says that the wait is over.
The second of them has the actor go on.

Erlang's processes wait for less than a thread anyway.
"""

from __future__ import annotations

from collections import deque

from warrenmq.runtime.workers import Cell


class PooledSuspension:
    """A Suspension (seams.py) of a Cell."""

    __slots__ = ("_cell", "_first", "run_later")

    def __init__(self, cell: Cell) -> None:
        self.run_later = cell.workers.jobs.put
        self._cell = cell
        self._first = deque((None,))  # whoever finds it empty comes second

    def begin(self) -> bool:
        """Suspend the actor; called in it, as the last thing before its thread leaves it."""
        self._cell.suspension = self
        return True

    def over(self) -> None:
        """End the wait; from the thread that did the thing, and then from the one that ran the actor, or the
        other way round.
        """
        try:
            self._first.pop()
        except IndexError:
            self._cell.go_on()
