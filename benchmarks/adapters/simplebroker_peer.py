"""simplebroker (SQLite)."""

import os
import threading

from simplebroker import Queue

from benchmarks.adapters.base import ACK, FSYNC, BaseAdapter


class SB(BaseAdapter):
    name = "simplebroker"
    durability, ack_mode = FSYNC, ACK
    native_batch = True
    notes = (
        "write: one COMMIT with its default synchronous=FULL; batches through insert_messages(); "
        "at-least-once here = peek_many + delete_many"
    )

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.db = os.path.join(path, "broker.db")
        self.tls, self.all = threading.local(), []
        self.after = {}
        for n in queues:
            self._q(n)

    def _q(self, n):
        d = self.tls.__dict__
        if n not in d:
            d[n] = Queue(n, db_path=self.db, persistent=True)
            self.all.append(d[n])
        return d[n]

    def publish_confirmed(self, body, queue="q"):
        self._q(queue).write(body.decode("ascii"))

    def publish_batch(self, chunk, queue):
        q = self._q(queue)
        base = q.generate_timestamp()
        q.insert_messages([(b.decode("ascii"), base + i) for i, b in enumerate(chunk)])

    def consume(self, max_n, timeout, queue="q"):
        q = self._q(queue)

        def take(n):
            rows = q.peek_many(n, with_timestamps=True, after_timestamp=self.after.get(queue))
            if rows:
                self.after[queue] = rows[-1][1]
            return [(ts, body.encode("ascii")) for body, ts in rows]

        return self.poll(take, max_n, timeout)

    def ack(self, tags, queue="q"):
        self._q(queue).delete_many(tags)

    def close(self):
        for q in self.all:
            q.close()


ADAPTERS = {"simplebroker": SB}
