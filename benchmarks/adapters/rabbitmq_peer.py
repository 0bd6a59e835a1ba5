"""RabbitMQ 3.10 through pika's BlockingConnection, and through a minimal AMQP client of our own that costs little.

Queue type: v1 = classic queue index v1 (the 3.10 default), v2 = x-queue-version
2, quorum.  Always durable queues and delivery_mode=2.
"""

from __future__ import annotations

import collections
import os
import socket
import struct
import threading
import time
from contextlib import suppress

import pika
import pika.exceptions

from benchmarks import rabbit_node
from benchmarks.adapters.base import ACK, FSYNC, OS, BaseAdapter, batched, du

_PROPS = pika.BasicProperties(delivery_mode=2)
_ARGS = {"v1": {}, "v2": {"x-queue-version": 2}, "quorum": {"x-queue-type": "quorum"}}
PREFETCH = 2000


class RabbitBase(BaseAdapter):
    ack_mode = ACK
    native_fanout = True
    server = True
    kind = "v1"

    def open(self, path, queues=("q",)):
        self.base = os.path.basename(os.path.normpath(path))
        self.queues = list(queues)
        conn = self._blocking()
        ch = conn.channel()
        self.fan = self.base + ".fan"
        ch.exchange_declare(self.fan, "fanout", durable=True)
        for q in queues:
            ch.queue_declare(self.rk(q), durable=True, arguments=_ARGS[self.kind])
            ch.queue_bind(self.rk(q), self.fan)
        conn.close()
        self._setup()

    def rk(self, q):
        return f"{self.base}.{q}"

    def _setup(self):
        pass

    @staticmethod
    def params():
        return pika.ConnectionParameters(
            "127.0.0.1", rabbit_node.port(), heartbeat=0, blocked_connection_timeout=300
        )

    def _blocking(self):
        return pika.BlockingConnection(self.params())

    def destroy(self):
        conn = self._blocking()
        ch = conn.channel()
        for q in self.queues:
            ch.queue_delete(self.rk(q))
        ch.exchange_delete(self.fan)
        conn.close()

    def disk_bytes(self, path):
        return du(rabbit_node.data_dir())

    def server_pids(self):
        p = rabbit_node.pid()
        return [p] if p else []


def _patient(fn, secs=30.0):
    """A quorum queue refuses consumers until it has a leader after a restart."""
    end = time.monotonic() + secs
    while True:
        try:
            return fn()
        except (ConnectionError, pika.exceptions.AMQPError):
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


class Blocking(RabbitBase):
    """One BlockingConnection per thread; every publish waits for its confirm."""

    def _setup(self):
        self.tls = threading.local()

    def _pub(self):
        t = self.tls
        if not hasattr(t, "pub"):
            t.conn = self._blocking()
            t.pub = t.conn.channel()
            t.pub.confirm_delivery()
        return t.pub

    def publish_confirmed(self, body, queue="q"):
        self._pub().basic_publish("", self.rk(queue), body, _PROPS)

    def publish_fanout(self, body, queues):
        self._pub().basic_publish(self.fan, "", body, _PROPS)

    def _con(self, queue):
        t = self.tls
        key = "con_" + queue
        if not hasattr(t, key):
            setattr(t, key, _patient(lambda: self._consumer(queue)))
        return getattr(t, key)

    def _consumer(self, queue):
        conn = self._blocking()
        ch = conn.channel()
        ch.basic_qos(prefetch_count=PREFETCH)
        buf = collections.deque()
        ch.basic_consume(self.rk(queue), lambda _c, m, _p, b: buf.append((m.delivery_tag, b)))
        return conn, ch, buf

    def consume(self, max_n, timeout, queue="q"):
        conn, _ch, buf = self._con(queue)
        end = time.monotonic() + timeout
        while not buf:
            left = end - time.monotonic()
            conn.process_data_events(time_limit=max(0, left))
            if left <= 0:
                break
        out = []
        while buf and len(out) < max_n:
            out.append(buf.popleft())
        return out

    def ack(self, tags, queue="q"):
        conn, ch, _ = self._con(queue)
        ch.basic_ack(tags[-1], multiple=len(tags) > 1)
        conn.process_data_events(time_limit=0)

    def close(self):
        for v in list(self.tls.__dict__.values()):
            c = v[0] if isinstance(v, tuple) else v
            with suppress(Exception):
                if isinstance(c, pika.BlockingConnection):
                    c.close()


def _short(s: str) -> bytes:
    b = s.encode()
    return bytes([len(b)]) + b


def _method(ch: int, cls: int, mth: int, args: bytes = b"") -> bytes:
    p = struct.pack(">HH", cls, mth) + args
    return struct.pack(">BHI", 1, ch, len(p)) + p + b"\xce"


class _Wire:
    """Just enough AMQP 0-9-1 on a socket."""

    def __init__(self):
        self.s = socket.create_connection(("127.0.0.1", rabbit_node.port()))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.s.sendall(b"AMQP\x00\x00\x09\x01")
        self.buf = bytearray()
        self._expect(10, 10)
        self.s.sendall(
            _method(
                0,
                10,
                11,
                struct.pack(">I", 0)
                + _short("PLAIN")
                + struct.pack(">I", 12)
                + b"\0guest\0guest"
                + _short("en_US"),
            )
        )
        a = self._expect(10, 30)
        _chmax, fmax, _hb = struct.unpack(">HIH", a[:8])
        self.fmax = fmax
        self.s.sendall(
            _method(0, 10, 31, struct.pack(">HIH", 10, fmax, 0)) + _method(0, 10, 40, _short("/") + b"\0\0")
        )
        self._expect(10, 41)
        self.s.sendall(_method(1, 20, 10, b"\0"))
        self._expect(20, 11)

    def frame(self):
        buf = self.buf
        while True:
            if len(buf) >= 7:
                t, _ch, n = struct.unpack_from(">BHI", buf)
                if len(buf) >= 8 + n:
                    p = bytes(buf[7 : 7 + n])
                    del buf[: 8 + n]
                    return t, p
            d = self.s.recv(262144)
            if not d:
                raise ConnectionError("closed")
            buf += d

    def _expect(self, cls, mth):
        while True:
            t, p = self.frame()
            if t == 1:
                if struct.unpack_from(">HH", p) == (cls, mth):
                    return p[4:]
                if p[:4] == struct.pack(">HH", 10, 50) or p[:4] == struct.pack(">HH", 20, 40):
                    raise ConnectionError(p[6:200])

    def close(self):
        try:
            self.s.sendall(_method(0, 10, 50, struct.pack(">H", 0) + _short("") + struct.pack(">HH", 0, 0)))
            self.s.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Raw(RabbitBase):
    """Own minimal client: what the server gives when the client costs little."""

    native_batch = True
    chunk = 128

    def _setup(self):
        self.w = _Wire()
        self.w.s.sendall(_method(1, 85, 10, b"\0"))  # confirm.select
        self.w._expect(85, 11)
        self.cond = threading.Condition()
        self.acked = 0  # count of confirmed
        self.sent = 0
        self.top = 0  # every tag <= top is confirmed
        self.odd = set()
        self.pre = {
            q: _method(1, 60, 40, b"\0\0" + _short("") + _short(self.rk(q)) + b"\0") for q in self.queues
        }
        self.pre_fan = _method(1, 60, 40, b"\0\0" + _short(self.fan) + _short("") + b"\0")
        self.lock = threading.Lock()
        threading.Thread(target=self._reader, daemon=True).start()
        self.cons = {}

    def _reader(self):
        w = self.w
        try:
            while True:
                _t, p = w.frame()
                if p[:4] != b"\x00\x3c\x00\x50":  # basic.ack
                    if p[:4] in (b"\x00\x0a\x00\x32", b"\x00\x14\x00\x28"):
                        print("closed by server", p, flush=True)
                        return
                    continue
                tag, multiple = struct.unpack_from(">QB", p, 4)
                if multiple:
                    if tag > self.top:
                        self.top = tag
                        self.odd = {t for t in self.odd if t > tag}
                else:
                    self.odd.add(tag)
                    while self.top + 1 in self.odd:
                        self.top += 1
                        self.odd.discard(self.top)
                with self.cond:
                    self.acked = self.top + len(self.odd)
                    self.cond.notify_all()
        except (ConnectionError, OSError):
            pass

    def _content(self, body):
        # header: class 60, weight 0, size, flags delivery-mode, 2
        h = struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2)
        return (
            struct.pack(">BHI", 2, 1, len(h))
            + h
            + b"\xce"
            + struct.pack(">BHI", 3, 1, len(body))
            + body
            + b"\xce"
        )

    def _send(self, pre, chunk):
        parts = []
        for b in chunk:
            parts.append(pre)
            parts.append(self._content(b))
        data = b"".join(parts)
        with self.lock:
            self.sent += len(chunk)
            mine = self.sent
            self.w.s.sendall(data)
        return mine

    def publish_confirmed(self, body, queue="q"):
        mine = self._send(self.pre[queue], (body,))
        with self.cond:
            while self.top < mine:
                self.cond.wait()

    def publish_nowait(self, body, queue="q"):
        self._send(self.pre[queue], (body,))

    def publish_fanout(self, body, queues):
        with self.cond:
            while self.sent - self.acked > 256:
                self.cond.wait()
        self._send(self.pre_fan, (body,))

    def settle(self):
        with self.cond:
            while self.acked < self.sent:
                self.cond.wait()

    def publish_pipelined(self, bodies, queue="q", window=4096):
        n, pre = 0, self.pre[queue]
        for chunk in batched(iter(bodies), min(self.chunk, window)):
            with self.cond:
                while self.sent - self.acked > window - len(chunk):
                    self.cond.wait()
            self._send(pre, chunk)
            n += len(chunk)
        self.settle()
        return n

    def _con(self, queue):
        if queue not in self.cons:
            self.cons[queue] = _patient(lambda: self._consumer(queue))
        return self.cons[queue]

    def _consumer(self, queue):
        w = _Wire()
        w.s.sendall(_method(1, 60, 10, struct.pack(">IHB", 0, PREFETCH, 0)))
        w._expect(60, 11)
        w.s.sendall(
            _method(1, 60, 20, b"\0\0" + _short(self.rk(queue)) + _short("t") + b"\0" + struct.pack(">I", 0))
        )
        w._expect(60, 21)
        return [w, collections.deque(), 0, 0, []]

    def consume(self, max_n, timeout, queue="q"):
        st = self._con(queue)
        w, ready = st[0], st[1]
        if not ready:
            w.s.settimeout(max(timeout, 0.0001))
            try:
                d = w.s.recv(262144)
                w.buf += d
            except (TimeoutError, BlockingIOError):
                return []
            finally:
                w.s.settimeout(None)
        if len(ready) < max_n:
            self._parse(st)
        out = []
        while ready and len(out) < max_n:
            out.append(ready.popleft())
        return out

    @staticmethod
    def _parse(st):
        w, ready, tag, left, parts = st
        buf, i = bytes(w.buf), 0
        size = len(buf)
        hdr = struct.Struct(">BHI").unpack_from
        while i + 8 <= size:
            t, _ch, n = hdr(buf, i)
            if i + 8 + n > size:
                break
            p = i + 7
            if t == 3:
                parts.append(buf[p : p + n])
                left -= n
                if left == 0:
                    ready.append((tag, parts[0] if len(parts) == 1 else b"".join(parts)))
                    parts = []
            elif t == 2:
                (left,) = struct.unpack_from(">Q", buf, p + 4)
            elif buf[p : p + 4] == b"\x00\x3c\x00\x3c":  # basic.deliver
                k = p + 5 + buf[p + 4]
                (tag,) = struct.unpack_from(">Q", buf, k)
            i += 8 + n
        del w.buf[:i]
        st[2], st[3], st[4] = tag, left, parts

    def ack(self, tags, queue="q"):
        w = self._con(queue)[0]
        w.s.sendall(_method(1, 60, 80, struct.pack(">QB", tags[-1], len(tags) > 1)))

    def close(self):
        self.w.close()
        for st in self.cons.values():
            st[0].close()


V1 = (
    "confirm of a persistent message on a classic queue with index v1: after fsync of the index "
    "journal (< 4 KB bodies) or of the message store file (>= 4 KB)"
)
V2 = (
    "confirm on a classic queue v2 (3.10): write(2) of the per-queue store and index, no fsync below "
    "4 KB; >= 4 KB the shared message store is fsync'ed, the index entry is not"
)
QQ = "confirm on a quorum queue (one member): after fdatasync of the Raft WAL"


def _make(cls, kind, client, durability, notes):
    name = f"rabbit-{kind}-{client}"

    def factory():
        a = cls()
        a.name, a.kind, a.durability, a.notes = name, kind, durability, notes
        return a

    return factory


ADAPTERS = {
    "rabbit-v1-blocking": _make(Blocking, "v1", "blocking", FSYNC, V1),
    "rabbit-v2-blocking": _make(Blocking, "v2", "blocking", OS, V2),
    "rabbit-quorum-blocking": _make(Blocking, "quorum", "blocking", FSYNC, QQ),
    "rabbit-v1-raw": _make(Raw, "v1", "raw", FSYNC, V1),
    "rabbit-v2-raw": _make(Raw, "v2", "raw", OS, V2),
    "rabbit-quorum-raw": _make(Raw, "quorum", "raw", FSYNC, QQ),
}
