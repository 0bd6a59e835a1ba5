"""A bound of processor time for a scenario, which is arbitrary Python: it may fail, or never end.

Its loop may wait for something that never happens, in virtual time, turn by turn, or without any call of
ours.  So a thread beside it looks at the clock of its processor time, which stands still where the machine is
busy with something else, and has Python raise TookTooLong in it.  It raises it again later: an actor's loop,
in which it may come, ends all actors of the process for it (Pykka's rule) and goes on.  An exception that has
been raised is always received: taken back, it would leave CPython 3.11 with a sign of it for ever, at which
every thread that is traced (a debugger, coverage) spins.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from warrenmq.errors import CallerError
from warrenmq.runtime import Deadlock

T = TypeVar("T")
MOST_SECONDS = 10.0
"""Of processor time; the lessons of this package take one or two."""
_LOOK = 0.1
_AGAIN = 1.0
"""Seconds of processor time that the code has to end after each TookTooLong."""


class TookTooLong(BaseException):
    """Raised in code that has used up its time; no Exception, so that no handler of one goes on."""


def run_code(where: str, code: Callable[[], T]) -> T:
    """Call code of the file `where`; CallerError, in one sentence, if it fails or does not end."""
    why, ran_out = "", threading.Event()
    try:
        with _patience(MOST_SECONDS, ran_out):
            return code()
    except TookTooLong:
        pass
    except Deadlock:
        why = "waits for what never comes: nothing can run, and no timer will change that."
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it may raise anything
        why = f"failed: {type(error).__name__}: {error}."
    # whatever became of TookTooLong: in an actor's loop it ends the actors, which the code hears of
    if ran_out.is_set():
        why = f"did not end within {MOST_SECONDS:g} s of processor time; does a loop of it wait for something that never comes?"
    raise CallerError(f"{where} {why}")


@contextmanager
def _patience(seconds: float, ran_out: threading.Event) -> Iterator[None]:
    """Raise TookTooLong in the block, and set `ran_out`, once it has taken so many seconds of its thread's
    processor time; it cannot end a call that blocks in C.
    """
    me = ctypes.c_ulong(threading.get_ident())
    clock = _processor_time()
    until, over = clock() + seconds, threading.Event()

    def watch() -> None:
        nonlocal until
        while not over.wait(_LOOK):
            if clock() > until:
                ran_out.set()
                ctypes.pythonapi.PyThreadState_SetAsyncExc(me, ctypes.py_object(TookTooLong))
                until = clock() + _AGAIN

    watcher = threading.Thread(target=watch, name="patience", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()  # what it raised too late is received here


def _processor_time() -> Callable[[], float]:
    """A clock of this thread's processor time that other threads can read; macOS has the process's only."""
    if sys.platform == "darwin":
        return time.process_time
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock)
