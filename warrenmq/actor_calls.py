"""How the face reaches the actors: finds them, waits while they are being restarted, raises what they refuse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError

from warrenmq.actors.queue_messages import Refused
from warrenmq.actors.vhost import queue_name
from warrenmq.errors import BrokerClosed

if TYPE_CHECKING:
    from pykka import ActorRef

    from warrenmq.actors.vhost import Vhost
    from warrenmq.runtime import Runtime
    from warrenmq.trace.recorder import ActorTrace

RESTART_PATIENCE = 30.0
"""Seconds that a call waits for a queue process that is being restarted."""
RESTART_LOOK = 0.002
"""Seconds between looks for it."""


class ActorCalls(ABC):
    """The part of a Broker that calls actors."""

    runtime: Runtime
    vhost: Vhost
    """The tables of the virtual host."""

    @abstractmethod
    def check_open(self) -> None:
        """Raise BrokerClosed, with the reason, unless it is open."""

    @abstractmethod
    def trace(self) -> ActorTrace | None:
        """The calling thread's trace: an application thread is a client in the trace."""

    def address(self, queue: str) -> ActorRef[Any]:
        """A queue's process; waits while it is being restarted.  NotFound, BrokerClosed."""
        name = queue_name(queue)
        waited = 0.0
        while True:
            try:
                return self.runtime.whereis(name)
            except ActorDeadError:
                self.check_open()
                self.vhost.existing_queue(queue)
                if waited > RESTART_PATIENCE:
                    msg = f"queue {queue!r} did not come back within {RESTART_PATIENCE:.0f} s; see the log"
                    raise BrokerClosed(msg) from None
            self.runtime.event().wait(RESTART_LOOK)
            waited += RESTART_LOOK

    def call_queue(self, queue: str, request: Any) -> tuple[Any, ActorRef[Any]]:
        """Call a queue's process, and its successor if it dies before it answers; raise what it refuses.

        Returns the answer and who gave it.  For requests that may be asked twice.
        """
        while True:
            ref = self.address(queue)
            try:
                return self.call_actor(ref, request), ref
            except ActorDeadError:
                self.check_open()

    def call_actor(self, ref: ActorRef[Any], request: Any) -> Any:
        """Call one actor and raise what it refuses; ActorDeadError when it ends before it answers."""
        self.check_open()
        reply = self.runtime.call(ref, request, None, self.trace())
        if isinstance(reply, Refused):
            raise reply.error
        return reply

    def call_named(self, name: str, request: Any) -> Any:
        """Call an actor of the tree; waits while it is being restarted."""
        waited = 0.0
        while True:
            self.check_open()
            try:
                return self.call_actor(self.runtime.whereis(name), request)
            except ActorDeadError:
                if waited > RESTART_PATIENCE:
                    msg = f"{name} did not come back within {RESTART_PATIENCE:.0f} s; see the log"
                    raise BrokerClosed(msg) from None
            self.runtime.event().wait(RESTART_LOOK)
            waited += RESTART_LOOK
