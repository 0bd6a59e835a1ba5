"""Plain Pykka actors under a Runtime: they know nothing of us and are supervised all the same.

`supervised(cls)` makes a subclass of a plain actor class: the inbox is ours (so that its end can be waited for,
and an `ask` that races with a stop is answered), the thread is the runtime's, and each of Pykka's hooks reports
to the actor's ActorLife.  The actor's own behaviour stays as Pykka has it, but for one trap: a
SystemExit in a handler crashes this actor, where Pykka would stop every actor there is.
"""

from __future__ import annotations

import sys
from functools import cache
from types import TracebackType
from typing import Any

from pykka import Actor, ActorDeadError, ActorRef

from warrenmq.runtime.calls import From
from warrenmq.runtime.closable import ALIVE
from warrenmq.runtime.fence import Fence
from warrenmq.runtime.inbox import CLOSED, WAKE, Inbox, Letter, is_stop
from warrenmq.runtime.life import ActorLife, Boot
from warrenmq.runtime.messages import Call, Exit, Traced
from warrenmq.runtime.reasons import NORMAL
from warrenmq.runtime.system import System
from warrenmq.trace.events import Recv, Undelivered
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_recv, _write_undelivered = writer(Recv), writer(Undelivered)


class Crashed(Exception):
    """Stands for a SystemExit or the like (its cause) in a plain actor."""


class Answer:
    """Receives the reply of Pykka's loop to one of our calls: a future, as far as that loop uses it."""

    __slots__ = ("_sender",)

    def __init__(self, sender: From) -> None:
        self._sender = sender

    def set(self, value: Any = None) -> None:
        self._sender.reply(value)

    def set_exception(self, exc_info: Any = None) -> None:
        self._sender.fail((exc_info or sys.exc_info())[1])


class PlainInbox(Inbox):
    """Pykka's letters, in order; what of ours reaches a plain actor is made a letter."""

    def __init__(self, runtime: System, fence: Fence, parent: ActorRef[Any] | None) -> None:
        super().__init__(runtime, fence, runtime.channel())
        self._parent = parent
        self.owner: ActorRef[Any]
        self.trace: ActorTrace | None = None
        self.stop_reason: Any = NORMAL
        """The reason that the actor ends with when it gets a stop."""

    def signal(self, signal: Exit) -> None:
        if signal.ref is None or signal.ref is self._parent or signal.reason != NORMAL:
            self.stop_reason = signal.reason
            self.owner.stop(block=False)

    def put(self, envelope: Any, /) -> None:
        self.send(Letter(envelope.message, envelope.reply_to))

    def get(self) -> Any:
        message = self.incoming.get()
        if message is WAKE:
            return CLOSED
        if type(message) is Traced:
            traced, message = message, message.message
            if (trace := self.trace) is not None:
                told = message.request if type(message) is Call else message
                trace.observe(traced.t)
                _write_recv(trace, self.runtime.kind(told), traced.peer, traced.pseq)
        if type(message) is Letter:
            return message
        if type(message) is not Call:
            return Letter(message)
        message.sender.begin()
        # as in Server._answer: its caller may have been told that it was not begun
        return Letter(message.request, Answer(message.sender)) if self.reason is ALIVE else CLOSED

    def _lose(self, message: Any, trace: ActorTrace | None) -> None:
        if type(message) is Traced and trace is not None:
            _write_undelivered(trace, self.runtime.kind(message.message), message.pseq, message.peer)
        if type(message) is not Letter or message.reply_to is None:
            return
        if is_stop(message.message):
            message.reply_to.set(None)
        else:
            error = ActorDeadError(f"{self.owner} stopped before handling the message")
            message.reply_to.set_exception((ActorDeadError, error, None))


class Supervised(Actor):
    """The mixin: in front of a plain actor class."""

    def __init__(self, *, runtime: System, boot: Boot) -> None:
        self.__runtime = runtime
        self.__life = ActorLife(runtime, boot, type(self))
        super().__init__(*boot.args, **boot.kwargs)
        self.__inbox.owner = self.actor_ref

    def _create_actor_inbox(self) -> PlainInbox:  # type: ignore[override]  # Pykka calls it on the instance
        fence = Fence(self.__runtime.lock())
        self.__inbox = PlainInbox(self.__runtime, fence, self.__life.parent)
        return self.__inbox

    def _start_actor_loop(self) -> None:
        self.__runtime.launch(self.actor_ref, self.__life.label, self.__live)

    def __live(self) -> None:
        self._actor_loop()
        self.__life.end(self.__inbox.reason)  # if no hook has said so: it was given up

    def on_start(self) -> None:
        life = self.__life
        try:
            life.begin(self.actor_ref)
            self.__inbox.trace = life.trace
            super().on_start()
            life.running()
        except BaseException as error:  # noqa: BLE001 - the starter raises it
            life.failed_to_start(error)

    def on_stop(self) -> None:
        reason = self.__inbox.stop_reason
        try:
            super().on_stop()
        except BaseException as error:  # noqa: BLE001
            self.__life.crashed(error)
            reason = error
        self.__life.end(reason)

    def on_failure(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            super().on_failure(kind, error, traceback)
        finally:  # Pykka has logged the crash, and will log one in here
            self.__life.end(error)

    def _handle_receive(self, message: Any) -> Any:
        if message is CLOSED:
            return self.__life.end(self.__inbox.reason)
        try:
            return super()._handle_receive(message)
        except Exception:
            raise
        except BaseException as error:
            self.__runtime.caught(error)
            raise Crashed(repr(error)) from error


@cache
def supervised(actor: type[Actor]) -> type[Actor]:
    """The class to start: a Server's own, or the supervised subclass of a plain actor's."""
    if getattr(actor, "is_server", False):
        return actor
    return type(
        actor.__name__, (Supervised, actor), {"__module__": actor.__module__, "__doc__": actor.__doc__}
    )
