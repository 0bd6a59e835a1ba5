"""Life: the beginning and the end of one actor, the same for servers and for supervised plain Pykka actors.

Order at the end: no more mail (`shut`), what was left is lost and said so, the last row of the trace, Pykka's
own marks, and only then the notices: whoever learns of the end, a supervisor above all, finds it complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykka import ActorRegistry

from warrenmq.runtime.messages import KILLED, NORMAL, CallFailed, Exit, Killed, is_normal
from warrenmq.runtime.mortal import ALIVE, log
from warrenmq.trace.events import Ev, Reason

if TYPE_CHECKING:
    from pykka import ActorRef

    from warrenmq.runtime.base import Name, Runtime
    from warrenmq.runtime.inbox import Inbox
    from warrenmq.trace.recorder import ActorTrace


def inbox_of(ref: ActorRef[Any]) -> Inbox:
    """The inbox of an actor that a Runtime started."""
    return ref.actor_inbox  # type: ignore[return-value]


def reason_number(reason: Any) -> Reason:
    """A reason as the trace has it."""
    if is_normal(reason):
        return Reason.NORMAL if reason == NORMAL else Reason.SHUTDOWN
    return Reason.KILLED if reason == KILLED else Reason.CRASH


def link(runtime: Runtime, one: ActorRef[Any], other: ActorRef[Any]) -> None:
    """Tie two fates together: when either ends, the other gets an exit signal."""
    key = runtime.tick()
    _tie(key, one, other)
    _tie(key, other, one)


def _tie(key: int, one: ActorRef[Any], other: ActorRef[Any]) -> None:
    def mourn(reason: Any) -> None:
        inbox_of(other).forget(key)
        inbox_of(other).signal(Exit(one, reason))

    inbox_of(one).on_close(mourn, key)


class Boot:
    """What a runtime hands a new actor; `started` gets (ref, None) or (None, error)."""

    __slots__ = ("args", "kwargs", "name", "parent", "runtime", "started")

    def __init__(
        self,
        runtime: Runtime,
        name: Name | None,
        parent: ActorRef[Any] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.runtime = runtime
        self.name = name
        self.parent = parent
        self.args = args
        self.kwargs = kwargs
        self.started = runtime.channel()


class Life:
    """Kept by the actor, used in its own thread."""

    def __init__(self, boot: Boot, actor_class: type) -> None:
        self.runtime = boot.runtime
        self.name = boot.name
        self.parent = boot.parent
        self.label = boot.runtime.label(boot.name, actor_class)
        self.trace: ActorTrace | None = None
        self._kind = actor_class.__name__
        self._started = boot.started
        self.over = False

    def begin(self, ref: ActorRef[Any]) -> None:
        """Before init: be known by name, and have a trace."""
        self._ref = ref
        self._inbox = inbox_of(ref)
        # Those without a name have a label of their own: nobody comes back under it, and it is not to be remembered.
        self.incarnation = 1 if self.name is None else self.runtime.incarnation(self.label)
        self.runtime.enlist(ref, self)
        if self.parent is not None and inbox_of(self.parent).reason == KILLED:
            raise Killed  # its parent was killed while it started this one
        if self.name is not None:
            self.runtime.register(self.name, ref)
        if (recorder := self.runtime.recorder) is not None:
            parent = 0 if self.parent is None else inbox_of(self.parent).trace_id
            self.trace = recorder.actor(self.label, self._kind, parent)
            self._inbox.trace_id = self.trace.id

    def running(self) -> None:
        """After init: tell the trace and the starter."""
        if self.trace is not None:
            self.trace.emit(Ev.ACTOR_START, 0, 0, 0, 0, self.incarnation)
        if self.parent is not None:
            link(self.runtime, self._ref, self.parent)
        self._started.put((self._ref, None))

    def stillborn(self, error: BaseException) -> None:
        """Init failed: the starter raises it, nobody else hears of it."""
        self.runtime.caught(error)
        self.end(error)
        self._started.put((None, error))

    def killed(self) -> None:
        """Whoever waits for its start waits no longer; called by the killer.  No matter if it has started."""
        self._started.put((None, CallFailed(KILLED)))

    def crashed(self, error: BaseException) -> None:
        """Tell people; unless it was given up before, when it is nobody's business any more."""
        self.runtime.caught(error)
        if self._inbox.reason is ALIVE:
            log.error("actor crashed", actor=self.label, exc_info=error)

    def end(self, reason: Any) -> None:
        """Take leave; then Pykka's loop ends."""
        if self.over:
            return
        self.over = True
        first = self._inbox.shut(reason)
        try:
            self._inbox.drain(trace=self.trace)
            self.close_trace(self._inbox.reason)
            ActorRegistry.unregister(self._ref)  # with the next line, what Pykka's own stop does
            self._ref.actor_stopped.set()
        finally:
            if first:
                self._inbox.mourn()

    def close_trace(self, reason: Any) -> None:
        """Write the last row."""
        if self.trace is not None:
            self.trace.emit(Ev.ACTOR_STOP, reason_number(reason))
            self.trace.close()
            self.trace = None
