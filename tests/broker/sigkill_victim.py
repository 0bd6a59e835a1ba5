"""A process to be killed: it publishes and consumes, and says each thing on its standard output as it happens.

    python -m tests.broker.sigkill_victim DATA TRACE SEED FIRST

    found QUEUE NUMBER...     what a recovery gave back, in order
    references N M            the store's references, and its messages
    declared QUEUE | bound QUEUE
    publish QUEUE,... NUMBER...   about to publish these as one
    confirmed NUMBER...
    ack QUEUE NUMBER          about to ack
    paused                    nothing was done for a second

A line that was written is read, whatever happens to the process.
"""

from __future__ import annotations

import os
import random
import sys
import threading

import warrenmq

QUEUES = ("red", "green", "blue")
SETTINGS = {
    "msg_store_file_size_limit": 65_536,
    "queue_index_max_journal_entries": 60,
    "queue_index_segment_entry_count": 32,
}
SIZES = (0, 100, 4000, 5000, 20_000)


def tell(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def number_of(body: bytes) -> int:
    return int(body.split(b" ", 1)[0])


def tell_what_was_found(broker: warrenmq.Broker) -> None:
    for name in QUEUES:
        try:
            queue = broker.queue(name)
        except warrenmq.NotFound:
            continue
        deliveries = list(iter(queue.get, None))
        tell("found", name, *(number_of(delivery.body) for delivery in deliveries))
        for delivery in deliveries:
            delivery.nack()
    store = next(each for each in broker.stats().stores if each.name == "msg_store_persistent")
    tell("references", store.references, store.messages)


class Victim:
    def __init__(self, broker: warrenmq.Broker, seed: int, first: int) -> None:
        self.broker = broker
        self.random = random.Random(seed)
        self.number = first
        self.waiting: list[tuple[warrenmq.Confirm, range]] = []

    def run(self) -> None:
        broker = self.broker
        broker.declare_exchange("direct", "direct")
        broker.declare_exchange("all", "fanout")
        for name in QUEUES:
            broker.declare_queue(name)
            tell("declared", name)
            broker.bind(name, "direct", name)
            broker.bind(name, "all")
            tell("bound", name)
        while True:
            for _ in range(self.random.randint(1, 30)):
                self.publish()
            for confirm, numbers in self.waiting:
                confirm.result()
                tell("confirmed", *numbers)
            self.waiting.clear()
            self.consume(self.random.choice(QUEUES))
            if self.random.random() < 0.02:
                threading.Event().wait(1)
                tell("paused")

    def publish(self) -> None:
        name = self.random.choice(("all", *QUEUES))
        numbers = range(self.number, self.number + self.random.choice((1, 1, 1, 20)))
        self.number = numbers.stop
        bodies = [b"%d " % number + b"." * self.random.choice(SIZES) for number in numbers]
        tell("publish", ",".join(QUEUES) if name == "all" else name, *numbers)
        exchange, key = ("all", "") if name == "all" else self.random.choice((("", name), ("direct", name)))
        if len(bodies) == 1:
            confirm = self.broker.publish(exchange, key, bodies[0])
        else:
            confirm = self.broker.publish_many(exchange, key, bodies)
        self.waiting.append((confirm, numbers))

    def consume(self, name: str) -> None:
        """Ack most of a queue, through a consumer and through get."""
        queue = self.broker.queue(name)
        with queue.consume(prefetch=20) as consumer:
            for _ in range(self.random.randint(0, 60)):
                if (delivery := consumer.get(timeout=0.05)) is None:
                    return
                if self.random.random() < 0.9:
                    tell("ack", name, number_of(delivery.body))
                    delivery.ack()
                else:
                    delivery.nack()


def main() -> None:
    data, trace, seed, first = sys.argv[1:]
    settings = {**SETTINGS, "commit_log": int(seed) % 3 != 0}  # two lives with it and one without
    broker = warrenmq.open(data, settings=settings, trace=trace)
    tell_what_was_found(broker)
    Victim(broker, int(seed), int(first)).run()


if __name__ == "__main__":
    main()
