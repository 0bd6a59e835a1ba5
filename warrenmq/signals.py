"""Signals that are put off while the main thread runs an actor.

A signal's handler runs in the main thread, between any two lines, and may raise: KeyboardInterrupt, a test's time limit,
SystemExit.  In an application's own code that is what it wants.  In the middle of an actor that a waiting main thread runs,
it would end the actor; and one that waits for that actor, as to close a broker, would wait for ever.  So for that long the
handlers are replaced, and called when the actor's slice is over.  A signal that comes again a second later is not put off:
an actor that hangs must not take Ctrl-C with it.
"""

from __future__ import annotations

import signal as _names
import threading
from _signal import getsignal, signal  # type: ignore[import-not-found]  # those of `signal` make enums: 3 us a call
from collections.abc import Callable
from time import monotonic
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
PATIENCE = 1.0
"""Seconds after which a signal that comes again is not put off."""


class PutOff:
    """Calls the handlers of signals that come in the body of `with PutOff():` after it; for the main thread.

    _came      the signals that came, with the frame that each interrupted, and the time of the first
    _replaced  the handlers of the application
    """

    def __init__(self) -> None:
        self._came: dict[int, tuple[FrameType | None, float]] = {}
        self._replaced: list[tuple[int, Handler]] = []

    def __enter__(self) -> None:
        try:
            for number in _MAY_RAISE:
                handler = getsignal(number)
                if callable(handler):
                    self._replaced.append((number, handler))
                    signal(number, self._later)
        except BaseException:  # of a handler that was called between two of these lines
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._replaced:
            self._restore(list(self._replaced))

    def _later(self, number: int, frame: FrameType | None) -> None:
        if number not in self._came:
            self._came[number] = frame, monotonic()
        elif monotonic() - self._came[number][1] > PATIENCE:
            handler = dict(self._replaced)[number]
            handler(number, frame)

    def _restore(self, replaced: list[tuple[int, Handler]]) -> None:
        """Put each handler back, whatever those that are back already raise, and call it if its signal came."""
        number, handler = replaced.pop()
        try:
            signal(number, handler)
            if number in self._came:
                handler(number, self._came[number][0])
        finally:
            if replaced:
                self._restore(replaced)


def runs_handlers() -> bool:
    """True in the thread in which the handlers of signals run: the main thread of the main interpreter
    (mod_wsgi has others).
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if (handler := getsignal(_names.SIGINT)) is not None:
        try:
            signal(_names.SIGINT, handler)
        except ValueError:
            return False
    return True


def undisturbed(act: Callable[[], object]) -> None:
    """Call `act`; what the handlers of signals raise meanwhile is raised behind it."""
    if runs_handlers():
        with PutOff():
            act()
    else:
        act()
