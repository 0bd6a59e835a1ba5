"""warrenmq through its public face: three ways to use it."""

import logging
from collections import deque

import structlog

import warrenmq.broker.broker  # the whole of it, as other peers' libraries are imported before anything is timed
from benchmarks.adapters.base import ACK, FSYNC, OS, BaseAdapter, batched

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
PATIENCE = 60.0
PREFETCH = 2_000


class WarrenMQ(BaseAdapter):
    name = "warrenmq"
    durability, ack_mode = FSYNC, ACK
    native_batch = native_fanout = True
    setting = "fsync"
    notes = "confirmed = body and index entry fdatasync'ed, many messages a sync; pipelined with publish_many"

    def open(self, path, queues=("q",)):
        self.broker = warrenmq.open(path, settings=warrenmq.Settings.load(durability=self.setting))
        self.broker.declare_exchange("all", "direct")
        self.queues = {name: self.broker.declare_queue(name) for name in queues}
        for name in queues:
            self.broker.bind(name, "all", "all")
        self.consumers = {}
        self.unsettled = deque()

    def publish_confirmed(self, body, queue="q"):
        self.queues[queue].publish(body).result(PATIENCE)

    def publish_pipelined(self, bodies, queue="q", window=4096):
        publish_many, waiting, n = self.queues[queue].publish_many, deque(), 0
        chunk_size = max(1, min(512, window // 8))
        for chunk in batched(iter(bodies), chunk_size):
            waiting.append(publish_many(chunk))
            n += len(chunk)
            if len(waiting) * chunk_size > window:
                waiting.popleft().result(PATIENCE)
        for confirm in waiting:
            confirm.result(PATIENCE)
        return n

    def publish_fanout(self, body, queues):
        self._remember(self.broker.publish("all", "all", body))

    def _remember(self, confirm):
        self.unsettled.append(confirm)
        if len(self.unsettled) > 4_096:
            self.unsettled.popleft().result(PATIENCE)

    def settle(self):
        while self.unsettled:
            self.unsettled.popleft().result(PATIENCE)

    def consume(self, max_n, timeout, queue="q"):
        consumer = self.consumers.get(queue)
        if consumer is None:
            consumer = self.consumers[queue] = self.queues[queue].consume(prefetch=PREFETCH)
        return [(delivery, delivery.body) for delivery in consumer.take(max_n, timeout)]

    def ack(self, tags, queue="q"):
        tags[-1].ack(multiple=True)  # the harness acknowledges in order, and everything it took

    def close(self):
        self.broker.close()


class Singles(WarrenMQ):
    name = "warrenmq-singles"
    notes = "as warrenmq, pipelined with one publish a message"

    def publish_pipelined(self, bodies, queue="q", window=4096):
        publish, waiting, n = self.queues[queue].publish, deque(), 0
        for body in bodies:
            waiting.append(publish(body))
            n += 1
            if len(waiting) > window:
                for _ in range(max(1, window // 8)):
                    waiting.popleft().result(PATIENCE)
        for confirm in waiting:
            confirm.result(PATIENCE)
        return n


class Os(WarrenMQ):
    name = "warrenmq-os"
    durability, setting = OS, "os"
    notes = "durability=os: confirmed = handed to the operating system, RabbitMQ 3.13's rule"


ADAPTERS = {"warrenmq": WarrenMQ, "warrenmq-singles": Singles, "warrenmq-os": Os}
