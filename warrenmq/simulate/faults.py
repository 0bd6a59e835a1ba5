"""Machine faults in a simulated run: a full or slow disk, exhausted memory, clock jumps, bit flips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warrenmq.testing.machine import DATA

if TYPE_CHECKING:
    from warrenmq.simulate.script import Step
    from warrenmq.testing import SimulatedMachine

_MUCH = 1 << 34
"""Bytes of memory: more than the watermark of any simulated machine."""
_LOOK_S = 11.0
"""Seconds after which every monitor of the broker has looked again."""


class Faults:
    """The faults that are in force.

    ever_refused     the disk was full at some time in this life of the broker, so a publish of then may be nacked later
    clock_jumped     the wall clock jumped at some time, so messages may live longer or shorter
    """

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine
        self._is_full = False
        self._is_pressed = False
        self._pressed_at = 0.0
        self.ever_refused = False
        self.clock_jumped = False

    @property
    def must_block(self) -> bool:
        """True if every monitor has seen that the memory is used up, so that no publish may be taken."""
        return self._is_pressed and self._now() - self._pressed_at > _LOOK_S

    def _now(self) -> float:
        return self._machine.sim.monotonic_ns() / 1e9

    @property
    def may_refuse(self) -> bool:
        """True if a request may be refused, or a confirm not come, because the disk is full."""
        return self._is_full

    @property
    def may_block(self) -> bool:
        """True if a publish may be held up by an alarm."""
        return self._is_full or self._is_pressed

    @property
    def timeout(self) -> float | None:
        """The timeout of a publish in seconds: 0 while an alarm may block it, as only a later step clears that; else None, unlimited."""
        return 0.0 if self.may_block else None

    def do(self, step: Step) -> None:
        """Start or end a machine fault, as a step says."""
        machine = self._machine
        match step.verb:
            case "full":
                machine.disk.free_bytes = step.number("room")
                self._is_full = self.ever_refused = True
            case "space":
                self._space()
            case "slow":
                self._slow(step.number("ms") / 1000)
            case "pressure":
                machine.memory.used_bytes = _MUCH if step.number("high") else 0
                if step.number("high"):
                    if not self._is_pressed:
                        self._pressed_at = self._now()
                    self._is_pressed = True
                else:
                    self._relax()
            case "clock":
                seconds = step.number("seconds")
                self.clock_jumped = True
                machine.sim.shift_wall_clock(-seconds if step.number("back") else seconds)
            case "unordered":
                machine.disk.in_order = False

    def _space(self) -> None:
        self._machine.disk.free_bytes = None
        if self._is_full:
            self._machine.sleep(_LOOK_S)
        self._is_full = False

    def _relax(self) -> None:
        self._machine.memory.used_bytes = 0
        if self._is_pressed:
            self._machine.sleep(_LOOK_S)
        self._is_pressed = False

    def _slow(self, seconds: float) -> None:
        machine = self._machine

        def before_op(op: str, path: str) -> None:
            machine.disk.before_op = machine.before_op
            machine.sleep(seconds)
            machine.before_op(op, path)

        machine.disk.before_op = before_op

    def after_kill(self) -> None:
        """A process of the broker was killed, perhaps a monitor: what it knew is known again only when it has looked."""
        self._pressed_at = self._now()

    def after_end(self) -> None:
        """End the faults of space and memory after the broker's process ended, so that the next one can start."""
        self._machine.disk.free_bytes = None
        self._machine.memory.used_bytes = 0
        self._is_full = self._is_pressed = self.ever_refused = False

    def end_all(self) -> None:
        """End every fault that is in force."""
        self._space()
        self._relax()

    def flip(self, kind: str, bit: int) -> str | None:
        """Flip one bit of a file whose path has `kind` in it, while no broker runs; returns its path, None if there is none with any bytes."""
        disk = self._machine.disk
        paths = [path for path in self._files(DATA) if kind in path and disk.size(path)]
        if not paths:
            return None
        path = paths[bit % len(paths)]
        place, mask = bit // 8 % disk.size(path), 1 << bit % 8
        file = disk.open(path)
        (byte,) = file.pread(1, place)
        file.pwrite(bytes([byte ^ mask]), place)
        file.datasync()
        return path

    def _files(self, folder: str) -> list[str]:
        disk = self._machine.disk
        if not disk.is_dir(folder):
            return []
        paths = [f"{folder}/{name}" for name in disk.listdir(folder)]
        return [each for path in paths for each in (self._files(path) if disk.is_dir(path) else [path])]
