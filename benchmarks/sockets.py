"""One client's round trips at `warrenmq serve` of this checkout, and beside it of another one or RabbitMQ, in
turns in one run.

    python -m benchmarks.sockets --dir SCRATCH [--before CHECKOUT] [--rabbitmq] [--rounds 5] [--only round_trip,flood]

round_trip    publish a persistent message of 1 KB, get its delivery, ack it
confirmed     publish it and get its confirm, which follows a sync
channel       channel.open and channel.close
publish       20,000 persistent messages of 1 KB, up to 1,000 of them unconfirmed
purge         queue.purge of 100,000 messages of 1 KB, and then queue.delete of as many
flood         round trips of one client beside another that publishes bodies of 100 KB as fast as it can

The client is a raw socket with ready-made frames, which takes a twentieth of what pika takes.  `cpu` is the
server's processor time (all threads, from /proc) a round trip or message in microseconds, `waits` its changes
of thread; `ms` the median of its wall times, `p99` and `worst` of the others.  Each figure is the least of
the rounds, since other work on the machine only adds; all rounds follow it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pamqp import commands, frame
from pamqp.header import ContentHeader

from benchmarks import ROOT, rabbit_node
from benchmarks.amqp import RabbitMQ

PERSISTENT = commands.Basic.Properties(delivery_mode=2)
QUEUE = "sockets"
WARM_UP, TRIPS, CHANNELS, MESSAGES, WINDOW, BACKLOG = 300, 3_000, 400, 20_000, 1_000, 100_000
FLOOD = 100_000
FLOOD_SECONDS = 3.0


class Client:
    """A connection with channel 1 open."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._bytes = b""
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.until("Connection.Start")
        self.call(commands.Connection.StartOk(response="\0guest\0guest"), "Connection.Tune", 0)
        self.send(commands.Connection.TuneOk(2047, 131072, 0), 0)
        self.call(commands.Connection.Open(), "Connection.OpenOk", 0)
        self.call(commands.Channel.Open(), "Channel.OpenOk")

    def send(self, method: object, channel: int = 1) -> None:
        self.socket.sendall(frame.marshal(method, channel))

    def call(self, method: object, answer: str, channel: int = 1) -> object:
        self.send(method, channel)
        return self.until(answer)

    def until(self, name: str) -> object:
        """The next method of this name."""
        while True:
            if len(self._bytes) >= 7:
                size, _, found = frame.unmarshal(self._bytes)
                if size:
                    self._bytes = self._bytes[size:]
                    if getattr(found, "name", "") == name:
                        return found
                    continue
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError(name)
            self._bytes += data

    def receive(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError
            found += data
        return found


def publish_frames(queue: str, size: int) -> bytes:
    parts = [commands.Basic.Publish(exchange="", routing_key=queue), ContentHeader(0, size, PERSISTENT)]
    encoded = b"".join(frame.marshal(each, 1) for each in parts)
    for at in range(0, size, 131_000):
        body = b"x" * min(131_000, size - at)
        encoded += b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"
    return encoded


def processor_time(pid: int) -> float:
    """Microseconds, of all threads that are there."""
    total = 0
    for each in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{each}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e3


def resident(pid: int) -> float:
    """Megabytes."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def waits(pid: int) -> int:
    """Voluntary changes of thread, of all threads that are there."""
    total = 0
    for each in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{each}/status", encoding="ascii") as file:
            total += next(int(line.split()[1]) for line in file if line.startswith("voluntary"))
    return total


class Used:
    """Processor time and changes of thread of the server since this was made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu, self._waits = processor_time(pid), waits(pid)

    def each(self, count: int) -> dict[str, float]:
        return {
            "cpu": (processor_time(self._pid) - self._cpu) / count,
            "waits": (waits(self._pid) - self._waits) / count,
        }


def trips(client: Client, again: Callable[[], bool], name: str) -> list[float]:
    """Wall times of round trips on a queue of their own, in milliseconds."""
    client.call(commands.Queue.Declare(queue=name, durable=True), "Queue.DeclareOk")
    client.call(commands.Basic.Consume(queue=name), "Basic.ConsumeOk")
    publish = publish_frames(name, 1024)
    client.socket.sendall(publish)
    first = client.until("Basic.Deliver")
    client.until("ContentHeader")
    client.until("ContentBody")
    client.send(commands.Basic.Ack(number := first.delivery_tag))
    method = frame.marshal(commands.Basic.Publish(exchange="", routing_key=name), 1)
    whole = len(publish) - len(method) + len(frame.marshal(first, 1))
    found: list[float] = []
    while again():
        number += 1
        ack = frame.marshal(commands.Basic.Ack(number), 1)
        began = time.perf_counter()
        client.socket.sendall(publish)
        client.receive(whole)
        client.socket.sendall(ack)
        found.append((time.perf_counter() - began) * 1e3)
    client.call(commands.Queue.Delete(queue=name), "Queue.DeleteOk")
    return found


def counted(count: int) -> Callable[[], bool]:
    left = iter(range(count))
    return lambda: next(left, None) is not None


def summary(times: list[float], used: dict[str, float]) -> dict[str, float]:
    ordered = sorted(times)
    return {**used, "ms": statistics.median(ordered), "p99": ordered[len(ordered) * 99 // 100]}


def round_trip(client: Client, pid: int, _port: int) -> dict[str, float]:
    trips(client, counted(WARM_UP), QUEUE)
    used = Used(pid)
    times = trips(client, counted(TRIPS), QUEUE)
    return summary(times, used.each(TRIPS))


def confirmed(client: Client, pid: int, _port: int) -> dict[str, float]:
    client.call(commands.Queue.Declare(queue=QUEUE, durable=True), "Queue.DeclareOk")
    client.call(commands.Confirm.Select(), "Confirm.SelectOk")
    publish, times = publish_frames(QUEUE, 1024), []
    ack = len(frame.marshal(commands.Basic.Ack(1), 1))
    for number in range(WARM_UP + TRIPS):
        if number == WARM_UP:
            used = Used(pid)
        began = time.perf_counter()
        client.socket.sendall(publish)
        client.receive(ack)
        times.append((time.perf_counter() - began) * 1e3)
    took = used.each(TRIPS)
    client.call(commands.Queue.Delete(queue=QUEUE), "Queue.DeleteOk")
    return summary(times[WARM_UP:], took)


def channel(client: Client, pid: int, _port: int) -> dict[str, float]:
    times = []
    for number in range(CHANNELS + 20):
        if number == 20:
            used = Used(pid)
        began = time.perf_counter()
        client.call(commands.Channel.Open(), "Channel.OpenOk", 2)
        times.append((time.perf_counter() - began) * 1e3)
        client.call(commands.Channel.Close(200, "", 0, 0), "Channel.CloseOk", 2)
    return summary(times[20:], used.each(CHANNELS))


def publish(client: Client, pid: int, _port: int) -> dict[str, float]:
    client.call(commands.Queue.Declare(queue=QUEUE, durable=True), "Queue.DeclareOk")
    client.call(commands.Confirm.Select(), "Confirm.SelectOk")
    one = publish_frames(QUEUE, 1024)
    used, began = Used(pid), time.perf_counter()
    sent = done = 0
    while done < MESSAGES:
        count = min(MESSAGES - sent, WINDOW - (sent - done))
        if count:
            client.socket.sendall(one * count)
            sent += count
        found = client.until("Basic.Ack")
        done = found.delivery_tag if found.multiple else done + 1
    took, each = time.perf_counter() - began, used.each(MESSAGES)
    client.call(commands.Queue.Delete(queue=QUEUE), "Queue.DeleteOk")
    return {**each, "ms": took / MESSAGES * 1e3}


def purge(client: Client, pid: int, _port: int) -> dict[str, float]:
    one, seconds = publish_frames(QUEUE, 1024) * WINDOW, []
    client.call(commands.Queue.Declare(queue=QUEUE, durable=True), "Queue.DeclareOk")
    client.call(commands.Confirm.Select(), "Confirm.SelectOk")
    for ending, answer in (
        (commands.Queue.Purge(queue=QUEUE), "Queue.PurgeOk"), (commands.Queue.Delete(queue=QUEUE), "Queue.DeleteOk"),
    ):  # fmt: skip
        for number in range(1, BACKLOG // WINDOW + 1):
            client.socket.sendall(one)
            done = len(seconds) * BACKLOG + number * WINDOW
            while client.until("Basic.Ack").delivery_tag < done:
                pass
        used, began = Used(pid), time.perf_counter()
        client.call(ending, answer)
        seconds.append(time.perf_counter() - began)
    return {"purge_s": seconds[0], "delete_s": seconds[1], **used.each(BACKLOG)}


def flood(client: Client, pid: int, port: int) -> dict[str, float]:
    other = Client(port)
    other.call(commands.Queue.Declare(queue="flood", durable=True), "Queue.DeclareOk")
    ends = time.monotonic() + FLOOD_SECONDS
    sent = 0

    def publish_large() -> None:
        nonlocal sent
        one = publish_frames("flood", FLOOD)
        while time.monotonic() < ends:
            other.socket.sendall(one)
            sent += 1

    flooding = threading.Thread(target=publish_large)
    flooding.start()
    times = trips(client, lambda: time.monotonic() < ends, QUEUE)
    flooding.join()
    memory = resident(pid)
    other.call(commands.Queue.Delete(queue="flood"), "Queue.DeleteOk")
    return {
        "ms": statistics.median(times), "p99": sorted(times)[len(times) * 99 // 100], "worst": max(times),
        "trips": len(times), "flood_per_s": sent / FLOOD_SECONDS, "memory_mb": memory,
    }  # fmt: skip


MEASURES = {
    "round_trip": round_trip, "confirmed": confirmed, "channel": channel, "publish": publish, "purge": purge,
    "flood": flood,
}  # fmt: skip


@contextmanager
def served(checkout: Path, scratch: str) -> Iterator[tuple[int, int]]:
    """The process id and the port of a server with a new directory."""
    data = tempfile.mkdtemp(dir=scratch)
    command = [sys.executable, "-m", "warrenmq", "serve", "--data", data, "--port", "0"]
    with open(data + ".log", "ab") as log:
        process = subprocess.Popen(
            command, cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)},
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline().split()[1].rpartition(":")[2])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        shutil.rmtree(data, ignore_errors=True)
        os.unlink(data + ".log")


@contextmanager
def rabbitmq(scratch: str) -> Iterator[tuple[int, int]]:
    """The same of a RabbitMQ node."""
    node = RabbitMQ(scratch)
    node.start()
    try:
        yield node.pid, rabbit_node.port()
    finally:
        node.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rabbitmq", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(MEASURES))
    args = parser.parse_args()
    os.makedirs(args.dir, exist_ok=True)
    here = Path(ROOT)
    servers = {
        each.name: partial(served, each) for each in (args.before and args.before.resolve(), here) if each
    }
    if args.rabbitmq:
        servers["rabbitmq"] = rabbitmq
    for name in args.only.split(","):
        found: dict[str, list[dict[str, float]]] = {server: [] for server in servers}
        for _ in range(args.rounds):
            for server, start in servers.items():
                with start(args.dir) as (pid, port):
                    found[server].append(MEASURES[name](Client(port), pid, port))
        for server, rounds in found.items():
            for key in rounds[0]:
                values = [each[key] for each in rounds]
                best = max(values) if key in {"trips", "flood_per_s"} else min(values)
                print(
                    f"{name} {key} {server}: {best:.3f} ({', '.join(f'{each:.3f}' for each in values)})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
