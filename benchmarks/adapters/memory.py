"""In-memory upper bounds (nothing is stored)."""

import queue
import threading
from collections import deque

from benchmarks.adapters.base import AUTO, NONE, BaseAdapter


class MemQueue(BaseAdapter):
    name = "mem-queue.Queue"
    durability, ack_mode = NONE, AUTO
    notes = "queue.Queue in memory; nothing stored"

    def open(self, path, queues=("q",)):
        self.q = {n: queue.Queue() for n in queues}

    def publish_confirmed(self, body, queue="q"):
        self.q[queue].put(body)

    def publish_pipelined(self, bodies, queue="q", window=4096):
        n, put = 0, self.q[queue].put
        for b in bodies:
            put(b)
            n += 1
        return n

    def consume(self, max_n, timeout, queue="q"):
        q = self.q[queue]
        out = []
        try:
            out.append((None, q.get(timeout=timeout) if timeout > 0 else q.get_nowait()))
            while len(out) < max_n:
                out.append((None, q.get_nowait()))
        except EMPTY:
            pass
        return out


EMPTY = queue.Empty


class MemDeque(BaseAdapter):
    name = "mem-deque"
    durability, ack_mode = NONE, AUTO
    notes = "collections.deque in memory; nothing stored"

    def open(self, path, queues=("q",)):
        self.q = {n: deque() for n in queues}
        self.ev = threading.Event()

    def publish_confirmed(self, body, queue="q"):
        self.q[queue].append(body)

    def publish_pipelined(self, bodies, queue="q", window=4096):
        n, put = 0, self.q[queue].append
        for b in bodies:
            put(b)
            n += 1
        return n

    def consume(self, max_n, timeout, queue="q"):
        q = self.q[queue]

        def take(n):
            out = []
            try:
                while len(out) < n:
                    out.append((None, q.popleft()))
            except IndexError:
                pass
            return out

        return self.poll(take, max_n, timeout, idle=0.0002)


ADAPTERS = {"mem-queue.Queue": MemQueue, "mem-deque": MemDeque}
