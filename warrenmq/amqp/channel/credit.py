"""Credit of one channel towards the queues it publishes to (credit_flow, as rabbit_channel uses it).

A channel never waits for credit: it sends all that it was handed.  Where that exceeds a queue's credit, it notifies its
connection, which stops reading the socket until each such queue has granted more or is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pykka import ActorRef

from warrenmq.actors.sending.message_sender import Flow
from warrenmq.runtime import Runtime
from warrenmq.trace.events import (
    CREDIT_GAVE_UP,
    CREDIT_GRANTED,
    CREDIT_PEER_DOWN,
    CreditBlocked,
    CreditUnblocked,
)
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_blocked, _write_unblocked = writer(CreditBlocked), writer(CreditUnblocked)


class ChannelFlow(Flow):
    """A Flow that notifies its channel when credit runs out and when it is granted again."""

    __slots__ = ("_credit", "exhausted")

    def __init__(self, runtime: Runtime, ref: ActorRef[Any], initial: int, credit: ChannelCredit) -> None:
        super().__init__(runtime, ref, initial)
        self._credit = credit
        self.exhausted = False
        """The channel is blocked by this flow."""

    def spend(self, count: int, size: int) -> None:
        """Use up credit, which may go negative."""
        super().spend(count, size)
        if not self.exhausted and self.credit <= 0:
            self._credit.ran_out(self)

    def bump(self, credit: int) -> None:
        """The queue handled messages; called in its thread."""
        # Granted first, looked for a waiting channel second; the channel waits first, looks second.
        super().bump(credit)
        if self.exhausted:
            self._credit.tell(CreditGranted(self))


@dataclass(slots=True)
class CreditGranted:
    """Queue -> channel: the flow that had no credit has some, or its queue is gone."""

    flow: ChannelFlow


def _nobody(_message: object) -> None:
    """The callback of a channel that has ended: does nothing."""


class ChannelCredit:
    """The exhausted flows of a channel.  `bump` is called by queues and casts to the channel; the rest runs
    in the channel.
    """

    def __init__(self, tell: Callable[[CreditGranted], object], blocked: Callable[[bool], object],
                 trace: ActorTrace | None) -> None:  # fmt: skip
        """`blocked` is called with True when credit runs out and with False when there is credit again;
        `trace` is the channel's.
        """
        self.tell = tell
        self._blocked = blocked
        self._trace = trace
        self._exhausted: dict[ChannelFlow, int] = {}
        """Flow -> the key of the monitor of its queue."""

    def flow(self, runtime: Runtime, ref: ActorRef[Any], initial: int) -> ChannelFlow:
        """The flow to one incarnation of a queue process."""
        return ChannelFlow(runtime, ref, initial, self)

    def ran_out(self, flow: ChannelFlow) -> None:
        """Block the channel on this flow."""
        if not self._exhausted:
            self._blocked(True)
        flow.exhausted = True
        self._exhausted[flow] = flow.inbox.on_close(lambda _reason: self.tell(CreditGranted(flow)))
        if self._trace is not None:
            _write_blocked(self._trace, flow.inbox.trace_id)
        self.granted(flow)

    def granted(self, flow: ChannelFlow) -> None:
        """Unblock by a flow that has credit again or whose queue is gone."""
        if flow in self._exhausted and (flow.credit > 0 or not flow.ref.is_alive()):
            flow.exhausted = False
            flow.inbox.forget(self._exhausted.pop(flow))
            self._tell_unblocked(flow, CREDIT_GRANTED if flow.credit > 0 else CREDIT_PEER_DOWN)
            if not self._exhausted:
                self._blocked(False)

    def end(self) -> None:
        """The channel ends: remove all monitors."""
        for flow, key in self._exhausted.items():
            flow.inbox.forget(key)
            self._tell_unblocked(flow, CREDIT_GAVE_UP)
        self._exhausted.clear()
        self.tell = self._blocked = (
            _nobody  # messages of ours may wait long in a queue's mailbox, and hold flows
        )

    def _tell_unblocked(self, flow: ChannelFlow, why: int) -> None:
        if self._trace is not None:
            _write_unblocked(self._trace, why, flow.inbox.trace_id)
