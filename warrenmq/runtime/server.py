"""Server: a Pykka actor with Erlang's callbacks (gen_server, gen_server2).

The only file that subclasses a Pykka actor for our own servers.  Pykka's loop parks (`Mailbox.get`); the loop
in `on_receive` runs messages until the mailbox is dry, so Pykka's price per message is paid once a wake-up.

All of Pykka's traps are closed here and in Mailbox.put (docs/runtime.md has the list): nothing that a callback
raises, SystemExit included, reaches Pykka's loop; every end of an actor goes through `_end`.
"""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from pykka import ActorDeadError, ActorRegistry, ThreadingActor
from pykka.messages import ProxyCall, ProxySetAttr

from warrenmq.runtime.base import Boot, mailbox_of
from warrenmq.runtime.calls import NO_REPLY
from warrenmq.runtime.fence import Fence
from warrenmq.runtime.mailbox import CLOSED, Dry, Letter, Mailbox
from warrenmq.runtime.messages import (
    NO_PROC, NORMAL, Call, Down, Exit, Info, Killed, ProxyRequest, Stop, Traced, is_normal,
)
from warrenmq.runtime.mortal import ALIVE, log
from warrenmq.trace.events import Ev, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from warrenmq.runtime.base import Name, Runtime
    from warrenmq.runtime.calls import From
    from warrenmq.runtime.mailbox import Timer
    from warrenmq.trace.recorder import ActorTrace


def reason_number(reason: Any) -> Reason:
    """A reason as the trace has it."""
    if is_normal(reason):
        return Reason.NORMAL if reason == NORMAL else Reason.SHUTDOWN
    return Reason.KILLED if reason == "killed" else Reason.CRASH


class Server(ThreadingActor):
    """Override `init` and the `handle_*` callbacks; started by `Runtime.start`."""

    trap_exit: ClassVar[bool] = False
    """Get the exit signals of linked actors as an Exit in `handle_info`.  The parent's always stops."""
    receives: ClassVar[frozenset[type]] = frozenset()
    """Message classes whose handlers write their own receive row, so that no RECV row is written."""

    actor_inbox: Mailbox

    def __init__(self, *, boot: Boot) -> None:
        self.runtime: Runtime = boot.runtime
        self.name: Name | None = boot.name
        self.fence = Fence(boot.runtime.lock())
        self.trace: ActorTrace | None = None
        self.sender_id = 0
        """Who sent the message that is being handled (a trace id), and ..."""
        self.sender_seq = 0
        """... the row of its SEND; both 0 when untraced."""
        self._boot = boot
        super().__init__()
        self._dispatch: dict[type, Callable[[Any], Any]] = {
            Call: self._answer,
            Dry: lambda _dry: self.mailbox_empty(),
            Down: self.handle_info,
            Exit: self._exit,
            Info: lambda info: self.handle_info(info.message),
            ProxyRequest: self._serve_proxy,
            Traced: self._unwrap,
        }

    # -- callbacks: all run in the actor; what they raise ends it, Stop(reason) in good order

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Set up the state.  What this raises is raised by `Runtime.start`, and `terminate` is not called."""

    def handle_cast(self, message: Any) -> None:
        """Handle a message; nobody waits."""
        raise NotImplementedError(message)

    def handle_call(self, request: Any, sender: From) -> Any:
        """Return the answer, or NO_REPLY and see to a later `sender.reply`."""
        raise NotImplementedError(request)

    def handle_info(self, message: Any) -> None:
        """Handle a timer's message, a Down, or (with `trap_exit`) an Exit."""

    def mailbox_empty(self) -> None:
        """All mail has been handled, and the actor will be parked: flush now, more may not come soon."""

    def terminate(self, reason: Any) -> None:
        """Clean up; called for every reason but a kill.  What it raises becomes the reason."""

    @staticmethod
    def priority(message: Any) -> int:  # noqa: ARG004
        """Rank a cast's message, a call's request or a timer's message: higher first, 0 is ordinary."""
        return 0

    @staticmethod
    def undelivered(message: Any) -> None:
        """Get back a cast that the actor will never handle: left in its mailbox, or sent when it was dead.

        Called once a message, in whichever thread finds it: of a sender, the actor, or who killed it.
        """

    # -- for callbacks to use

    def cast(self, dest: ActorRef[Any] | Name, message: Any) -> bool:
        """Send a message; False if it is known that nobody takes it."""
        if self.actor_inbox.reason is not ALIVE:
            raise Killed
        return self.runtime.cast(dest, message, self.trace)

    def call(self, dest: ActorRef[Any] | Name, request: Any, timeout: float | None = 5.0) -> Any:
        """Send a request and wait; never on the path of messages: it costs 150 casts."""
        if self.actor_inbox.reason is not ALIVE:
            raise Killed
        return self.runtime.call(dest, request, timeout, self.trace)

    def send_after(self, seconds: float, info: Any) -> Timer:
        """Have `info` arrive at `handle_info` after `seconds`."""
        return self.actor_inbox.send_after(seconds, info)

    def monitor(self, dest: ActorRef[Any] | Name) -> int:
        """Have a Down arrive at `handle_info` when `dest` dies; at once if it is dead."""
        key = self.runtime.tick()
        mine = self.actor_inbox
        try:
            ref = self.runtime.whereis(dest)
        except ActorDeadError:
            mine.send(Down(key, None, NO_PROC))
            return key
        its = mailbox_of(ref)

        def mourn(reason: Any) -> None:
            mine.forget(key)
            mine.send(Down(key, ref, reason))

        mine.on_close(lambda _reason: its.forget(key), key)
        self._monitors[key] = its
        its.on_close(mourn, key)
        return key

    def demonitor(self, key: int) -> None:
        """Want no Down after all; one that has already come is still handed over."""
        self.actor_inbox.forget(key)
        if (its := self._monitors.pop(key, None)) is not None:
            its.forget(key)

    def link(self, other: ActorRef[Any]) -> None:
        """Tie two fates together: when one ends, the other gets an exit signal."""
        key = self.runtime.tick()
        _tie(key, self.actor_ref, other)
        _tie(key, other, self.actor_ref)

    # -- the life of an actor, in Pykka's hooks

    def _create_actor_inbox(self) -> Mailbox:  # type: ignore[override]  # Pykka calls it on the instance
        kind = type(self)
        return Mailbox(
            self.runtime,
            self.fence,
            None if kind.priority is Server.priority else self.priority,
            None if kind.undelivered is Server.undelivered else self.undelivered,
        )

    def _start_actor_loop(self) -> None:
        self._label = self.runtime.trace_name(self.name, type(self))
        self.runtime.launch(self._label, self._actor_loop)

    def on_start(self) -> None:
        boot = self._boot
        self._parent = boot.parent
        self._monitors: dict[int, Mailbox] = {}
        try:
            self.runtime.enlist(self.actor_ref, boot.parent)
            if boot.name is not None:
                self.runtime.register(boot.name, self.actor_ref)
            self._open_trace()
            self.init(*boot.args, **boot.kwargs)
            if self.trace is not None:
                self.trace.emit(Ev.ACTOR_START, 0, 0, 0, 0, self.runtime.incarnation(self._label))
            if boot.parent is not None:
                self.link(boot.parent)
        except BaseException as error:  # noqa: BLE001 - a crash of this actor only
            self._end(error, started=False)
            boot.started.put((None, error))
        else:
            boot.started.put((self.actor_ref, None))
        del self._boot

    def on_receive(self, message: Any) -> None:
        inbox = self.actor_inbox
        take, dispatch, handle_cast = inbox.take, self._dispatch.get, self.handle_cast
        try:
            while type(message) is not Letter:
                dispatch(type(message), handle_cast)(message)
                message = take()
        except Stop as stop:
            self._end(stop.reason)
        except BaseException as error:  # noqa: BLE001 - SystemExit, too, is a crash of this actor only
            self._crash(error)
        else:
            if message is CLOSED:
                self._end(inbox.reason)
            inbox.hold(message)

    def on_stop(self) -> None:
        self._end(NORMAL)

    def _crash(self, error: BaseException) -> None:
        if self.actor_inbox.reason is ALIVE:
            log.error("actor crashed", actor=self._label, exc_info=error)
        self._end(error)

    def _end(self, reason: Any, *, started: bool = True) -> None:
        """Terminate, take leave of the trace, and tell all who want to know; then Pykka's loop ends."""
        inbox = self.actor_inbox
        if started and inbox.reason is ALIVE:  # else its files are another's now
            try:
                self.terminate(reason)
            except BaseException as error:  # noqa: BLE001
                log.error("actor crashed in terminate", actor=self._label, exc_info=error)
                reason = error
        first = inbox.shut(reason)
        inbox.drain(trace=self.trace)
        if self.trace is not None:
            self.trace.emit(Ev.ACTOR_STOP, reason_number(inbox.reason))
            self.trace.close()
            self.trace = None
        ActorRegistry.unregister(self.actor_ref)  # with the next line, what Pykka's own stop does
        self.actor_stopped.set()
        self._dispatch.clear()  # of bound methods, which hold the actor
        if first:
            inbox.mourn()

    def _open_trace(self) -> None:
        if (recorder := self.runtime.recorder) is not None:
            parent = 0 if self._parent is None else mailbox_of(self._parent).trace_id
            self.trace = recorder.actor(self._label, type(self).__name__, parent)
            self.actor_inbox.trace_id = self.trace.id

    # -- messages of the runtime

    def _answer(self, call: Call) -> None:
        if (value := self.handle_call(call.request, call.sender)) is not NO_REPLY:
            if self.trace is not None:
                call.sender.t = self.trace.last_t
            call.sender.reply(value)

    def _unwrap(self, traced: Traced) -> None:
        message, trace = traced.message, self.trace
        if trace is not None:
            trace.observe(traced.t)
            told = message.request if type(message) is Call else message
            if type(told) not in self.receives:
                trace.emit(Ev.RECV, self.runtime.kind(told), 0, traced.peer, traced.pseq)
        self.sender_id, self.sender_seq = traced.peer, traced.pseq
        self._dispatch.get(type(message), self.handle_cast)(message)
        self.sender_id = self.sender_seq = 0

    def _exit(self, signal: Exit) -> None:
        if signal.ref is None or signal.ref is self._parent:
            raise Stop(signal.reason)
        if self.trap_exit:
            self.handle_info(signal)
        elif signal.reason != NORMAL:
            raise Stop(signal.reason)

    def _serve_proxy(self, request: ProxyRequest) -> None:
        message = request.message
        if isinstance(message, ProxySetAttr):
            *path, last = message.attr_path
            value = setattr(attrgetter(".".join(path))(self) if path else self, last, message.value)
        else:
            value = attrgetter(".".join(message.attr_path))(self)
            if isinstance(message, ProxyCall):
                value = value(*message.args, **message.kwargs)
        if request.sender is not None:
            request.sender.reply(value)


def _tie(key: int, one: ActorRef[Any], two: ActorRef[Any]) -> None:
    def mourn(reason: Any) -> None:
        mailbox_of(two).forget(key)
        mailbox_of(two).send(Exit(one, reason))

    mailbox_of(one).on_close(mourn, key)
