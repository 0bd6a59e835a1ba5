"""Lets code that is about to wait, above all for the disk, say so to the scheduler that runs it.

`with blocking():` around a sync lets a pool of threads run other actors meanwhile.  Elsewhere it does nothing.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext

_NOTHING: AbstractContextManager[None] = nullcontext()


class _Here(threading.local):
    runner: AbstractContextManager[None] = _NOTHING


_here = _Here()


def blocking() -> AbstractContextManager[None]:
    """Entered by the calling thread for as long as it may wait without computing."""
    return _here.runner


def tell(runner: AbstractContextManager[None] | None) -> AbstractContextManager[None]:
    """For a scheduler: have `blocking` return `runner` in this thread from now on; returns what it returned before."""
    before = _here.runner
    _here.runner = _NOTHING if runner is None else runner
    return before
