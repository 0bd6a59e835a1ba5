"""huey's SqliteStorage, used directly (no task pickling, which huey adds)."""

import os

from huey.storage import SqliteStorage

from benchmarks.adapters.base import AUTO, FSYNC, BaseAdapter


class Huey(BaseAdapter):
    name = "huey-sqlite"
    durability, ack_mode = FSYNC, AUTO
    notes = "enqueue and dequeue: one WAL COMMIT each, SQLite's default synchronous=FULL; dequeue removes"

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.q = {
            n: SqliteStorage(name=n, filename=os.path.join(path, n + ".db"), strict_fifo=True, timeout=30)
            for n in queues
        }

    def publish_confirmed(self, body, queue="q"):
        self.q[queue].enqueue(body)

    def consume(self, max_n, timeout, queue="q"):
        s = self.q[queue]

        def take(n):
            out = []
            while len(out) < n:
                b = s.dequeue()
                if b is None:
                    break
                out.append((None, bytes(b)))
            return out

        return self.poll(take, max_n, timeout)

    def close(self):
        for s in self.q.values():
            s.close()


ADAPTERS = {"huey-sqlite": Huey}
