"""kombu's filesystem and SQLAlchemy (SQLite file) transports."""

import os
import threading

import kombu

from benchmarks.adapters.base import AUTO, FSYNC, OS, BaseAdapter


class _Kombu(BaseAdapter):
    ack_mode = AUTO

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.path, self.tls, self.all = path, threading.local(), []
        self.names = list(queues)
        self._st()

    def _st(self):
        t = self.tls
        if not hasattr(t, "conn"):
            t.conn = self._connect()
            t.chan = t.conn.channel()
            t.prod = kombu.Producer(t.chan)
            fan = kombu.Exchange("fan", "direct", durable=True)
            for n in self.names:
                kombu.Queue(n, channel=t.chan, durable=True).declare()
                kombu.Queue(n, fan, routing_key="all", channel=t.chan, durable=True).declare()
            self.all.append(t.conn)
        return t

    def publish_confirmed(self, body, queue="q"):
        self._st().prod.publish(
            body,
            routing_key=queue,
            exchange="",
            serializer=None,
            content_type="application/data",
            content_encoding="binary",
            delivery_mode=2,
        )

    def publish_fanout(self, body, queues):
        self._st().prod.publish(
            body,
            routing_key="all",
            exchange="fan",
            serializer=None,
            content_type="application/data",
            content_encoding="binary",
            delivery_mode=2,
        )

    def consume(self, max_n, timeout, queue="q"):
        ch = self._st().chan

        def take(n):
            out = []
            while len(out) < n:
                m = ch.basic_get(queue)
                if m is None:
                    break
                body = m.body
                out.append((m.delivery_tag, body if isinstance(body, bytes) else body.encode()))
            return out

        return self.poll(take, max_n, timeout, idle=0.002)

    def ack(self, tags, queue="q"):
        ch = self._st().chan
        for t in tags:
            ch.basic_ack(t)

    def close(self):
        for c in self.all:
            c.release()


class FS(_Kombu):
    name = "kombu-filesystem"
    durability = OS
    notes = (
        "publish: one file per message, no fsync; get lists the whole directory and removes the "
        "file, acks live in memory"
    )

    def _connect(self):
        d = os.path.join(self.path, "data")
        for x in (d, os.path.join(self.path, "control")):
            os.makedirs(x, exist_ok=True)
        return kombu.Connection(
            "filesystem://",
            transport_options={
                "data_folder_in": d,
                "data_folder_out": d,
                "control_folder": os.path.join(self.path, "control"),
            },
        )


class SQLA(_Kombu):
    name = "kombu-sqlalchemy"
    durability = FSYNC
    notes = (
        "publish: one rollback-journal COMMIT, SQLite's default synchronous=FULL; get marks "
        "visible=False and never deletes, acks live in memory"
    )

    def _connect(self):
        return kombu.Connection("sqla+sqlite:///" + os.path.join(self.path, "kombu.db"))


ADAPTERS = {"kombu-filesystem": FS, "kombu-sqlalchemy": SQLA}
