"""The few things of threads that a scheduler supplies: what parks a thread or a greenlet, and what each has of its own.

`queue.SimpleQueue` and `threading.Lock` are the threads' answers as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Channel(Protocol):
    """A FIFO any number of actors and outsiders may put into and take from."""

    def put(self, item: Any, /) -> None: ...

    def get(self, *, timeout: float | None = None) -> Any:
        """The oldest item; waits for one, at most `timeout` seconds, then raises queue.Empty."""

    def get_nowait(self) -> Any: ...

    def empty(self) -> bool: ...

    def qsize(self) -> int: ...


class Event(Protocol):
    """A flag that can be waited for."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Lock(Protocol):
    """Held by one at a time."""

    def acquire(self) -> bool: ...

    def release(self) -> None: ...

    def __enter__(self) -> bool: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


class Suspension(Protocol):
    """One wait of one actor that need not hold its thread; a Waiter (seams/disk.py)."""

    def run_later(self, job: Callable[[], object]) -> None:
        """Have a job done by another thread, or by this one once the actors that are ready now had their turn."""

    def begin(self) -> bool:
        """True if the actor leaves its thread now and is run again when the wait is over; False if it is over already."""

    def over(self) -> None:
        """End the wait, in any thread."""


class Own(Protocol[T_co]):
    """An object for each thread of the application, or for each task of a simulation."""

    @property
    def own(self) -> T_co:
        """The caller's, made when it first asks for it."""


class PerThread(threading.local, Generic[T_co]):
    """An Own of threads."""

    def __init__(self, make: Callable[[], T_co]) -> None:
        self._make = make

    @cached_property
    def own(self) -> T_co:
        """The calling thread's."""
        return self._make()
