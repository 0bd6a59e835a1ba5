"""Hand-written queue on RocksDB through rocksdict."""

import os
import struct
import threading

from rocksdict import DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

from benchmarks.adapters.base import ACK, FSYNC, OS, BaseAdapter, Polled, Waker

_ID = struct.Struct(">Q")


class RocksQueue(Polled, BaseAdapter):
    ack_mode = ACK
    native_batch = native_fanout = True
    sync = True

    def open(self, path, queues=("q",)):
        o = Options(raw_mode=True)
        o.create_if_missing(True)
        o.set_compression_type(DBCompressionType.none())
        self.db = Rdict(os.path.join(path, "db"), o)
        self.wo = WriteOptions()
        self.wo.sync = self.sync
        self.lock = threading.Lock()
        self.next, self.cursor, self.wakers, self.pre = {}, {}, {}, {}
        for q in queues:
            pre = b"q" + q.encode() + b"\0"
            self.pre[q] = pre
            it = self.db.iter()
            it.seek_for_prev(pre + b"\xff" * 8)
            k = it.key() if it.valid() else b""
            self.next[q] = _ID.unpack(k[len(pre) :])[0] + 1 if k.startswith(pre) else 1
            self.cursor[q] = 0
            self.wakers[q] = Waker()
        self.next_shared = 1

    def publish_confirmed(self, body, queue="q"):
        with self.lock:
            n = self.next[queue]
            self.next[queue] = n + 1
        # RocksDB groups concurrent writers itself
        self.db.put(self.pre[queue] + _ID.pack(n), b"\0" + body, self.wo)
        self.wakers[queue].bump()

    def publish_batch(self, chunk, queue):
        wb = WriteBatch(raw_mode=True)
        with self.lock:
            n = self.next[queue]
            self.next[queue] = n + len(chunk)
        pre, pack = self.pre[queue], _ID.pack
        for i, b in enumerate(chunk):
            wb.put(pre + pack(n + i), b"\0" + b)
        self.db.write(wb, self.wo)
        self.wakers[queue].bump()

    def publish_fanout(self, body, queues):
        wb = WriteBatch(raw_mode=True)
        with self.lock:
            ref = b"s" + _ID.pack(self.next_shared)
            self.next_shared += 1
            wb.put(ref, body)
            for q in queues:
                wb.put(self.pre[q] + _ID.pack(self.next[q]), b"\1" + ref)
                self.next[q] += 1
        self.db.write(wb, self.wo)

    def _take(self, max_n, queue):
        pre = self.pre[queue]
        it = self.db.iter()
        it.seek(pre + _ID.pack(self.cursor[queue] + 1))
        out = []
        while it.valid() and len(out) < max_n:
            k = it.key()
            if not k.startswith(pre):
                break
            v = it.value()
            out.append((k, v[1:] if v[0] == 0 else self.db.get(v[1:])))
            it.next()
        if out:
            self.cursor[queue] = _ID.unpack(out[-1][0][len(pre) :])[0]
        return out

    def ack(self, tags, queue="q"):
        wb = WriteBatch(raw_mode=True)
        for t in tags:
            wb.delete(t)
        self.db.write(wb, self.wo)

    def close(self):
        self.db.close()


class Sync(RocksQueue):
    name, durability, sync = "rocksdb-sync", FSYNC, True
    notes = "WriteOptions.sync=True: WAL fdatasync per write batch"


class NoSync(RocksQueue):
    name, durability, sync = "rocksdb-nosync", OS, False
    notes = "WAL written, not synced"


ADAPTERS = {"rocksdb-sync": Sync, "rocksdb-nosync": NoSync}
