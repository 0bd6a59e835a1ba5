"""Waiting is working: a thread that waits runs the actors that it waits for.

A publisher that waits for its confirm would sleep while a worker runs the queue, and be woken by it: two changes of
thread, more than all the rest of a confirm.  So a thread from outside, before it sleeps, runs what its own sends made ready,
and what those actors made ready in turn, until its answer is there.  It runs nothing else: not a stranger's queue with a
slow sync, and never an actor that is not `helpable`, since that may run an application's code, which may want a lock that
the waiting thread holds.

An actor that waits, for a call without a time limit, runs only the actor that it called, on top of it, as a function
would be called: a graph of calls that ends under threads ends here.  Anything else that it waits for it leaves to the
other workers, and one more is let in.

A wait of less than LEAST_HELPING_WAIT seconds never helps: its end would wait for a disk that hangs.  A
longer one may overrun its limit by the slice that it is in.

Assumption.  A waiter registers its bell first and looks at the thing second; what it waits for changes first and looks for
bells second.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty
from time import monotonic
from typing import Any, Protocol

from warrenmq.runtime.helper import Helper
from warrenmq.runtime.thread_event import ThreadEvent, interpreter_ends, new_bell
from warrenmq.runtime.workers import BATCH, MISSING, Cell, Runner, here, wake
from warrenmq.seams.blocking import THIS_THREAD
from warrenmq.signals import PutOff

LEAST_HELPING_WAIT = 1.0
"""Seconds: a wait with a limit below it does not help."""
HELP = 0.05
"""Seconds after which a helper leaves the rest to the workers, and sleeps."""
FRAMES = 300
"""Frames that an actor may need on top of the one who waits: a deep caller must not give it a RecursionError."""
LOOK_AGAIN = 0.1
"""Seconds between the looks of an actor that waits whether there are still workers for the one that it waits for."""
_FOREVER = threading.TIMEOUT_MAX


class Awaited(Protocol):
    """A thing that can be waited for."""

    bells: list[threading.Lock]
    target: Cell | None
    """The actor that it is expected of, if that is known."""

    def is_there(self) -> bool: ...


def wait(thing: Awaited, timeout: float | None) -> bool:
    """Wait until `thing.is_there()`; False when `timeout` seconds have passed."""
    deadline = None if timeout is None else monotonic() + timeout
    runner = here.runner
    if runner is None:
        runner = here.runner = Helper()
    if runner.cell is not None:
        if timeout is None:
            _run_callee(thing, runner)
    elif type(runner) is Helper:
        runner.waits()
        if (timeout is None or timeout >= LEAST_HELPING_WAIT) and _help(thing, runner):
            return True
    return thing.is_there() or _sleep(thing, runner, deadline)


def _help(thing: Awaited, helper: Helper) -> bool:
    """Run what this thread may run until the thing is there; True if it is."""
    if (thing.target is None and not helper.mine) or _is_deep():
        return False
    if not helper.is_main:
        return _run_mine(thing, helper)
    if not _has_next(thing.target, helper):
        return False
    with PutOff():  # before a cell is taken out of its line
        return _run_mine(thing, helper)


def _run_mine(thing: Awaited, helper: Helper) -> bool:
    if (cell := _next(thing.target, helper)) is None:
        return False
    until = monotonic() + HELP
    before, THIS_THREAD.blocking = THIS_THREAD.blocking, helper
    cells = set()
    try:
        while cell is not None:
            cells.add(cell.workers)
            cell.workers.helping.add(helper)
            cell.workers.run(cell, helper, _until(thing))
            if thing.is_there():
                return True
            if monotonic() > until:
                return False
            cell = _next(thing.target, helper)
        return False
    finally:
        for workers in cells:
            workers.helping.discard(helper)
        THIS_THREAD.blocking = before
        if helper.mine:
            helper.hand_over()


def _until(thing: Awaited) -> Iterator[tuple[()]]:
    """Turns of a slice that ends once the thing is there."""
    for _ in range(BATCH):
        if thing.is_there():
            return
        yield ()


def _has_next(target: Cell | None, helper: Helper) -> bool:
    """True if there is a cell for `_next`; forgets those that are in no line any more."""
    if target is not None and target.helpable and target in target.workers.ready:
        return True
    mine = helper.mine
    with suppress(IndexError):  # as in _next
        while mine:
            if mine[0] in mine[0].workers.ready:
                return True
            mine.popleft()
    return False


def _next(target: Cell | None, helper: Helper) -> Cell | None:
    """Take the next cell that this thread may run out of its line."""
    if target is not None and target.helpable and target.workers.ready.pop(target, MISSING) is not MISSING:
        return target
    mine = helper.mine
    try:
        while mine:
            cell = mine.popleft()
            if cell.workers.ready.pop(cell, MISSING) is not MISSING:
                return cell
    except IndexError:  # the handler of a signal has waited, and ran the last one
        pass
    return None


def _run_callee(thing: Awaited, runner: Runner) -> None:
    target = thing.target
    if target is None or not target.helpable or _is_deep():
        return
    while not thing.is_there() and target.workers.ready.pop(target, MISSING) is not MISSING:
        target.workers.run(target, runner, _until(thing))


def _without_worker(target: Cell | None) -> Cell | None:
    """Take the cell that an actor waits for out of the line when no thread can be had to run it."""
    if target is None or target not in target.workers.ready or target.workers.call_worker():
        return None
    return None if target.workers.ready.pop(target, MISSING) is MISSING else target


def _is_deep() -> bool:
    try:
        sys._getframe(sys.getrecursionlimit() - FRAMES)  # noqa: SLF001 - documented, and the only way to ask
    except ValueError:
        return False
    return True


def _sleep(thing: Awaited, runner: Runner, deadline: float | None) -> bool:
    if sys.is_finalizing():
        raise interpreter_ends()
    bell = new_bell()
    longest = _FOREVER if runner.cell is None else LOOK_AGAIN
    thing.bells.append(bell)
    try:
        with runner:
            while not thing.is_there():
                left = _FOREVER if deadline is None else deadline - monotonic()
                if left <= 0:
                    return False
                if runner.cell is not None and (callee := _without_worker(thing.target)) is not None:
                    callee.workers.run(callee, runner, _until(thing))
                else:
                    bell.acquire(timeout=min(left, longest))
        return True
    finally:
        thing.bells.remove(bell)


class Event(ThreadEvent):
    """An Event (seams.py) that a waiting thread works for."""

    __slots__ = ("target",)

    def __init__(self, target: Cell | None = None) -> None:
        super().__init__()
        self.target = target

    is_there = ThreadEvent.is_set

    def set(self) -> None:
        self._set = True
        for bell in tuple(self.bells):
            wake(bell)

    def wait(self, timeout: float | None = None) -> bool:
        return self._set or wait(self, timeout)


class Channel:
    """A Channel (seams.py) that a waiting thread works for."""

    __slots__ = ("_items", "bells", "target")

    def __init__(self, target: Cell | None = None) -> None:
        self._items: deque[Any] = deque()
        self.bells: list[threading.Lock] = []
        self.target = target

    def put(self, item: Any, /) -> None:
        self._items.append(item)
        for bell in tuple(self.bells):
            wake(bell)

    def get(self, *, timeout: float | None = None) -> Any:
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            try:
                return self._items.popleft()
            except IndexError:
                left = None if deadline is None else max(0.0, deadline - monotonic())
                if not wait(self, left):
                    raise Empty from None

    def get_nowait(self) -> Any:
        try:
            return self._items.popleft()
        except IndexError:
            raise Empty from None

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)

    def is_there(self) -> bool:
        return bool(self._items)
