"""diskcache.Deque: SQLite WAL, synchronous=NORMAL, no acks."""

import os

import diskcache

from benchmarks.adapters.base import AUTO, OS, BaseAdapter


class DC(BaseAdapter):
    name = "diskcache-deque"
    durability, ack_mode = OS, AUTO
    native_batch = True
    notes = "append: one WAL COMMIT, synchronous=NORMAL (no fsync); batches in transact(); popleft removes"

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.q = {n: diskcache.Deque(directory=os.path.join(path, n)) for n in queues}

    def publish_confirmed(self, body, queue="q"):
        self.q[queue].append(body)

    def publish_batch(self, chunk, queue):
        d = self.q[queue]
        with d.transact():
            d.extend(chunk)

    def consume(self, max_n, timeout, queue="q"):
        d = self.q[queue]

        def take(n):
            out = []
            try:
                while len(out) < n:
                    out.append((None, d.popleft()))
            except IndexError:
                pass
            return out

        return self.poll(take, max_n, timeout)

    def close(self):
        for d in self.q.values():
            d.cache.close()


ADAPTERS = {"diskcache-deque": DC}
