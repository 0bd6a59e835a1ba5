"""What a queue's state wants done: it sends nothing itself, its process does (actors/queue/process.py).

Effects are carried out in order, after the call that left them has changed the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykka import ActorRef

    from warrenmq.errors import Error, PreconditionFailed
    from warrenmq.queue.messages import Deliveries, Holder, Outlet, Publisher
    from warrenmq.queue.unconfirmed import Promise, Publication


@dataclass(slots=True)
class Deliver:
    """Hand messages to a consumer."""

    outlet: Outlet
    deliveries: Deliveries


@dataclass(slots=True)
class Settle:
    """Confirm these publications: they are safe, or need not be."""

    complete: Sequence[Publication]


@dataclass(slots=True)
class Refuse:
    """Tell a publisher that its message was not taken in."""

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
class DeadLetter:
    """Publish copies of messages to the dead-letter exchange; `stored` are encoded messages (message/stored.py)."""

    stored: list[bytes]
    reason: str


@dataclass(slots=True)
class CastStore:
    """Send to both message stores what was collected for them."""


@dataclass(slots=True)
class StartTimer:
    """Have `info` come after `seconds`; a running timer of the same class is cancelled."""

    seconds: float
    info: Any


@dataclass(slots=True)
class SendAfter:
    """Have `info` come after `seconds`, besides others of its class."""

    seconds: float
    info: Any


@dataclass(slots=True)
class CancelTimer:
    """Stop the timer whose message is of this class, if it runs."""

    kind: type


@dataclass(slots=True)
class Monitor:
    """Watch a channel: its death gives back what it holds."""

    channel: ActorRef[Any]


@dataclass(slots=True)
class Demonitor:
    """Stop watching a channel."""

    channel: ActorRef[Any]


@dataclass(slots=True)
class ResumeQueues:
    """Tell these queues that the channel's limiter has room again."""

    queues: list[ActorRef[Any]]
    channel: ActorRef[Any]


@dataclass(slots=True)
class Lapse:
    """Tell an embedded consumer that it was cancelled, because it acked too late."""

    holder: Holder
    error: PreconditionFailed


@dataclass(slots=True)
class ReportDuration:
    """Report to the memory monitor for how many seconds the messages in memory last."""

    seconds: float


@dataclass(slots=True)
class DeleteUnused:
    """Have the queue deleted: it was unused for longer than x-expires."""


@dataclass(slots=True)
class LastConsumerGone:
    """Have an auto-delete queue deleted."""


Effect: TypeAlias = (
    Deliver | Settle | Refuse | GrantCredit | Reply | DeadLetter | CastStore | StartTimer | SendAfter | CancelTimer
    | Monitor | Demonitor | ResumeQueues | Lapse | ReportDuration | DeleteUnused | LastConsumerGone
)  # fmt: skip
