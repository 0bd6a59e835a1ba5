"""The adapter contract.

One adapter instance lives in one process.  The harness may call the publish
methods from several threads at once (W7) and consume/ack from another thread
(W3), so an adapter must be safe for that: keep a connection per thread, or
take a lock, whichever is what a careful user of that peer would write.

Bodies are ``bytes`` of printable ASCII (so peers that only take text can
``decode("ascii")`` without inflation).  The first 16 bytes are the sequence
number in hex.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

#: durability classes, in the words of the tables
FSYNC = "fsync"  # confirmed => the bytes were fsync'ed: survives power loss
OS = "os"  # confirmed => handed to the kernel: survives kill -9 only
NONE = "none"  # confirmed means nothing that survives a kill -9

#: what a consumer gets
ACK = "ack"  # durable redelivery of what was not acked
AUTO = "no-ack"  # taking the message removes it (at most once)
CUM = "cum-ack"  # ack persists a position: everything before it is acked

Delivery = tuple[Any, bytes]  # (tag, body)
_GROUP = 4096  # publishes that one commit takes at the most


def batched(it: Iterator[bytes], n: int) -> Iterator[list[bytes]]:
    """Chunks of at most n bodies and about 8 MiB."""
    while True:
        chunk = list(islice(it, 1))
        if not chunk:
            return
        step = max(1, min(n, (8 << 20) // max(1, len(chunk[0]))))
        chunk.extend(islice(it, step - 1))
        yield chunk


class BaseAdapter:
    """The interface of an adapter; every method has a default in terms of publish_confirmed, consume and ack."""

    name = "?"
    durability = NONE  # FSYNC | OS | NONE
    ack_mode = AUTO  # ACK | AUTO | CUM
    notes = ""  # what "confirmed" means for this peer, one line
    native_batch = False  # has a way to confirm many messages at once
    native_fanout = False  # stores one body for many queues
    server = False  # the store lives in another process

    def open(self, path: str, queues: Sequence[str] = ("q",)) -> None:
        """Open (create or recover) the store under directory ``path``."""
        raise NotImplementedError

    def publish_confirmed(self, body: bytes, queue: str = "q") -> None:
        """Publish one message; return when the peer says it is safe."""
        raise NotImplementedError

    def publish_batch(self, chunk: list[bytes], queue: str) -> None:
        """For transactional peers: one commit for the chunk."""
        for body in chunk:
            self.publish_confirmed(body, queue)

    def publish_pipelined(self, bodies: Iterable[bytes], queue: str = "q", window: int = 4096) -> int:
        """Publish every body, with at most ``window`` unconfirmed; return the count once ALL of them are confirmed."""
        n = 0
        for chunk in batched(iter(bodies), window):
            self.publish_batch(chunk, queue)
            n += len(chunk)
        return n

    def publish_fanout(self, body: bytes, queues: Sequence[str]) -> None:
        """One message to every queue, without waiting if the peer can pipeline; ``settle()`` waits."""
        for q in queues:
            self.publish_confirmed(body, q)

    def settle(self) -> None:
        """Wait until everything that was published by `publish_fanout` is confirmed."""

    def consume(self, max_n: int, timeout: float, queue: str = "q") -> list[Delivery]:
        """Up to ``max_n`` deliveries; [] when none came within ``timeout``."""
        raise NotImplementedError

    def ack(self, tags: Sequence[Any], queue: str = "q") -> None:
        """Acknowledge deliveries (a no-op where taking removes)."""

    def close(self) -> None:
        """Clean shutdown."""

    # --- what the harness measures around the adapter -------------------
    def disk_bytes(self, path: str) -> int:
        return du(path)

    def server_pids(self) -> list[int]:
        return []


class Waker:
    """In-process 'something was published' signal for hand-written peers."""

    def __init__(self) -> None:
        self._cond = threading.Condition()
        self._n = 0

    def bump(self) -> None:
        with self._cond:
            self._n += 1
            self._cond.notify_all()

    def mark(self) -> int:
        return self._n

    def wait(self, mark: int, timeout: float) -> None:
        with self._cond:
            if self._n == mark:
                self._cond.wait(timeout)


class Polled:
    """Mixin for an adapter with a Waker for each queue (`wakers`); `_take` returns the deliveries that are there."""

    def consume(self, max_n, timeout, queue="q"):
        waker = self.wakers[queue]
        mark = waker.mark()
        got = self._take(max_n, queue)
        if not got and timeout > 0:
            waker.wait(mark, timeout)
            got = self._take(max_n, queue)
        return got


def du(path: str) -> int:
    """Bytes allocated on disk below path."""
    total = 0
    for root, _dirs, files in os.walk(path):
        for f in files:
            try:
                total += os.lstat(os.path.join(root, f)).st_blocks * 512
            except OSError:
                pass
    return total


class GroupCommitter:
    """One writer thread that takes whatever is waiting and commits it once.

    ``commit(list_of_(queue, body))`` runs in the writer thread; every waiter
    of that group is released after it returns.
    """

    def __init__(self, commit) -> None:
        self._commit = commit
        self._cond = threading.Condition()
        self._pending: list = []  # (queue, body, event-or-None)
        self._outstanding = 0
        self._done = threading.Condition()
        self._stop = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, queue: str, body: bytes, wait: bool) -> None:
        lock = None
        if wait:
            lock = threading.Lock()
            lock.acquire()
        with self._cond:
            self._pending.append((queue, body, lock))
            self._outstanding += 1
            if len(self._pending) == 1:
                self._cond.notify()
        if lock is not None:
            lock.acquire()
            if self._error:
                raise self._error

    def wait_below(self, n: int) -> None:
        with self._done:
            while self._outstanding > n and not self._error:
                self._done.wait()
        if self._error:
            raise self._error

    def _run(self) -> None:
        while True:
            with self._cond:
                while not self._pending and not self._stop:
                    self._cond.wait()
                if not self._pending:
                    break
                group = self._pending[:_GROUP]
                del self._pending[:_GROUP]
            try:
                self._commit([(q, b) for q, b, _ in group])
            except BaseException as e:
                self._error = e
            for _, _, lock in group:
                if lock is not None:
                    lock.release()
            with self._done:
                with self._cond:
                    self._outstanding -= len(group)
                self._done.notify_all()

    def close(self) -> None:
        with self._cond:
            self._stop = True
            self._cond.notify()
        self._thread.join()


class GroupedPublishes:
    """Mixin for an adapter whose publishes go through a GroupCommitter; the adapter has `_commit`."""

    def _start(self):
        self.group = GroupCommitter(self._commit)

    def publish_confirmed(self, body, queue="q"):
        self.group.submit(queue, body, True)

    def settle(self):
        self.group.wait_below(0)

    def close(self):
        self.group.close()
        super().close()
