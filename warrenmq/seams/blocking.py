"""Lets code that is about to wait, above all for the disk, say so to the scheduler that runs it.

`with THIS_THREAD.blocking:` around a sync lets a pool of threads run other actors meanwhile: its scheduler
sets it, in each thread that runs actors.  Elsewhere it does nothing.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext

NOTHING: AbstractContextManager[None] = nullcontext()


class _ThisThread(threading.local):
    blocking: AbstractContextManager[None] = NOTHING
    """Entered by the thread for as long as it may wait without computing."""


THIS_THREAD = _ThisThread()
