"""Pool: the runtime that runs servers on a few threads (workers.py), and lets waiting threads run them (waiting.py).

Plain Pykka actors keep a thread each, as they expect.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from pykka import ActorRef, ActorRegistry

from warrenmq.errors import ResourceError
from warrenmq.runtime.base import Name
from warrenmq.runtime.helper import Helper
from warrenmq.runtime.life import inbox_of
from warrenmq.runtime.server import Server
from warrenmq.runtime.suspension import PooledSuspension
from warrenmq.runtime.threads import Threads
from warrenmq.runtime.waiting import Channel, Event
from warrenmq.runtime.wheel import TICK_NS, Wheel
from warrenmq.runtime.workers import Cell, here


class PoolStats(NamedTuple):
    """The workers of a pool."""

    workers: int
    """Threads, those that block included."""
    ready: int
    """Actors that wait for their turn."""
    refused: int
    """The number of times that a further worker was wanted and could not be started."""
    stuck: tuple[str, ...]
    """Actors that have been in one slice for longer than a second."""


class Pool(Threads):
    """Servers share a few threads; an actor without mail costs no thread."""

    def __init__(self, *, tick_ns: int = TICK_NS) -> None:
        """`tick_ns`: how long an actor may block undeclared before others go on."""
        super().__init__()
        self._wheel = Wheel(tick_ns)
        self._workers = self._wheel.workers
        self.channel = Channel  # type: ignore[assignment,method-assign]
        self.event = Event  # type: ignore[method-assign]

    def after_fork(self) -> None:
        super().after_fork()
        self._wheel.after_fork()

    def launch(self, ref: ActorRef[Any], label: str, loop: Callable[[], None]) -> None:
        server = getattr(loop, "__self__", None)
        if not isinstance(server, Server):
            super().launch(ref, label, loop)
            return
        cell = server.actor_inbox.incoming
        assert isinstance(cell, Cell)
        started = server._life.started  # noqa: SLF001 - where the starter waits
        assert isinstance(started, Channel)
        started.target = cell
        try:
            self._workers.launch(cell, server, label)
        except ResourceError:
            ActorRegistry.unregister(ref)
            raise

    def runs_here(self, ref: ActorRef[Any]) -> bool:
        runner = here.runner
        if runner is None or runner.cell is None:
            return super().runs_here(ref)
        return runner.cell is inbox_of(ref).incoming

    def mail(self) -> Cell:
        return Cell(self._workers)

    def reply_box(self, dest: ActorRef[Any] | Name, request: Any) -> Channel:  # noqa: ARG002
        return Channel(_cell_of(self.whereis(dest)))

    def end_event(self, ref: ActorRef[Any]) -> Event:
        return Event(_cell_of(ref))

    def run_callback(self, callback: Callable[[Any], object], argument: Any) -> None:
        runner, run = here.runner, super().run_callback
        # it may hold a lock that the callback wants, or a loop
        if isinstance(runner, Helper) and runner.cell is not None:
            self._workers.callbacks.put(partial(run, callback, argument))
        else:
            run(callback, argument)

    def pause(self) -> None:
        if (runner := here.runner) is not None:
            runner.wake_late()
        super().pause()

    def suspension(self) -> PooledSuspension | None:
        runner = here.runner
        if runner is None or (cell := runner.cell) is None or not runner.has_others():
            return None
        return PooledSuspension(cell)

    def stuck(self) -> tuple[str, ...]:
        return self._workers.stuck()

    def stats(self) -> PoolStats:
        """Figures of this moment."""
        workers = self._workers
        return PoolStats(len(workers.all), len(workers.ready), workers.refused, workers.stuck())

    def shutdown(self, timeout: float | None = 5.0) -> None:
        if self.forked_from is not None:
            return
        super().shutdown(timeout)
        self._workers.close()
        self._workers.join(timeout)
        self._wheel.join(timeout)


def _cell_of(ref: ActorRef[Any]) -> Cell | None:
    """A server's cell; None for a plain actor, which has a thread."""
    cell = inbox_of(ref).incoming
    return cell if isinstance(cell, Cell) else None
