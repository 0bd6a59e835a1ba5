"""Traces in which all is well, of each way in which a run ends: closed, killed, crashed in simulation.

python -m tests.fuzz.trace_sources DATA TRACE SEED BOOT kill|close       one threaded run
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.simulated import EVERY_KIND, SimulatedHost
from tests.support.source_tree import ROOT
from warrenmq.broker.broker import Broker
from warrenmq.runtime import Threads
from warrenmq.seams.memory import RealMemory
from warrenmq.seams.real_disk import RealDisk
from warrenmq.settings import Settings
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.slab import SLAB_SUFFIX

Files = dict[str, bytes]
SEGMENT_BYTES = 12_000


def work(broker: Broker, rng: random.Random, messages: int) -> None:
    """Publish, get, ack, requeue; not all of it."""
    queues = [broker.declare_queue(name) for name in ("a", "b")]
    for number in range(messages):
        queue = queues[number % 2]
        confirm = queue.publish(b"m" * rng.choice((10, 500, 5_000)), persistent=number % 5 > 0)
        if number % 3 == 0:
            confirm.result(10)
        if rng.random() < 0.7 and (message := queue.get(0)) is not None:
            rng.choice((message.ack, message.ack, message.nack))()


def one_run(data: str, trace: str, seed: int, boot: int, end: str) -> None:
    recorder = Recorder(
        trace, run=f"{boot:06d}", pid=os.getpid(), boot=boot, directory="d", segment_bytes=SEGMENT_BYTES
    )
    broker = Broker(data, Settings(), Threads(), RealDisk("os"), RealMemory(), recorder)
    work(broker, random.Random(seed), 40 + seed * 13 % 120)
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    broker.close()


def threaded(folder: Path, seed: int, ends: list[str]) -> Files:
    """Runs of real threads, one after the other, each in a process of its own."""
    for boot, end in enumerate(ends, 1):
        command = [sys.executable, "-m", "tests.fuzz.trace_sources", str(folder / "data"), str(folder / "trace"),
                   str(seed + boot), str(boot), end]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, check=False, timeout=60)
        assert done.returncode == (-signal.SIGKILL if end == "kill" else 0)
    return {path.name: _without_unused_chunks(path) for path in sorted((folder / "trace").iterdir())}


def _without_unused_chunks(path: Path) -> bytes:
    content = path.read_bytes()
    assert path.suffix != SLAB_SUFFIX or len(content) < 1 << 22
    return content


def simulated(seed: int, ends: list[str]) -> Files:
    """Runs in simulation."""
    host = SimulatedHost(seed, EVERY_KIND[seed % len(EVERY_KIND)])
    assert host.sink is not None
    for boot, end in enumerate(ends, 1):
        recorder = Recorder(
            host.sink, run=f"{boot:06d}", boot=boot, clock=host.sim, segment_bytes=SEGMENT_BYTES
        )
        broker = Broker("/data", host.settings, host.sim, host.disk, host.memory, recorder)
        work(broker, random.Random(seed + boot), 30)
        if end == "close":
            broker.close()
        else:
            host.crash(power_cut=end == "cut")
    files = dict(host.sink.files())
    host.close()
    return files


if __name__ == "__main__":
    one_run(*sys.argv[1:3], *map(int, sys.argv[3:5]), sys.argv[5])
