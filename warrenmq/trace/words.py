"""The words of a trace: the numbers of its events, and the values that a column of an event may have."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Self


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
    LONGEST = 5, "because the system lets it grow no further"


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


# The same as plain integers, for hot paths: `&` of an IntFlag takes a microsecond, and to look a member up
# takes as long as to pack a row.
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
ROLL_FULL, ROLL_FOR_LARGE, ROLL_LARGE, ROLL_GARBAGE, ROLL_LONGEST = map(int, RollReason)
DEFER_READ, DEFER_REMOVE = map(int, Deferred)
