"""ActorCalls: requests to the broker's actors by name, which wait while an actor is being restarted.

A request whose receiver died is sent to its successor if the receiver had not begun with it.  One that it died of, or
might have died of, is never sent again: that is a ProcessDied for the caller, who decides (docs/runtime.md, "Whose
error it is").
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pykka import ActorDeadError, ActorRef

from warrenmq.actors.vhost.messages import Wake
from warrenmq.actors.vhost.vhost import Vhost, queue_name
from warrenmq.errors import BrokerClosed, ProcessDied
from warrenmq.queue.asleep import NEEDS_PROCESS
from warrenmq.queue.messages import Consume, Get, GiveUp, Purge
from warrenmq.runtime import CallFailed, Channel, Runtime
from warrenmq.runtime.calls import From
from warrenmq.runtime.life import inbox_of
from warrenmq.supervisors.broker_sup import VHOST_PROCESS
from warrenmq.trace.recorder import ActorTrace

RESTART_TIMEOUT = 30.0
"""Seconds that a call waits for an actor that is being restarted."""
RESTART_POLL = 0.002
"""Seconds between looks for it."""
_OF_THE_OWNER = (Get, Consume, Purge)
"""Requests that only the owner of an exclusive queue may make of it."""


class ActorCalls:
    """The calls of one caller: the application's threads (client.py), or one channel of an AMQP client."""

    def __init__(
        self,
        runtime: Runtime,
        vhost: Vhost,
        check_open: Callable[[], None],
        trace: Callable[[], ActorTrace | None],
    ) -> None:
        """`check_open` raises when the broker is closed; `trace` is the caller's, asked for at each call."""
        self._runtime = runtime
        self._vhost = vhost
        self._check_open = check_open
        self._trace = trace

    def address(self, queue: str) -> ActorRef[Any]:
        """A queue's process, which is started if the queue sleeps; waits while it is being restarted.
        NotFound, BrokerClosed.
        """
        name = queue_name(queue)
        waited = 0.0
        while True:
            self.wake(queue)
            try:
                return self._runtime.whereis(name)
            except ActorDeadError:
                self._check_open()
                if self._vhost.record(queue) is None:
                    raise self._vhost.no_queue(queue) from None
            waited = self._wait(f"queue {queue!r}", waited)

    def wake(self, queue: str) -> bool:
        """Start the process of a queue that sleeps; False if it does not sleep."""
        if queue not in self._vhost.asleep:
            return False
        while True:
            # the virtual host is being restarted; to be woken twice is to be woken
            with suppress(ProcessDied):
                self.call_named(VHOST_PROCESS, Wake(queue))
                return True

    def call_queue(self, queue: str, request: Any) -> tuple[Any, Any]:
        """Call a queue's process, or its successor if it dies before it begins; raises what it refuses with, ProcessDied.

        Returns the answer and the process that gave it: None where the queue sleeps and the request only looks.
        """
        asked = self._runtime.monotonic_ns()
        while True:
            if (asleep := self._vhost.asleep.get(queue)) is not None:
                self._check_open()
                if (answer := asleep.answer(request)) is not NEEDS_PROCESS:
                    return answer, None
            ref = self.address(queue)
            try:
                return self.call_actor(ref, request), ref
            except ActorDeadError:
                self._check_open()
                if isinstance(request, Get):
                    before, asked = asked, self._runtime.monotonic_ns()
                    request.timeout = max(0.0, request.timeout - (asked - before) / 1e9)
                if inbox_of(ref).gives_back:
                    self._runtime.event().wait(RESTART_POLL)  # it is falling asleep

    def ask_queue(self, queue: str, request: Any, box: Channel) -> tuple[From, ActorRef[Any]] | None:
        """Send a request to a queue's process, which comes back as well and whose answer goes into `box`;
        None, and nothing was sent, where that may have to wait: the queue sleeps, or is being restarted.
        """
        self._check_open()
        if queue in self._vhost.asleep:
            return None
        try:
            ref = self._runtime.whereis(queue_name(queue))
        except ActorDeadError:
            return None
        return self._runtime.ask(ref, request, box, self._trace()), ref

    def give_up(self, queue: str, request: Get | Consume) -> None:
        """Have the queue take back what a request took whose caller was interrupted."""
        with suppress(ActorDeadError):  # then it took nothing
            self._runtime.cast(self._runtime.whereis(queue_name(queue)), GiveUp(request))

    def minds_consumers(self, queue: str, timeout: float) -> bool:  # noqa: ARG002  # a process of this one answers at once
        """True if a consumer that comes and goes makes a difference: an auto-delete queue goes with it, and
        one with a single active consumer has nothing for it.
        """
        record = self._vhost.existing_queue(queue)
        return record.auto_delete or bool(record.arguments.get("x-single-active-consumer"))

    def call_actor(self, ref: ActorRef[Any], request: Any) -> Any:
        """Call one actor; raises what it refuses with, ProcessDied, ActorDeadError when it ends before it begins."""
        self._check_open()
        try:
            return self._runtime.call(ref, request, None, self._trace())
        except CallFailed as failure:
            if failure.handling:
                raise process_died(request, failure) from failure
            raise

    def call_named(self, name: str, request: Any) -> Any:
        """Call an actor of the supervision tree; waits while it is being restarted."""
        waited = 0.0
        while True:
            self._check_open()
            try:
                return self.call_actor(self._runtime.whereis(name), request)
            except ActorDeadError:
                waited = self._wait(name, waited)

    def _wait(self, what: str, waited: float) -> float:
        if waited > RESTART_TIMEOUT:
            raise BrokerClosed(f"{what} did not come back within {RESTART_TIMEOUT:.0f} s; see the log")
        self._runtime.event().wait(RESTART_POLL)
        return waited + RESTART_POLL


class FaceCalls(ActorCalls):
    """The calls of the application's threads, to which the exclusive queues of connections, other processes
    among them, are locked.

    A channel looks after its own (amqp/channel/access.py).
    """

    def call_queue(self, queue: str, request: Any) -> tuple[Any, Any]:
        """See ActorCalls; ResourceLocked."""
        self._check_exclusive_access(queue, request)
        return super().call_queue(queue, request)

    def ask_queue(self, queue: str, request: Any, box: Channel) -> tuple[From, ActorRef[Any]] | None:
        """See ActorCalls; ResourceLocked."""
        self._check_exclusive_access(queue, request)
        return super().ask_queue(queue, request, box)

    def _check_exclusive_access(self, queue: str, request: Any) -> None:
        if queue in self._vhost.owners and isinstance(request, _OF_THE_OWNER):
            raise self._vhost.locked(queue)


def process_died(request: Any, failure: CallFailed) -> ProcessDied:
    """The error for a caller whose request an actor died of, or with."""
    why = failure.reason if isinstance(failure.reason, str) else type(failure.reason).__name__
    return ProcessDied(
        f"the process that was handling {type(request).__name__} died ({why}), so it may or may not have taken effect and "
        "was not repeated; see the log"
    )
