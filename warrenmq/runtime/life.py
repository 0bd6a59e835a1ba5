"""ActorLife: the beginning and the end of one actor, the same for servers and for supervised plain Pykka actors.

Order at the end: no more mail (`begin_close`), leftover mail is reported as lost, the last row of the trace, Pykka's
own marks, and only then the callbacks: a supervisor that hears of the end finds it complete.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from pykka import ActorRef, ActorRegistry

from warrenmq.runtime.closable import ALIVE, log
from warrenmq.runtime.inbox import Inbox
from warrenmq.runtime.messages import Exit
from warrenmq.runtime.reasons import KILLED, NORMAL, CallFailed, Killed, is_normal
from warrenmq.runtime.seams import Channel
from warrenmq.runtime.system import System
from warrenmq.trace.events import ActorStart, ActorStop, Reason
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_start, _write_stop = writer(ActorStart), writer(ActorStop)


def inbox_of(ref: ActorRef[Any]) -> Inbox:
    """The inbox of an actor that a Runtime started."""
    return ref.actor_inbox  # type: ignore[return-value]


def reason_number(reason: Any) -> Reason:
    """The trace's code for an exit reason."""
    if is_normal(reason):
        return Reason.NORMAL if reason == NORMAL else Reason.SHUTDOWN
    return Reason.KILLED if reason == KILLED else Reason.CRASH


def link(tick: Callable[[], int], one: ActorRef[Any], other: ActorRef[Any]) -> None:
    """Link two actors: when either ends, the other gets an exit signal."""
    key = tick()
    _exit_with(key, one, other)
    _exit_with(key, other, one)


def _exit_with(key: int, one: ActorRef[Any], other: ActorRef[Any]) -> None:
    def exit_other(reason: Any) -> None:
        inbox_of(other).forget(key)
        inbox_of(other).signal(Exit(one, reason))

    inbox_of(one).on_close(exit_other, key)


class Boot:
    """The arguments of a new actor; `started` gets (ref, None) or (None, error)."""

    __slots__ = ("args", "kwargs", "name", "parent", "started")

    def __init__(
        self,
        started: Channel,
        name: Hashable | None,
        parent: ActorRef[Any] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.started = started
        self.name = name
        self.parent = parent
        self.args = args
        self.kwargs = kwargs


class ActorLife:
    """Kept by the actor, used in its own thread."""

    def __init__(self, runtime: System, boot: Boot, actor_class: type) -> None:
        self.runtime = runtime
        self.name = boot.name
        self.parent = boot.parent
        self.label = runtime.label(boot.name, actor_class)
        self.incarnation = 1
        self.trace: ActorTrace | None = None
        self.over = False
        self._kind = actor_class.__name__
        self.started = boot.started

    def begin(self, ref: ActorRef[Any]) -> None:
        """Register the name and open the trace, before init."""
        self._ref = ref
        self._inbox = inbox_of(ref)
        # An actor without a name has a label that never comes again, so its incarnations need no counting.
        if self.name is not None:
            self.incarnation = self.runtime.incarnation(self.label)
        self.runtime.enlist(ref, self)
        if self.parent is not None and inbox_of(self.parent).reason == KILLED:
            raise Killed  # its parent was killed while it started this one
        if self.name is not None:
            self.runtime.register(self.name, ref)
        if (recorder := self.runtime.recorder) is not None:
            parent = 0 if self.parent is None else inbox_of(self.parent).trace_id
            self.trace = recorder.actor(self.label, self._kind, parent)
            self._inbox.trace_id = self.trace.id
        if self._inbox.reason is not ALIVE:
            raise Killed  # too early for `killed` to find the trace

    def running(self) -> None:
        """Write the first row, link the parent and answer the starter, after init."""
        if self.trace is not None:
            _write_start(self.trace, self.incarnation)
        if self.parent is not None:
            link(self.runtime.tick, self._ref, self.parent)
        self.started.put((self._ref, None))

    def failed_to_start(self, error: BaseException) -> None:
        """Init raised: the starter raises it, and no exit signal is sent."""
        try:
            self.runtime.caught(error)
            self.end(error)
        finally:  # whatever else there is no memory for
            self.started.put((None, error))

    def killed(self) -> None:
        """Stop the actor at the next row that it writes, and release a starter that still waits; called by
        the killer, whether the actor has started or not.

        The writer of a row looks at the clock first, so a row that is being written meanwhile has a time before this one.
        """
        if (trace := self.trace) is not None:
            trace.clock = partial(self._time_of_the_killed, trace.clock)
        self.started.put((None, CallFailed(KILLED)))

    def _time_of_the_killed(self, clock: Callable[[], int]) -> int:
        """The time for the rows of its farewell; others it writes no more."""
        if not self.over:
            raise Killed
        return clock()

    def crashed(self, error: BaseException) -> None:
        """Log a crash, unless the actor was given up before: then its successor is what matters."""
        self.runtime.caught(error)
        if self._inbox.reason is ALIVE:
            log.error("actor crashed", actor=self.label, exc_info=error)

    def end(self, reason: Any) -> None:
        """Close the inbox, the trace and Pykka's books; then Pykka's loop ends.  A second call does nothing."""
        if self.over:
            return
        first = self._inbox.begin_close(reason) or self._inbox.gives_back
        self.over = True
        try:
            self._inbox.drain(trace=self.trace)
            self.close_trace(self._inbox.reason)
            ActorRegistry.unregister(self._ref)  # with the next line, what Pykka's own stop does
        finally:
            self._ref.actor_stopped.set()
            if first:
                self._inbox.notify_closed()

    def close_trace(self, reason: Any) -> None:
        """Write the last row."""
        if self.trace is not None:
            _write_stop(self.trace, reason_number(reason))
            self.trace.close()
            self.trace = None
