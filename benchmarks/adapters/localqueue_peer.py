"""localqueue (Rust + SQLite): leases, acks, put_many, fanout."""

import os
import time

from localqueue import DeliveryPolicy, DurabilityMode, Empty, SimpleQueue

from benchmarks.adapters.base import ACK, FSYNC, OS, BaseAdapter

LEASE = float(os.environ.get("BENCH_LEASE", "3600"))


class _Raw:
    dumps = staticmethod(lambda b: b)
    loads = staticmethod(bytes)


class Local(BaseAdapter):
    ack_mode = ACK
    native_batch = native_fanout = True
    mode = DurabilityMode.DURABLE

    def open(self, path, queues=("q",)):
        os.makedirs(path, exist_ok=True)
        self.q = {
            n: SimpleQueue(
                path, n, delivery=DeliveryPolicy(lease_seconds=LEASE), durability=self.mode, serializer=_Raw()
            )
            for n in queues
        }
        self.acks = 0

    def publish_confirmed(self, body, queue="q"):
        self.q[queue].put(body)

    def publish_batch(self, chunk, queue):
        self.q[queue].put_many(chunk)

    def publish_fanout(self, body, queues):
        self.q[queues[0]]._get_native().fanout(body, [(n, None) for n in queues])

    def consume(self, max_n, timeout, queue="q"):
        q, out = self.q[queue], []
        try:
            j = q.get(block=timeout > 0, timeout=timeout)
            out.append((j, j.data))
            while len(out) < max_n:
                j = q.get_nowait()
                out.append((j, j.data))
        except Empty:
            pass
        return out

    def ack(self, tags, queue="q"):
        q = self.q[queue]
        for j in tags:
            q.ack(j)
        self.acks += len(tags)
        if self.acks >= 1000:
            q.purge(0)
            self.acks = 0

    def recover(self, queue="q"):
        """Leases of the dead process have to run out first."""
        if LEASE < 60:
            time.sleep(LEASE)

    def close(self):
        for q in self.q.values():
            q.close()


class Durable(Local):
    name, durability, mode = "localqueue-durable", FSYNC, DurabilityMode.DURABLE
    notes = (
        "put/get/ack: one WAL COMMIT each, synchronous=FULL; put_many is one COMMIT; acked rows "
        "deleted by purge() every 1000 acks here; unacked come back after the lease"
    )


class Relaxed(Local):
    name, durability, mode = "localqueue-relaxed", OS, DurabilityMode.RELAXED
    notes = "as localqueue-durable with synchronous=NORMAL (its default): no fsync"


ADAPTERS = {"localqueue-durable": Durable, "localqueue-relaxed": Relaxed}
