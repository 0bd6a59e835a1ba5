"""A RabbitMQ of the system, started for tests on free loopback ports with a base directory of its own, and ended by its pid."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.limits import LIMIT
from tests.support.source_tree import ROOT

COMPARED = "3.10."
"""Releases whose behaviour is served here."""
_PIDS = ("beam.pid", "epmd.pid")
_PORTS_OF_ONE_NODE = (0, -1_100, 20_000)
"""AMQP's, epmd's and that of Erlang's distribution, as benchmarks/rabbit_node.py lays them out."""


def why_not() -> str | None:
    """The reason for which there is no RabbitMQ to compare with; None when there is one."""
    found = glob.glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*")
    if not found and shutil.which("rabbitmq-server") is None:
        return "RabbitMQ is not installed"
    if found and not any(
        os.path.basename(each).removeprefix("rabbitmq_server-").startswith(COMPARED) for each in found
    ):
        return f"the RabbitMQ that is installed is not {COMPARED}x"
    return None


@contextlib.contextmanager
def running(base: Path) -> Iterator[int]:
    """The port of a RabbitMQ with its data in `base`; it takes some eight seconds to start."""
    port = _free_port()
    _node("start", base, port)
    try:
        yield port
    finally:
        for name in _PIDS:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                os.kill(int((base / name).read_text()), signal.SIGKILL)


def _node(command: str, base: Path, port: int) -> None:
    options = ["--base", str(base), "--port", str(port)]
    done = subprocess.run([sys.executable, "-m", "benchmarks.rabbit_node", command, *options], cwd=ROOT,
                          capture_output=True, text=True, timeout=LIMIT, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def _free_port() -> int:
    for port in range(21_000 + os.getpid() % 5_000, 40_000, 7):
        if all(_is_free(port + offset) for offset in _PORTS_OF_ONE_NODE):
            return port
    raise AssertionError("no port is free")


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
