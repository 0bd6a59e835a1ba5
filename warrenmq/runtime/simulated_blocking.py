"""The blocking things of the simulation: a caller that must wait gives its turn away instead of blocking."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from queue import Empty, Full
from types import TracebackType
from typing import Any, ClassVar, Generic, TypeVar

from pykka import Future, Timeout

from warrenmq.runtime.scheduler import Scheduler, Task

T = TypeVar("T")


class SimChannel:
    """A Channel of the simulation, as queue.SimpleQueue is for threads."""

    __slots__ = ("_items", "_label", "_scheduler", "_waiters")

    def __init__(self, scheduler: Scheduler, label: object = "a channel") -> None:
        self._scheduler = scheduler
        self._label = label
        self._items: deque[Any] = deque()
        self._waiters: list[Task] = []

    def put(self, item: Any, /) -> None:
        self._items.append(item)
        if self._waiters:
            self._scheduler.wake(self._waiters)
        self._scheduler.checkpoint()

    def get(self, *, timeout: float | None = None) -> Any:
        while not self._items:
            if not self._scheduler.wait(self._waiters, self._label, timeout):
                raise Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise Empty
        return self._items.popleft()

    def empty(self) -> bool:
        """A mailbox calls it between any two messages, so it is a point where another actor may run."""
        self._scheduler.checkpoint()
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class SimEvent:
    """An Event of the simulation, as threading.Event is for threads."""

    __slots__ = ("_scheduler", "_set", "_waiters")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiters: list[Task] = []

    def set(self) -> None:
        self._set = True
        while self._waiters:
            self._scheduler.wake(self._waiters)
        self._scheduler.checkpoint()

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        return self._set or self._scheduler.wait(self._waiters, "an event", timeout)


class SimLock:
    """A Lock of the simulation, as threading.Lock is for threads; a task that is given up releases it."""

    __slots__ = ("_holder", "_scheduler", "_waiters")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._holder: Task | None = None
        self._waiters: list[Task] = []

    def acquire(self) -> bool:
        while self._holder is not None:
            self._scheduler.wait(self._waiters, f"the lock that {self._holder.name} holds", None)
        self._holder = self._scheduler.current
        self._holder.locks.append(self)
        return True

    def release(self) -> None:
        if self._holder is not None:
            self.release_of(self._holder)

    def release_of(self, task: Task) -> None:
        """Release it on behalf of `task`, if that still holds it."""
        if self._holder is task:
            task.locks.remove(self)
            self._holder = None
            self._scheduler.wake(self._waiters)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.release_of(self._scheduler.current)


_PATIENCE = 1.0
"""Seconds after which a suspended actor goes on though nobody ended its wait: more than a sync takes, even on a slow disk."""


class SimSuspension:
    """A Suspension of the simulation: its actor waits in its own task, as no thread is held by it.

    The wait would be ended in a `finally`, which does not run in an actor that is killed in a simulation.  So the
    wait has a limit: the actor goes on with its own sync, which does what is missing.
    """

    def __init__(self, spawn: Callable[[Callable[[], object]], None], over: SimEvent) -> None:
        self.run_later = spawn
        self.over = over.set
        self._wait = over.wait

    def begin(self) -> bool:
        self._wait(_PATIENCE)
        return False


class PerTask(Generic[T]):
    """An object for each task of the simulation, as PerThread is for threads."""

    def __init__(self, scheduler: Scheduler, make: Callable[[], T]) -> None:
        self._scheduler = scheduler
        self._make = make
        self._made: dict[Task, T] = {}

    @property
    def own(self) -> T:
        """The current task's."""
        current = self._scheduler.current
        task = current.shares or current
        if task not in self._made:
            self._made[task] = self._make()
        return self._made[task]


class SimFuture(Future[Any]):
    """A Pykka future of the simulation.  Pykka makes futures without arguments, so each scheduler has a class of its own."""

    scheduler: ClassVar[Scheduler]

    def __init__(self) -> None:
        super().__init__()
        self._done = SimEvent(self.scheduler)
        self._result: tuple[Any, Any] | None = None

    def get(self, *, timeout: float | None = None) -> Any:
        if self._get_hook is not None:
            return super().get(timeout=timeout)
        if not self._done.wait(timeout):
            raise Timeout(f"{timeout} seconds")
        assert self._result is not None
        value, exc_info = self._result
        if exc_info is not None:
            raise exc_info[1]
        return value

    def set(self, value: Any = None) -> None:
        self._settle((value, None))

    def set_exception(self, exc_info: Any = None) -> None:
        self._settle((None, exc_info or sys.exc_info()))

    def _settle(self, result: tuple[Any, Any]) -> None:
        if self._result is not None or self._get_hook is not None:
            raise Full
        self._result = result
        self._done.set()
