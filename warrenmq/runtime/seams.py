"""The protocols of the few blocking things that a scheduler supplies: parking a thread, or a greenlet.

`queue.SimpleQueue`, `threading.Event` and `threading.Lock` are the threads' answers as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from types import TracebackType


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
