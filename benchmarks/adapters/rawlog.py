"""Physical limit: an append-only file, 4-byte length + body, fdatasync per
batch, a group-commit writer thread for concurrent publishers.  Acks only move
an in-memory counter; nothing is reclaimed.  Not a usable queue: a ceiling.
"""

import os
import struct
import threading

from benchmarks.adapters.base import CUM, FSYNC, OS, BaseAdapter, Waker, batched


class RawLog(BaseAdapter):
    durability, ack_mode = FSYNC, CUM
    native_batch = native_fanout = True
    sync = True
    name = "limit-rawlog-fdatasync"
    notes = "append + fdatasync; a ceiling, not a queue"

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.file = os.path.join(path, "log")
        self.fd = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self.rfd = os.open(self.file, os.O_RDONLY)
        self.end = os.fstat(self.fd).st_size  # durable end
        self.pos = dict.fromkeys(queues, 0)
        self.waker = Waker()
        self.lock = threading.Lock()
        self.waiters = 0
        self.leader = threading.Lock()
        self.written = self.end
        self.buf = b""

    def _sync(self):
        if self.sync:
            os.fdatasync(self.fd)

    def _commit(self, blob):
        """Write, then let one thread fdatasync for everybody waiting."""
        with self.lock:
            os.write(self.fd, blob)
            self.written += len(blob)
            mine = self.written
        while self.end < mine:
            with self.leader:
                if self.end >= mine:
                    break
                upto = self.written
                self._sync()
                self.end = upto
        self.waker.bump()

    def publish_confirmed(self, body, queue="q"):
        self._commit(struct.pack("<I", len(body)) + body)

    def publish_pipelined(self, bodies, queue="q", window=4096):
        n = 0
        pack = struct.Struct("<I").pack
        for chunk in batched(iter(bodies), window):
            parts = []
            for b in chunk:
                parts.append(pack(len(b)))
                parts.append(b)
            self._commit(b"".join(parts))
            n += len(chunk)
        return n

    def publish_fanout(self, body, queues):
        # the body once, 16 bytes of index per queue
        self._commit(struct.pack("<I", len(body)) + body + bytes(16) * len(queues))

    def consume(self, max_n, timeout, queue="q"):
        def take():
            pos = self.pos[queue]
            avail = self.end - pos
            if avail <= 0:
                return []
            data = os.pread(self.rfd, min(avail, 1 << 20), pos)
            out, i, size = [], 0, len(data)
            unpack = struct.Struct("<I").unpack_from
            while len(out) < max_n and i + 4 <= size:
                (n,) = unpack(data, i)
                if i + 4 + n > size:
                    break
                out.append((None, data[i + 4 : i + 4 + n]))
                i += 4 + n
            self.pos[queue] = pos + i
            return out

        mark = self.waker.mark()
        got = take()
        if not got and timeout > 0:
            self.waker.wait(mark, timeout)
            got = take()
        return got

    def close(self):
        os.close(self.fd)
        os.close(self.rfd)


class RawLogOS(RawLog):
    name = "limit-rawlog-write"
    durability = OS
    sync = False
    notes = "append with write(2) only; a ceiling, not a queue"


class RawRecycled(RawLog):
    """Overwrites a file whose blocks were written before (a recycled segment),
    so fdatasync has no file-system journal to commit.  Publishing only.
    """

    name = "limit-rawlog-recycled"
    notes = "overwrite of an already written file + fdatasync; a ceiling, publishing only"
    SIZE = 256 << 20

    def open(self, path, queues=("q",)):
        super().open(path, queues)
        os.close(self.fd)
        self.fd = os.open(self.file, os.O_RDWR)
        z = bytes(4 << 20)
        for off in range(0, self.SIZE, len(z)):
            os.pwrite(self.fd, z, off)
        os.fsync(self.fd)
        self.off = 0
        self.end = self.written = 0

    def _commit(self, blob):
        with self.lock:
            if self.off + len(blob) > self.SIZE:
                self.off = 0
            os.pwrite(self.fd, blob, self.off)
            self.off += len(blob)
            self.written += len(blob)
            mine = self.written
        while self.end < mine:
            with self.leader:
                if self.end >= mine:
                    break
                upto = self.written
                os.fdatasync(self.fd)
                self.end = upto

    def consume(self, max_n, timeout, queue="q"):
        raise NotImplementedError("publishing only")


ADAPTERS = {
    "limit-rawlog-fdatasync": RawLog,
    "limit-rawlog-recycled": RawRecycled,
    "limit-rawlog-write": RawLogOS,
}
