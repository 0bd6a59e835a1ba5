"""Server: a Pykka actor with Erlang's callbacks (gen_server, gen_server2).

The only file that subclasses a Pykka actor for our own servers.  Pykka's loop parks (`Mailbox.get`); the loop
in `on_receive` runs messages until the mailbox is dry, so Pykka's price per message is paid once a wake-up.

All of Pykka's traps are closed here and in Mailbox.put (docs/runtime.md has the list): nothing that a callback
raises, SystemExit included, reaches Pykka's loop, and every end of an actor goes through `_end`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain, repeat, starmap
from operator import attrgetter
from types import TracebackType
from typing import Any, ClassVar

from pykka import ActorDeadError, ActorRef, ThreadingActor
from pykka.messages import ProxyCall, ProxySetAttr

from warrenmq.errors import CallerError, Refusal
from warrenmq.runtime.base import Name, Runtime
from warrenmq.runtime.calls import NO_REPLY, From
from warrenmq.runtime.closable import ALIVE
from warrenmq.runtime.fence import Fence
from warrenmq.runtime.inbox import CLOSED, WAKE, Inbox, Letter
from warrenmq.runtime.life import ActorLife, Boot, inbox_of, link
from warrenmq.runtime.mailbox import DRY, PARK, Mailbox, Timer
from warrenmq.runtime.messages import Call, Down, Exit, Info, ProxyRequest, Traced
from warrenmq.runtime.ranked_mailbox import PriorityMailbox, RankedMailbox
from warrenmq.runtime.reasons import NO_PROC, NORMAL, Killed, Stop
from warrenmq.seams.disk import Waiter
from warrenmq.trace.events import Recv
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_Handler = Callable[[Any], object]
_Dispatch = Callable[[type, _Handler], _Handler]

_write_recv = writer(Recv)

FOR_EVER: Iterable[tuple[()]] = repeat(())
"""Turns of an actor with a thread of its own: until its mailbox is dry."""


class Server(ThreadingActor):
    """Override `init` and the `handle_*` callbacks; started by `Runtime.start`."""

    trap_exit: ClassVar[bool] = False
    """Get the exit signals of linked actors as an Exit in `handle_info`.  The parent's always stops."""
    receives: ClassVar[frozenset[type]] = frozenset()
    """Message classes whose handlers write their own receive row, so that no RECV row is written."""

    requests: ClassVar[frozenset[type] | None] = None
    """Classes of the requests that it answers, others are refused with TypeError; None: any."""
    background: ClassVar[bool] = False
    """True for a server that only looks at things from time to time: a simulation in which nothing else goes
    on is at its end.
    """

    helpable: ClassVar[bool] = False
    """A thread that waits (waiting.py), or a loop's (leading.py), may run it: it runs no code of an
    application's, and waits for nothing but the disk and other actors.
    """

    ranks: ClassVar[Mapping[type, int]] = {}
    """Message class -> rank of its casts, calls and timer's messages: higher first; 0, which needs no entry, is ordinary."""

    is_server: ClassVar[bool] = True
    """A Runtime starts it as it is."""
    actor_inbox: Mailbox

    def __init__(self, *, runtime: Runtime, boot: Boot) -> None:
        self.runtime = runtime
        self.name: Name | None = boot.name
        self.fence = Fence(runtime.lock())
        self.trace: ActorTrace | None = None
        self.sender_id = 0
        """The sender of the message that is being handled (a trace id), and ..."""
        self.sender_seq = 0
        """... the row of its SEND; both 0 when untraced."""
        self._life = ActorLife(runtime, boot, type(self))
        self._arguments = boot.args, boot.kwargs
        self._monitors: dict[int, Inbox] = {}
        self._then: Callable[[], object] | None = None
        """The rest of `mailbox_empty`, of a suspended actor."""
        self._crashed_of: BaseException | None = None
        """It crashed of this, and has to end before anything else, if there was no memory for that yet."""
        super().__init__()
        self._dispatch: dict[type, _Handler] = {
            Call: self._answer,
            Down: self._down,
            Exit: self._exit,
            Info: lambda info: self.handle_info(info.message),
            ProxyRequest: self._serve_proxy,
            Traced: self._unwrap,
        }

    # -- callbacks: all run in the actor; what they raise ends it, Stop(reason) in good order, but for what `check_call`
    # raises and a CallerError or Refusal of `handle_call`: these are the caller's (docs/runtime.md#whose-error-it-is)

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Set up the state.  An exception is raised by `Runtime.start`, and `terminate` is not called."""

    def handle_cast(self, message: Any) -> None:
        """Handle a cast."""
        raise NotImplementedError(message)

    def check_call(self, request: Any) -> Any:
        """Look at a request before it is handled; returns what `handle_call` gets in its place.

        It may look at the state and must not change it: whatever this raises is raised at the caller, and the actor
        lives on.
        """
        if self.requests is not None and type(request) not in self.requests:
            msg = f"{type(self).__name__} cannot be asked {type(request).__name__}; ask one of its requests"
            raise TypeError(msg)
        return request

    def handle_call(self, request: Any, sender: From) -> Any:
        """Return the answer, or NO_REPLY and see to a later `sender.reply`.

        A CallerError or a Refusal says that nothing has changed: it is raised at the caller.  Any other exception leaves
        a state that cannot be trusted, and ends the actor.
        """
        raise NotImplementedError(request)

    def handle_info(self, message: Any) -> None:
        """Handle a timer's message, a Down, or (with `trap_exit`) an Exit."""

    def mailbox_empty(self) -> None:
        """Called when all mail is handled and the actor will be parked: flush now, as more may not come soon."""

    def terminate(self, reason: Any) -> None:
        """Clean up; called for every reason but a kill.  An exception becomes the reason."""

    def can_wait(self, kinds: AbstractSet[type]) -> bool:  # noqa: ARG002
        """True if nobody waits for what `mailbox_empty` and the mail in its box, of these classes, may lead
        to; asked by any thread.

        It is asked between two slices.  Such mail may lie until a thread comes that runs the actor anyway, or
        for a tick of the wheel.
        """
        return False

    @staticmethod
    def priority(message: Any) -> int:
        """Rank a cast's message, a call's request or a timer's message where its class does not say enough:
        higher first, 0 is ordinary.

        A server that defines it needs no `ranks`.
        """
        raise NotImplementedError

    @staticmethod
    def undelivered(message: Any) -> None:
        """Get back a cast that the actor will never handle: left in its mailbox, or sent when it was dead.

        Called once a message, in whichever thread finds it: of a sender, the actor, or of its killer.
        """

    # -- for callbacks to use

    def cast(self, dest: ActorRef[Any] | Name, message: Any) -> bool:
        """Send a message; False if it is known that it will not be handled."""
        if self.actor_inbox.reason is not ALIVE:
            raise Killed
        return self.runtime.cast(dest, message, self.trace)

    def call(self, dest: ActorRef[Any] | Name, request: Any, timeout: float | None = 5.0) -> Any:
        """Send a request and wait; never on the path of messages: it costs 150 casts."""
        if self.actor_inbox.reason is not ALIVE:
            raise Killed
        return self.runtime.call(dest, request, timeout, self.trace)

    def send_after(self, seconds: float, info: Any) -> Timer:
        """Schedule `info` to arrive at `handle_info` after `seconds`."""
        return self.actor_inbox.send_after(seconds, info)

    def suspend(self, begin: Callable[[Waiter], bool], then: Callable[[], object]) -> bool:
        """Leave the thread to others until what `begin` began is done, and go on with `then`, before any mail.

        For the last statement of `mailbox_empty`.  False, and the caller goes on by itself, if `begin`
        returned False, if the thread has nothing else to do, or if the thing is done already.
        """
        if (
            (suspension := self.runtime.suspension()) is None
            or not begin(suspension)
            or not suspension.begin()
        ):
            return False
        self._then = then
        return True

    def monitor(self, dest: ActorRef[Any] | Name) -> int:
        """Monitor an actor: a Down arrives at `handle_info` when `dest` dies; at once if it is dead."""
        key = self.runtime.tick()
        mine = self.actor_inbox
        try:
            ref = self.runtime.whereis(dest)
        except ActorDeadError:
            mine.send(Down(key, None, NO_PROC))
            return key
        its = inbox_of(ref)

        def send_down(reason: Any) -> None:
            mine.forget(key)
            mine.send(Down(key, ref, reason))

        mine.on_close(lambda _reason: its.forget(key), key)
        self._monitors[key] = its
        its.on_close(send_down, key)
        return key

    def demonitor(self, key: int) -> None:
        """Want no Down after all; one that has already come is still handed over."""
        self.actor_inbox.forget(key)
        if (its := self._monitors.pop(key, None)) is not None:
            its.forget(key)

    def link(self, other: ActorRef[Any]) -> None:
        """Tie two fates together: when one ends, the other gets an exit signal."""
        link(self.runtime.tick, self.actor_ref, other)

    # -- the life of an actor, in Pykka's hooks

    def _create_actor_inbox(self) -> Mailbox:  # type: ignore[override]  # Pykka calls it on the instance
        undelivered = None if type(self).undelivered is Server.undelivered else self.undelivered
        flushes = type(self).mailbox_empty is not Server.mailbox_empty
        if type(self).priority is not Server.priority:
            return PriorityMailbox(self.runtime, self.fence, undelivered, self.priority, flushes=flushes)
        if self.ranks:
            return RankedMailbox(self.runtime, self.fence, undelivered, self.ranks, flushes=flushes)
        return Mailbox(self.runtime, self.fence, undelivered, flushes=flushes)

    def _start_actor_loop(self) -> None:
        self.runtime.launch(self.actor_ref, self._life.label, self._actor_loop)

    def on_start(self) -> None:
        life = self._life
        args, kwargs = self._arguments
        del self._arguments
        try:
            life.begin(self.actor_ref)
            self.trace = life.trace
            self.init(*args, **kwargs)
            life.running()
        except BaseException as error:  # noqa: BLE001 - the starter raises it
            life.failed_to_start(error)

    def on_receive(self, message: Any, turns: Iterable[tuple[()]] = FOR_EVER) -> None:
        """Handle a message and, for each turn, one more; a letter that is Pykka's to handle is `held` for its next `get`."""
        inbox, handle_cast = self.actor_inbox, self.handle_cast
        dispatch: _Dispatch = self._dispatch.get
        if self._crashed_of is not None:
            self._crash(self._crashed_of)
            return
        try:
            if (then := self._then) is not None:
                self._then = None
                if inbox.reason is ALIVE:
                    then()
            for mail in chain((message,), starmap(inbox.take, turns)):
                if type(mail) is not Letter:
                    dispatch(type(mail), handle_cast)(mail)
                elif mail is DRY:
                    self.mailbox_empty()
                    if self._then is not None:
                        return
                elif mail is not WAKE:
                    break
            else:
                return
        except Stop as stop:
            self._end(stop.reason)
            return
        except BaseException as error:  # noqa: BLE001 - SystemExit, too, is a crash of this actor only
            self._crashed_of = error
            self._crash(error)
            return
        if mail is CLOSED:
            self._end(inbox.reason)
        if mail is not PARK:
            inbox.held = mail

    def on_stop(self) -> None:
        self._end(NORMAL)

    def on_failure(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """There was no memory to end in `on_receive`, and Pykka's loop is about to."""
        self._end(error)

    def _crash(self, error: BaseException) -> None:
        try:
            self._life.crashed(error)
        finally:  # whatever else there is no memory for
            self._end(error)

    def _end(self, reason: Any) -> None:
        try:
            if self.actor_inbox.reason is ALIVE:  # else its files are another's now
                try:
                    self.terminate(reason)
                except BaseException as error:  # noqa: BLE001 - what terminate raises becomes the reason
                    reason = error
                    self._life.crashed(error)
        finally:
            self._life.end(reason)
        self._dispatch.clear()  # of bound methods, which hold the actor

    # -- messages of the runtime

    def _answer(self, call: Call) -> None:
        sender = call.sender
        sender.begin()
        # Marked first, looked for second; a killer of this actor shuts its mailbox first and looks for the mark second:
        # a request that the caller takes for one that was not begun is not begun here.
        if self.actor_inbox.reason is not ALIVE:
            return
        answer: Callable[[Any], None] = sender.reply
        try:
            request = self.check_call(call.request)
        except Exception as error:  # noqa: BLE001 - the request's fault: nothing has been touched
            value, answer = error, sender.refuse
        else:
            try:
                value = self.handle_call(request, sender)
            except (CallerError, Refusal) as error:
                value, answer = error, sender.refuse
        if value is NO_REPLY:
            sender.park()
            return
        if self.trace is not None:
            sender.t = self.trace.last_t
        answer(value)

    def _unwrap(self, traced: Traced) -> None:
        message, trace = traced.message, self.trace
        if trace is not None:
            trace.observe(traced.t)
            told = message.request if type(message) is Call else message
            if type(told) not in self.receives:
                _write_recv(trace, self.runtime.kind(told), traced.peer, traced.pseq)
        self.sender_id, self.sender_seq = traced.peer, traced.pseq
        dispatch: _Dispatch = self._dispatch.get
        dispatch(type(message), self.handle_cast)(message)
        self.sender_id = self.sender_seq = 0

    def _down(self, message: Down) -> None:
        self._monitors.pop(message.monitor, None)
        self.handle_info(message)

    def _exit(self, signal: Exit) -> None:
        if signal.ref is None or signal.ref is self._life.parent:
            raise Stop(signal.reason)
        if self.trap_exit:
            self.handle_info(signal)
        elif signal.reason != NORMAL:
            raise Stop(signal.reason)

    def _serve_proxy(self, request: ProxyRequest) -> None:
        message = request.message
        if isinstance(message, ProxySetAttr):
            *path, last = message.attr_path
            setattr(attrgetter(".".join(path))(self) if path else self, last, message.value)
            value = None
        else:
            value = attrgetter(".".join(message.attr_path))(self)
            if isinstance(message, ProxyCall):
                value = value(*message.args, **message.kwargs)
        if request.sender is not None:
            request.sender.reply(value)
