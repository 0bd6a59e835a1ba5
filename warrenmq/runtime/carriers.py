"""Carriers: greenlets that run one task of a simulation after another.

A new greenlet costs a mapping of memory, and the page faults of its first calls; a simulated run of a few
milliseconds starts fifty tasks.  Carriers that have nothing to do wait for the tasks of the next scheduler of
their thread.

A greenlet counts the frames of whoever switched to it first as its own.  A task is often switched to first by
another task, whose carrier may have begun in a third one's frames: so that nobody ends in a RecursionError,
one greenlet of each thread begins all carriers.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import local
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]

_MOST_IDLE = 64


class Carrier(greenlet):  # type: ignore[misc]
    """A greenlet for one task at a time; its first `switch` begins it, and its end switches to the parent, as
    that of any greenlet.
    """

    task: Callable[[], Any]

    def run(self) -> None:
        self.parent.switch()
        while True:
            error = self._end_of_task()
            if len(_IDLE.carriers) >= _MOST_IDLE:
                if error is not None:
                    raise error
                return
            _IDLE.carriers.append(self)
            parent = self.parent
            if error is None:
                parent.switch()
            else:
                parent.throw(error)
            del error, parent

    def _end_of_task(self) -> BaseException | None:
        """Run the task; returns what it raised, unless it was given up."""
        try:
            self.task()
        except GreenletExit:
            pass
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            return error
        finally:
            del self.task
        return None


class _Beginner(greenlet):  # type: ignore[misc]
    """A greenlet that gives its parent a new carrier at each switch to it."""

    def run(self) -> None:
        while True:
            begun = Carrier(parent=self)
            begun.switch()
            self.parent.switch(begun)


class _Idle(local):
    def __init__(self) -> None:
        self.carriers: list[Carrier] = []
        self.beginner = _Beginner()

    def begin(self) -> Carrier:
        self.beginner.parent = getcurrent()
        begun: Carrier = self.beginner.switch()
        return begun


_IDLE = _Idle()
"""The carriers of each thread that have no task."""


def carrier(task: Callable[[], Any], parent: Any) -> Carrier:
    """A carrier with a task that has not begun."""
    taken = _IDLE.carriers.pop() if _IDLE.carriers else _IDLE.begin()
    taken.parent, taken.task = parent, task
    return taken
