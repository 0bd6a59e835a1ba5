"""The messages of a queue process: every cast, call and timer that it receives, with its sender, and its replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from pykka import ActorRef

from warrenmq.backing_queue.parts import QueueMemory
from warrenmq.errors import PreconditionFailed
from warrenmq.message.queue_message import Fetched, Publication
from warrenmq.queue.arguments import QueueArguments
from warrenmq.queue.limiter import Limiter
from warrenmq.queue.unconfirmed import Promise

DELETED = "the queue was deleted before the message was safe"
"""Reason of a nack; a channel sends a confirm for it, as RabbitMQ does: a message of a deleted queue cannot be lost."""
ENDED = "the queue process ended before the message was safe; publish it again"


class Waiting(Protocol):
    """The caller of a Get (runtime/calls.py, From)."""

    def begin(self) -> None:
        """The request may have had an effect from here on: the caller must not repeat it."""

    def park(self) -> None:
        """The request waits, and has had no effect yet."""


class DeliveryChannel(Protocol):
    """The receiver of a consumer's deliveries: an AMQP channel, or the application's end of an embedded consumer."""

    def put(self, item: object, /) -> None: ...


class Publisher:
    """The sender of a Publish, to whom the queue grants credit (actors/sending/message_sender.py, Flow)."""

    __slots__ = ("uncredited",)

    def __init__(self) -> None:
        self.uncredited = 0
        """Messages that the queue took in since it granted credit; the queue's own count."""

    def bump(self, credit: int) -> None:
        """Grant credit for `credit` more messages to the queue; called in the queue's thread."""
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
    sends: int = 1
    """SEND rows, the first of which is `sent_seq`: one for each message of a publish that was collected from many."""

    def one_by_one(self) -> Iterator[Publish]:
        """Itself, or the publishes that it was collected from."""
        if self.sends == 1:
            yield self
            return
        for i, promise in enumerate(self.confirm.parts(self.sends)):
            yield Publish(
                self.publication.one(i), promise, self.publisher, self.sender, self.sent_seq and self.sent_seq + i,
                self.sent_t,
            )  # fmt: skip


@dataclass(slots=True)
class Ack:
    """Consumer -> queue: ack this delivery."""

    multiple: ClassVar[bool] = False

    consumer: int
    tag: int


@dataclass(slots=True)
class AckUpTo(Ack):
    """Consumer -> queue: ack this delivery and all up to it.  Priority 0: what it settles depends on the
    rejects before it, which it must not overtake.
    """

    multiple: ClassVar[bool] = True


@dataclass(slots=True)
class Acks:
    """Consumer -> queue: ack these deliveries, in the order in which they were delivered.

    Single acks that a client sends together cost the queue one message.
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
    """Consumer -> queue: the application or the client's socket took `count` deliveries (notify_sent).

    A channel sends it for every delivery sooner or later, for those to a cancelled consumer, too; getters never do.
    """

    consumer: int
    count: int


@dataclass(slots=True)
class Resume:
    """Limiter -> queue: this channel, whose limiter refused a delivery, has room again."""

    channel: ActorRef[Any]


@dataclass(slots=True)
class MsgsOnDisk:
    """Store -> queue: bodies are on disk (`written`), or will never be needed (`ignored`), or cannot be
    written under a limit of the system (`too long`: these and all others).
    """

    msg_ids: list[bytes]
    reason: str


@dataclass(slots=True)
class Answered:
    """Queues -> queue of delayed messages: there are answers to released messages (actors/queue/release.py)."""


class Holder(Protocol):
    """An embedded consumer's end in the application; both methods are called in the queue's thread."""

    def handed_out(self) -> int:
        """The largest delivery tag that the application was handed."""

    def lapsed(self, error: PreconditionFailed) -> None:
        """Note that the consumer was cancelled and its deliveries requeued: reading raises this error."""


class AckDeadline(NamedTuple):
    """The time that a delivery may wait for its ack (consumer_timeout), and the interval of checks
    (ack_timeout.py); in seconds.
    """

    seconds: float
    look_every: float
    holder: Holder | None = None
    """None for a getter: each message counts for itself."""


@dataclass(slots=True)
class Consume:
    """Call: send messages to `outlet`, up to `prefetch` unacked ones (0 = no limit).

    Refused with AccessRefused where exclusiveness forbids it.
    """

    consumer: int
    """Unique in the broker, and never used twice: a client that reuses its consumer tag is a new consumer."""
    outlet: DeliveryChannel
    prefetch: int
    no_ack: bool
    exclusive: bool
    channel: ActorRef[Any] | None = None
    """The consumer's channel, which the queue monitors: its death gives back what the consumer holds.  None
    for the embedded face.
    """
    consumer_tag: str = ""
    priority: int = 0
    """Higher ones are served first (x-priority)."""
    limiter: Limiter | None = None
    """The channel's, one for all its consumers, whether or not a limit is set."""
    arguments: Mapping[str, Any] | None = None
    """The consumer's arguments as the client gave them, for ListConsumers."""
    ack_deadline: AckDeadline | None = None
    """None for a channel's consumers, whose deadline the channel keeps, and without consumer_timeout."""
    timeout: float | None = None
    """Seconds that the caller waits for an owner that is another process; None = any."""
    undo: Callable[[], object] | None = None
    """As in Get."""


@dataclass(slots=True)
class Cancel:
    """Call or cast: stop deliveries; those that were made may still be acked."""

    consumer: int
    handed_out: int | None = None
    """The last tag that the application of an embedded consumer saw: deliveries with larger tags go back, also those on
    their way to it."""


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
    taken: int | None = None
    """Set by the queue: the sequence id of the message with which it answered."""
    undo: Callable[[], object] | None = None
    """Set where the owner is another process: takes back what the request took, as GiveUp does."""


@dataclass(slots=True)
class GiveUp:
    """Cast, by a caller that an exception interrupted while it waited: it will not see the answer, and what
    the request took goes back.

    With `no_ack` a message that was taken is gone.
    """

    request: Get | Consume


@dataclass(slots=True)
class Got:
    """The reply to a Get."""

    tag: int
    message: Fetched
    ready: int
    """Ready messages that remain (message-count of basic.get-ok)."""


@dataclass(slots=True)
class ChannelClosed:
    """Call, by a channel that closes: answered when everything that it held unacked here is back in the queue and
    its consumers are removed (notify_down).  The queue monitors channels, for those that die.
    """

    channel: ActorRef[Any]


@dataclass(slots=True)
class Purge:
    """Call: drop every ready message; the reply is how many."""


@dataclass(slots=True)
class Delete:
    """Call: check the conditions, `commit` and end; the reply is how many ready messages were deleted, too."""

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
    """Call: answered when no publisher waits for a confirm; False if the disk is full, so that some wait on."""


@dataclass(slots=True)
class Info:
    """Call: the reply is a QueueInfo, which counts everything that the same sender sent before."""


@dataclass(slots=True)
class CountBytes:
    """Call: count the bytes of bodies from now on, which QueueFigures tells; there is no reply but None."""


@dataclass(slots=True)
class Peek:
    """Call: the reply is a list of Fetched, the first `most` ready messages, which stay where they are."""

    most: int


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
    """Call or cast, for a declare of a queue that is there: the reply is a Declared.  It is a use of the
    queue (x-expires).
    """


class Declared(NamedTuple):
    """The figures of queue.declare-ok."""

    ready: int
    consumers: int


@dataclass(slots=True)
class NewArguments:
    """Vhost -> queue: a policy was changed, and these are the queue's arguments now."""

    arguments: QueueArguments


@dataclass(slots=True)
class Forward:
    """Queue -> vhost: start the process of a queue that sleeps, publish this to it, and send `publisher` a Forwarded."""

    queue: str
    publication: Publication
    promise: Promise
    publisher: ActorRef[Any]


@dataclass(slots=True)
class Forwarded:
    """Vhost -> queue: what it had published to this queue is in its mailbox, or was refused."""

    queue: str


@dataclass(slots=True)
class VhostRecovered:
    """Vhost -> queue: all is recovered, bindings, too; expired and surplus messages may be dropped now (the
    barrier's `go`).
    """


@dataclass(slots=True, frozen=True)
class QueueInfo:
    """The figures of a queue."""

    ready: int
    unacked: int
    consumers: int
    """The number of consumers that messages are pushed to (consumer-count of queue.declare-ok)."""
    memory: QueueMemory
    unconfirmed: bool
    next_seq_id: int
    """The sequence id of the next message."""
    damaged: int
    """Messages that were found damaged and set aside, at recovery or later."""
    next_seq_ids: Sequence[int] = ()
    """The sequence ids of the next message of each priority, from 0, within it; none of a queue without
    priorities, or that sleeps.
    """


class QueueFigures(NamedTuple):
    """The figures of a queue that any thread may read while the queue works: each is right, though not all of one moment."""

    ready: int
    unacked: int
    consumers: int
    ready_bytes: int | None
    """Bytes of the ready bodies; None while neither a limit nor CountBytes has asked for them to be counted."""
    published: int
    """Messages that came since the queue was opened."""
    delivered: tuple[int, ...]
    """Messages that went since then: to consumers with acks and without, to gets with acks and without."""
    acked: int
    unacked_bytes: int
    """Bytes of the bodies that wait for an ack, if those of ready ones are counted."""
    memory: int
    """Bytes that its messages take in memory, as the queue reckons them for its own bound."""


@dataclass(slots=True)
class Deliveries:
    """Queue -> consumer's outlet: messages with consecutive tags from `first_tag`."""

    first_tag: int
    messages: list[Fetched]


@dataclass(slots=True)
class SyncTimeout:
    """Info, from a timer of its own: confirms have waited for the sync interval."""


@dataclass(slots=True)
class Idle:
    """Info: acks have waited for a sync long enough, or it is time to try a full disk again."""


@dataclass(slots=True)
class DropExpired:
    """Info: the message at the front has expired."""


@dataclass(slots=True)
class MaybeExpire:
    """Info: the queue may have been unused for longer than x-expires."""


@dataclass(slots=True)
class DeliverAgain:
    """Info: there was no memory or descriptor to read what is to be delivered; as before every message, it is tried again."""


@dataclass(slots=True)
class ContinueFlush:
    """Info: a journal flush has more to do."""


@dataclass(slots=True)
class SetRamDurationTarget:
    """Memory monitor -> queue: keep no more messages in memory than last `duration` seconds."""

    duration: float


@dataclass(slots=True)
class UpdateRamDuration:
    """Info: report to the memory monitor how long the messages in memory last."""


@dataclass(slots=True)
class BumpReduceMemoryUse:
    """Info: page out more messages than one step may."""


@dataclass(slots=True)
class GetTimeout:
    """Info: the timeout of a Get."""

    sender: Waiting


@dataclass(slots=True)
class CheckDrain:
    """Info: check whether a waiting Drain can be answered."""


@dataclass(slots=True)
class LookIdle:
    """Info: time to look whether the queue was used since the last look, or may sleep."""


@dataclass(slots=True)
class MakeRoom:
    """Descriptors are short.  Vhost -> queue, a call: sleep now if nobody needs the process; answered (False)
    only if it goes on.

    Queue -> vhost, a cast: have others sleep.
    """


@dataclass(slots=True)
class CheckAcks:
    """Info: check for deliveries that have waited too long for their acks."""
