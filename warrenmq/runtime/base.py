"""Runtime: one system of actors, its names, and how they are scheduled.

A runtime is what one broker (or one app's supervision tree) lives in: names are its own, and its shutdown
stops what it started.  `Threads` and `Simulation` differ only in the blocking things (`channel`, `event`,
`lock`), the clock, and in who runs an actor's loop (`launch`); everything else is here.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from itertools import count
from sys import is_finalizing
from typing import Any, NamedTuple, TypeAlias, TypeVar

from pykka import Actor, ActorDeadError, ActorRef, ActorRegistry, Future, ThreadingFuture

from warrenmq.checks import seconds
from warrenmq.errors import CallerError, ForkedProcess
from warrenmq.runtime.calls import From
from warrenmq.runtime.inbox import Inbox
from warrenmq.runtime.life import Boot, inbox_of
from warrenmq.runtime.messages import Call, Exit, Traced
from warrenmq.runtime.plain import supervised
from warrenmq.runtime.reasons import NO_PROC, SHUTDOWN, CallFailed, Killed, in_words
from warrenmq.runtime.seams import Channel, Event, Lock, Own, PerThread, Suspension
from warrenmq.runtime.shortage import shortage
from warrenmq.runtime.system import Living
from warrenmq.runtime.thread_event import interpreter_ends
from warrenmq.trace.events import Send, Undelivered
from warrenmq.trace.recorder import ActorTrace, Recorder
from warrenmq.trace.writers import writer

_write_send, _write_undelivered = writer(Send), writer(Undelivered)

Name: TypeAlias = Hashable
A = TypeVar("A", bound=Actor)
T = TypeVar("T")


class ActorInfo(NamedTuple):
    """One line of `Runtime.living`."""

    label: str
    kind: str
    """The actor's class."""
    mailbox: int
    """Messages that wait."""
    restarts: int
    """The number of incarnations of this name before it since `count_anew`, or since `retire`."""


class Runtime(ABC):
    """One system of actors.  All methods may be called from any thread, and from outside actors."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        """The recorder of the actors' trace; None = tracing is off.  Counts for actors that start later."""
        self.tick = count(1).__next__
        self._names: dict[Name, ActorRef[Any]] = {}
        self._living: dict[ActorRef[Any], Living] = {}  # in order of start
        self._counts: dict[str, Iterator[int]] = {}
        """Actors without a name, by class."""
        self._incarnations: dict[str, int] = {}
        """By label, of the system that runs now."""
        self._retired: dict[str, int] = {}
        """Label -> its incarnations up to the last `retire`."""
        self.gave_up_after = ""
        """The reason, in words, with which the last child ended over which a supervisor gave up."""

    forked_from: int | None = None
    """The process in which the actors run, in a child that was forked from it."""

    def check_process(self) -> None:
        """Raise ForkedProcess in a child that was forked: it has no actors; BrokerClosed while the
        interpreter ends: their threads are gone.
        """
        if self.forked_from is not None:
            raise ForkedProcess(self.forked_from, os.getpid())
        if is_finalizing():
            raise interpreter_ends()

    @property
    def has_ended(self) -> bool:
        """True where no thread runs actors any more: in a forked child, in a simulation that is closed, and
        while the interpreter ends (`__del__` of what is left then).
        """
        return self.forked_from is not None or is_finalizing()

    # -- what a scheduler is

    @abstractmethod
    def launch(self, ref: ActorRef[Any], label: str, loop: Callable[[], None]) -> None:
        """Run an actor's loop; ResourceError, and the actor is out of Pykka's registry, when that cannot be."""

    @abstractmethod
    def runs_here(self, ref: ActorRef[Any]) -> bool:
        """True in the actor itself, which nothing can come to while it waits."""

    @abstractmethod
    def channel(self) -> Channel:
        """A blocking FIFO; for code outside actors, too."""

    def mail(self) -> Channel:
        """The incoming channel of a new server."""
        return self.channel()

    @abstractmethod
    def event(self) -> Event:
        """A flag that can be waited for."""

    @abstractmethod
    def lock(self) -> Lock:
        """A lock that may be held across a checkpoint."""

    def future(self) -> Future[Any]:
        """A future of Pykka's that any thread may wait for."""
        return ThreadingFuture()

    def per_thread(self, make: Callable[[], T]) -> Own[T]:
        """An object for each thread that asks for it, in a simulation for each task."""
        return PerThread(make)

    @abstractmethod
    def monotonic_ns(self) -> int: ...

    @abstractmethod
    def wall_ns(self) -> int: ...

    @abstractmethod
    def token_bytes(self, n: int) -> bytes:
        """Random bytes, for ids."""

    @abstractmethod
    def pause(self) -> None:
        """Let others run for a moment, who may be about to do what the caller waits for."""

    def suspension(self) -> Suspension | None:
        """A suspension of the calling actor; None if it keeps its thread: nothing else would be run in it."""
        return None

    def checkpoint(self) -> None:
        """A point where another actor may run; under threads every point is one, and this does nothing."""

    def run_callback(self, callback: Callable[[Any], object], argument: Any) -> None:
        """Run an application's callback that an actor came upon; a Pool may leave it to another thread."""
        callback(argument)

    def why_down(self, reason: Any) -> str:
        """The words for a supervision tree that ended with this reason: a supervisor that gave up says no
        more than "shutdown".
        """
        return self.gave_up_after if reason == SHUTDOWN else in_words(reason)

    def passes(self, error: BaseException) -> bool:
        """True for an exception that an actor has to pass on, as it is killed; other ones are of the application,
        which may raise what is no Exception.
        """
        return isinstance(error, Killed)

    def caught(self, error: BaseException) -> None:
        """Called with each exception that ends an actor, before the end; Simulation overrides it."""

    # -- starting and finding

    def start(
        self,
        actor: type[A],
        *args: Any,
        name: Name | None = None,
        parent: ActorRef[Any] | None = None,
        **kwargs: Any,
    ) -> ActorRef[A]:
        """Start an actor, linked to `parent`; returns once `init` has returned, and raises what it raises.

        ResourceError when the system has no thread, memory or file descriptor for it: nothing was started.  A
        plain Pykka actor, too: its `on_start` takes the place of `init`.
        """
        self.check_process()
        boot = Boot(self.channel(), name, parent, args, kwargs)
        self.actor_class(actor).start(runtime=self, boot=boot)
        ref, error = boot.started.get()
        if error is not None:
            if (refusal := shortage(error, str(name or actor.__name__))) is not None and refusal is not error:
                raise refusal from error
            raise error
        found: ActorRef[A] = ref
        return found

    def actor_class(self, actor: type[Actor]) -> type[Actor]:
        """The class that is started for `actor`: a plain Pykka actor gets a supervised subclass."""
        return supervised(actor)

    def whereis(self, name: Name) -> ActorRef[Any]:
        """Resolve a name; a reference stands for itself.  ActorDeadError if no actor has that name."""
        if type(name) is ActorRef:
            return name
        try:
            return self._names[name]
        except KeyError:
            raise ActorDeadError(f"no actor is called {name!r}") from None

    def is_registered(self, name: Name) -> bool:
        return name in self._names

    def register(self, name: Name, ref: ActorRef[Any]) -> None:
        """Give a living actor a name; it is free again when the actor ends."""
        if self._names.setdefault(name, ref) is not ref:
            raise ValueError(f"the name {name!r} is already taken by {self._names.get(name)}")
        inbox_of(ref).on_close(lambda _reason: self._names.pop(name, None))

    def enlist(self, ref: ActorRef[Any], life: Living) -> None:
        """Count an actor among those that live, and that `shutdown` stops."""
        self._living[ref] = life
        inbox_of(ref).on_close(lambda _reason: self._living.pop(ref, None))

    def label(self, name: Name | None, actor: type) -> str:
        """The name of an actor in the trace and in logs; actors without a name are numbered."""
        return str(name) if name is not None else f"{actor.__name__}-{self._count(actor.__name__)}"

    def incarnation(self, label: str) -> int:
        """Count one more actor called `label`; the first since `count_anew` is 1."""
        number = self._incarnations[label] = self._incarnations.get(label, 0) + 1
        return number

    def count_anew(self) -> None:
        """A system begins in this runtime, perhaps after another one: names have had no incarnation in it yet.

        Labels of actors without a name count on, so that one stays unique among actors that are still there.
        """
        self._incarnations.clear()
        self._retired.clear()

    def retire(self, name: Name) -> None:
        """The actor of this name is gone for good: one that gets the name later is another, and no restart of it."""
        label = str(name)
        if self.recorder is None:
            self._incarnations.pop(label, None)
            self._retired.pop(label, None)
        else:  # a trace counts all that had the name
            self._retired[label] = self._incarnations.get(label, 0)

    def living(self) -> list[ActorInfo]:
        """The living actors, in order of start."""
        return [
            ActorInfo(
                life.label,
                ref.actor_class.__name__,
                inbox_of(ref).length(),
                max(0, life.incarnation - 1 - self._retired.get(life.label, 0)),
            )
            for ref, life in list(self._living.items())
        ]

    def stuck(self) -> tuple[str, ...]:
        """The actors that hold up a thread which others share: none where each has its own."""
        return ()

    def _count(self, name: str) -> int:
        return next(self._counts.setdefault(name, count(1)))  # atomic, and without a lock

    # -- sending

    def cast(self, dest: ActorRef[Any] | Name, message: Any, trace: ActorTrace | None = None) -> bool:
        """Send a message; False if it is known that it will not be handled (a dead actor, or no such name).

        `trace` is the sender's.  A dead actor's `undelivered` has been called when False comes back; with an
        unknown name there is nothing to call.
        """
        ref = dest if type(dest) is ActorRef else self._names.get(dest)
        inbox: Any = None if ref is None else ref.actor_inbox
        if trace is None:
            return inbox is not None and inbox.send(message)
        kind = self.kind(message)
        wrapped = self._trace_send(inbox, message, kind, message, trace)
        if inbox is not None and inbox.send(wrapped):
            return True
        _write_undelivered(trace, kind, wrapped.pseq)
        return False

    def call(
        self,
        dest: ActorRef[Any] | Name,
        request: Any,
        timeout: float | None = 5.0,
        trace: ActorTrace | None = None,
    ) -> Any:
        """Send a request and wait for the answer; CallFailed if the server dies first, or pykka.Timeout.

        CallerError in the server itself.
        """
        self.check_process()
        limit = seconds("timeout", timeout)
        try:
            ref = self.whereis(dest)
        except ActorDeadError as error:
            raise CallFailed(NO_PROC) from error
        if self.runs_here(ref):
            raise CallerError("an actor that calls itself waits for ever; use a method of it, or a cast")
        sender = self.ask(ref, request, self.reply_box(dest, request), trace)
        try:
            return sender.wait(limit)
        finally:
            sender.end()

    def ask(self, ref: ActorRef[Any], request: Any, box: Channel, trace: ActorTrace | None = None) -> From:
        """Send a request and do not wait: the answer is put into `box`, in another thread perhaps; whoever
        asked calls `end` then.
        """
        inbox = inbox_of(ref)
        sender = From(inbox, box, trace)
        call = Call(request, sender)
        if trace is None:
            sent = inbox.send(call)
        else:
            kind = self.kind(request)
            wrapped = self._trace_send(inbox, call, kind, request, trace)
            sent = inbox.send(wrapped)
            if not sent:
                _write_undelivered(trace, kind, wrapped.pseq)
        if not sent and inbox.gives_back:
            sender.fail(inbox.reason)  # it can be asked again sooner than its end is over
        return sender

    def reply_box(self, dest: ActorRef[Any] | Name, request: Any) -> Channel:  # noqa: ARG002
        """A box in which the caller waits for the reply."""
        return self.channel()

    def end_event(self, ref: ActorRef[Any]) -> Event:  # noqa: ARG002
        """An event that is set at an actor's end."""
        return self.event()

    def kind(self, message: Any) -> int:
        """The number of a message's class in the trace; 0 when tracing is off, or off again."""
        return 0 if self.recorder is None else self.recorder.kind(type(message))

    @staticmethod
    def _trace_send(inbox: Inbox | None, message: Any, kind: int, told: Any, trace: ActorTrace) -> Traced:
        receiver = 0 if inbox is None else inbox.trace_id
        traced = getattr(told, "traced", None)
        message_id, first_seq_id, count = traced() if traced is not None else (0, 0, 0)
        seq = _write_send(trace, kind, message_id, receiver, 0, first_seq_id, count)
        return Traced(message, trace.id, seq, trace.last_t)

    # -- ending

    def stop_actor(self, ref: ActorRef[Any], reason: Any = SHUTDOWN, timeout: float | None = None) -> bool:
        """Send an exit signal and wait for the end; False if it has not come in `timeout` seconds.

        CallerError in the actor itself.
        """
        self.check_process()
        limit = seconds("timeout", timeout)
        if self.runs_here(ref):
            raise CallerError("an actor cannot wait for its own end; raise Stop in it, or use its `stop`")
        inbox = inbox_of(ref)
        gone = self.end_event(ref)
        key = inbox.on_close(lambda _reason: gone.set())
        inbox.signal(Exit(None, reason))
        try:
            return gone.wait(limit)
        finally:
            inbox.forget(key)

    def disown(self, ref: ActorRef[Any]) -> None:
        """Give an actor up that cannot be waited for: all others see it as dead, and `terminate` is not called.

        A thread cannot be killed.  Its current handler goes on until it next sends, takes mail, writes to disk or
        writes a row of the trace, none of which it can any more: its fence is cut, its mailbox shut and its name
        free when this returns.

        Its children are killed with it, before any callback runs: a successor must find the names free and the files
        unwritten.  (In Erlang the exit signals to a killed supervisor's children race with its successor.)
        """
        inbox = inbox_of(ref)
        inbox.fence.cut_off()
        life = self._living.get(ref)
        if inbox.kill():
            if life is not None:
                life.killed()
            # Shut first, looked for second; a child counts itself first and looks at its parent second (ActorLife.begin).
            for child in [each for each, life in list(self._living.items()) if life.parent is ref][::-1]:
                self.kill(child)
            ActorRegistry.unregister(ref)
            ref.actor_stopped.set()
            inbox.notify_closed()

    def kill(self, ref: ActorRef[Any]) -> None:
        """End an actor at once, without its consent; see `disown` for what that can mean."""
        self.disown(ref)

    def shutdown(self, timeout: float | None = 5.0) -> None:
        """Stop whatever is left, each tree from its root, the youngest first; an actor that overruns `timeout`
        is killed, and so is one that calls this.
        """
        while living := dict(self._living):
            for ref in reversed([ref for ref, life in living.items() if life.parent not in living]):
                if self.runs_here(ref) or not self.stop_actor(ref, timeout=timeout):
                    self.kill(ref)
