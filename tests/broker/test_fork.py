"""A forked child has handles of a broker that it does not have: each says so at once, and nothing of the parent's is kept or touched."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warrenmq
from tests.amqp.raw_client import RawClient
from tests.support.limits import LIMIT
from tests.support.source_tree import ROOT
from warrenmq import aio
from warrenmq.amqp import serve
from warrenmq.replay.drive.engine import replay
from warrenmq.runtime import Server


class _Actor(Server):
    """Does nothing."""


def in_child(work: Callable[[], str]) -> str:
    """Return the result of `work` in a forked child, which has a few seconds."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(LIMIT))
        try:
            os.write(write, work().encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        result = said.read()
    assert os.waitpid(pid, 0)[1] == 0, "the child did not come to its end"
    return result


def test_every_handle_in_a_child_says_at_once_that_it_cannot_be_used(tmp_path: Path) -> None:
    with (
        warrenmq.open(tmp_path / "data", trace=tmp_path / "trace") as broker, serve(broker, port=0) as server,
        warrenmq.Queue(tmp_path / "simple") as simple,
    ):  # fmt: skip
        queue, exchange = broker.declare_queue("q"), broker.declare_exchange("x")
        queue.publish_many([b"1", b"2", b"3", b"4"]).result(LIMIT)
        simple.put(b"simple")
        consumer = queue.consume(prefetch=2)
        delivery = next(consumer)
        transaction = broker.tx()
        unsettled = warrenmq.Confirm(broker.runtime)
        asynchronous = aio.Broker(lambda: broker)

        def awaited(use: Callable[[], Any]) -> Callable[[], Any]:
            async def run() -> None:
                asynchronous._sync = broker
                await use()

            return lambda: asyncio.run(run())

        def in_transaction() -> None:
            with transaction:
                pass

        calls: dict[str, Callable[[], Any]] = {
            "get": lambda: queue.get(timeout=2), "publish": lambda: queue.publish(b"x"), "publish_many": lambda: queue.publish_many([b""]),
            "exchange": lambda: exchange.publish("k", b""), "info": queue.info, "purge": queue.purge, "consume": queue.consume,
            "next": lambda: next(consumer), "take": lambda: consumer.take(5, 0), "ack": delivery.ack, "nack": delivery.nack,
            "result": lambda: unsettled.result(1), "callback": lambda: unsettled.add_done_callback(print), "tx": broker.tx, "commit": in_transaction,
            "stats": broker.stats, "declare": lambda: broker.declare_queue("new"), "bind": lambda: broker.bind("q", "x"),
            "would_block": lambda: broker.would_block("", "q"), "limit": lambda: broker.set_disk_free_limit(0), "passive": lambda: broker.queue("q"),
            "put": lambda: simple.put(b""), "put_many": lambda: simple.put_many([b""]), "simple get": lambda: simple.get(timeout=2), "join": simple.join,
            "task_done": simple.task_done, "qsize": simple.qsize, "full": simple.full, "connections": lambda: server.connections,
            "check": server.check_open, "start": lambda: broker.runtime.start(_Actor), "aio get": awaited(lambda: aio.Queue(asynchronous, queue).get()),
            "aio publish": awaited(lambda: asynchronous.publish("", "q", b"")), "aio declare": awaited(lambda: asynchronous.declare_queue("new")),
        }  # fmt: skip

        def try_all() -> str:
            began, wrong = time.monotonic(), []
            for name, call in calls.items():
                try:
                    call()
                    wrong.append(name)
                except warrenmq.ForkedProcess as error:
                    if f"process {os.getppid()}" not in str(error):
                        wrong.append(str(error))
            for close in (
                consumer.cancel,
                broker.close,
                server.close,
                simple.close,
                broker.runtime.shutdown,
                awaited(asynchronous.close),
            ):
                close()
            if (seconds := time.monotonic() - began) > LIMIT / 2:
                wrong.append(f"{seconds} s")
            with warrenmq.open(tmp_path / "another") as another:  # a broker of the child's own works
                another.declare_queue("own").publish(b"x").result(LIMIT)
            return ",".join(wrong) or "all refused"

        assert in_child(try_all) == "all refused"
        refused = in_child(lambda: str(warrenmq.open(tmp_path / "data")))
        assert refused.startswith("DirectoryInUse")
        assert str(os.getpid()) in refused
        delivery.ack()
        assert next(consumer).body == b"2"
        consumer.cancel()
        queue.publish(b"after").result(LIMIT)
        assert simple.get(timeout=LIMIT) == b"simple"
        unsettled.confirm()
        with socket.create_connection(("127.0.0.1", server.port)):
            pass
    result = replay(tmp_path / "trace")
    assert result.verdict == "ok", result.violations


OUTLIVES = """
import os, sys, time
import warrenmq
from warrenmq.amqp import serve
broker = warrenmq.open(sys.argv[1], trace=sys.argv[2])
server = serve(broker, port=0)
queue = broker.declare_queue("q")
queue.publish(b"confirmed").result(20)
consumer = queue.consume()
print(server.port, flush=True)
sys.stdin.readline()
if os.fork() == 0:
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    sys.exit()              # atexit, finalizers and all: must come to its end
time.sleep(1000)
"""


def test_a_child_that_outlives_its_killed_parent_keeps_neither_the_directory_nor_the_port(
    tmp_path: Path,
) -> None:
    arguments = [sys.executable, "-c", OUTLIVES, str(tmp_path / "data"), str(tmp_path / "trace")]
    with subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": ROOT},
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        port = int(parent.stdout.readline())
        with RawClient(port).open(1) as client:
            parent.stdin.write("fork\n")
            parent.stdin.flush()
            child = int(parent.stdout.readline())
            parent.kill()
            parent.wait()
            assert client.at_end(), "the connection ends with the parent"
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
        os.kill(child, 0)
        with warrenmq.open(tmp_path / "data") as broker:
            delivery = broker.queue("q").get()
            assert delivery.body == b"confirmed"
        left = {os.readlink(f"/proc/{child}/fd/{each}") for each in os.listdir(f"/proc/{child}/fd")}
        assert not [each for each in left if str(tmp_path) in each]
        assert str(tmp_path) not in Path(f"/proc/{child}/maps").read_text()
        parent.stdin.close()
        deadline = time.monotonic() + LIMIT
        while (
            Path(f"/proc/{child}/stat").exists()
            and Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        ):
            assert time.monotonic() < deadline, "the child does not come to its end"
            time.sleep(0.01)
