"""Wheel: one thread for the timers of all pooled actors, and the tick that looks after their workers.

It sleeps until the first alarm.  While actors run it wakes at each tick as well: for a worker that blocks and has not said
so, and for a cell whose sender was expected to run it and does not (Cell.lazy).  While nothing runs it looks once a
HEARTBEAT: an exception that a signal handler raises may have left a cell in the line with no worker called for it.
"""

from __future__ import annotations

import threading
from heapq import heapify, heappop, heappush
from itertools import count
from time import monotonic_ns

from warrenmq.runtime.shortage import keep_on
from warrenmq.runtime.thread_event import ring
from warrenmq.runtime.thread_start import start_thread
from warrenmq.runtime.workers import Cell, Workers

TICK_NS = 5_000_000
HEARTBEAT_NS = 1_000_000_000
QUIET_TICKS = 20
"""Ticks without work after which it stops ticking."""
_COMPACT_FROM = 64
"""Alarms that are not needed, from which on they are looked for."""


class Wheel:
    """The workers of a pool and their clock; its thread ends with the last actor, and is started again with the next.

    _alarms     (when, number, cell), a heap; those that are not the cell's `alarm` any more are passed over
    _dropped    how many of these there are, about
    _next_look  when it will wake (monotonic, ns); an alarm before that has to wake it
    _thread     None while it does not run
    """

    def __init__(self, tick_ns: int = TICK_NS) -> None:
        self.workers = Workers(self)
        self._tick_ns = tick_ns
        self._alarms: list[tuple[int, int, Cell]] = []
        self._dropped = 0
        self._number = count().__next__
        self._next_look = 0
        self._thread: threading.Thread | None = None
        # Reentrant: garbage collection may run a `__del__` that sends, at any line.  Never held across a wait.
        self._lock = threading.RLock()
        self._bell = threading.Lock()
        self._bell.acquire()

    def set_alarm(self, cell: Cell, when: int) -> None:
        """Schedule a cell to run at `when` (monotonic, ns), and not at the alarm that it has."""
        with self._lock:
            self._drop(cell)
            heappush(self._alarms, (when, self._number(), cell))
            cell.alarm = when
        if when < self._next_look:
            self.wake()

    def drop_alarm(self, cell: Cell) -> None:
        """Forget the alarm of an actor that has ended: a channel's is due in a minute, a queue's with
        x-expires perhaps in a month.
        """
        with self._lock:
            self._drop(cell)

    def _drop(self, cell: Cell) -> None:
        if not cell.alarm:
            return
        cell.alarm = 0
        self._dropped += 1
        if self._dropped > max(_COMPACT_FROM, len(self._alarms) // 2):
            self._alarms = [entry for entry in self._alarms if entry[2].alarm == entry[0]]
            heapify(self._alarms)
            self._dropped = 0

    def start(self) -> bool:
        """See to it that its thread runs while there are actors; False if none can be had."""
        if self._runs():
            return True
        with self._lock:
            if not self._runs() and self.workers.is_needed:
                thread = threading.Thread(target=self._run, name="actors' clock", daemon=True)
                try:
                    start_thread(thread)
                except (RuntimeError, MemoryError):
                    self.workers.ticking = False
                    return False
                self._thread = thread
        return True

    def _runs(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def wake(self) -> None:
        """Make the wheel's thread look now."""
        self.start()
        ring(self._bell)

    def join(self, timeout: float | None) -> None:
        """Wait for the end of its thread."""
        if (thread := self._thread) is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def after_fork(self) -> None:
        """Start anew in a forked child: the wheel's thread is in the parent."""
        self._lock = threading.RLock()
        self._thread = None
        self._alarms.clear()
        self._dropped = 0
        self.workers.after_fork()

    def _run(self) -> None:
        """The loop of its thread."""
        keep_on(self._look)

    def _look(self) -> bool:
        """Look after alarms and workers until it is no longer needed; returns False then."""
        workers = self.workers
        quiet, turns = 0, -1
        looked = monotonic_ns()
        while True:
            self._ring_alarms()
            workers.watch()
            if monotonic_ns() - looked >= HEARTBEAT_NS:
                looked = monotonic_ns()
                workers.look_for_left()
            if workers.turns != turns or workers.ready:
                quiet, turns = 0, workers.turns
            else:
                quiet += 1
            workers.ticking = quiet < QUIET_TICKS
            if workers.ready:  # a sender that saw it tick called no worker
                workers.ticking = True
            with self._lock:
                if not workers.is_needed and not workers.ready:
                    mine, self._thread = self._thread, None
                    workers.ticking = False
                    if not workers.is_needed:
                        return False
                    self._thread = mine  # an actor came meanwhile, whose starter found this thread
                now = monotonic_ns()
                self._next_look = now + (self._tick_ns if workers.ticking else HEARTBEAT_NS)
                if self._alarms:
                    self._next_look = min(self._next_look, self._alarms[0][0])
                wait = max(0, self._next_look - now) / 1e9
            self._bell.acquire(timeout=wait)

    def _ring_alarms(self) -> None:
        now = monotonic_ns()
        while True:
            with self._lock:
                if not self._alarms or self._alarms[0][0] > now:
                    return
                when, _, cell = alarm = heappop(self._alarms)
                if cell.alarm != when:
                    self._dropped -= 1
                    continue
                cell.alarm = 0
                if cell.is_claimed():  # its slice may have looked at its timers already
                    self.set_alarm(cell, now + self._tick_ns)
                    continue
            try:
                if cell.server is not None:
                    self.workers.make_ready(cell)
            except MemoryError:
                with self._lock:
                    heappush(self._alarms, alarm)  # into the place that it left
                    cell.alarm = when
                raise
