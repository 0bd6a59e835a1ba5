"""RabbitMQ 3.10 through pika's BlockingConnection.

Queue type: v1 = classic queue index v1 (the 3.10 default), v2 = x-queue-version
2, quorum.  Always durable queues and delivery_mode=2.
"""

import collections
import os
import threading
import time
from contextlib import suppress

import pika
import pika.exceptions

from benchmarks import rabbit_node
from benchmarks.adapters.base import ACK, FSYNC, OS, BaseAdapter, du

_PROPS = pika.BasicProperties(delivery_mode=2)
_ARGS = {"v1": {}, "v2": {"x-queue-version": 2}, "quorum": {"x-queue-type": "quorum"}}
PREFETCH = 2000


def _patient(fn):
    """A quorum queue refuses consumers until it has a leader after a restart."""
    end = time.monotonic() + 30.0
    while True:
        try:
            return fn()
        except (ConnectionError, pika.exceptions.AMQPError):
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


class Blocking(BaseAdapter):
    """One BlockingConnection per thread; every publish waits for its confirm."""

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
        self.tls = threading.local()

    def rk(self, q):
        return f"{self.base}.{q}"

    @staticmethod
    def _blocking():
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", rabbit_node.port(), heartbeat=0, blocked_connection_timeout=300
            )
        )

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


V1 = (
    "confirm of a persistent message on a classic queue with index v1: after fsync of the index "
    "journal (< 4 KB bodies) or of the message store file (>= 4 KB)"
)
V2 = (
    "confirm on a classic queue v2 (3.10): write(2) of the per-queue store and index, no fsync below "
    "4 KB; >= 4 KB the shared message store is fsync'ed, the index entry is not"
)
QQ = "confirm on a quorum queue (one member): after fdatasync of the Raft WAL"


def _make(kind, durability, notes):
    def factory():
        a = Blocking()
        a.name, a.kind, a.durability, a.notes = f"rabbit-{kind}", kind, durability, notes
        return a

    return factory


ADAPTERS = {
    "rabbit-v1": _make("v1", FSYNC, V1),
    "rabbit-v2": _make("v2", OS, V2),
    "rabbit-quorum": _make("quorum", FSYNC, QQ),
}
