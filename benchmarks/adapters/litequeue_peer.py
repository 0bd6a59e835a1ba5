"""litequeue: SQLite WAL, synchronous=NORMAL, pop/done."""

import os
import threading

from litequeue import LiteQueue

from benchmarks.adapters.base import ACK, OS, BaseAdapter


class Lite(BaseAdapter):
    name = "litequeue"
    durability, ack_mode = OS, ACK
    native_batch = True
    notes = (
        "put: one WAL COMMIT, synchronous=NORMAL (no fsync); batches in its transaction(); "
        "done rows deleted by prune() every 1000 acks here; LOCKED rows are not requeued by itself"
    )

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.path, self.tls = path, threading.local()
        self.acks = 0
        for n in queues:
            self._q(n)

    def _q(self, name):
        d = self.tls.__dict__
        if name not in d:
            d[name] = LiteQueue(os.path.join(self.path, name + ".db"), timeout=30)
        return d[name]

    def publish_confirmed(self, body, queue="q"):
        self._q(queue).put(body)

    def publish_batch(self, chunk, queue):
        q = self._q(queue)
        with q.transaction(mode="IMMEDIATE"):
            for b in chunk:
                q.put(b)

    def consume(self, max_n, timeout, queue="q"):
        q = self._q(queue)

        def take(n):
            out = []
            while len(out) < n:
                m = q.pop()
                if m is None:
                    break
                out.append((m.message_id, m.data))
            return out

        return self.poll(take, max_n, timeout)

    def ack(self, tags, queue="q"):
        q = self._q(queue)
        if len(tags) == 1:
            q.done(tags[0])
        else:
            with q.transaction(mode="IMMEDIATE"):
                for t in tags:
                    q.done(t)
        self.acks += len(tags)
        if self.acks >= 1000:
            q.prune()
            self.acks = 0

    def recover(self, queue="q"):
        """Recover as a user has to after a crash: unlock the popped messages."""
        q = self._q(queue)
        for m in q.list_locked(0):
            q.retry(m.message_id)

    def close(self):
        for q in self.tls.__dict__.values():
            q.close()


ADAPTERS = {"litequeue": Lite}
