"""Histories of `warrenmq serve` under real kills, with real clients: recorded, checked, and written in Jepsen's format.

    python -m tools.histories --seconds 60 --out history.edn
    python -m tools.histories --seconds 60 --data /mnt/small/data --nemesis kill,pause,full --setting disk_free_limit=0

Workers are clients: three publish with confirms, two get and ack, one consumes and acks; each does one
operation after the other.  `--amqplib N` of the publishers are node's amqplib, the others pika.  Meanwhile a
nemesis does one of these, waits, and goes on:

    kill    SIGKILL of the server, which is started again on the same directory
    pause   SIGSTOP, and SIGCONT up to a second later
    full    the file system of the data directory is filled, and freed again; it has to be a small one (at most 1 GiB)
    clock   the server's wall clock is set up to a day forth or back; that of the machine is everybody's, and stays (skewed.py)

At the end the server is killed once more, started, and the queue is drained.  The history is checked by the
model of a client that `warrenmq simulate` has (warrenmq/simulate/model.py): every confirmed value comes out,
nothing comes out that was not sent, nothing comes twice unless it is marked as redelivered, and what is
drained comes in the order in which each publisher sent it.

The file has an operation a line, as Jepsen writes them (`:type` is :invoke, :ok, :fail, or :info where nobody
can know), for its checker total-queue and for tools that read its histories.  A process that got no answer is
never used again; its worker goes on as another one.  A dequeue that got its value and no answer to its ack is
:ok, with :acked false: the value came, and may come again.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, cast
from urllib.parse import urlsplit

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tools.node_client import FOLDER, ensure
from tools.skewed import set_ahead
from warrenmq.location import HOME
from warrenmq.simulate.found import judge_found
from warrenmq.simulate.messages import Copy, Message, PromiseBroken, State, body_of, number_of
from warrenmq.simulate.model import QueueModel

QUEUE = "history"
PUBLISHERS, GETTERS, CONSUMERS = 3, 2, 1
NEMESES = ("kill", "pause", "full", "clock")
SMALL_DISK = 1 << 30
"""Bytes of the largest file system that is filled: nobody's real disk."""
_DAY = 86_400.0
_PAUSE = 0.05
"""Seconds between tries of a client that finds no server."""
_SERVED = 20
"""Answers that clients get between two acts of the nemesis, at least."""
_PATIENCE = 60.0
_SIZES = (10, 300, 6_000)
"""Bytes of bodies: in the index, and in the message store."""


class Operation(NamedTuple):
    """One line of a history."""

    type: str
    """invoke, ok, fail or info."""
    process: int | str
    f: str
    value: object = None
    error: str = ""
    redelivered: bool = False
    acked: bool = True
    """False for a dequeue whose ack may not have come to the server."""
    time: int = 0
    """Nanoseconds since the beginning."""

    def edn(self, index: int) -> str:
        told = {
            "index": str(index), "time": str(self.time), "type": f":{self.type}",
            "process": self.process if isinstance(self.process, int) else f":{self.process}",
            "f": f":{self.f}", "value": _edn(self.value),
        }  # fmt: skip
        if self.error:
            told["error"] = f":{self.error}"
        if self.redelivered:
            told["redelivered"] = "true"
        if not self.acked:
            told["acked"] = "false"
        return "{" + ", ".join(f":{key} {value}" for key, value in told.items()) + "}"


def _edn(value: object) -> str:
    if value is None:
        return "nil"
    return f"[{' '.join(map(_edn, value))}]" if isinstance(value, list) else str(value)


class Lost(Exception):
    """The connection ended, or the answer was neither yes nor no."""


@dataclass
class History:
    """Operations in the order in which their clients saw them; thread-safe."""

    operations: list[Operation] = field(default_factory=list)
    _began: int = field(default_factory=time.monotonic_ns)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _open: int = 0
    _ok: int = 0
    _values: int = 0
    _processes: int = 0

    def add(self, operation: Operation) -> None:
        with self._changed:
            self.operations.append(operation._replace(time=time.monotonic_ns() - self._began))
            self._open += {"invoke": 1}.get(operation.type, -1) if operation.process != "nemesis" else 0
            self._ok += operation.type == "ok"
            self._changed.notify_all()

    def wait_until_served(self) -> None:
        """Wait for some answers: what comes next then meets a server that works."""
        with self._changed:
            served = self._ok + _SERVED
            if not self._changed.wait_for(lambda: self._ok >= served, _PATIENCE):
                raise SystemExit(
                    f"no client was served for {_PATIENCE:.0f} seconds: the server is gone, or stuck"
                )

    def wait_until_idle(self) -> None:
        """Wait until no operation is open: after a kill each of them ends, as its connection does."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open)

    def value(self) -> int:
        with self._changed:
            self._values += 1
            return self._values

    def process(self) -> int:
        with self._changed:
            self._processes += 1
            return self._processes - 1

    def write(self, file: IO[str]) -> None:
        file.writelines(f"{each.edn(index)}\n" for index, each in enumerate(self.operations))


class Server:
    """`warrenmq serve` on one directory, started as often as it was killed."""

    def __init__(self, data: Path, folder: Path, arguments: Sequence[str], *, skewed: bool) -> None:
        """`folder`: for what must not lie on the disk of the data, which may be full."""
        self.data = data
        self.clock = folder / "clock"
        """How far its wall clock is ahead (skewed.py)."""
        self._command = ["-m", "warrenmq"]
        if skewed:
            set_ahead(self.clock, 0.0)
            self._command = ["-m", "tools.skewed", str(self.clock)]
        self._arguments = arguments
        self._log = folder / "log"
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, *self._command, "serve", "--data", str(self.data), *self._arguments]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port)], stdout=subprocess.PIPE, stderr=log, text=True,
                env=os.environ | {"PYTHONPATH": str(HOME)},
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            raise SystemExit(f"the server did not start: {self._log.read_text().strip() or line!r}")
        self.port = urlsplit(line.split()[1]).port or 0

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        with self._process as process:
            process.kill()

    def connect(self) -> BlockingChannel:
        """Connect a client and declare the queue, trying again until the server listens."""
        while True:
            try:
                connection = pika.BlockingConnection(
                    pika.ConnectionParameters("127.0.0.1", self.port, heartbeat=0)
                )
                channel = connection.channel()
                channel.queue_declare(QUEUE, durable=True)
            except (AMQPError, OSError):
                time.sleep(_PAUSE)
            else:
                return channel


class Worker(threading.Thread):
    """A client that does one operation after the other; after one of unknown outcome it goes on as another process."""

    def __init__(self, history: History, server: Server, end: threading.Event) -> None:
        super().__init__(daemon=True)
        self.history, self.server, self.end = history, server, end
        self.at = history.process()

    def run(self) -> None:
        while not self.end.is_set():
            channel = self.server.connect()
            with suppress(Lost, AMQPError, OSError):
                self.use(channel)
            with suppress(AMQPError, OSError):
                channel.connection.close()
            self.at = self.history.process()

    def use(self, channel: BlockingChannel) -> None:
        """Do operations on a connection until it is lost, or the end."""
        raise NotImplementedError

    def note(self, kind: str, f: str, value: object = None, **more: Any) -> None:
        self.history.add(Operation(kind, self.at, f, value, **more))


class Publisher(Worker):
    """A client that publishes with confirms, a message at a time."""

    def use(self, channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        while not self.end.is_set():
            value = self.history.value()
            self.note("invoke", "enqueue", value)
            try:
                channel.basic_publish(
                    "", QUEUE, _body(value), pika.BasicProperties(delivery_mode=2), mandatory=True
                )
            except (AMQPError, OSError) as error:
                self.note("info", "enqueue", value, error=type(error).__name__)
                raise Lost from error
            self.note("ok", "enqueue", value)


class NodePublisher(Worker):
    """A publisher whose client is node's amqplib: tools/history_publisher.js takes a value a line and answers
    `ok`, or ends.
    """

    def use(self, channel: BlockingChannel) -> None:  # noqa: ARG002 - it has one of its own
        command = ["node", str(HOME / "tools" / "history_publisher.js"), str(self.server.port), QUEUE]
        environment = os.environ | {"NODE_PATH": str(HOME / FOLDER / "node_modules")}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
        ) as node:
            assert node.stdin is not None
            assert node.stdout is not None
            if node.stdout.readline() != "ready\n":
                return
            while not self.end.is_set():
                value = self.history.value()
                self.note("invoke", "enqueue", value)
                with suppress(OSError):
                    node.stdin.write(f"{_body(value).hex()}\n")
                if node.stdout.readline() != "ok\n":
                    self.note("info", "enqueue", value, error="ended")
                    raise Lost
                self.note("ok", "enqueue", value)
            node.stdin.close()


class Getter(Worker):
    """A client that gets messages one by one, and acks each."""

    def use(self, channel: BlockingChannel) -> None:
        while not self.end.is_set():
            self.note("invoke", "dequeue")
            try:
                method, _, body = channel.basic_get(QUEUE)
            except (AMQPError, OSError) as error:
                self.note("info", "dequeue", error=type(error).__name__)
                raise Lost from error
            if method is None:
                self.note("fail", "dequeue", error="empty")
                time.sleep(_PAUSE)
            else:
                self.settle(channel, method, body)

    def settle(self, channel: BlockingChannel, method: Any, body: bytes) -> None:
        """Ack a delivery, and be sure that the server has the ack: it answers what is asked after it."""
        value, redelivered = number_of(body), bool(method.redelivered)
        if body != _body(value):
            value = -1
        try:
            channel.basic_ack(method.delivery_tag)
            channel.queue_declare(QUEUE, passive=True)
        except (AMQPError, OSError) as error:
            self.note(
                "ok", "dequeue", value, acked=False, error=type(error).__name__, redelivered=redelivered
            )
            raise Lost from error
        self.note("ok", "dequeue", value, redelivered=redelivered)


class Consumer(Getter):
    """A client that has messages pushed to it, and acks each."""

    def use(self, channel: BlockingChannel) -> None:
        channel.basic_qos(prefetch_count=5)
        for method, _, body in channel.consume(QUEUE, inactivity_timeout=_PAUSE):
            if self.end.is_set():
                channel.cancel()
                return
            if method is not None:
                self.note("invoke", "dequeue")
                self.settle(channel, method, cast("bytes", body))


def _body(value: int) -> bytes:
    return body_of(value, _SIZES[value % len(_SIZES)])


# -- the nemesis


def kill(history: History, server: Server, _rng: random.Random) -> None:
    server.kill()
    history.wait_until_idle()  # so that what was delivered before the kill is in the history before what comes after it
    history.add(Operation("info", "nemesis", "restart"))
    server.start()


def pause(_history: History, server: Server, rng: random.Random) -> None:
    server.signal(signal.SIGSTOP)
    time.sleep(rng.random())
    server.signal(signal.SIGCONT)


def full(_history: History, server: Server, rng: random.Random) -> None:
    ballast = server.data.parent / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    time.sleep(rng.random())
    ballast.unlink()


def clock(_history: History, server: Server, rng: random.Random) -> None:
    set_ahead(server.clock, rng.uniform(-_DAY, _DAY))


_DO: dict[str, Callable[[History, Server, random.Random], None]] = {
    "kill": kill,
    "pause": pause,
    "full": full,
    "clock": clock,
}


@dataclass(frozen=True)
class Plan:
    """The settings of a run: its length, its load and its server."""

    seconds: float
    data: Path
    nemeses: tuple[str, ...] = ("kill", "pause")
    every: float = 1.5
    """Seconds between two acts of the nemesis, on average."""
    seed: int = 0
    amqplib: int = 0
    arguments: tuple[str, ...] = ()
    """Further arguments of `warrenmq serve`."""


def record(plan: Plan) -> History:
    """Carry out a plan; the server has ended when it returns."""
    with tempfile.TemporaryDirectory(prefix="warrenmq-history-") as folder:
        return _record(plan, Path(folder))


def _record(plan: Plan, folder: Path) -> History:
    if "full" in plan.nemeses and shutil.disk_usage(plan.data.parent).total > SMALL_DISK:
        raise SystemExit(
            f"{plan.data.parent} is on a large disk, which is not filled; mount a small one: mount -t tmpfs -o size=64m tmpfs DIR"
        )
    rng, history, end = random.Random(plan.seed), History(), threading.Event()
    server = Server(plan.data, folder, plan.arguments, skewed="clock" in plan.nemeses)
    kinds = (
        [NodePublisher] * plan.amqplib
        + [Publisher] * (PUBLISHERS - plan.amqplib)
        + [Getter] * GETTERS
        + [Consumer] * CONSUMERS
    )
    workers = [kind(history, server, end) for kind in kinds]
    try:
        for worker in workers:
            worker.start()
        until = time.monotonic() + plan.seconds
        while time.monotonic() < until:
            history.wait_until_served()
            time.sleep(rng.uniform(0.5, 1.5) * plan.every)
            name = rng.choice(plan.nemeses)
            history.add(Operation("info", "nemesis", name))
            _DO[name](history, server, rng)
        history.wait_until_served()
        end.set()
        for worker in workers:
            worker.join()
        history.add(Operation("info", "nemesis", "kill"))
        kill(history, server, rng)
        _drain(history, server)
    finally:
        end.set()
        server.kill()
    return history


def _drain(history: History, server: Server) -> None:
    """Take everything out of the queue, and note it as one operation."""
    process, channel, values, marked = history.process(), server.connect(), [], True
    history.add(Operation("invoke", process, "drain"))
    while True:
        method, _, body = channel.basic_get(QUEUE, auto_ack=True)
        if method is None:
            break
        values.append(number_of(body) if body == _body(number_of(body)) else -1)
        marked = marked and bool(method.redelivered)
    history.add(Operation("ok", process, "drain", values, redelivered=marked))
    channel.connection.close()


# -- the check

_WAY = "", QUEUE
"""The exchange and the routing key of every message; a history does not record those of deliveries."""


def check(operations: Iterable[Operation]) -> dict[str, int]:
    """Check a history with the client's model; returns what it counted.  Raises PromiseBroken."""
    model = QueueModel(QUEUE, is_ordered=False)
    counted: Counter[str] = Counter()
    for each in operations:
        counted[f"{each.type} {each.f}"] += 1
        match each.type, each.f:
            case "invoke", "enqueue":
                value = cast("int", each.value)
                message = Message(
                    value, _body(value), persistent=True, priority=0, publisher=cast("int", each.process)
                )
                message.way = _WAY
                model.sent(message, 0.0, may_be_refused=True)
                model.copies[
                    value
                ].is_redelivered = None  # it may wait in a client's buffer, which nobody sees
            case "ok", "enqueue":
                copy = model.copies[cast("int", each.value)]
                copy.message.confirm = cast("Any", _CONFIRMED)
                model.confirmed([copy.message], 0.0)
            case "ok", "dequeue":
                _dequeued(model, each, counted)
            case "info", "restart":
                for copy in model.copies.values():  # acks of the last moments may be lost
                    if copy.state is State.SETTLED:
                        _may_come_again(copy)
            case "ok", "drain":
                model.is_ordered = True
                back = [(_body(number), True) for number in cast("list[int]", each.value)]
                judge_found(model, back, set(model.copies), clean=False, is_safe=True)
                if not each.redelivered:
                    raise PromiseBroken(
                        "redelivered flag", "after the kill a value was drained without the redelivered flag"
                    )
                counted["drained"] = len(back)
    if not counted["ok drain"] or not counted["ok enqueue"]:
        raise PromiseBroken(
            "nothing tried",
            "the history has no confirmed value, or no drain of the queue, so nothing is known",
        )
    return dict(counted)


def _dequeued(model: QueueModel, operation: Operation, counted: Counter[str]) -> None:
    value = cast("int", operation.value)
    body = _body(value) if value >= 0 else b"damaged"
    copy = model.delivered(body, redelivered=operation.redelivered, way=_WAY)
    counted["redelivered"] += operation.redelivered
    counted["with an unknown ack"] += not operation.acked
    if operation.acked:
        copy.state = State.SETTLED
    else:  # its ack arrived or not; if not, it comes again, and says so
        _may_come_again(copy)


def _may_come_again(copy: Copy) -> None:
    copy.state, copy.is_redelivered = State.READY, True
    copy.is_certain = copy.awaits_confirm = False  # its confirm may be seen later than its delivery


_CONFIRMED: Future[None] = Future()
_CONFIRMED.set_result(None)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", help="write the history there, as EDN")
    parser.add_argument("--data", help="the data directory (default: a temporary one)")
    parser.add_argument("--nemesis", default="kill,pause", help=f"of {', '.join(NEMESES)}, with commas")
    parser.add_argument("--every", type=float, default=1.5, help="seconds between two of its acts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--amqplib", type=int, choices=range(PUBLISHERS + 1), default=0, help="publishers that are node's"
    )
    parser.add_argument("--setting", action="append", default=[], metavar="KEY=VALUE", help="of the server")
    args = parser.parse_args(arguments)
    if unknown := set(args.nemesis.split(",")) - set(NEMESES):
        parser.error(f"{unknown.pop()!r} is no nemesis; there are {', '.join(NEMESES)}")
    if args.amqplib:
        ensure()
        if not (HOME / FOLDER / "node_modules" / "amqplib").is_dir():
            parser.error("--amqplib: node's amqplib is not there, and could not be installed")
    with tempfile.TemporaryDirectory(prefix="warrenmq-history-") as folder:
        settings = tuple(word for each in args.setting for word in ("--setting", each))
        plan = Plan(
            args.seconds, Path(args.data or f"{folder}/data"), tuple(args.nemesis.split(",")), args.every, args.seed, args.amqplib, settings
        )  # fmt: skip
        history = record(plan)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            history.write(file)
    try:
        counted = check(history.operations)
    except PromiseBroken as broken:
        print(f"broken: {broken}")
        return 1
    print(", ".join(f"{n:,} {what}" for what, n in sorted(counted.items())))
    print("ok: nothing confirmed is lost, nothing comes from nowhere, nothing comes twice unmarked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
