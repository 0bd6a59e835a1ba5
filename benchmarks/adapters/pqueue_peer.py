"""pqueue (python-pqueue): chunk files + info file."""

import os
import queue as std
import threading

from pqueue import Queue

from benchmarks.adapters.base import CUM, OS, BaseAdapter


class PQueue(BaseAdapter):
    name = "pqueue"
    durability, ack_mode = OS, CUM
    notes = "put: flush to the chunk file + tmp/rename of an info file, never fsync"

    def open(self, path, queues=("q",)):
        for n in queues:  # it only makes the last level itself
            os.makedirs(os.path.join(path, n), exist_ok=True)
        self.lock = threading.Lock()  # its task_done() races with put() on the files
        self.q = {n: Queue(os.path.join(path, n), tempdir=path) for n in queues}

    def publish_confirmed(self, body, queue="q"):
        with self.lock:
            self.q[queue].put(body)

    def consume(self, max_n, timeout, queue="q"):
        q, out = self.q[queue], []
        try:
            out.append((None, q.get(timeout=timeout) if timeout > 0 else q.get_nowait()))
            while len(out) < max_n:
                out.append((None, q.get_nowait()))
        except std.Empty:
            pass
        return out

    def ack(self, tags, queue="q"):
        for _ in tags:
            with self.lock:
                self.q[queue].task_done()


ADAPTERS = {"pqueue": PQueue}
