"""What can arrive at a queue, and what it answers: every cast, call and timer, with its sender."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from warrenmq.errors import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykka import ActorRef

    from warrenmq.backing_queue.parts import QueueMemory
    from warrenmq.message.queue_message import Fetched, Publication
    from warrenmq.queue.limiter import Limiter
    from warrenmq.queue.unconfirmed import Promise


DELETED = "the queue was deleted before the message was safe"
"""Why a message is nacked; to a channel it is a confirm, as in RabbitMQ: it cannot be lost any more."""
ENDED = "the queue process ended before the message was safe; publish it again"


class Waiting(Protocol):
    """Where the answer to a Get goes (runtime/calls.py, From)."""

    def begin(self) -> None:
        """From here on the request may have an effect: it is not to be repeated."""

    def park(self) -> None:
        """The request waits, and has had no effect."""


class Outlet(Protocol):
    """Where a consumer's deliveries go: an AMQP channel, or the application's end of an embedded consumer."""

    def put(self, item: object, /) -> None: ...


class Publisher:
    """The sender of a Publish, to whom the queue grants credit (actors/sending/message_sender.py, Flow)."""

    def bump(self, credit: int) -> None:
        """May send `credit` more messages to the queue; called in the queue's thread."""
        raise NotImplementedError


@dataclass(slots=True)
class Publish:
    """Publisher -> queue: messages that share all but their bodies.

    There are more of these than of anything else, so they carry the sender's part of the trace themselves, where
    other messages are wrapped in Traced.
    """

    publication: Publication
    confirm: Promise
    publisher: Publisher
    sender: int = 0
    """The sender's trace id, ..."""
    sent_seq: int = 0
    """... the row of the SEND, ..."""
    sent_t: int = 0
    """... and its time; all 0 when untraced."""


@dataclass(slots=True)
class Ack:
    """Consumer -> queue: this delivery, or all up to it, is done with."""

    consumer: int
    tag: int
    multiple: bool


@dataclass(slots=True)
class Acks:
    """Consumer -> queue: these deliveries are done with, in the order in which they were delivered.

    What a client acks one by one, but in one go, costs the queue one message.
    """

    consumer: int
    tags: list[int]


@dataclass(slots=True)
class Reject:
    """Consumer -> queue: nack or reject.  Priority 0: it must not overtake (974789eb3c)."""

    consumer: int
    tag: int
    multiple: bool
    requeue: bool


@dataclass(slots=True)
class Taken:
    """Consumer -> queue: so many deliveries were taken, by the application or by the client's socket (notify_sent).

    A channel sends it for every delivery sooner or later, for those to a cancelled consumer, too; getters never do.
    """

    consumer: int
    count: int


@dataclass(slots=True)
class Resume:
    """Limiter -> queue: this channel, which refused a delivery, has room again."""

    channel: ActorRef[Any]


@dataclass(slots=True)
class MsgsOnDisk:
    """Store -> queue: bodies are safe, or will never be needed (`ignored`)."""

    msg_ids: list[bytes]
    reason: str


class Holder(Protocol):
    """An embedded consumer's end in the application; both methods are called in the queue's thread."""

    def handed_out(self) -> int:
        """The largest delivery tag that the application was handed."""

    def lapsed(self, error: PreconditionFailed) -> None:
        """Its deliveries went back to the queue, and it was cancelled: raise this error."""


class AckDeadline(NamedTuple):
    """How long a delivery may wait for its ack (consumer_timeout), and how often to look (ack_timeout.py); in seconds."""

    seconds: float
    look_every: float
    holder: Holder | None = None
    """None for a getter: each message counts for itself."""


@dataclass(slots=True)
class Consume:
    """Call: have messages sent to `outlet`, up to `prefetch` unacked ones (0 = no limit).

    Refused with AccessRefused where exclusiveness forbids it.
    """

    consumer: int
    """Unique in the broker, and never used twice: a client that reuses its consumer tag is a new consumer."""
    outlet: Outlet
    prefetch: int
    no_ack: bool
    exclusive: bool
    channel: ActorRef[Any] | None = None
    """Whose death gives back what this consumer holds; the queue monitors it.  None for the embedded face."""
    consumer_tag: str = ""
    priority: int = 0
    """Higher ones are served first (x-priority)."""
    limiter: Limiter | None = None
    """The channel's, one for all its consumers, whether or not a limit is set."""
    arguments: Mapping[str, Any] | None = None
    """As the client gave them, for ListConsumers."""
    ack_deadline: AckDeadline | None = None
    """None where a channel sees to it, or acks may take for ever."""


@dataclass(slots=True)
class Cancel:
    """Call or cast: no more deliveries; those that were made may still be acked."""

    consumer: int
    handed_out: int | None = None
    """Of an embedded consumer, which has no channel to wait in: deliveries with larger tags were never seen and go back,
    those too that were on their way to it."""


@dataclass(slots=True)
class Get:
    """Call: one message (Got), or None after `timeout` seconds (0 = at once); no limit holds it back.

    A getter keeps one id for all its gets of a queue; it does not count as a consumer.
    """

    consumer: int
    no_ack: bool
    timeout: float
    channel: ActorRef[Any] | None = None
    """As in Consume."""
    ack_deadline: AckDeadline | None = None
    """As in Consume."""


@dataclass(slots=True)
class Got:
    """The reply to a Get."""

    tag: int
    message: Fetched
    ready: int
    """Messages that are left (message-count of basic.get-ok)."""


@dataclass(slots=True)
class ChannelClosed:
    """Call, by a channel that closes: answered when everything that it held unacked here is back in the queue and
    its consumers are gone (notify_down).  For a channel that dies the queue finds out by itself.
    """

    channel: ActorRef[Any]


@dataclass(slots=True)
class Purge:
    """Call: drop every ready message; the reply is how many."""


@dataclass(slots=True)
class Delete:
    """Call: check the conditions, `commit` and go; the reply is how many ready messages went along."""

    if_unused: bool
    if_empty: bool
    commit: Callable[[], None]

    def check(self, queue: str, vhost: str, consumers: int, ready: int) -> None:
        """PreconditionFailed unless the conditions hold (AMQP's 406)."""
        if self.if_empty and ready:
            msg = f"queue {queue!r} is not empty: it has {ready} ready messages"
            raise PreconditionFailed(msg, reply_text=f"queue '{queue}' in vhost '{vhost}' not empty")
        if self.if_unused and consumers:
            msg = f"queue {queue!r} is in use: it has consumers"
            raise PreconditionFailed(msg, reply_text=f"queue '{queue}' in vhost '{vhost}' in use")


@dataclass(slots=True)
class Drain:
    """Call: answered when no publisher waits for a confirm."""


@dataclass(slots=True)
class Info:
    """Call: the reply is a QueueInfo, in which all is counted that the same sender sent before."""


@dataclass(slots=True)
class ListConsumers:
    """Call: the reply is a list of ConsumerInfo, oldest first."""


@dataclass(slots=True, frozen=True)
class ConsumerInfo:
    """A consumer that messages are pushed to (rabbit_amqqueue:consumers)."""

    channel: ActorRef[Any] | None
    consumer_tag: str
    ack_required: bool
    prefetch: int
    exclusive: bool
    priority: int
    active: bool
    """False for one that waits behind a single active consumer."""
    arguments: Mapping[str, Any]


@dataclass(slots=True)
class Stat:
    """Call or cast, for a declare of a queue that is there: the reply is a Declared.  It is a use of the queue (x-expires)."""


class Declared(NamedTuple):
    """The figures of queue.declare-ok."""

    ready: int
    consumers: int


@dataclass(slots=True)
class GoAhead:
    """Vhost -> queue: all is recovered, bindings, too; what has expired or is too much may go (the barrier's `go`)."""


@dataclass(slots=True, frozen=True)
class QueueInfo:
    """What a queue knows of itself."""

    ready: int
    unacked: int
    consumers: int
    """Those that messages are pushed to (consumer-count of queue.declare-ok)."""
    memory: QueueMemory
    unconfirmed: bool
    next_seq_id: int
    """What the next message gets."""
    damaged: int
    """Messages that were found damaged and set aside, at recovery or later."""


@dataclass(slots=True)
class Deliveries:
    """Queue -> consumer's outlet: messages with consecutive tags from `first_tag`."""

    first_tag: int
    messages: list[Fetched]


@dataclass(slots=True)
class SyncTimeout:
    """Info, from a timer of its own: confirms have waited long enough."""


@dataclass(slots=True)
class Idle:
    """Info: acks have waited long enough for a sync, or the disk was full a while ago."""


@dataclass(slots=True)
class DropExpired:
    """Info: the time of the message at the front is over."""


@dataclass(slots=True)
class MaybeExpire:
    """Info: the queue may have been unused for too long."""


@dataclass(slots=True)
class GoOn:
    """Info: a journal flush has more to do."""


@dataclass(slots=True)
class SetRamDurationTarget:
    """Memory monitor -> queue: keep no more in memory than lasts so many seconds."""

    duration: float


@dataclass(slots=True)
class UpdateRamDuration:
    """Info: it is time to report to the memory monitor how long what is in memory lasts."""


@dataclass(slots=True)
class BumpReduceMemoryUse:
    """Info: there is more to page out than was allowed at once."""


@dataclass(slots=True)
class GetTimeout:
    """Info: a Get has waited long enough."""

    sender: Waiting


@dataclass(slots=True)
class LookAtDrain:
    """Info: a Drain has not been answered for a while."""


@dataclass(slots=True)
class CheckAcks:
    """Info: time to look for deliveries that have waited too long for their acks."""
