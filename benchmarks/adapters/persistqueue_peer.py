"""persist-queue: file Queue, SQLiteQueue, SQLiteAckQueue."""

import os

import persistqueue

from benchmarks.adapters.base import ACK, CUM, FSYNC, OS, BaseAdapter


def _drain(get, max_n, timeout):
    out = []
    try:
        out.append(get(True, timeout) if timeout > 0 else get(False))
        while len(out) < max_n:
            out.append(get(False))
    except persistqueue.Empty:
        pass
    return out


class FileQueue(BaseAdapter):
    name = "persistqueue-file"
    durability, ack_mode = OS, CUM
    notes = (
        "put: flush to the chunk file + tmp/rename of an info file, fsync only when a chunk "
        "(100 items) is full; task_done() persists the read position"
    )

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.q = {n: persistqueue.Queue(os.path.join(path, n), tempdir=path) for n in queues}

    def publish_confirmed(self, body, queue="q"):
        self.q[queue].put(body)

    def consume(self, max_n, timeout, queue="q"):
        return [(None, b) for b in _drain(self.q[queue].get, max_n, timeout)]

    def ack(self, tags, queue="q"):
        q = self.q[queue]
        for _ in tags:  # only the first one writes the info file
            q.task_done()

    def close(self):
        self.q.clear()  # files are closed by __del__


class SQLiteQueue(BaseAdapter):
    name = "persistqueue-sqlite"
    durability, ack_mode = FSYNC, CUM
    notes = (
        "put: one WAL COMMIT, SQLite's default synchronous=FULL; auto_commit=False so that "
        "task_done() deletes everything taken so far"
    )

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.q = {
            n: persistqueue.SQLiteQueue(os.path.join(path, n), multithreading=True, auto_commit=False)
            for n in queues
        }

    def publish_confirmed(self, body, queue="q"):
        self.q[queue].put(body)

    def consume(self, max_n, timeout, queue="q"):
        return [(None, b) for b in _drain(self.q[queue].get, max_n, timeout)]

    def ack(self, tags, queue="q"):
        self.q[queue].task_done()

    def close(self):
        for q in self.q.values():
            q.close()


class SQLiteAckQueue(BaseAdapter):
    name = "persistqueue-ack"
    durability, ack_mode = FSYNC, ACK
    notes = (
        "put, get and ack: one WAL COMMIT each, synchronous=FULL; acked rows deleted by "
        "clear_acked_data() every 1000 acks here"
    )

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.q = {n: persistqueue.SQLiteAckQueue(os.path.join(path, n), multithreading=True) for n in queues}
        self.acks = 0

    def publish_confirmed(self, body, queue="q"):
        self.q[queue].put(body)

    def consume(self, max_n, timeout, queue="q"):
        q = self.q[queue]

        def get(block, timeout=None):
            item = q.get(block=block, timeout=timeout, raw=True)
            return item["pqid"], item["data"]

        return _drain(get, max_n, timeout)

    def ack(self, tags, queue="q"):
        q = self.q[queue]
        for t in tags:
            q.ack(id=t)
        self.acks += len(tags)
        if self.acks >= 1000:
            q.clear_acked_data(max_delete=100000, keep_latest=0)
            self.acks = 0

    def close(self):
        for q in self.q.values():
            q.close()


ADAPTERS = {
    "persistqueue-file": FileQueue,
    "persistqueue-sqlite": SQLiteQueue,
    "persistqueue-ack": SQLiteAckQueue,
}
