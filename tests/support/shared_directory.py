"""Brokers that share their directory with other processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import warrenmq
from tests.support.limits import LIMIT
from warrenmq.shared.broker import SharedBroker


def opened(path: Path | str, **options) -> SharedBroker:
    """Open a directory with shared=True."""
    broker = warrenmq.open(path, shared=True, **options)
    assert isinstance(broker, SharedBroker)
    return broker


def wait_until(condition: Callable[[], bool]) -> None:
    """Look until a condition holds."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.01)


SPAWN = multiprocessing.get_context("spawn")


def own(path: str, pipe) -> None:
    """The owner, until it is killed."""
    with opened(path) as broker:
        pipe.send(broker.is_owner)
        signal.pause()


@contextmanager
def owner_process(path: Path) -> Iterator[Callable[..., None]]:
    """A process that owns the directory; gives what sends it a signal, SIGKILL if none is named."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=own, args=(str(path), there), daemon=True)
    process.start()
    there.close()
    assert here.recv() is True

    def send(number: int = signal.SIGKILL) -> None:
        os.kill(process.pid or 0, number)
        if number == signal.SIGKILL:
            process.join(LIMIT)
        elif number == signal.SIGSTOP:  # its threads may run for a while yet
            os.waitid(os.P_PID, process.pid or 0, os.WSTOPPED | os.WNOWAIT)

    try:
        yield send
    finally:
        if process.is_alive():
            send()
