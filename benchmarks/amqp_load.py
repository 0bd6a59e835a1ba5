"""One measure of a broker that speaks AMQP 0-9-1, by pika, in a process of its own; prints one JSON object.

python -m benchmarks.amqp_load publish amqp://guest:guest@127.0.0.1:5672 --messages 50000
python -m benchmarks.amqp_load round_trip URL --messages 3000
python -m benchmarks.amqp_load idle URL --connections 500 --queues 5000     # holds them until stdin ends

publish       persistent messages of 1 KB into a durable queue, always OUTSTANDING of them unconfirmed: confirms a second
round_trip    one persistent message at a time: publish, wait for its delivery, ack; the median, and the 99th percentile
idle          connections with a channel each, and durable queues, that do nothing
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

import pika

OUTSTANDING = 1000
BODY = b"x" * 1024
PERSISTENT = pika.BasicProperties(delivery_mode=2)
QUEUE = "amqp-load"


class Driver:
    """A connection with one channel; the loop runs until `finish`."""

    def __init__(self, url: str) -> None:
        self.result = {}
        self.connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=lambda _connection, why: sys.exit(f"{url}: {why}"),
        )

    def run(self) -> dict[str, float]:
        self.connection.ioloop.start()
        return self.result

    def _opened(self, channel) -> None:
        self.channel = channel
        channel.queue_delete(
            QUEUE, callback=lambda _: channel.queue_declare(QUEUE, durable=True, callback=self.ready)
        )

    def ready(self, _frame) -> None:
        raise NotImplementedError

    def publish(self) -> None:
        self.channel.basic_publish("", QUEUE, BODY, PERSISTENT)

    def finish(self, **result: float) -> None:
        self.result = result
        self.channel.queue_delete(QUEUE, callback=lambda _: self.connection.ioloop.stop())


class Publish(Driver):
    """The rate of confirmed publishes."""

    def __init__(self, url: str, messages: int) -> None:
        self.left, self.unconfirmed, self.messages = messages, 0, messages
        self.confirmed = 0
        super().__init__(url)

    def ready(self, _frame) -> None:
        self.channel.confirm_delivery(self._confirmed, callback=self._begin)

    def _begin(self, _frame) -> None:
        self.began = time.perf_counter()
        self._fill()

    def _fill(self) -> None:
        while self.left and self.unconfirmed < OUTSTANDING:
            self.left -= 1
            self.unconfirmed += 1
            self.publish()

    def _confirmed(self, frame) -> None:
        tag = frame.method.delivery_tag
        self.unconfirmed -= tag - self.confirmed if frame.method.multiple else 1
        self.confirmed = tag if frame.method.multiple else self.confirmed + 1
        if self.left:
            self._fill()
        elif not self.unconfirmed:
            self.finish(rate=self.messages / (time.perf_counter() - self.began))


class RoundTrip(Driver):
    """The latency of a publish-deliver-ack round trip."""

    def __init__(self, url: str, messages: int) -> None:
        self.messages, self.times = messages, []
        super().__init__(url)

    def ready(self, _frame) -> None:
        self.channel.basic_consume(QUEUE, self._delivered, callback=lambda _: self._send())

    def _send(self) -> None:
        self.sent = time.perf_counter()
        self.publish()

    def _delivered(self, channel, method, _properties, _body) -> None:
        channel.basic_ack(method.delivery_tag)
        self.times.append(time.perf_counter() - self.sent)
        if len(self.times) < self.messages:
            self._send()
        else:
            self.times = self.times[self.messages // 10 :]  # the first ones warm it up
            ordered = sorted(self.times)
            self.finish(
                median_ms=statistics.median(ordered) * 1e3, p99_ms=ordered[len(ordered) * 99 // 100] * 1e3
            )


def idle(url: str, connections: int, queues: int) -> None:
    """Make them, say how long it took, and hold them until stdin ends."""
    parameters = pika.URLParameters(url)
    parameters.heartbeat = 0
    began = time.perf_counter()
    held = [pika.BlockingConnection(parameters) for _ in range(connections)]
    channels = [connection.channel() for connection in held]
    connected = time.perf_counter()
    for number in range(queues):
        channels[0].queue_declare(f"idle-{number}", durable=True)
    print(
        json.dumps({"connect_s": connected - began, "declare_s": time.perf_counter() - connected}), flush=True
    )
    sys.stdin.read()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("measure", choices=["publish", "round_trip", "idle"])
    parser.add_argument("url")
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=10)
    parser.add_argument("--queues", type=int, default=10)
    args = parser.parse_args()
    if args.measure == "idle":
        idle(args.url, args.connections, args.queues)
    else:
        driver = {"publish": Publish, "round_trip": RoundTrip}[args.measure](args.url, args.messages)
        print(json.dumps(driver.run()))


if __name__ == "__main__":
    main()
