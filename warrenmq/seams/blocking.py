"""Lets code that is about to wait, above all for the disk, say so to the scheduler that runs it.

`with THIS_THREAD.blocking:` around a sync lets a pool of threads run other actors meanwhile.  Elsewhere it does nothing.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext

_NOTHING: AbstractContextManager[None] = nullcontext()


class _ThisThread(threading.local):
    blocking: AbstractContextManager[None] = _NOTHING
    """Entered by the thread for as long as it may wait without computing."""


THIS_THREAD = _ThisThread()


def tell(runner: AbstractContextManager[None] | None) -> AbstractContextManager[None]:
    """Set the `runner` of `blocking` in this thread from now on, for a scheduler; returns the one before."""
    before = THIS_THREAD.blocking
    THIS_THREAD.blocking = _NOTHING if runner is None else runner
    return before
