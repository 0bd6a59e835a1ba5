"""Fork handlers: objects with threads, locks or files of the parent are made safe in the child.

`os.fork` copies the memory of a process and one of its threads.  In the child the actors of every broker are gone, but the
handles look alive, its copies of descriptors keep the parent's locks, ports and deleted files, and a mapped file is the
parent's own.  So each thing that owns something of that kind registers here, and lets go of it in the child before anything
else runs there: descriptors are closed, handles raise ForkedProcess.

The parent notices nothing.  A program started with `exec` (subprocess) inherits nothing in the first place:
all descriptors are closed on exec.
"""

from __future__ import annotations

import os
from itertools import count
from typing import Protocol
from weakref import ref


class Forkable(Protocol):
    """Something that must know of a fork; it is not kept alive for that."""

    def after_fork(self) -> None:
        """Release in the child what belongs to the parent.  No other thread runs, and any lock may be held for ever."""


_registered: dict[int, ref[Forkable]] = {}
_keys = count()


def register(thing: Forkable) -> None:
    """Register `thing`: its `after_fork` is called in each child that is forked while it lives, in the order
    of registration.
    """
    key = next(_keys)
    _registered[key] = ref(thing, lambda _gone: _registered.pop(key, None))


def _in_child() -> None:
    for each in list(_registered.values()):
        if (thing := each()) is not None:
            thing.after_fork()


os.register_at_fork(after_in_child=_in_child)
