"""The event schema: every event that an actor can record, and the meaning of its columns.

A trace is rows of nine 64-bit integers (schema.py).  An actor numbers its rows from 1 without a gap (`seq`), so a reader can
prove that nothing is missing.

    t      hybrid logical clock, ns: strictly rising per actor, send < receive between actors
    seq    the actor's own number of this row
    msg    a message: the low 64 bits of its message id (unique in a data directory; read as signed); 0 = none
    peer   another actor's trace id; on a receive, the sender
    pseq   on a receive, the `seq` of the sender's SEND row
    a b c  as the event says
    who    actor << 16 | event << 8 | flag

Below is a class for each event, whose attributes name the columns that it uses.  An event may use peer and pseq for something
else, and put several values into one column.

A block of n messages published together has consecutive message ids and consecutive sequence ids; rows that
cover such a block carry its first message, its first sequence id and n.  All bodies of a block of one PUBLISH row are in
the store, or none is.  When one message leads to several receive rows, only the first names its SEND.

Rule for maintainers: a number once given is never reused; a change of meaning raises SCHEMA_VERSION.

`says` is the sentence of a row (sentences.py): {actor} wrote it, {name} is a column in words, {messages} the messages that it
covers; a part in [brackets] is left out when one of its columns holds nothing.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Self

from warrenmq.trace.schema import (
    ACTOR,
    CHECKSUM,
    CONSUMER,
    COUNT,
    EVENTS,
    FILE,
    LIMIT,
    LOWEST,
    MESSAGE_KIND,
    MILLISECONDS,
    OFFSET,
    ROW,
    SEGMENT,
    SEQ_ID,
    SIZE,
    SOME,
    SOME_BYTES,
    TAG,
    TEXT,
    WALL_CLOCK,
    YES_NO,
    Event,
    Row,
    T,
    When,
    in_a,
    in_b,
    in_c,
    in_flag,
    in_msg,
    in_peer,
    in_pseq,
)

SCHEMA_VERSION = 1
PRIORITY_SHIFT = 48
"""A sequence id's bits from here on are the priority, in queues that have any; within one ids count from 0."""


class Ev(IntEnum):
    """Event numbers (8 bits)."""

    # runtime: every actor
    ACTOR_START = 1
    ACTOR_STOP = 2
    SEND = 3
    RECV = 4
    UNDELIVERED = 5
    # supervisors
    CHILD_START = 10
    CHILD_EXIT = 11
    RESTART = 12
    ESCALATE = 13
    # queue process
    PUBLISH = 20
    QI_WRITE = 21
    QI_SYNC = 22
    CONFIRM = 23
    DELIVER = 24
    ACK = 25
    REQUEUE = 26
    DROP = 27
    QI_FLUSH = 28
    SEGMENT_DELETE = 29
    QUEUE_RECOVERED = 30
    RECOVERED = 31
    QUEUE_CLOSED = 32
    ON_DISK = 33
    PAGE_OUT = 34
    PAGE_IN = 35
    RAM_TARGET = 36
    EXPIRY = 37
    CONSUMER_ADDED = 38
    CONSUMER_GONE = 39
    # message store
    STORE_WRITE = 40
    APPEND = 41
    STORE_REMOVE = 42
    FILE_WRITE = 43
    FILE_SYNC = 44
    STORE_CONFIRM = 45
    ROLL = 46
    LOCK = 47
    UNLOCK = 48
    DEFER = 49
    READ = 50
    FILE_DELETE = 51
    FILE_STATE = 52
    STORE_RECOVERED = 53
    REF_RECOVERED = 54
    REF_DROPPED = 55
    STORE_CLOSED = 56
    # garbage collector
    GC_START = 60
    GC_MOVE = 61
    GC_DONE = 62
    COMPACT_START = 63
    COMPACT_MOVE = 64
    COMPACT_DONE = 65
    TRUNCATE = 66
    # queue process (its numbers above are all given)
    QUEUE_LIMITS = 100
    QUEUE_RESTS = 101
    QUEUE_DELETED = 102
    # the end of a queue process
    NACKED = 103
    # publishers and channels
    UNROUTED = 110
    CHANNEL_LIMIT = 111
    ROUTED = 112
    # vhost process
    EXCHANGE_DECLARED = 113
    EXCHANGE_DELETED = 114
    BOUND = 115
    UNBOUND = 116
    # alarms
    ALARM_SET = 80
    ALARM_CLEAR = 81
    # publishers and senders that wait
    ALARM_BLOCKED = 82
    ALARM_UNBLOCKED = 83
    CREDIT_BLOCKED = 90
    CREDIT_UNBLOCKED = 91
    # the broker's own rows (actor kind "broker")
    RUN_START = 70
    RUN_END = 71
    # applications, lessons, tests
    MARK = 72


class Worded(IntEnum):
    """Values of a column, each with its words in a sentence."""

    words: str

    def __new__(cls, value: int, words: str = "") -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.words = words
        return member


class WordedFlag(IntFlag):
    """Bits of a column, each with its words in a sentence."""

    words: str

    def __new__(cls, value: int, words: str = "") -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.words = words
        return member


class Trigger(Worded):
    """Cause of the write or sync of a buffer."""

    BUFFER_FULL = 1, "because the buffer was full"
    TIMER = 2, "because the sync timer fired"
    MAILBOX_EMPTY = 3, "because its mailbox was empty"
    ROLL_OVER = 4, "because the file was full"
    CLOSE = 5, "because it stops"
    READ = 6, "because it had to read what was in the buffer"
    JOURNAL_FLUSH = 7, "because the journal moves to segment files"


class Decision(Worded):
    """The store's decision on a write or a remove."""

    WRITE = 1, "to append a new record"
    """An APPEND row follows."""
    IGNORE = 2, "to ignore it"
    """Cancelled by the flying counter, or by a dying client."""
    CONFIRM = 3, "to count one reference more, since the record exists"
    REMOVE = 4, "to count one reference less"
    DEFER = 5, "to wait until the garbage collector returns the file"
    """Done when it comes back (a DEFER row precedes)."""


class Reason(Worded):
    """Reason for an actor's end."""

    NORMAL = 1, "normally"
    SHUTDOWN = 2, "because it was shut down"
    KILLED = 3, "because it was killed"
    CRASH = 4, "because it crashed"


class State(Worded):
    """The states of a ready message: where its body and its position are."""

    ALPHA = 1, "alpha (body and position in memory)"
    """Body and position are in memory, and on disk, too, if the message is persistent."""
    BETA = 2, "beta (body on disk, position in memory)"
    """The body is on disk, the position in memory; a small body is part of the position."""
    GAMMA = 3, "gamma (body on disk, position in memory and on disk)"
    DELTA = 4, "delta (both on disk only)"


class PublishFlag(WordedFlag):
    """Properties that a publish asks for, and where its body is."""

    PERSISTENT = 1, "persistent"
    """The message is persistent and the queue durable."""
    WANTS_CONFIRM = 2, "to be confirmed"
    IN_STORE = 4, "with the body in the store"
    """The body is in a message store; else it is embedded in the queue index."""


class ConfirmKind(Worded):
    """Kind of a confirm: after the sync, at once, or negative."""

    DURABLE = 1, "after the sync"
    """After the sync: body and index entry are on disk."""
    TRANSIENT = 2, "at once"
    """A transient message, or a queue that is not durable (RabbitMQ's rule)."""
    NACK = 3, "negatively (nack)"


class DeliverFlag(WordedFlag):
    """Circumstances of a delivery."""

    REDELIVERED = 1, "redelivered"
    NO_ACK = 2, "without acks"
    GET = 4, "by basic.get"


class Settle(Worded):
    """Way in which a requeue names messages; 0 = one delivery tag a message."""

    MULTIPLE = 1, "with all up to that tag"
    """The client settled everything up to its tag."""
    RETURNED = 2, "because the consumer left"
    """Of REQUEUE: the consumer left them untaken or unacked."""


class ConsumerFlag(WordedFlag):
    """Settings of a consumer."""

    NO_ACK = 2, "without acks"
    EXCLUSIVE = 8, "exclusively"
    LIMITED = 16, "within its channel's limit"
    """It shares a limit with all consumers of its channel (basic.qos with global=true), whether or not one is set."""


class ConsumerEnd(Worded):
    """Reason for a consumer's end."""

    CANCELLED = 1, "was cancelled"
    CHANNEL_ENDED = 2, "left with its channel"
    LAPSED = 3, "did not ack in time"
    """Not within consumer_timeout."""


class Overflow(Worded):
    """The overflow behaviour of a full queue."""

    DROP_HEAD = 1, "drops its oldest messages"
    REJECT = 2, "rejects publishes"
    REJECT_DLX = 3, "rejects publishes and dead-letters them"


class QosScope(Worded):
    """The consumers that a limit of basic.qos is for."""

    OF_CHANNEL = 1, "for all consumers of the channel together"
    OF_CONSUMERS_TO_COME = 2, "for each consumer added from now on"


class DropReason(Worded):
    """Reason for which messages left a queue unconsumed."""

    REJECTED = 1, "a client rejected them"
    PURGED = 2, "the queue was purged"
    DELETED = 3, "the queue was deleted"
    LOST = 4, "the store lost their bodies"
    """The store does not have the body any more: it was damaged."""
    EXPIRED = 5, "their time to live was over"
    MAXLEN = 6, "the queue was too long"
    """The queue was longer than max-length or max-length-bytes allow."""
    RELEASED = 7, "their delay was over"
    """Every queue that a delayed message went to has it safe."""
    DELIVERY_LIMIT = 8, "they came back too often"
    """More often than x-delivery-limit allows; a REQUEUE row precedes."""


class Recovery(Worded):
    """The end of the run before, as a recovery found it."""

    CLEAN = 1, "again after a clean stop"
    DIRTY = 2, "again after a crash"
    EMPTY = 3, "and found nothing of an earlier run"
    """The first start, or nothing was left; in traces of earlier versions this is DIRTY."""


class BodyReport(Worded):
    """The store's report on a body."""

    WRITTEN = 1, "is on disk"
    IGNORED = 2, "need not be written, since it was removed before"


class ReadFrom(Worded):
    """Place that a body was read from."""

    FROM_CACHE = 1, "from memory"
    DIRECT = 2, "from the file, by itself"
    BY_SERVER = 3, "from the file, for a queue"


class CreditEnd(Worded):
    """Reason for which an actor stopped waiting for credit."""

    GRANTED = 1, "which granted some"
    PEER_DOWN = 2, "which is down"
    GAVE_UP = 3, "and gave up"
    """The sender no longer waits, and has not sent."""


class Alarm(Worded):
    """The resource that runs short."""

    MEMORY = 1, "memory"
    DISK = 2, "disk space"


class RollReason(Worded):
    """Reason for which the store began a new file; 0 = FULL."""

    FULL = 1, "because it was full"
    FOR_LARGE = 2, "because a large message comes, which gets a file of its own"
    LARGE = 3, "because it holds a large message alone"
    GARBAGE = 4, "because no reader uses it and most of it is garbage"


class Deferred(Worded):
    """Operation that waits for a locked file."""

    READ = 1, "a read"
    REMOVE = 2, "a remove"


class ExchangeType(Worded):
    """The type of an exchange, which selects the bindings that a message follows."""

    DIRECT = 1, "direct"
    FANOUT = 2, "fanout"
    TOPIC = 3, "topic"
    HEADERS = 4, "headers"
    X_DELAYED_MESSAGE = 5, "delayed message"


class Bound(Worded):
    """The destination of a binding."""

    QUEUE = 1, "queue"
    EXCHANGE = 2, "exchange"


class Profile(Worded):
    """The version of RabbitMQ whose defaults the settings take."""

    CLASSIC = 1, "RabbitMQ 3.6 (classic)"
    MODERN = 2, "RabbitMQ 3.13 (modern)"


# The same as plain integers, for hot paths: `&` of an IntFlag takes a microsecond, and to look a member up takes as long as to pack a row.
PERSISTENT, WANTS_CONFIRM, IN_STORE = map(int, PublishFlag)
CONFIRM_DURABLE, CONFIRM_TRANSIENT, CONFIRM_NACK = map(int, ConfirmKind)
REDELIVERED, NO_ACK, GET = map(int, DeliverFlag)
MULTIPLE, RETURNED = map(int, Settle)
_, EXCLUSIVE, LIMITED = map(int, ConsumerFlag)
CONSUMER_CANCELLED, CHANNEL_ENDED, CONSUMER_LAPSED = map(int, ConsumerEnd)
OVERFLOW_DROP_HEAD, OVERFLOW_REJECT, OVERFLOW_REJECT_DLX = map(int, Overflow)
SINGLE_ACTIVE = 16
"""Beside an Overflow in the flag of QUEUE_LIMITS."""
OF_CHANNEL, OF_CONSUMERS_TO_COME = map(int, QosScope)
DROP_REJECTED, DROP_PURGED, DROP_DELETED, DROP_LOST, DROP_EXPIRED, DROP_MAXLEN = map(int, [*DropReason][:6])
DROP_RELEASED, DROP_DELIVERY_LIMIT = int(DropReason.RELEASED), int(DropReason.DELIVERY_LIMIT)
DEAD_LETTERED = 16
"""Beside a DropReason in the flag of DROP: a copy was sent to the dead-letter exchange (SEND rows precede)."""
CLEAN, DIRTY, EMPTY = map(int, Recovery)
WRITTEN, IGNORED = map(int, BodyReport)
FROM_CACHE, DIRECT, BY_SERVER = map(int, ReadFrom)
CREDIT_GRANTED, CREDIT_PEER_DOWN, CREDIT_GAVE_UP = map(int, CreditEnd)
ALARM_MEMORY, ALARM_DISK = map(int, Alarm)
ROLL_FULL, ROLL_FOR_LARGE, ROLL_LARGE, ROLL_GARBAGE = map(int, RollReason)
DEFER_READ, DEFER_REMOVE = map(int, Deferred)

_CHECKSUM_SHIFT, _CHECKSUM_BITS = 32, 16
_BODY_SHIFT, _BODY_BITS = 48, 15
MOST_BODY_SIZE = (1 << _BODY_BITS) - 1
"""The largest body size that PUBLISH tells."""
_WRITTEN_SHIFT, _WRITTEN_BITS = 32, 31
_MARK_BITS = 47
NOT_CHECKED = 15 << 6
"""Bits that the sequence ids of messages with a checksum do not have, nor the ids of messages whose records have one: 64 of 1,024, the first ones
among them.  A random number in each row would make a trace a tenth larger; a broker that mixes bodies up does so there, too.
"""
_CHECKED_TOGETHER = 64
"""The most messages of which a row has a checksum as often as a row of one: a row of 512 has one if its first id is among the first 512 of 8,192."""


def is_checked(first_seq_id: int, count: int) -> bool:
    """True if a row of these messages has a checksum, which a sixteenth of all messages are in, whether they come singly or in large batches."""
    if count > _CHECKED_TOGETHER:
        first_seq_id >>= (count - 1).bit_length() - (_CHECKED_TOGETHER - 1).bit_length()
    return not first_seq_id & NOT_CHECKED


_LOW = 4
"""Bits of a flag that hold a reason; above them is one more bit."""
_CONSUMER_SHIFT, _CONSUMER_BITS, _TAG_BITS = 32, 31, 32
"""A consumer and a delivery tag in one column; each is cut to its bits."""


# runtime: every actor


class ActorStart(Event[T], event=Ev.ACTOR_START, says="{actor} started[ (incarnation {incarnation})]"):
    """The actor's init has returned."""

    incarnation: T = in_a(COUNT, "incarnation of this name in this run, from 1; of an actor without a name 1")


class ActorStop(Event[T], event=Ev.ACTOR_STOP, says="{actor} ended[ {reason}]"):
    """The actor's last row."""

    reason: T = in_flag(Reason, "why it ended")


class Send(Event[T], event=Ev.SEND, says="{actor} sent {kind}[ to {receiver}][ with {message_ids}]"):
    """A message was put in a mailbox; that of a publish follows the ROUTED row that is in force."""

    kind: T = in_flag(MESSAGE_KIND, "message kind")
    message: T = in_msg("first message", default=0)
    receiver: T = in_peer(ACTOR, "receiver; 0 = not known yet", default=0)
    size: T = in_pseq(SIZE, "of a publish: bytes of the bodies in it; 0 = not said", default=0)
    first_seq_id: T = in_a(SEQ_ID, "first sequence id or 0", default=0)
    count: T = in_b(COUNT, "messages in it", default=0)
    queues: T = in_c(COUNT, "of a publish to how many queues it was routed; 0 = not said", default=0)


class Recv(Event[T], event=Ev.RECV, says="{actor} received {kind}[ from {sender}]"):
    """A message was taken from the mailbox."""

    kind: T = in_flag(MESSAGE_KIND, "message kind; 0 = not said")
    sender: T = in_peer(ACTOR, "sender")
    send: T = in_pseq(ROW, "its SEND")


class Undelivered(
    Event[T], event=Ev.UNDELIVERED, says="{actor} got {kind}[ of {sender}] back from a dead actor"
):
    """A message met a dead actor and came back to its sender."""

    kind: T = in_flag(MESSAGE_KIND, "message kind")
    send: T = in_pseq(ROW, "its SEND")
    sender: T = in_peer(ACTOR, "sender; 0 = the actor that writes this row", default=0)


# supervisors


class ChildStart(Event[T], event=Ev.CHILD_START, says="{actor} started its child {child}"):
    """A child runs."""

    child: T = in_peer(ACTOR, "child")


class ChildExit(Event[T], event=Ev.CHILD_EXIT, says="{child}, a child of {actor}, ended[ {reason}]"):
    """A child ended."""

    reason: T = in_flag(Reason, "why it ended")
    child: T = in_peer(ACTOR, "child")


class Restart(
    Event[T],
    event=Ev.RESTART,
    says="{actor} starts {child} again: restart {restarts} of at most {intensity} within {period_ms}",
):
    """A child is started again."""

    child: T = in_peer(ACTOR, "the dead child")
    restarts: T = in_a(COUNT, "restarts within the period, this one included")
    intensity: T = in_b(COUNT, "intensity: the most restarts there may be in a period")
    period_ms: T = in_c(MILLISECONDS, "period")


class Escalate(
    Event[T],
    event=Ev.ESCALATE,
    says="{actor} gave up: {restarts} restarts of {child} within {period_ms}, {intensity} are allowed",
):
    """The intensity was exceeded: the supervisor gives up."""

    child: T = in_peer(ACTOR, "the dead child")
    restarts: T = in_a(COUNT, "restarts within the period")
    intensity: T = in_b(COUNT, "intensity: the most restarts there may be in a period")
    period_ms: T = in_c(MILLISECONDS, "period")


# queue process


class Publish(
    Event[T],
    event=Ev.PUBLISH,
    says="{actor} took in {messages}[ from {publisher}][, {flags}][, bodies of {body_size} beside the index][; {message_ids}]",
):
    """Messages entered the queue; the row is also the receive of their SENDs when `send` is above 0.

    The checksum, here and of a delivery, is one more than the sum of what each message is stored with as its CRC-32, times one more than
    its sequence id, modulo 65,535: it tells when bodies are exchanged, and those of rows add up.  Rows whose first sequence id is among the first 64 of 1,024 have one,
    rows of more than 64 messages as large a part of them (is_checked).
    """

    flags: T = in_flag(PublishFlag, "what was asked for, and where the bodies are")
    message: T = in_msg("first message")
    publisher: T = in_peer(ACTOR, "publisher")
    send: T = in_pseq(ROW, "its SEND")
    first_seq_id: T = in_a(SEQ_ID, "first sequence id")
    count: T = in_b(COUNT, "how many messages")
    body_size: T = in_c(
        SOME_BYTES,
        f"bytes of a body, of several messages on average, where bodies are not in the store; 0 = not said, {MOST_BODY_SIZE:,} = so many or more",
        default=0,
        shift=_BODY_SHIFT,
        bits=_BODY_BITS,
    )
    checksum: T = in_c(
        CHECKSUM, "of the messages, see above", default=0, shift=_CHECKSUM_SHIFT, bits=_CHECKSUM_BITS
    )
    sends: T = in_c(
        COUNT,
        "how many SEND rows, from `send` on, this row is the receive of; 0 means 1",
        default=0,
        bits=_CHECKSUM_SHIFT,
    )


class QiWrite(
    Event[T],
    event=Ev.QI_WRITE,
    says="{actor} wrote {records} index records ({size})[, {published} of publishes][, {acked} of acks][, from message {first} on][, {trigger}]",
):
    """Index records were handed to the operating system.

    Of version 1 a publish has two records, and all that wait are written.  Of version 2 they are of one segment, that of `first`: all acks
    in it that wait, and all publishes, or none.  So from `first` on these are the first ones that were not written yet.
    """

    trigger: T = in_flag(Trigger, "why")
    size: T = in_a(SIZE, "bytes", bits=_WRITTEN_SHIFT)
    records: T = in_b(COUNT, "records", bits=_WRITTEN_SHIFT)
    offset_or_body_bytes: T = in_c(
        SIZE, "version 1: file offset of the first byte; version 2: bytes of these that are bodies"
    )
    first: T = in_pseq(
        LOWEST,
        "the lowest sequence id among them; not said if neither `published` nor `acked` is",
        default=0,
    )
    published: T = in_b(SOME, "publishes among them", default=0, shift=_WRITTEN_SHIFT, bits=_WRITTEN_BITS)
    acked: T = in_a(SOME, "acks among them", default=0, shift=_WRITTEN_SHIFT, bits=_WRITTEN_BITS)


class QiSync(
    Event[T], event=Ev.QI_SYNC, says="{actor} synced its index: {records} records ({size})[ {trigger}]"
):
    """The index is synced: everything written so far is on disk, or in the commit log (with durability=os: in the kernel)."""

    trigger: T = in_flag(Trigger, "why")
    size: T = in_a(SIZE, "bytes since the last sync")
    records: T = in_b(COUNT, "records since the last sync")


class Confirm(Event[T], event=Ev.CONFIRM, says="{actor} confirmed {messages}[ {kind}][ at {synced}]"):
    """The queue confirms messages to their publisher."""

    kind: T = in_flag(ConfirmKind, "when")
    message: T = in_msg("first message")
    first_seq_id: T = in_a(SEQ_ID, "first sequence id")
    count: T = in_b(COUNT, "how many messages")


class Deliver(
    Event[T],
    event=Ev.DELIVER,
    says="{actor} delivered {messages} to {consumer}[, {flags}], from delivery tag {delivery_tag} on",
):
    """Messages left for a consumer."""

    flags: T = in_flag(DeliverFlag, "how")
    consumer: T = in_peer(CONSUMER, "consumer")
    checksum: T = in_pseq(CHECKSUM, "of the messages, as PUBLISH says")
    first_seq_id: T = in_a(SEQ_ID, "first sequence id")
    count: T = in_b(COUNT, "how many messages")
    delivery_tag: T = in_c(TAG, "delivery tag of the first")


class Ack(
    Event[T],
    event=Ev.ACK,
    says="{actor} settled {messages}, acked[ by {acker}][ for {consumer}][ at delivery tag {delivery_tag}][ ({multiple})]",
):
    """The consumer is done with messages; the row is also a receive when `send` is above 0."""

    multiple: T = in_flag(YES_NO, "1 = the client acked everything up to its tag")
    acker: T = in_peer(ACTOR, "actor that acked")
    send: T = in_pseq(ROW, "its SEND")
    first_seq_id: T = in_a(SEQ_ID, "first sequence id")
    count: T = in_b(COUNT, "how many messages")
    consumer: T = in_c(
        CONSUMER, "consumer; 0 = not said", default=0, shift=_CONSUMER_SHIFT, bits=_CONSUMER_BITS
    )
    delivery_tag: T = in_c(
        TAG,
        "delivery tag that the client named; without MULTIPLE that of the first message, and one more for each that follows",
        default=0,
        bits=_TAG_BITS,
    )


class Requeue(
    Event[T],
    event=Ev.REQUEUE,
    says="{actor} requeued {messages}[ of {consumer}][ at delivery tag {delivery_tag}][ {cause}]",
):
    """Unacked messages went back to their old positions."""

    cause: T = in_flag(Settle, "MULTIPLE, RETURNED, or 0")
    first_seq_id: T = in_a(SEQ_ID, "first sequence id")
    count: T = in_b(COUNT, "how many messages")
    consumer: T = in_c(
        CONSUMER, "consumer; 0 = not said", default=0, shift=_CONSUMER_SHIFT, bits=_CONSUMER_BITS
    )
    delivery_tag: T = in_c(
        TAG,
        "delivery tag that the client named; 0 where a consumer that is gone gives back",
        default=0,
        bits=_TAG_BITS,
    )


class Drop(
    Event[T],
    event=Ev.DROP,
    says="{actor} dropped {messages}: {reason}[; {dead_lettered}][, {consumer}][, at delivery tag {delivery_tag}][ ({multiple})]",
):
    """Messages left the queue unconsumed."""

    reason: T = in_flag(DropReason, "why", bits=_LOW)
    first_seq_id: T = in_a(SEQ_ID, "first sequence id")
    count: T = in_b(COUNT, "how many messages")
    dead_lettered: T = in_flag(
        YES_NO,
        "1 = a copy was sent to the dead-letter exchange (SEND rows precede)",
        default=0,
        shift=_LOW,
        bits=1,
        when=When(
            "reason",
            (DropReason.REJECTED, DropReason.EXPIRED, DropReason.MAXLEN, DropReason.DELIVERY_LIMIT),
        ),
    )
    multiple: T = in_pseq(YES_NO, "REJECTED: 1 = the client rejected everything up to its tag", default=0)
    expired_at: T = in_c(
        WALL_CLOCK,
        "the queue's wall clock",
        default=0,
        when=When("reason", (DropReason.EXPIRED, DropReason.RELEASED)),
    )
    consumer: T = in_c(
        CONSUMER,
        "consumer; 0 = not said",
        default=0,
        shift=_CONSUMER_SHIFT,
        bits=_CONSUMER_BITS,
        when=When("reason", (DropReason.REJECTED,)),
    )
    delivery_tag: T = in_c(
        TAG,
        "delivery tag that the client named; 0 = not said",
        default=0,
        bits=_TAG_BITS,
        when=When("reason", (DropReason.REJECTED,)),
    )


class ConsumerAdded(
    Event[T],
    event=Ev.CONSUMER_ADDED,
    says="{actor} has a new {consumer}[ of {channel}][, {flags}]: prefetch count {prefetch}, priority {priority}",
):
    """Messages are pushed to a consumer from now on."""

    flags: T = in_flag(ConsumerFlag, "how it consumes")
    consumer: T = in_peer(CONSUMER, "consumer")
    channel: T = in_pseq(ACTOR, "its channel; 0 = it is the application's")
    prefetch: T = in_a(COUNT, "prefetch count, 0 = no limit")
    priority: T = in_b(COUNT, "priority")


class ConsumerGone(
    Event[T], event=Ev.CONSUMER_GONE, says="{actor} lost {consumer}, which {reason} and held {held} messages"
):
    """A consumer was cancelled, or did not ack in time, or its channel has ended (of getters, too, that hold messages); REQUEUE
    rows follow of what it gives back.
    """

    reason: T = in_flag(ConsumerEnd, "why")
    consumer: T = in_peer(CONSUMER, "consumer")
    last_tag: T = in_a(
        LIMIT, "the last delivery tag that was taken, later ones go back; -1 = a cancelled one keeps all"
    )
    held: T = in_b(COUNT, "messages that it held unacked")


class QueueLimits(
    Event[T],
    event=Ev.QUEUE_LIMITS,
    says="{actor}, when full, {overflow}[; at most {max_length} messages][; at most {max_length_bytes} bytes]"
    "[; {single_active}]",
):
    """A queue that has limits, or a single active consumer, is up."""

    overflow: T = in_flag(Overflow, "what it does when it is full", bits=_LOW)
    max_length: T = in_a(LIMIT, "max-length, -1 = none")
    max_length_bytes: T = in_b(LIMIT, "max-length-bytes, -1 = none")
    single_active: T = in_flag(YES_NO, "1 = one consumer at a time is active", default=0, shift=_LOW, bits=1)


class QueueRests(
    Event[T],
    event=Ev.QUEUE_RESTS,
    says="{actor} has nothing to do: {ready} messages are ready, {with_room} of {consumers} consumers have room",
):
    """The mailbox is empty, everything was delivered that could be, and messages are ready; written at most once a
    second, but always when `with_room` is above 0.
    """

    ready: T = in_a(COUNT, "ready messages")
    with_room: T = in_b(COUNT, "consumers and waiting gets that have room")
    consumers: T = in_c(COUNT, "consumers")


class QueueDeleted(Event[T], event=Ev.QUEUE_DELETED, says="{actor} is deleted from here on"):
    """The queue's deletion is about to be written: from here on nothing of it has to be there after a restart.

    Written before the disk is asked, so that a deletion which is cut off has this row in any case.
    """


class Nacks(Event[T], event=Ev.NACKED, says="{actor} nacked {count} messages of {queue}; {message_ids}"):
    """Publishers were told that a queue process has ended before it confirmed their messages.

    Whoever finds the process dead writes it, as an actor of the queue's, before the supervisor hears of the end.
    """

    message: T = in_msg("first message")
    queue: T = in_peer(ACTOR, "the queue process that has ended")
    count: T = in_b(COUNT, "how many messages")


class Unrouted(
    Event[T],
    event=Ev.UNROUTED,
    says="{actor} published {count} messages that no queue is bound for[, to exchange {exchange}][ with key {routing_key}]",
):
    """A publish was routed to no queue."""

    count: T = in_b(COUNT, "messages in it")
    exchange: T = in_a(TEXT, "exchange; 0 = not said", default=0)
    routing_key: T = in_c(TEXT, "routing key; 0 = not said", default=0)


class Routed(
    Event[T],
    event=Ev.ROUTED,
    says="{actor} publishes to exchange {exchange}[ with key {routing_key}] from here on",
):
    """The exchange and the routing key of an actor's publishes from here on, until its next such row.

    Written when they change, or the number of queues does: an actor that has no such row publishes through the default exchange,
    straight to queues, and of that the keys are not said.  The receivers of the SENDs are the queues that were chosen.
    """

    since: T = in_pseq(
        COUNT,
        "the first time for an exchange: t of the actor's row before, after which queues were chosen; else 0",
    )
    exchange: T = in_a(TEXT, "exchange; an empty text is the default exchange, 0 = not said")
    queues: T = in_b(COUNT, "how many queues the exchange chose; 0 = not said")
    routing_key: T = in_c(TEXT, "routing key, the first of several; 0 = not said")


class ChannelLimit(
    Event[T], event=Ev.CHANNEL_LIMIT, says="{actor} has a prefetch count of {prefetch} {scope}"
):
    """basic.qos was called."""

    scope: T = in_flag(QosScope, "for which consumers")
    prefetch: T = in_a(COUNT, "prefetch count, 0 = no limit")


class Expiry(Event[T], event=Ev.EXPIRY, says="{actor} lets {messages} expire at {expires_at}"):
    """Messages that were just published have a time to live."""

    first_seq_id: T = in_a(SEQ_ID, "first sequence id")
    count: T = in_b(COUNT, "how many messages")
    expires_at: T = in_c(WALL_CLOCK, "when they expire")


class QiFlush(
    Event[T],
    event=Ev.QI_FLUSH,
    says="{actor} moved journal entries to {segments} segment files ({size})[; {restarted}]",
):
    """Journal entries moved to segment files."""

    segments: T = in_a(COUNT, "segments", default=0)
    size: T = in_b(SIZE, "bytes", default=0)
    restarted: T = in_c(YES_NO, "1 = the journal was restarted", default=0)


class SegmentDelete(Event[T], event=Ev.SEGMENT_DELETE, says="{actor} deleted index segment {segment}"):
    """A segment with no unacked message was deleted."""

    segment: T = in_a(SEGMENT, "segment")


class QueueRecovered(
    Event[T],
    event=Ev.QUEUE_RECOVERED,
    says="{actor} is up {recovery}: {messages} messages, {dropped} dropped",
):
    """The queue is up."""

    recovery: T = in_flag(Recovery, "how the run before ended")
    messages: T = in_a(COUNT, "messages")
    next_seq_id: T = in_b(SEQ_ID, "next sequence id")
    dropped: T = in_c(COUNT, "messages dropped because they were transient or not in the store")


class Recovered(
    Event[T], event=Ev.RECOVERED, says="{actor} found {messages} at its recovery[; {message_ids}]"
):
    """Messages were found at recovery: one row a run of consecutive sequence ids, and of consecutive message ids where they are known."""

    first_seq_id: T = in_a(SEQ_ID, "first sequence id")
    count: T = in_b(COUNT, "how many messages")
    message: T = in_msg(
        "first message; 0 = not said: only of a body in a store, and of none in traces of earlier versions",
        default=0,
    )


class QueueClosed(Event[T], event=Ev.QUEUE_CLOSED, says="{actor} stopped cleanly with {messages} messages"):
    """A clean stop; everything is on disk."""

    messages: T = in_a(COUNT, "messages, unacked ones included")
    next_seq_id: T = in_b(SEQ_ID, "next sequence id")


class OnDisk(
    Event[T], event=Ev.ON_DISK, says="{actor} heard from the store that the body of {message} {report}"
):
    """The store reported to the queue that a body is safe."""

    report: T = in_flag(BodyReport, "what the store reports")
    message: T = in_msg("the message")


class PageOut(Event[T], event=Ev.PAGE_OUT, says="{actor} paged {messages} out, from {before} to {state}"):
    """Messages, ready or unacked, gave up memory."""

    state: T = in_flag(State, "BETA, GAMMA or DELTA")
    first_seq_id: T = in_a(SEQ_ID, "first sequence id")
    count: T = in_b(COUNT, "how many messages")
    before: T = in_c(State, "the state before")


class PageIn(Event[T], event=Ev.PAGE_IN, says="{actor} paged {messages} in, from {before} to {state}"):
    """Messages came back to memory."""

    state: T = in_flag(State, "ALPHA or GAMMA")
    first_seq_id: T = in_a(SEQ_ID, "first sequence id")
    count: T = in_b(COUNT, "how many messages")
    before: T = in_c(State, "the state before")


class RamTarget(
    Event[T],
    event=Ev.RAM_TARGET,
    says="{actor} has {ram_messages} messages ({ram_bytes}) in memory[ and may have {target}]",
):
    """The memory monitor set how long what is in memory may last."""

    target: T = in_a(LIMIT, "how many messages that is; -1 = as many as there are")
    ram_messages: T = in_b(COUNT, "ram_msg_count")
    ram_bytes: T = in_c(SIZE, "ram_bytes")


# exchanges and bindings


class ExchangeDeclared(
    Event[T],
    event=Ev.EXCHANGE_DECLARED,
    says="{actor} has the {type} exchange {exchange}[, with the alternate exchange {alternate}]",
):
    """An exchange is there: it was declared, or it was recovered.

    The default exchange and those whose names begin with "amq." are always there, and have no such row.
    """

    type: T = in_flag(ExchangeType, "its type")
    exchange: T = in_a(TEXT, "its name")
    alternate: T = in_c(TEXT, "its alternate exchange; 0 = none", default=0)


class ExchangeDeleted(Event[T], event=Ev.EXCHANGE_DELETED, says="{actor} deleted exchange {exchange}"):
    """An exchange is gone, and all bindings from it and to it are (an UNBOUND row each precedes)."""

    exchange: T = in_a(TEXT, "its name")


class BindingMade(
    Event[T],
    event=Ev.BOUND,
    says="{actor} bound {to} {destination} to exchange {exchange}[ with key {routing_key}]",
):
    """A binding is there: it was made, or it was recovered."""

    to: T = in_flag(Bound, "what the destination is")
    exchange: T = in_a(TEXT, "the exchange that messages come from")
    destination: T = in_b(TEXT, "the queue or exchange that they go to")
    routing_key: T = in_c(TEXT, "routing key")


class BindingGone(
    Event[T],
    event=Ev.UNBOUND,
    says="{actor} unbound {to} {destination} from exchange {exchange}[ with key {routing_key}]",
):
    """A binding is gone."""

    to: T = in_flag(Bound, "what the destination is")
    exchange: T = in_a(TEXT, "the exchange that messages came from")
    destination: T = in_b(TEXT, "the queue or exchange that they went to")
    routing_key: T = in_c(TEXT, "routing key")


# message store


class StoreWrite(
    Event[T],
    event=Ev.STORE_WRITE,
    says="{actor} took a write of {message} by {client} and decided {decision}; references: {references}",
):
    """A write was handled."""

    decision: T = in_flag(Decision, "what the store did")
    message: T = in_msg("the message")
    client: T = in_peer(ACTOR, "client (queue)")
    file: T = in_pseq(FILE, "file of the record that existed, or 0")
    flying: T = in_a(COUNT, "flying counter seen; 0 if there was none")
    references: T = in_b(COUNT, "references afterwards")
    was_flying: T = in_c(YES_NO, "1 = a flying entry existed")


class Append(
    Event[T], event=Ev.APPEND, says="{actor} appended {message} to file {file} at {offset} ({size})"
):
    """A record was appended to the write buffer."""

    message: T = in_msg("the message")
    checksum: T = in_pseq(
        CHECKSUM,
        "one more than the CRC-32 that the body is stored with, modulo 65,535, if the message id is among the first 64 of 1,024",
    )
    file: T = in_a(FILE, "file")
    offset: T = in_b(OFFSET, "offset")
    size: T = in_c(SIZE, "bytes, framing included")


class StoreRemove(
    Event[T],
    event=Ev.STORE_REMOVE,
    says="{actor} took a remove of {message} by {client} and decided {decision}; references: {references}",
):
    """A remove was handled."""

    decision: T = in_flag(Decision, "what the store did")
    message: T = in_msg("the message")
    client: T = in_peer(ACTOR, "client (queue)")
    file: T = in_pseq(FILE, "file of the record or 0")
    flying: T = in_a(COUNT, "flying counter seen; 0 if there was none")
    references: T = in_b(COUNT, "references afterwards")
    was_flying: T = in_c(YES_NO, "1 = a flying entry existed")


class FileWrite(
    Event[T], event=Ev.FILE_WRITE, says="{actor} wrote {size} to file {file} at {offset}[ {trigger}]"
):
    """The write buffer was handed to the operating system."""

    trigger: T = in_flag(Trigger, "why")
    file: T = in_a(FILE, "file")
    offset: T = in_b(OFFSET, "offset")
    size: T = in_c(SIZE, "bytes")


class FileSync(
    Event[T], event=Ev.FILE_SYNC, says="{actor} synced file {file} up to {synced_to} ({size})[ {trigger}]"
):
    """The current file is safe up to here: on disk, or in the commit log (with durability=os: in the kernel)."""

    trigger: T = in_flag(Trigger, "why")
    file: T = in_a(FILE, "file")
    synced_to: T = in_b(OFFSET, "bytes of the file that are safe")
    size: T = in_c(SIZE, "bytes since the last sync")


class StoreConfirm(
    Event[T], event=Ev.STORE_CONFIRM, says="{actor} reports to {client} that the body of {message} {report}"
):
    """The store reports to its client that a body is safe."""

    report: T = in_flag(BodyReport, "what it reports")
    message: T = in_msg("the message")
    client: T = in_peer(ACTOR, "client (queue)")


class Roll(
    Event[T],
    event=Ev.ROLL,
    says="{actor} left file {old_file} ({old_size})[ {reason}] and opened file {new_file}",
):
    """The current file was left and the next one opened."""

    reason: T = in_flag(RollReason, "why; 0 = FULL")
    new_file: T = in_a(FILE, "new file")
    old_file: T = in_b(FILE, "old file")
    old_size: T = in_c(SIZE, "bytes of the old file")


class Lock(Event[T], event=Ev.LOCK, says="{actor} gave file {file} to the garbage collector"):
    """A file goes to the garbage collector."""

    file: T = in_a(FILE, "file")


class Unlock(Event[T], event=Ev.UNLOCK, says="{actor} got file {file} back from the garbage collector"):
    """A file came back from the garbage collector."""

    file: T = in_a(FILE, "file")


class Defer(
    Event[T], event=Ev.DEFER, says="{actor} puts off {operation} of {message} until file {file} is unlocked"
):
    """An operation on a locked file waits."""

    operation: T = in_flag(Deferred, "which operation")
    message: T = in_msg("the message")
    file: T = in_a(FILE, "file")


class Read(
    Event[T],
    event=Ev.READ,
    says="{actor} read the body of {message} {source} (file {file}, {size} at {offset})",
):
    """A body was read."""

    source: T = in_flag(ReadFrom, "where from")
    message: T = in_msg("the message")
    store: T = in_peer(ACTOR, "of a DIRECT read: the store; else 0")
    checksum: T = in_pseq(CHECKSUM, "of what was read, as APPEND says", shift=_MARK_BITS, bits=_CHECKSUM_BITS)
    mark: T = in_pseq(
        COUNT,
        "of a DIRECT read of a file that is compacted in place: the reader's mark; marks rise with each read that begins",
        bits=_MARK_BITS,
    )
    file: T = in_a(FILE, "file")
    offset: T = in_b(OFFSET, "offset")
    size: T = in_c(SIZE, "bytes")


class FileDelete(Event[T], event=Ev.FILE_DELETE, says="{actor} deleted file {file} ({size})"):
    """A file with no valid data was deleted."""

    file: T = in_a(FILE, "file")
    size: T = in_b(SIZE, "bytes")


class FileState(
    Event[T],
    event=Ev.FILE_STATE,
    says="{actor} has file {file}: {valid_total_size} of {file_size} are live records",
):
    """A file's row of the summary, written after recovery, after each combine and truncation, and at the end."""

    file: T = in_a(FILE, "file")
    valid_total_size: T = in_b(SIZE, "valid_total_size")
    file_size: T = in_c(SIZE, "file_size")


class StoreRecovered(
    Event[T],
    event=Ev.STORE_RECOVERED,
    says="{actor} is up {recovery}: {messages} messages in {files} files; damaged records: {damaged}",
):
    """The store is up."""

    recovery: T = in_flag(Recovery, "how the run before ended")
    messages: T = in_a(COUNT, "messages")
    files: T = in_b(COUNT, "files")
    damaged: T = in_c(COUNT, "records set aside as damaged")


class RefRecovered(
    Event[T],
    event=Ev.REF_RECOVERED,
    says="{actor} found {message} with {references} references in file {file} at {offset} ({size})",
):
    """A record was found at recovery."""

    message: T = in_msg("the message")
    references: T = in_pseq(COUNT, "references")
    file: T = in_a(FILE, "file")
    offset: T = in_b(OFFSET, "offset")
    size: T = in_c(SIZE, "bytes")


class RefDropped(
    Event[T],
    event=Ev.REF_DROPPED,
    says="{actor} dropped a dead client's reference to {message}; references: {references}",
):
    """A reference that a dead client held was dropped."""

    message: T = in_msg("the message")
    client: T = in_peer(ACTOR, "client of the same owner that is there now")
    file: T = in_pseq(FILE, "file")
    references: T = in_b(COUNT, "references afterwards")


class StoreClosed(
    Event[T],
    event=Ev.STORE_CLOSED,
    says="{actor} stopped cleanly with {messages} messages, {references} references and {files} files",
):
    """A clean stop of a persistent store; FILE_STATE rows of every file precede."""

    messages: T = in_a(COUNT, "messages")
    references: T = in_b(COUNT, "references")
    files: T = in_c(COUNT, "files")


# garbage collector


class GcStart(
    Event[T],
    event=Ev.GC_START,
    says="{actor} combines file {source} into file {destination}: {valid_size} of live records",
):
    """A combine begins."""

    destination: T = in_a(FILE, "destination (left)")
    source: T = in_b(FILE, "source (right), the same when it is combined alone")
    valid_size: T = in_c(SIZE, "valid bytes of both")


class GcMove(Event[T], event=Ev.GC_MOVE, says="{actor} moved {message} to file {file} at {offset} ({size})"):
    """A record got a new place."""

    message: T = in_msg("the message")
    file: T = in_a(FILE, "file")
    offset: T = in_b(OFFSET, "offset")
    size: T = in_c(SIZE, "bytes")


class GcDone(
    Event[T],
    event=Ev.GC_DONE,
    says="{actor} has combined file {source} into file {destination} and reclaimed {reclaimed}",
):
    """A combine ended and is on disk."""

    destination: T = in_a(FILE, "destination")
    source: T = in_b(FILE, "source, the same when it was combined alone")
    reclaimed: T = in_c(SIZE, "bytes reclaimed")


class CompactStart(
    Event[T],
    event=Ev.COMPACT_START,
    says="{actor} compacts file {file} in place: {valid_size} of live records, the last ends at {end}",
):
    """A compaction in place begins."""

    file: T = in_a(FILE, "file")
    valid_size: T = in_b(SIZE, "valid bytes")
    end: T = in_c(OFFSET, "where its last record ends")


class CompactMove(
    Event[T],
    event=Ev.COMPACT_MOVE,
    says="{actor} copied {message} within file {file} from {old_offset} to {new_offset} ({size})",
):
    """A record was copied into a hole of its file."""

    message: T = in_msg("the message")
    file: T = in_a(FILE, "file")
    old_offset: T = in_pseq(OFFSET, "its old offset")
    new_offset: T = in_b(OFFSET, "its new offset")
    size: T = in_c(SIZE, "bytes")


class CompactDone(
    Event[T],
    event=Ev.COMPACT_DONE,
    says="{actor} has compacted file {file}: {copied} copied, it will be cut to {new_size}",
):
    """The copies are on disk."""

    file: T = in_a(FILE, "file")
    new_size: T = in_b(SIZE, "where the file will be cut")
    copied: T = in_c(SIZE, "bytes copied")


class Truncate(Event[T], event=Ev.TRUNCATE, says="{actor} cut file {file} to {new_size}, by {size}"):
    """A compacted file was cut; no reader can use old places any more."""

    file: T = in_a(FILE, "file")
    new_size: T = in_b(SIZE, "its new size")
    size: T = in_c(SIZE, "bytes that were cut off")
    mark: T = in_pseq(COUNT, "mark of the youngest reader that could know an old place")


# alarms and flow control


class AlarmSet(
    Event[T],
    event=Ev.ALARM_SET,
    says="{actor} blocks publishers: {alarm} is short ({measured}, limit {limit})",
):
    """Publishers are blocked."""

    alarm: T = in_flag(Alarm, "what runs short")
    measured: T = in_a(SIZE, "bytes of memory in use, or free on the disk")
    limit: T = in_b(SIZE, "limit")


class AlarmClear(
    Event[T], event=Ev.ALARM_CLEAR, says="{actor} has enough {alarm} again ({measured}, limit {limit})"
):
    """Publishers go on, if the other alarm is not set."""

    alarm: T = in_flag(Alarm, "what ran short")
    measured: T = in_a(SIZE, "bytes of memory in use, or free on the disk")
    limit: T = in_b(SIZE, "limit")


class AlarmBlocked(Event[T], event=Ev.ALARM_BLOCKED, says="{actor} waits for the alarms to clear"):
    """A publisher (thread, coroutine or connection) waits until no alarm is set."""


class AlarmUnblocked(
    Event[T], event=Ev.ALARM_UNBLOCKED, says="{actor} waits no longer for the alarms to clear"
):
    """A publisher that an alarm had blocked goes on, or has given up."""


class CreditBlocked(Event[T], event=Ev.CREDIT_BLOCKED, says="{actor} waits for credit from {granter}"):
    """The actor has no credit left towards a peer, and waits: a thread stands still, a channel's connection is not read, a queue
    grants its publishers nothing.
    """

    granter: T = in_peer(ACTOR, "the peer that grants credit")


class CreditUnblocked(
    Event[T], event=Ev.CREDIT_UNBLOCKED, says="{actor} waits no longer for credit from {granter}[, {reason}]"
):
    """The actor no longer waits for that peer's credit."""

    reason: T = in_flag(CreditEnd, "why")
    granter: T = in_peer(ACTOR, "the peer that grants credit")


# the broker's own rows (actor kind "broker")


class RunStart(
    Event[T],
    event=Ev.RUN_START,
    says="{actor} opened its data directory for boot {boot}[ with the defaults of {profile}]",
):
    """A broker opened the data directory."""

    profile: T = in_flag(Profile, "the profile of its settings; 0 = not said")
    write_buffer: T = in_pseq(SIZE, "msg_store_write_buffer, 0 = not said")
    boot: T = in_a(COUNT, "boot number of the directory")
    fsync: T = in_b(YES_NO, "1 = fsync, 0 = os", bits=1)
    entries_v1: T = in_b(COUNT, "entries of an index segment of version 1, 0 = not said", shift=1, bits=15)
    entries_v2: T = in_b(COUNT, "entries of an index segment of version 2, 0 = not said", shift=16, bits=21)
    embed_below: T = in_b(
        SIZE, "smaller bodies are embedded in the index (where `entries_v1` is said)", shift=37, bits=21
    )
    file_size_limit: T = in_c(SIZE, "msg_store_file_size_limit")


class RunEnd(Event[T], event=Ev.RUN_END, says="{actor} closed its data directory after boot {boot}"):
    """A clean end of the run."""

    boot: T = in_a(COUNT, "boot number")


# marks


class Mark(Event[T], event=Ev.MARK, says="{actor} marks: {text}"):
    """A named place in the run, set by an application (`Broker.mark`), a test, or a lesson."""

    text: T = in_a(TEXT, "the name; 0 = one of more names than a trace holds")


COVERS_SEQ_IDS = frozenset(
    number for number, event in EVENTS.items() if event.has("first_seq_id") and number != Ev.SEND
)
"""Events of messages with consecutive sequence ids of the queue that writes the row."""
OF_CONSUMERS = frozenset(
    number
    for number, event in EVENTS.items()
    if any((each.place, each.type) == ("peer", CONSUMER) for each in event.columns)
)
"""Events whose `peer` is a consumer's number, not an actor's."""


# Column groups that several events share, for readers of rows of any event.

_SPAN = {number: EVENTS[number].getter("first_seq_id", "count") for number in COVERS_SEQ_IDS}
_MESSAGES = {
    number: event.getter("message", "count")
    for number, event in EVENTS.items()
    if event.has("message") and event.has("count")
}
_RECEIPT = {
    int(Ev.RECV): Recv.getter("sender", "send"),
    int(Ev.ACK): Ack.getter("acker", "send"),
    int(Ev.UNDELIVERED): Undelivered.getter("sender", "send"),
}
_receipt_of_several = Publish.getter("publisher", "send", "sends")
_NOTHING = range(0)


def seq_ids_of(row: Row) -> range:
    """The sequence ids of the messages that a row of a queue covers."""
    get = _SPAN.get(row.event)
    if get is None:
        return _NOTHING
    first, count = get(row)
    return range(first, first + count)


def message_ids_of(row: Row) -> range:
    """The message ids that a row names; of an event of a later version, the first."""
    get = _MESSAGES.get(row.event)
    first, count = (row.msg, 1) if get is None else get(row)
    return range(first, first + max(count, 1)) if first else _NOTHING


def sends_of(row: Row) -> tuple[int, range]:
    """The SENDs that a row is the receive of: (sender, their numbers)."""
    event, sends = row.event, 1
    if event == Ev.PUBLISH:
        sender, send, sends = _receipt_of_several(row)
    elif event in _RECEIPT:
        sender, send = _RECEIPT[event](row)
    else:
        return 0, _NOTHING
    return sender or row.actor, range(send, send + max(sends, 1)) if send > 0 else _NOTHING
