"""The process that `warrenmq demo` runs, and kills: a broker, a publisher and consumers in it.

    lines    ──► exchange "lines"   (direct, three keys) ──► lines-0, lines-1, lines-2      small: queue index
    bundles  ──► exchange "archive" (fanout)             ──► archive-a, archive-b           large: one record, two
                                                                                            references
Every item is published until it is confirmed and consumed until it is acked.  archive-b holds every third of its
bundles back until the end, so that the store's files fill with garbage in between and have to be collected.

It reports to the parent on stdout, one JSON object a line.  Consumed item numbers (8 bytes each) are appended
to a file before the ack, so that the parent can check them after a SIGKILL as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pykka import ActorDeadError

import warrenmq
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.cli._failures import IMPOSSIBLE, failure_of
from warrenmq.supervisors.broker_sup import PERSISTENT_STORE

LINE_QUEUES = ("lines-0", "lines-1", "lines-2")
ARCHIVE_QUEUES = ("archive-a", "archive-b")
BUNDLE_BYTES = 6_000
"""A bundle is closed when it has this much: above queue_index_embed_msgs_below, so it goes to the store."""
WINDOW = 500
"""Items that wait for their confirm."""
FILE_SIZE_LIMIT = 64 << 10
"""Small, so that a small input makes many message files and work for the garbage collector."""
HELD_BACK = 3


def items(lines: list[bytes]) -> Iterator[tuple[str, str, bytes]]:
    """(exchange, routing key, body) of everything there is to publish, in order; the same for the same lines."""
    bundle: list[bytes] = []
    size = 0
    for line in lines:
        yield "lines", str(zlib.crc32(line) % len(LINE_QUEUES)), line
        bundle.append(line)
        size += len(line)
        if size >= BUNDLE_BYTES:
            yield "archive", "", b"\n".join(bundle)
            bundle, size = [], 0
    if bundle:
        yield "archive", "", b"\n".join(bundle)


def read_lines(path: str, messages: int) -> list[bytes]:
    """The input's lines, from the start again until there are `messages` of them (0 = once)."""
    lines = Path(path).read_bytes().splitlines()
    lines = [line for line in lines if line.strip()]
    if messages and lines:
        lines = (lines * (messages // len(lines) + 1))[:messages]
    return lines


class Worker:
    """One life of the broker process."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._broker = warrenmq.open(
            args.data, settings={"msg_store_file_size_limit": FILE_SIZE_LIMIT}, trace=args.trace
        )
        self._consumed = Path(args.consumed).open("ab", buffering=0)  # noqa: SIM115  # open for the process's life
        self._consumed_lock = threading.Lock()
        self._finishing = threading.Event()

    def run(self) -> None:
        """Declare, publish and consume; then wait until every queue is empty, and close."""
        broker, args = self._broker, self._args
        broker.declare_exchange("lines", "direct")
        broker.declare_exchange("archive", "fanout")
        for number, name in enumerate(LINE_QUEUES):
            broker.bind(broker.declare_queue(name), "lines", str(number))
        for name in ARCHIVE_QUEUES:
            broker.bind(broker.declare_queue(name), "archive")
        if args.first:
            broker.mark("recovered after SIGKILL of the whole system")
        tell(open=True, recovered=sum(queue.ready for queue in broker.stats().queues))
        threads = [
            threading.Thread(target=self._consume, args=(name,), daemon=True)
            for name in (*LINE_QUEUES, *ARCHIVE_QUEUES)
        ]
        for thread in threads:
            thread.start()
        self._publish(args.first)
        self._finishing.set()
        while any(queue.ready or queue.unacked for queue in broker.stats().queues):
            time.sleep(0.02)
        broker.close()
        for thread in threads:
            thread.join(10)
        tell(closed=True)

    def _publish(self, first: int) -> None:
        args = self._args
        everything = list(items(read_lines(args.input, args.messages)))
        kills = {int(len(everything) * float(share)): victim for share, victim in args.kill}
        waiting: deque[tuple[int, Any]] = deque()
        for number in range(first, len(everything)):
            if (victim := kills.get(number)) is not None:
                self._kill(victim)
            waiting.append((number, self._send(number, everything[number])))
            if len(waiting) >= WINDOW:
                self._settle(waiting, everything, WINDOW // 2)
        self._settle(waiting, everything, 0)

    def _send(self, number: int, item: tuple[str, str, bytes]) -> Any:
        exchange, key, body = item
        return self._broker.publish(
            exchange, key, body, properties=warrenmq.Properties(message_id=str(number))
        )

    def _settle(
        self, waiting: deque[tuple[int, Any]], everything: list[tuple[str, str, bytes]], down_to: int
    ) -> None:
        """Wait for the oldest confirms; what was nacked because its queue was killed is published again."""
        while len(waiting) > down_to:
            number, confirm = waiting.popleft()
            while True:
                try:
                    confirm.result(30)
                    break
                except warrenmq.Nacked:
                    tell(nacked=number)
                    confirm = self._send(number, everything[number])
            tell(confirmed=number + 1)

    def _kill(self, victim: str) -> None:
        """Kill one actor and wait until its supervisor has restarted it."""
        runtime = self._broker.runtime
        name: Any = {"store": PERSISTENT_STORE, "gc": f"{PERSISTENT_STORE}_gc"}.get(
            victim, queue_name(victim)
        )
        before = self._standing(name)
        start = time.monotonic()
        self._broker.mark(f"{name} is killed")
        runtime.kill(before)
        while self._standing(name) is before:
            time.sleep(0.001)
        tell(killed=str(name), back_after_ms=round((time.monotonic() - start) * 1000, 1))

    def _standing(self, name: Any) -> Any:
        """Wait for the actor of this name: its supervisor may still be restarting it after an earlier kill."""
        while True:
            try:
                return self._broker.runtime.whereis(name)
            except ActorDeadError:
                time.sleep(0.001)

    def _consume(self, name: str) -> None:
        held: list[warrenmq.Delivery] = []
        seen = 0
        with self._broker.queue(name).consume(prefetch=0 if name == "archive-b" else 200) as consumer:
            while not consumer.ended:
                delivery = consumer.get(timeout=0.05)
                if delivery is not None:
                    seen += 1
                    held.append(delivery)
                    if name == "archive-b" and seen % HELD_BACK == 0 and not self._finishing.is_set():
                        continue
                    self._done(name, held.pop())
                elif self._finishing.is_set():
                    while held:
                        self._done(name, held.pop(0))

    def _done(self, name: str, delivery: warrenmq.Delivery) -> None:
        number = int(delivery.properties.message_id or 0)
        queue = (*LINE_QUEUES, *ARCHIVE_QUEUES).index(name)
        with self._consumed_lock:
            self._consumed.write((queue << 56 | number).to_bytes(8, "big"))
        try:
            delivery.ack()
        except warrenmq.BrokerClosed:
            return


def tell(**what: Any) -> None:
    """Write one line to the parent."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run a worker with the arguments that the parent built."""
    parser = argparse.ArgumentParser()
    for name in ("--data", "--trace", "--input", "--consumed"):
        parser.add_argument(name, required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--kill", action="append", nargs=2, default=[])
    try:
        Worker(parser.parse_args()).run()
    except (warrenmq.errors.CallerError, OSError) as why:  # the directory or the disk, not the broker
        tell(refused=failure_of(why).text)
        sys.exit(IMPOSSIBLE)


if __name__ == "__main__":
    main()
