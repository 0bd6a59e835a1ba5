"""Hand-written queue on LMDB: 8-byte big-endian ids, one named db per queue."""

import os
import struct
import threading
from typing import ClassVar

import lmdb

from benchmarks.adapters.base import ACK, FSYNC, OS, BaseAdapter, GroupedPublishes, Polled, Waker

_ID = struct.Struct(">Q")


class LmdbQueue(Polled, BaseAdapter):
    ack_mode = ACK
    native_batch = native_fanout = True
    env_opts: ClassVar[dict] = {}

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.env = lmdb.open(
            path, map_size=32 << 30, max_dbs=64, subdir=True, max_readers=64, **self.env_opts
        )
        self.db, self.next, self.cursor, self.wakers = {}, {}, {}, {}
        self.lock = threading.Lock()
        self.shared = self.env.open_db(b"shared")
        for q in queues:
            self.db[q] = self.env.open_db(b"q_" + q.encode())
            with self.env.begin(db=self.db[q]) as txn:
                cur = txn.cursor()
                self.next[q] = _ID.unpack(cur.key())[0] + 1 if cur.last() else 1
            self.cursor[q] = 0
            self.wakers[q] = Waker()
        self.next_shared = 1
        self._start()

    def _start(self):
        pass

    def publish_confirmed(self, body, queue="q"):
        with self.lock, self.env.begin(write=True, db=self.db[queue]) as txn:
            n = self.next[queue]
            txn.put(_ID.pack(n), b"\0" + body, append=True)
            self.next[queue] = n + 1
        self.wakers[queue].bump()

    def publish_batch(self, chunk, queue):
        with self.lock, self.env.begin(write=True, db=self.db[queue]) as txn:
            n = self.next[queue]
            pack = _ID.pack
            cur = txn.cursor()
            cur.putmulti([(pack(n + i), b"\0" + b) for i, b in enumerate(chunk)], append=True)
            self.next[queue] = n + len(chunk)
        self.wakers[queue].bump()

    def publish_fanout(self, body, queues):
        with self.lock, self.env.begin(write=True) as txn:
            ref = _ID.pack(self.next_shared)
            txn.put(ref, body, append=True, db=self.shared)
            self.next_shared += 1
            for q in queues:
                txn.put(_ID.pack(self.next[q]), b"\1" + ref, append=True, db=self.db[q])
                self.next[q] += 1

    def _take(self, max_n, queue):
        out = []
        with self.env.begin(db=self.db[queue]) as txn:
            cur = txn.cursor()
            if cur.set_range(_ID.pack(self.cursor[queue] + 1)):
                for k, v in cur:
                    out.append((k, v[1:] if v[0] == 0 else txn.get(v[1:], db=self.shared)))
                    if len(out) >= max_n:
                        break
        if out:
            self.cursor[queue] = _ID.unpack(out[-1][0])[0]
        return out

    def ack(self, tags, queue="q"):
        with self.lock, self.env.begin(write=True, db=self.db[queue]) as txn:
            for t in tags:
                txn.delete(t)

    def close(self):
        self.env.close()


class Sync(LmdbQueue):
    name, durability = "lmdb-sync", FSYNC
    notes = "txn commit with sync: fdatasync of data pages + O_DSYNC meta page write"


class NoSync(LmdbQueue):
    name, durability = "lmdb-nosync", OS
    env_opts: ClassVar[dict] = {"sync": False, "metasync": False}
    notes = "txn commit with sync=False: pages handed to the kernel only"


class SyncGroup(GroupedPublishes, LmdbQueue):
    name, durability = "lmdb-sync-group", FSYNC
    notes = "as lmdb-sync, a writer thread groups concurrent publishers into one txn"

    def _commit(self, items):
        with self.lock, self.env.begin(write=True) as txn:
            for q, b in items:
                txn.put(_ID.pack(self.next[q]), b"\0" + b, append=True, db=self.db[q])
                self.next[q] += 1
        for q in {q for q, _ in items}:
            self.wakers[q].bump()


ADAPTERS = {"lmdb-sync": Sync, "lmdb-nosync": NoSync, "lmdb-sync-group": SyncGroup}
