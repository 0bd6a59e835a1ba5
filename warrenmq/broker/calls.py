"""How the face and AMQP's channels reach the actors: they find them, and wait while they are being restarted.

A request whose receiver died is sent to its successor if the receiver had not begun with it.  One that it died of, or might
have died of, is never sent again: that is a ProcessDied for the caller, who decides (docs/runtime.md#whose-error-it-is).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError

from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.errors import BrokerClosed, ProcessDied
from warrenmq.runtime import CallFailed

if TYPE_CHECKING:
    from pykka import ActorRef

    from warrenmq.actors.vhost.vhost import Vhost
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
        """Call a queue's process, or its successor if it dies before it begins; raises what it refuses with, ProcessDied.

        Returns the answer and who gave it.
        """
        while True:
            ref = self.address(queue)
            try:
                return self.call_actor(ref, request), ref
            except ActorDeadError:
                self.check_open()

    def call_actor(self, ref: ActorRef[Any], request: Any) -> Any:
        """Call one actor; raises what it refuses with, ProcessDied, ActorDeadError when it ends before it begins."""
        self.check_open()
        try:
            return self.runtime.call(ref, request, None, self.trace())
        except CallFailed as failure:
            if failure.handling:
                raise process_died(request, failure) from failure
            raise

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


def process_died(request: Any, failure: CallFailed) -> ProcessDied:
    """What the caller of a request is told that its receiver died of, or with."""
    why = failure.reason if isinstance(failure.reason, str) else type(failure.reason).__name__
    return ProcessDied(
        f"the process that was handling {type(request).__name__} died ({why}), so it may or may not have taken effect and "
        "was not repeated; see the log"
    )
