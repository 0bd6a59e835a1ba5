"""Leader and followers: the two threads of one event loop, of which one runs the loop and the actors that it made ready.

A loop that only casts what it reads wakes a worker for each read: two changes of thread, more than all that
connection, channel and queue do with a message.  So the thread that reads, the leader, runs what its reads
made ready itself, and what those actors made ready in turn, before it goes back to the loop.

The loop never waits for an actor.  A follower stands by; the leader gives the loop to it at once when an
actor says that it is about to block (a sync, a call of another actor), and the wheel takes the loop from a
leader whose actor has not come back for a tick.  A leader that gave the loop away goes on with its actors, as
a worker would, and follows when it has none left.  Without a follower, as while that one is in the disk, the
leader runs nothing but the loop, and workers run the actors.  After SLICE seconds workers have the rest as
well.

Source: the Leader/Followers pattern (Schmidt, Stal, Rohnert, Buschmann: Pattern-Oriented Software Architecture 2).

    Baton        the right to run the loop, and the thread that holds it
    SharedLoop   the loop and its threads, each of which takes the baton, leads, and follows
    Leader       one of these threads, to the scheduler: it keeps what it makes ready, and runs it
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic

from warrenmq.errors import ResourceError
from warrenmq.runtime.helper import ALONE, MOST_MINE, Helper
from warrenmq.runtime.shortage import no_thread
from warrenmq.runtime.thread_start import start_thread
from warrenmq.runtime.workers import BATCH, MISSING, SLICE, Cell, here
from warrenmq.seams.blocking import THIS_THREAD


class Baton:
    """The right to run the loop, which one thread holds at a time.

    Its holder lends it before it runs actors, and takes it back after that; in between any thread may give it away, to
    the one that waits for it.  Take back and give away are one atomic `pop` of `_lent`, so that only one of them succeeds.

    _held     locked while a thread holds it
    _lent     the holder, while it runs actors and the loop stands still
    _waiting  threads that wait for it
    """

    def __init__(self) -> None:
        self._held = threading.Lock()
        self._lent: dict[Leader, None] = {}
        self._waiting: dict[Leader, None] = {}

    def take(self, leader: Leader) -> None:
        """Wait until it is given away, and hold it."""
        self._waiting[leader] = None
        self._held.acquire()
        del self._waiting[leader]

    def lend(self, leader: Leader) -> None:
        """Let other threads give it away; by its holder."""
        self._lent[leader] = None

    def is_lent(self, leader: Leader) -> bool:
        """True if this leader holds it and has lent it."""
        return leader in self._lent

    def take_back(self, leader: Leader) -> bool:
        """True if the leader, which has lent it, still holds it."""
        return self._lent.pop(leader, MISSING) is not MISSING

    def give_away(self, leader: Leader) -> None:
        """Give it to a thread that waits, if this leader has lent it; from any thread."""
        if self.take_back(leader):
            self.release()

    def release(self) -> None:
        """Hold it no longer; by its holder."""
        self._held.release()

    @property
    def is_waited_for(self) -> bool:
        """True if a thread waits for it."""
        return bool(self._waiting)


class SharedLoop:
    """An event loop and its threads: one, and a second one once an actor is made ready in the loop.

    `run` runs the loop in the calling thread until `stop`, which is called in the loop; another thread may
    run it then (asyncio's run_forever and stop).  ResourceError when the system has no thread left.
    """

    def __init__(self, run: Callable[[], object], stop: Callable[[], object], name: str) -> None:
        self.stop = stop
        self.baton = Baton()
        self._run = run
        self._name = name
        self._ended = False
        self._threads: list[threading.Thread] = []
        self._start_thread()

    def end(self) -> None:
        """Stop the loop for good; called in the loop."""
        self._ended = True
        self.stop()

    def join(self) -> None:
        """Wait for the end of its threads, once it was ended."""
        for thread in self._threads:
            thread.join()

    def has_follower(self) -> bool:
        """True if a thread waits to run the loop, which the first call starts; for the leader."""
        if len(self._threads) == 1:
            try:
                self._start_thread()
            except ResourceError:
                return False
        return self.baton.is_waited_for

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._follow_and_lead, name=self._name, daemon=True)
        try:
            start_thread(thread)
        except (RuntimeError, MemoryError) as error:
            raise no_thread(error, self._name) from error
        self._threads.append(thread)

    def _follow_and_lead(self) -> None:
        leader = here.runner = Leader(self)
        while not self._ended:
            self.baton.take(leader)
            leads = True
            while leads and not self._ended:
                with suppress(MemoryError):  # nobody else would run the loop
                    self._run()
                    if leader.mine:
                        self.baton.lend(leader)
                        try:
                            leader.run_mine()
                        finally:
                            leads = self.baton.take_back(leader)
            if leads:
                self.baton.release()


class Leader(Helper):
    """A thread of a loop, leading or following."""

    def __init__(self, loop: SharedLoop) -> None:
        super().__init__()
        self.in_a_row = ALONE  # it sends for all clients
        self._loop = loop
        self._baton = loop.baton

    def keep(self, cell: Cell, message: object) -> bool:  # noqa: ARG002
        """Remember a cell that it made ready; True if it will run it."""
        if len(self.mine) >= MOST_MINE or not cell.helpable:
            return False
        if self.cell is None:  # it runs the loop
            if not (cell.workers.ticking and self._loop.has_follower()):
                return False
            cell.lazy = True
            self._loop.stop()
        self.mine.append(cell)
        return True

    def __enter__(self) -> None:
        self.give_way()
        self.hand_over()

    def give_way(self) -> None:
        self._baton.give_away(self)

    def run_mine(self) -> None:
        """Run the actors that the loop, and what it ran, made ready; for SLICE seconds as long as the loop waits."""
        before, THIS_THREAD.blocking = THIS_THREAD.blocking, self
        until = monotonic() + SLICE
        try:
            while self.mine and (monotonic() < until or not self._baton.is_lent(self)):
                cell = self.mine.popleft()
                workers = cell.workers
                if workers.ready.pop(cell, MISSING) is not MISSING:
                    workers.helping.add(self)
                    try:
                        workers.run(cell, self, _turns(until))
                    finally:
                        workers.helping.discard(self)
        finally:
            THIS_THREAD.blocking = before
            self.hand_over()


def _turns(until: float) -> Iterator[tuple[()]]:
    """Turns of a slice that ends at a time."""
    for i in range(1, BATCH):
        yield ()
        if not i & 15 and monotonic() > until:
            return
