"""The current-file cache: bodies that may not be on disk yet (rabbit_msg_store_cur_file).

A client puts a body here before it sends the write, and the store takes it out once its file is no longer the
current one.  So a read that finds a message here needs neither the disk nor the store, and the store's write buffer
never has to be read.

A row counts the writes of its message that the store has not handled yet.  A row without such writes belongs to
a message of the current file, and goes when that file is full; a row with them stays, whatever happens to the file.

Batches that were entered and not handled yet are remembered by client: one that dies between entering and sending
(or whose mail is ignored because it is dead) would otherwise leave its rows for ever.

Concurrency: one lock, taken once a batch; `get` takes none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from threading import Lock
from typing import TypeAlias

Batch: TypeAlias = list[tuple[bytes, bytes]]
"""Writes that were sent together: (message id, body)."""


class CurFileCache:
    """Message id -> body, and how many writes of it are unhandled."""

    def __init__(self) -> None:
        self._bodies: dict[bytes, bytes] = {}
        self._unhandled: dict[bytes, int] = {}
        self._batches: dict[bytes, deque[Batch]] = {}
        self._lock = Lock()
        self.get = self._bodies.get
        """The body of a message, or None.  For every thread."""

    def __len__(self) -> int:
        return len(self._bodies)

    # for clients

    def enter(self, cref: bytes, batch: Batch) -> None:
        """Put bodies in, before their writes are sent."""
        bodies, unhandled = self._bodies, self._unhandled
        with self._lock:
            self._batches.setdefault(cref, deque()).append(batch)
            for msg_id, body in batch:
                bodies.setdefault(msg_id, body)
                unhandled[msg_id] = unhandled.get(msg_id, 0) + 1

    # for the store

    def handled(self, cref: bytes, elsewhere: Iterable[bytes]) -> None:
        """The client's oldest batch was handled; its messages `elsewhere` are not in the current file."""
        with self._lock:
            self._release(self._batches[cref].popleft())
            for msg_id in elsewhere:
                if msg_id not in self._unhandled:
                    self._bodies.pop(msg_id, None)

    def abandon(self, cref: bytes, in_current_file: Callable[[bytes], bool]) -> None:
        """The client is dead: nothing that it entered will be handled any more."""
        with self._lock:
            for batch in self._batches.pop(cref, ()):
                self._release(batch)
                for msg_id, _ in batch:
                    if msg_id not in self._unhandled and not in_current_file(msg_id):
                        self._bodies.pop(msg_id, None)

    def roll_over(self) -> None:
        """The current file is another: drop every row without unhandled writes."""
        bodies, unhandled = self._bodies, self._unhandled
        with self._lock:
            for msg_id in [m for m in bodies if m not in unhandled]:
                del bodies[msg_id]

    def _release(self, batch: Batch) -> None:
        unhandled = self._unhandled
        for msg_id, _ in batch:
            left = unhandled[msg_id] - 1
            if left:
                unhandled[msg_id] = left
            else:
                del unhandled[msg_id]
