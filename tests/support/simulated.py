"""A simulated machine: one disk, one broker process at a time, all of it decided by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

from warrenmq.broker.broker import Broker
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.runtime import Simulation
from warrenmq.seams.memory import SimulatedMemory
from warrenmq.settings import Settings
from warrenmq.testing.disk import SimulatedDisk
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.sink import MemorySink

_SMALL: dict[str, Any] = {
    "msg_store_file_size_limit": 4096,
    "queue_index_embed_msgs_below": 100,
    "queue_index_max_journal_entries": 12,
    "queue_index_segment_entry_count": 8,
    "vhost_restart_intensity": (1000, 1),
    "classic_queue_index_v2_segment_entry_count": 8,
    "msg_store_io_batch_size": 2,
    "queue_ram_bytes": 3_000,
}
SMALL = Settings(**_SMALL)
"""Everything that can overflow does so soon; the profile is the default one, modern."""
SMALL_CLASSIC = Settings(profile="classic", **_SMALL)
BOTH_PROFILES = {"classic": SMALL_CLASSIC, "modern": SMALL}

QUEUE_VERSIONS = (1, 2)
COLLECTORS = ("combine", "compact")
PAGINGS = ("memory_target", "read_ahead")
EVERY_KIND = [
    replace(SMALL, queue_version=version, msg_store_gc=gc, queue_paging=paging)
    for version, gc, paging in product(QUEUE_VERSIONS, COLLECTORS, PAGINGS)
]
"""Every combination of what a profile presets.  One directory may be opened with any of them after any other."""


class SimulatedHost:
    """Opens brokers one after the other on the same disk; each is one run in the trace."""

    def __init__(self, seed: int, settings: Settings = SMALL, *, traced: bool = True) -> None:
        self.seed = seed
        self.settings = settings
        self.disk = SimulatedDisk(random.Random(f"disk {seed}"))
        self.memory = SimulatedMemory()
        self.sink = MemorySink() if traced else None
        self.sim = Simulation(seed)
        self.runs = 0

    def open(self) -> Broker:
        """A new broker process."""
        self.runs += 1
        self.disk.before_op = self.before_op
        recorder = None
        if self.sink is not None:
            recorder = Recorder(self.sink, run=f"{self.runs:06d}", boot=self.runs, clock=self.sim)
        return Broker("/data", self.settings, self.sim, self.disk, self.memory, recorder)

    def before_op(self, _op: str, _path: str) -> None:
        """Each disk operation is a point where another actor may run."""
        self.sim.checkpoint()

    @contextmanager
    def at_most(self, operations: int) -> Iterator[None]:
        """Fail when the broker takes more disk operations than these: it does not come to an end."""
        left = operations

        def before_op(op: str, path: str) -> None:
            nonlocal left
            left -= 1
            assert left >= 0, "it does not come to an end"
            simulate(op, path)

        simulate = self.before_op
        self.before_op = before_op  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.before_op = simulate  # type: ignore[method-assign]
            self.disk.before_op = simulate

    def crash(self, *, power_cut: bool) -> None:
        """The process is killed, or the whole machine loses power."""
        self.sim.crash()
        self.disk.before_op = None
        if power_cut:
            self.disk.power_cut()

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.sim.event().wait(seconds)

    def wait_until(self, condition: Callable[[], bool], seconds: float = 100.0) -> None:
        """Let virtual time pass until something is so."""
        for _ in range(int(seconds / 0.001)):
            if condition():
                return
            self.sleep(0.001)
        msg = "it never came about"
        raise AssertionError(msg)

    def check_trace(self) -> None:
        """Replay all runs: every invariant holds."""
        assert self.sink is not None
        result = replay_memory(self.sink.files())
        assert result.verdict == "ok", "\n".join(
            map(str, (result.verdict, *result.violations, *result.indeterminate))
        )

    def close(self) -> None:
        """Free what the simulation holds."""
        self.sim.close()
