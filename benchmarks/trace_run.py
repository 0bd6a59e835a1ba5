"""A real run of a broker that writes a trace of about so many events: what benchmarks/replay.py replays.

    python -m benchmarks.trace_run FOLDER --events 10000000 [--queues 16] [--seed 1]

FOLDER/data is the broker's directory, FOLDER/trace its trace.  Two threads publish one message at a time, all
with confirms; a tenth of them goes to two queues at once (fanout), a third is too large for the index, a
tenth is transient; a consumer for each queue acks one by one and gives one in a hundred back.  The run ends
with a clean stop.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from pathlib import Path

import warrenmq
from warrenmq.trace.reader import open_trace

PREFETCH = 200
DEPTH = 2_000
"""Messages that a publisher may be ahead of the consumers."""
EVENTS_A_MESSAGE = 5.0
"""As measured."""


def consume(queue, seed: int, done: threading.Event, taken: list[int]) -> None:
    chance = random.Random(seed)
    with queue.consume(prefetch=PREFETCH) as consumer:
        while not done.is_set():
            for delivery in consumer.take(PREFETCH, timeout=0.2):
                taken[0] += 1
                if chance.random() < 0.01:
                    delivery.nack(requeue=not delivery.redelivered)
                else:
                    delivery.ack()


def publish(broker, queues, seed: int, messages: int, taken: list[list[int]]) -> None:
    chance = random.Random(seed)
    small, large = b"s" * 300, b"l" * 6_000
    for sent in range(1, messages + 1):
        body = large if chance.random() < 1 / 3 else small
        persistent = chance.random() >= 0.1
        if chance.random() < 0.1:
            broker.publish("both", "", body, persistent=persistent)
        else:
            chance.choice(queues).publish(body, persistent=persistent)
        if sent % 256 == 0:
            while 2 * sent - sum(each[0] for each in taken) > DEPTH:
                time.sleep(0.002)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    trace = str(args.folder / "trace")
    began = time.monotonic()
    with warrenmq.open(str(args.folder / "data"), trace=trace) as broker:
        queues = [broker.declare_queue(f"jobs.{number:02d}") for number in range(args.queues)]
        both = broker.declare_exchange("both", "fanout")
        for queue in queues[:2]:
            broker.bind(queue, both)
        done = threading.Event()
        taken = [[0] for _ in queues]
        consumers = [
            threading.Thread(target=consume, args=(queue, args.seed + number, done, count))
            for number, (queue, count) in enumerate(zip(queues, taken, strict=True))
        ]
        messages = int(args.events / EVENTS_A_MESSAGE / 2)
        publishers = [
            threading.Thread(target=publish, args=(broker, queues, args.seed + 100 + number, messages, taken))
            for number in range(2)
        ]
        for thread in (*consumers, *publishers):
            thread.start()
        for thread in publishers:
            thread.join()
        while any(queue.info().ready for queue in queues):
            time.sleep(0.1)
        done.set()
        for thread in consumers:
            thread.join()
    with open_trace(trace) as read:
        events = sum(each.rows for each in read.catalog.coverage.values())
    size = sum(path.stat().st_size for path in Path(trace).glob("*.wtr"))
    print(
        f"{events:,} events of {2 * messages:,} messages in {time.monotonic() - began:.0f} s, {size / events:.1f} bytes each"
    )


if __name__ == "__main__":
    main()
