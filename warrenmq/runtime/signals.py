"""Signals that are put off while the main thread runs an actor.

A signal's handler runs in the main thread, between any two lines, and may raise: KeyboardInterrupt, a test's time limit,
SystemExit.  In an application's own code that is what it wants.  In the middle of an actor that a waiting main thread runs,
it would end the actor.  So for that long the handlers are replaced, and called when the actor's slice is over.  The second
signal of one kind is not put off: an actor that hangs must not take Ctrl-C with it.
"""

from __future__ import annotations

import signal as _names
from _signal import getsignal, signal  # type: ignore[import-not-found]  # those of `signal` make enums: 3 us a call
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    Handler = Callable[[int, FrameType | None], object]

_MAY_RAISE = tuple(
    int(getattr(_names, name))
    for name in (
        "SIGTERM",
        "SIGALRM",
        "SIGHUP",
        "SIGQUIT",
        "SIGUSR1",
        "SIGUSR2",
        "SIGVTALRM",
        "SIGPROF",
        "SIGINT",
    )
    if hasattr(_names, name)
)


@contextmanager
def put_off() -> Iterator[None]:
    """Call the handlers of signals that come in the body after it; for the main thread."""
    came: dict[int, FrameType | None] = {}
    replaced: list[tuple[int, Handler]] = []

    def later(number: int, frame: FrameType | None) -> None:
        if number in came:
            handler = dict(replaced)[number]
            handler(number, frame)
        came[number] = frame

    try:
        for number in _MAY_RAISE:
            handler = getsignal(number)
            if callable(handler):
                replaced.append((number, handler))
                signal(number, later)
        yield
    finally:
        _restore(list(replaced), came)


def _restore(replaced: list[tuple[int, Handler]], came: dict[int, FrameType | None]) -> None:
    """Put each handler back, whatever those that are back already raise, and call it if its signal came."""
    if not replaced:
        return
    number, handler = replaced.pop()
    try:
        signal(number, handler)
        if number in came:
            handler(number, came[number])
    finally:
        _restore(replaced, came)
