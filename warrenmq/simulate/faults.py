"""Machine faults in a simulated run: a full or slow disk, exhausted memory, clock jumps, bit flips."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from warrenmq.simulate.script import Step
from warrenmq.testing import SimulatedMachine
from warrenmq.testing.machine import DATA

_USED = 0, 1 << 34, 3 << 31
"""Bytes of memory: none, more than the watermark of any simulated machine, and enough below it for queues to page."""
_LOOK_S = 11.0
"""Seconds after which every monitor of the broker has looked again."""


@dataclass(slots=True)
class _Slow:
    """An operation of the disk that will be slow."""

    is_meant: Callable[[str], bool]
    """Says of an operation that is about to be done whether it counts."""
    left: int
    """So many of those on."""
    seconds: float


class Faults:
    """The faults that are in force.

    ever_refused     the disk was full at some time in this life of the broker, so a publish of then may be nacked later
    clock_jumped     the wall clock jumped at some time, so messages may live longer or shorter
    """

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine
        machine.disk.tells_room = machine.seed // 4 % 2 == 1
        self._is_full = False
        self._is_pressed = False
        self._pressed_at = 0.0
        self._slow: list[_Slow] = []
        self._broken: tuple[str, str] | None = None
        """The actor whose next operation of the disk fails, and the operation's name; empty = any."""
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

    def is_known_full(self, size: int) -> bool:
        """True if the disk says that it has no room for a body of so many bytes: a publish is refused at once."""
        disk = self._machine.disk
        return disk.tells_room and disk.free_bytes is not None and disk.free_bytes < size

    @property
    def may_block(self) -> bool:
        """True if a publish may be held up by an alarm."""
        return self._is_full or self._is_pressed

    @property
    def timeout(self) -> float | None:
        """The timeout of a publish in seconds: 0 while an alarm may block it, as only a later step clears
        that; else None, unlimited.
        """
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
                self._slow.append(
                    _Slow(self.aim(step.word("of")), step.number("operation"), step.number("ms") / 1000)
                )
                machine.disk.before_op = self._before_op
            case "pressure":
                machine.memory.used_bytes = _USED[min(step.number("high"), 2)]
                if step.number("high") == 1:
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
        if self._is_pressed:
            self._machine.sleep(_LOOK_S)
        self._is_pressed = False

    def aim(self, of: str) -> Callable[[str], bool]:
        """A function that says of an operation of the disk, which is about to be done, whether a fault is aimed at it."""
        sim = self._machine.sim

        def is_meant(op: str) -> bool:
            is_collector = sim.running.endswith("_gc")
            return is_collector if of == "collector" else op == "pread" and not is_collector

        return is_meant if of != "any" else lambda _op: True

    def break_disk_of(self, actor: str, op: str) -> None:
        """Have the next operation of the disk of this name that this actor begins fail; empty = of any name, of any actor."""
        self._broken = actor, op
        self._machine.disk.before_op = self._before_op

    def mend_disk(self) -> bool:
        """No operation is to fail any more; True if one has failed."""
        has_failed, self._broken = self._broken is None, None
        return has_failed

    def _before_op(self, op: str, path: str) -> None:
        """Hold an operation of the disk up if it is to be slow, and fail one that is to fail."""
        if self._broken is not None and all(
            meant in ("", there)
            for meant, there in zip(self._broken, (self._machine.sim.running, op), strict=True)
        ):
            self._broken = None
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        for each in self._slow:
            if each.is_meant(op):
                each.left -= 1
                if each.left <= 0:
                    self._slow.remove(each)
                    self._machine.sleep(each.seconds)
                    break
        self._machine.before_op(op, path)

    def after_kill(self) -> None:
        """A process of the broker was killed, perhaps a monitor: what it knew is known again only when it has looked."""
        self._pressed_at = self._now()

    def after_end(self) -> None:
        """End the faults of space and memory after the broker's process ended, so that the next one can start."""
        self._machine.disk.free_bytes = None
        self._machine.memory.used_bytes = 0
        self._is_full = self._is_pressed = self.ever_refused = False
        self._slow.clear()
        self._broken = None

    def end_all(self) -> None:
        """End every fault that is in force."""
        self._space()
        self._machine.memory.used_bytes = 0
        self._relax()

    def flip(self, kind: str, bit: int) -> str | None:
        """Flip one bit of a file whose path has `kind` in it, while no broker runs; returns its path, None if
        there is none with any bytes.
        """
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
