"""The beginning of a process of a pool: Ctrl-C is left to its parent, and it ends when that has ended.

A process of concurrent.futures waits for work for ever once its parent was killed.  This module imports no other of
the package, so that nothing is interrupted before `begin` is called.
"""

from __future__ import annotations

import os
import signal
from multiprocessing import parent_process
from threading import Thread


def begin() -> None:
    """Ignore Ctrl-C, which a terminal sends to all processes, and wait for the end of the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, name="end with the parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
