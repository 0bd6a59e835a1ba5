"""Effects: the actions that QueueState decides on and its process carries out (actors/queue/process.py).

The process carries them out in order, after the call that left them has changed the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pykka import ActorRef

from warrenmq.backing_queue.delayed import DueMessage
from warrenmq.errors import Error, PreconditionFailed
from warrenmq.queue.messages import Deliveries, DeliveryChannel, Holder, Publisher
from warrenmq.queue.unconfirmed import Promise, Publication


@dataclass(slots=True)
class Deliver:
    """Hand messages to a consumer."""

    outlet: DeliveryChannel
    deliveries: Deliveries


@dataclass(slots=True)
class Settle:
    """Confirm these publications."""

    complete: Sequence[Publication]


@dataclass(slots=True)
class Refuse:
    """Fail the promise of a publish that was not taken in."""

    promise: Promise
    error: Error


@dataclass(slots=True)
class GrantCredit:
    """Let a publisher send more messages."""

    publisher: Publisher
    credit: int


@dataclass(slots=True)
class Reply:
    """Answer a call that waited."""

    sender: Any
    value: Any


@dataclass(slots=True)
class RefuseCall:
    """Refuse a call that waited."""

    sender: Any
    error: Exception


@dataclass(slots=True)
class DeadLetter:
    """Publish copies of messages to the dead-letter exchange; `stored` are encoded messages (message/stored.py)."""

    stored: list[bytes]
    reason: str


@dataclass(slots=True)
class Release:
    """Publish delayed messages to the queues that they go to now; an Answered follows."""

    messages: list[DueMessage]


@dataclass(slots=True)
class CastStore:
    """Send the writes and removes that were collected for both message stores."""


@dataclass(slots=True)
class AskForRoom:
    """Ask the virtual host to have other queues sleep: this one could not open its files for want of descriptors."""


@dataclass(slots=True)
class StartTimer:
    """Send `info` to the process after `seconds`; a running timer of the same class is cancelled."""

    seconds: float
    info: Any


@dataclass(slots=True)
class SendAfter:
    """Send `info` to the process after `seconds`, besides others of its class."""

    seconds: float
    info: Any


@dataclass(slots=True)
class CancelTimer:
    """Stop the timer whose message is of this class, if it runs."""

    kind: type


@dataclass(slots=True)
class Monitor:
    """Monitor a channel: its death gives back the messages that it holds."""

    channel: ActorRef[Any]


@dataclass(slots=True)
class Demonitor:
    """Demonitor a channel."""

    channel: ActorRef[Any]


@dataclass(slots=True)
class ResumeQueues:
    """Send Resume to these queues: the channel's limiter has room again."""

    queues: list[ActorRef[Any]]
    channel: ActorRef[Any]


@dataclass(slots=True)
class CancelLateConsumer:
    """Notify an embedded consumer that it was cancelled, because it acked too late."""

    holder: Holder
    error: PreconditionFailed


@dataclass(slots=True)
class ReportDuration:
    """Report to the memory monitor for how many seconds the messages in memory last."""

    seconds: float


@dataclass(slots=True)
class DeleteUnused:
    """Delete the queue: it was unused for longer than x-expires."""


@dataclass(slots=True)
class LastConsumerGone:
    """Delete an auto-delete queue."""


Effect: TypeAlias = (
    Deliver | Settle | Refuse | GrantCredit | Reply | RefuseCall | DeadLetter | Release | CastStore | AskForRoom | StartTimer | SendAfter | CancelTimer
    | Monitor | Demonitor | ResumeQueues | CancelLateConsumer | ReportDuration | DeleteUnused | LastConsumerGone
)  # fmt: skip
