"""queuelib (Scrapy): FifoDiskQueue and FifoSQLiteQueue, no threads, no acks."""

import os
import sqlite3
import threading

from queuelib import FifoDiskQueue
from queuelib.queue import FifoSQLiteQueue

from benchmarks.adapters.base import AUTO, FSYNC, NONE, BaseAdapter


class _Q(BaseAdapter):
    ack_mode = AUTO

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.lock = threading.Lock()  # the library is not thread-safe
        self.q = {n: self._make(os.path.join(path, n)) for n in queues}

    def publish_confirmed(self, body, queue="q"):
        with self.lock:
            self.q[queue].push(body)

    def consume(self, max_n, timeout, queue="q"):
        q = self.q[queue]

        def take(n):
            out = []
            while len(out) < n:
                with self.lock:
                    b = q.pop()
                if b is None:
                    break
                out.append((None, b))
            return out

        return self.poll(take, max_n, timeout)

    def close(self):
        for q in self.q.values():
            q.close()


class Disk(_Q):
    name = "queuelib-disk"
    durability = NONE
    notes = (
        "push: write(2) to the chunk file, but head/tail/size are only saved by close(): after a "
        "kill -9 the queue reopens empty"
    )

    def _make(self, path):
        return FifoDiskQueue(path)


class _Threaded(FifoSQLiteQueue):
    """Allow use from other threads, under our lock (the library opens its
    connection with check_same_thread left at True).
    """

    def __init__(self, path):
        orig = sqlite3.Connection

        def conn(p, **kw):
            return orig(p, check_same_thread=False, **kw)

        import queuelib.queue as m

        shim = type("shim", (), {"Connection": staticmethod(conn)})
        saved, m.sqlite3 = m.sqlite3, shim
        try:
            super().__init__(path)
        finally:
            m.sqlite3 = saved


class Sql(_Q):
    name = "queuelib-sqlite"
    durability = FSYNC
    notes = "push and pop: one rollback-journal COMMIT each, SQLite's default synchronous=FULL"

    def _make(self, path):
        return _Threaded(path)


ADAPTERS = {"queuelib-disk": Disk, "queuelib-sqlite": Sql}
