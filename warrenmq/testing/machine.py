"""SimulatedMachine: one disk, one memory and one broker process at a time, in an order and a time that a seed decides."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, Self, TypeVar

from warrenmq.broker.broker import Broker
from warrenmq.checks import short_text, wrong_type
from warrenmq.errors import CallerError
from warrenmq.runtime import Simulation
from warrenmq.settings import Settings
from warrenmq.testing.disk import SimulatedDisk
from warrenmq.testing.memory import SimulatedMemory
from warrenmq.testing.outage import Outage, PowerCut
from warrenmq.trace.marks import mark
from warrenmq.trace.reader import Trace, open_memory
from warrenmq.trace.recorder import ActorTrace, Recorder
from warrenmq.trace.row_recorder import RowRecorder, open_rows
from warrenmq.trace.sink import MemorySink

T = TypeVar("T")
DATA = "/data"
"""The broker's directory on the simulated disk."""
LOOK = 0.001
"""Seconds of virtual time between two looks of `wait_until`."""


def _digest(*of: object) -> str:
    """An id of 32 hexadecimal digits, the same for equal values."""
    return hashlib.sha256(repr(of).encode()).hexdigest()[:32]


class SimulatedMachine:
    """Opens brokers one after the other on the same disk.  The same seed gives the same run, on any real machine.

    disk, memory  what the broker sees of the machine; a test sets `disk.free_bytes`, `memory.used_bytes` and so on
    sim           the Simulation that runs the broker's actors: `sim.spawn` runs an application task beside the test,
                  `sim.kill(ref)` kills an actor
    """

    def __init__(
        self, seed: int = 0, settings: Settings | None = None, *, traced: bool = False, in_rows: bool = False
    ) -> None:
        """Make a machine; with `traced` each broker is one run of a trace (`trace`, `save_trace`); with
        `in_rows` too, but it cannot be saved.
        """
        self.seed = seed
        if settings is not None and type(settings) is not Settings:
            raise wrong_type("settings", settings, "a warrenmq.Settings, or None")
        self.settings = settings or Settings()
        self.disk = SimulatedDisk(Random(f"disk {seed}"))
        self.memory = SimulatedMemory()
        self.sim = Simulation(seed)
        self.sink = MemorySink() if traced else None
        self._in_rows = in_rows
        self.runs = 0
        """Brokers opened so far."""
        self._directory = _digest(seed, self.settings)
        """The id that traces give for the broker's directory: runs of another machine are never taken for its own."""
        self._run = ""
        """The name of the last run that was traced."""
        self._recorders: list[Recorder] = []
        """One a run."""
        self._scenario: ActorTrace | None = None
        """The trace of the actor "scenario", which writes the marks of `mark`."""
        self._outage: Outage | None = None
        """The countdown of `crash_at`."""
        self._broker: Broker | None = None
        self._starts = False
        """True while a broker is being opened."""

    @property
    def is_traced(self) -> bool:
        """True if its brokers write a trace."""
        return self._in_rows or self.sink is not None

    @property
    def rows(self) -> int:
        """The number of rows in the trace so far."""
        return sum(recorder.rows for recorder in self._recorders)

    @property
    def broker(self) -> Broker | None:
        """The open broker, or None."""
        return self._broker if self._broker is not None and self._broker.is_open else None

    def open(self) -> Broker:
        """A broker in a new process; what the disk holds is recovered.  The one before it was closed, or crashed."""
        self.runs += 1
        self.disk.before_op = self.before_op
        recorder: Recorder | None = None
        run = ""
        if self.is_traced:
            # a machine of this seed with another past is at another row, or another moment
            run = f"{self.runs:06d}-{_digest(self._directory, self.rows, self.sim.monotonic_ns())[:12]}"
            named: dict[str, Any] = {
                "run": run,
                "boot": self.runs,
                "directory": self._directory,
                "follows": self._run,
                "untraced": False,
            }
            recorder = (
                RowRecorder(**named, clock=self.sim)
                if self.sink is None
                else Recorder(self.sink, **named, clock=self.sim)
            )
            self._recorders.append(recorder)
            self._scenario = recorder.actor("scenario", "scenario")
        self._broker, self._starts = None, True
        try:
            self._broker = Broker(DATA, self.settings, self.sim, self.disk, self.memory, recorder)
        finally:
            self._starts = False
            if recorder is not None:
                self._note_run(run, recorder)
        return self._broker

    def _note_run(self, run: str, recorder: Recorder) -> None:
        """A start was made.  One that ended before its directory counted it wrote no row, and has no trace,
        as on a real machine.
        """
        if recorder.rows:
            self._run = run
            return
        self._recorders.remove(recorder)
        if self.sink is not None:
            self.sink.forget(run)

    def run_to_row(self, row: int, scenario: Callable[[Self], Broker | None]) -> Broker | None:
        """Call `scenario(machine)` up to the turn that writes this row of the trace; what it would have done
        later never happens.

        Returns the broker that is open then.  A start is finished first, and a row of an orderly stop is
        where the process ends.
        """
        returned: list[Broker | None] = []
        if not self.sim.outside_until(
            lambda: returned.append(scenario(self)), lambda: self.rows >= row and not self._starts
        ):
            return returned[0]
        self._outage = None
        if self._broker is None or not self._broker.is_open:
            self.crash(power_cut=False)
        return self._broker

    def mark(self, text: str) -> None:
        """Name this place of the trace (a MARK row of the actor "scenario"); nothing without a trace, or
        before the first `open`.

        Unlike `Broker.mark` it needs no broker that is open: after a crash the mark is the last row of the run that crashed.
        """
        if self._scenario is not None:
            mark(self._recorders[-1], self._scenario, short_text("text", text))

    def before_op(self, op: str, _path: str) -> None:
        """Called before each disk operation of a broker: a point where another actor may run."""
        if self._outage is not None:
            self._outage.before_op(op)
        self.sim.checkpoint()

    # -- time

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass; it takes no real time."""
        self.sim.event().wait(seconds)

    def wait_until(self, condition: Callable[[], bool], seconds: float = 100.0) -> None:
        """Let virtual time pass until `condition()` is true; AssertionError after `seconds`."""
        for _ in range(round(seconds / LOOK)):
            if condition():
                return
            self.sleep(LOOK)
        if not condition():
            raise AssertionError(f"the condition did not become true in {seconds} s")

    # -- sudden ends

    def crash(self, *, power_cut: bool) -> None:
        """End the process, as SIGKILL does; with `power_cut` the machine, and the disk forgets what was not synced."""
        self.sim.crash()
        self._broker = None
        self.disk.before_op = None
        if power_cut:
            self.disk.power_cut()

    @contextmanager
    def crash_at(
        self,
        operation: int,
        *,
        power_cut: bool,
        reads: bool = False,
        counts: Callable[[str], bool] = lambda _op: True,
    ) -> Iterator[Outage]:
        """`crash` before the `operation`-th disk operation inside the block, which ends there without an exception.

        Operations that only read are counted with `reads`; `counts(op)` may leave out others.  `came` of the
        Outage says whether there were that many.
        """
        self._outage = outage = Outage(operation, reads=reads, counts=counts)
        try:
            with suppress(PowerCut):
                yield outage
        finally:
            self._outage = None
        if outage.came:
            self.crash(power_cut=power_cut)

    # -- the end of the test

    def trace(self) -> Trace:
        """The trace of all runs so far."""
        if self.sink is not None:
            return open_memory(self.sink.files())
        return open_rows(each for each in self._recorders if isinstance(each, RowRecorder))

    def save_trace(self, folder: str | os.PathLike[str]) -> None:
        """Write the trace of all runs so far to a real folder, for `warrenmq replay` and `warrenmq trace`."""
        if self.sink is None:
            raise CallerError("the machine has no trace to save; make it with traced=True.")
        os.makedirs(folder, exist_ok=True)
        for name, data in self.sink.files().items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)

    def close(self) -> None:
        """Free what the simulation holds."""
        self.sim.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
