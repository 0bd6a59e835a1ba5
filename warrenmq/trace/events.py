"""The event schema: what an actor can say of itself, and what the columns mean.

A trace is rows of nine 64-bit integers.  Who wrote a row is its actor; an actor numbers its rows from 1
without a gap (`seq`), so a reader can prove that nothing is missing.

    t      hybrid logical clock, ns: strictly rising per actor, send < receive between actors
    seq    the actor's own number of this row
    msg    a message: the low 64 bits of its message id (unique in a data directory; read as signed); 0 = none
    peer   another actor's trace id; on a receive, the sender; of the events of OF_CONSUMERS a consumer's number
    pseq   on a receive, the `seq` of the sender's SEND row; elsewhere as the event says
    a b c  as the event says
    who    actor << 16 | event << 8 | flag

A block of n messages published together has consecutive message ids and consecutive sequence ids; rows that
cover such a block carry its first message, its first sequence id and n.  All bodies of a block of one PUBLISH row are in
the store, or none is.  When one message leads to several receive rows, only the first names its SEND.

Rule for maintainers: a number once given is never reused; a change of meaning raises SCHEMA_VERSION.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from warrenmq.trace.settled import SETTLED

SCHEMA_VERSION = 1
PRIORITY_SHIFT = 48
"""A sequence id's bits from here on are the priority, in queues that have any; within one ids count from 0."""
COLUMNS = ("t", "seq", "msg", "peer", "pseq", "a", "b", "c", "who")


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
    # queue process, what its numbers above leave no room for
    QUEUE_LIMITS = 100
    QUEUE_RESTS = 101
    # who publishes, and channels
    UNROUTED = 110
    CHANNEL_LIMIT = 111
    # alarms
    ALARM_SET = 80
    ALARM_CLEAR = 81
    # who is held up
    ALARM_BLOCKED = 82
    ALARM_UNBLOCKED = 83
    CREDIT_BLOCKED = 90
    CREDIT_UNBLOCKED = 91
    # the broker's own rows (actor kind "broker")
    RUN_START = 70
    RUN_END = 71


class Trigger(IntEnum):
    """Why a buffer was written or synced (the flag of QI_WRITE, QI_SYNC, FILE_WRITE, FILE_SYNC)."""

    BUFFER_FULL = 1
    TIMER = 2
    MAILBOX_EMPTY = 3
    ROLL_OVER = 4
    CLOSE = 5
    READ = 6
    JOURNAL_FLUSH = 7


class Decision(IntEnum):
    """What the store did with a write or a remove (the flag of STORE_WRITE and STORE_REMOVE)."""

    WRITE = 1
    """A new record was appended (an APPEND row follows)."""
    IGNORE = 2
    """Cancelled by the flying counter, or by a dying client."""
    CONFIRM = 3
    """The record exists: one reference more, nothing written."""
    REMOVE = 4
    """One reference less."""
    DEFER = 5
    """The file is at the garbage collector: done when it comes back (a DEFER row precedes)."""


class Reason(IntEnum):
    """Why an actor ended (the flag of ACTOR_STOP and CHILD_EXIT)."""

    NORMAL = 1
    SHUTDOWN = 2
    KILLED = 3
    CRASH = 4


class State(IntEnum):
    """Where a ready message of a queue is (the flag of PAGE_OUT and PAGE_IN)."""

    ALPHA = 1
    """Body and position are in memory, and on disk, too, if the message is persistent."""
    BETA = 2
    """The body is on disk, the position in memory; a small body is part of the position."""
    GAMMA = 3
    """The body is on disk, the position in memory and on disk."""
    DELTA = 4
    """Both are on disk only."""


# flags of PUBLISH (bits)
PERSISTENT = 1
"""The message is persistent and the queue durable."""
WANTS_CONFIRM = 2
IN_STORE = 4
"""The body is in a message store; else it is embedded in the queue index."""

# flags of CONFIRM
CONFIRM_DURABLE = 1
"""After the sync: body and index entry are on disk."""
CONFIRM_TRANSIENT = 2
"""At once: a transient message, or a queue that is not durable (RabbitMQ's rule)."""
CONFIRM_NACK = 3

# flags of DELIVER (bits)
REDELIVERED = 1
NO_ACK = 2
GET = 4

# flags of ACK and REQUEUE
MULTIPLE = 1
"""The client settled everything up to its tag; without it, the tags that the row tells one by one."""
RETURNED = 2
"""Of REQUEUE: the consumer is gone, and left it untaken or unacked: nobody asked."""

# flags of CONSUMER_ADDED (bits, beside NO_ACK)
EXCLUSIVE = 8
LIMITED = 16
"""It shares a limit with all consumers of its channel (basic.qos with global=true), whether or not one is set."""

# flags of CONSUMER_GONE
CONSUMER_CANCELLED, CHANNEL_ENDED, CONSUMER_LAPSED = 1, 2, 3
"""The last: it did not ack in time (consumer_timeout)."""

# flags of QUEUE_LIMITS
OVERFLOW_DROP_HEAD, OVERFLOW_REJECT, OVERFLOW_REJECT_DLX = 1, 2, 3
SINGLE_ACTIVE = 16
"""Added to these: one consumer at a time is active."""

# flags of CHANNEL_LIMIT: for all its consumers together, or for each that is added from now on
OF_CHANNEL, OF_CONSUMERS_TO_COME = 1, 2

# flags of DROP
DROP_REJECTED = 1
DROP_PURGED = 2
DROP_DELETED = 3
DROP_LOST = 4
"""The store does not have the body any more: it was damaged."""
DROP_EXPIRED = 5
"""Its time to live was over."""
DROP_MAXLEN = 6
"""The queue was longer than max-length or max-length-bytes allow."""
DEAD_LETTERED = 16
"""Added to DROP_REJECTED, DROP_EXPIRED and DROP_MAXLEN: a copy was sent to the dead-letter exchange (SEND rows precede)."""

# flags of QUEUE_RECOVERED and STORE_RECOVERED
CLEAN = 1
DIRTY = 2

# flags of STORE_CONFIRM and ON_DISK
WRITTEN = 1
IGNORED = 2

# flags of READ
FROM_CACHE = 1
DIRECT = 2
BY_SERVER = 3

# flags of CREDIT_UNBLOCKED
CREDIT_GRANTED = 1
CREDIT_PEER_DOWN = 2
"""Nobody is left to grant any."""
CREDIT_GAVE_UP = 3
"""The sender waits no longer, and has not sent."""

# flags of ALARM_SET and ALARM_CLEAR
ALARM_MEMORY = 1
ALARM_DISK = 2

# flags of ROLL
ROLL_FULL = 1
ROLL_FOR_LARGE = 2
"""A large message comes, which gets a file of its own."""
ROLL_LARGE = 3
"""It came: the file is left with it alone."""
ROLL_GARBAGE = 4
"""Nobody used the file, and most of it is garbage."""

# flags of DEFER
DEFER_READ = 1
DEFER_REMOVE = 2


class Meaning(NamedTuple):
    """What the columns of one event hold; '' = unused (0)."""

    text: str
    flag: str = ""
    msg: str = ""
    peer: str = ""
    pseq: str = ""
    a: str = ""
    b: str = ""
    c: str = ""


CONSUMER = "consumer"
"""The meaning of `peer` where it is no actor's trace id but the number of a consumer, which is unique in a run."""
_SEQS = {"a": "first sequence id", "b": "how many"}

REGISTRY: dict[Ev, Meaning] = {
    Ev.ACTOR_START: Meaning(
        "the actor's init has returned",
        a="incarnation of this name in this run, from 1; of an actor without a name 1",
    ),
    Ev.ACTOR_STOP: Meaning("the actor's last row", flag="Reason"),
    Ev.SEND: Meaning(
        "a message was put in a mailbox",
        flag="message kind",
        msg="first message",
        peer="receiver (0 = unknown yet)",
        a="first sequence id or 0",
        b="messages in it",
        c="of a publish to how many queues it was routed, 0 = not said",
    ),
    Ev.RECV: Meaning(
        "a message was taken from the mailbox", flag="message kind", peer="sender", pseq="its SEND"
    ),
    Ev.UNDELIVERED: Meaning(
        "a message met a dead actor and came back to its sender",
        flag="message kind",
        peer="sender; 0 = the actor that says so",
        pseq="the SEND",
    ),
    Ev.CHILD_START: Meaning("a child runs", peer="child"),
    Ev.CHILD_EXIT: Meaning("a child ended", flag="Reason", peer="child"),
    Ev.RESTART: Meaning(
        "a child is started again",
        peer="the dead child",
        a="restarts within the period, this one included",
        b="intensity",
        c="period, ms",
    ),
    Ev.ESCALATE: Meaning(
        "intensity exceeded: the supervisor gives up",
        peer="the dead child",
        a="restarts within the period",
        b="intensity",
        c="period, ms",
    ),
    Ev.PUBLISH: Meaning(
        "messages entered the queue; is also the receive of their SENDs when pseq > 0",
        flag="PERSISTENT | WANTS_CONFIRM | IN_STORE",
        msg="first message",
        peer="publisher",
        pseq="its SEND",
        c="how many SEND rows, from pseq on, this is the receive of (0 = 1)",
        **_SEQS,
    ),
    Ev.QI_WRITE: Meaning(
        "index records handed to the operating system",
        flag="Trigger",
        a="bytes",
        b="records",
        c="version 1: file offset of the first byte; version 2: bytes of these that are bodies",
    ),
    Ev.QI_SYNC: Meaning(
        "everything written to the index so far is on disk (with durability=os: in the kernel)",
        flag="Trigger",
        a="bytes since the last sync",
        b="records since the last sync",
    ),
    Ev.CONFIRM: Meaning("the publisher is told", flag="CONFIRM_*", msg="first message", **_SEQS),
    Ev.DELIVER: Meaning(
        "messages left for a consumer",
        flag="REDELIVERED | NO_ACK | GET",
        peer=CONSUMER,
        c="delivery tag of the first",
        **_SEQS,
    ),
    Ev.ACK: Meaning(
        "the consumer is done with messages; is also a receive when pseq > 0",
        flag="MULTIPLE",
        peer="who acked",
        pseq="its SEND",
        c=SETTLED,
        **_SEQS,
    ),
    Ev.REQUEUE: Meaning(
        "unacked messages went back to their old positions", flag="MULTIPLE or RETURNED", c=SETTLED, **_SEQS
    ),
    Ev.DROP: Meaning(
        "messages left the queue unconsumed",
        flag="DROP_*, DEAD_LETTERED",
        pseq="DROP_REJECTED: 1 = the client rejected everything up to its tag",
        c="DROP_EXPIRED: the queue's wall clock, microseconds since 1970; DROP_REJECTED: " + SETTLED,
        **_SEQS,
    ),
    Ev.CONSUMER_ADDED: Meaning(
        "messages are pushed to a consumer from now on",
        flag="NO_ACK | EXCLUSIVE | LIMITED",
        peer=CONSUMER,
        pseq="trace id of its channel, 0 = it is the application's",
        a="prefetch count, 0 = no limit",
        b="priority",
    ),
    Ev.CONSUMER_GONE: Meaning(
        "a consumer was cancelled, or did not ack in time, or its channel has ended (of getters, too, that hold messages); REQUEUE rows "
        "follow of what it gives back",
        flag="CONSUMER_CANCELLED, CHANNEL_ENDED or CONSUMER_LAPSED",
        peer=CONSUMER,
        a="the last delivery tag that was taken, later ones go back; -1 = a cancelled one keeps all",
        b="messages that it held unacked",
    ),
    Ev.QUEUE_LIMITS: Meaning(
        "a queue that has limits, or a single active consumer, is up",
        flag="OVERFLOW_*, SINGLE_ACTIVE",
        a="max-length, -1 = none",
        b="max-length-bytes, -1 = none",
    ),
    Ev.QUEUE_RESTS: Meaning(
        "the mailbox is empty, everything was delivered that could be, and messages are ready; told at most once a "
        "second, but always when b > 0",
        a="ready messages",
        b="consumers and waiting gets that have room",
        c="consumers",
    ),
    Ev.UNROUTED: Meaning("a publish was routed to no queue", b="messages in it"),
    Ev.CHANNEL_LIMIT: Meaning(
        "basic.qos", flag="OF_CHANNEL or OF_CONSUMERS_TO_COME", a="prefetch count, 0 = no limit"
    ),
    Ev.EXPIRY: Meaning(
        "messages that were just published have a time to live",
        c="when they expire, microseconds since 1970",
        **_SEQS,
    ),
    Ev.QI_FLUSH: Meaning(
        "journal entries moved to segment files", a="segments", b="bytes", c="1 = journal restarted"
    ),
    Ev.SEGMENT_DELETE: Meaning("a segment with no unacked message was deleted", a="segment"),
    Ev.QUEUE_RECOVERED: Meaning(
        "the queue is up again",
        flag="CLEAN or DIRTY",
        a="messages",
        b="next sequence id",
        c="messages dropped because they were transient or not in the store",
    ),
    Ev.RECOVERED: Meaning("messages found at recovery (one row a run of consecutive sequence ids)", **_SEQS),
    Ev.QUEUE_CLOSED: Meaning(
        "clean stop; everything is on disk", a="messages, unacked ones included", b="next sequence id"
    ),
    Ev.ON_DISK: Meaning(
        "the store told the queue that a body is safe", flag="WRITTEN or IGNORED", msg="the message"
    ),
    Ev.PAGE_OUT: Meaning(
        "messages, ready or unacked, gave up memory",
        flag="State: BETA, GAMMA or DELTA",
        c="State before",
        **_SEQS,
    ),
    Ev.PAGE_IN: Meaning(
        "messages came back to memory", flag="State: ALPHA or GAMMA", c="State before", **_SEQS
    ),
    Ev.RAM_TARGET: Meaning(
        "the memory monitor told how long what is in memory may last",
        a="how many messages that is; -1 = as many as there are",
        b="ram_msg_count",
        c="ram_bytes",
    ),
    Ev.STORE_WRITE: Meaning(
        "a write was handled",
        flag="Decision",
        msg="the message",
        peer="client (queue)",
        pseq="file of the record that existed, or 0",
        a="flying counter seen (absent = 0 with c = 0)",
        b="references afterwards",
        c="1 = a flying entry existed",
    ),
    Ev.APPEND: Meaning(
        "a record was appended to the write buffer",
        msg="the message",
        a="file",
        b="offset",
        c="bytes, framing included",
    ),
    Ev.STORE_REMOVE: Meaning(
        "a remove was handled",
        flag="Decision",
        msg="the message",
        peer="client (queue)",
        pseq="file of the record or 0",
        a="flying counter seen (absent = 0 with c = 0)",
        b="references afterwards",
        c="1 = a flying entry existed",
    ),
    Ev.FILE_WRITE: Meaning(
        "the write buffer was handed to the operating system", flag="Trigger", a="file", b="offset", c="bytes"
    ),
    Ev.FILE_SYNC: Meaning(
        "the current file is on disk up to here (with durability=os: in the kernel)",
        flag="Trigger",
        a="file",
        b="bytes of the file that are safe",
        c="bytes since the last sync",
    ),
    Ev.STORE_CONFIRM: Meaning(
        "the client is told", flag="WRITTEN or IGNORED", msg="the message", peer="client (queue)"
    ),
    Ev.ROLL: Meaning(
        "the current file was left and the next one opened",
        flag="ROLL_* (0 = ROLL_FULL)",
        a="new file",
        b="old file",
        c="bytes of the old file",
    ),
    Ev.LOCK: Meaning("a file goes to the garbage collector", a="file"),
    Ev.UNLOCK: Meaning("a file came back from it", a="file"),
    Ev.DEFER: Meaning("an operation on a locked file waits", flag="DEFER_*", msg="the message", a="file"),
    Ev.READ: Meaning(
        "a body was read",
        flag="FROM_CACHE, DIRECT or BY_SERVER",
        msg="the message",
        a="file",
        b="offset",
        c="bytes",
        peer="of a DIRECT read: the store",
        pseq="and of a file that is compacted in place the reader's mark; marks rise with each read that begins",
    ),
    Ev.FILE_DELETE: Meaning("a file with no valid data was deleted", a="file", b="bytes"),
    Ev.FILE_STATE: Meaning(
        "a file's row of the summary, told after recovery, after each combine and truncation, and at the end",
        a="file",
        b="valid_total_size",
        c="file_size",
    ),
    Ev.STORE_RECOVERED: Meaning(
        "the store is up again",
        flag="CLEAN or DIRTY",
        a="messages",
        b="files",
        c="records set aside as damaged",
    ),
    Ev.REF_RECOVERED: Meaning(
        "a record found at recovery", msg="the message", pseq="references", a="file", b="offset", c="bytes"
    ),
    Ev.REF_DROPPED: Meaning(
        "a reference that a dead client held was dropped",
        msg="the message",
        peer="client of the same owner that is there now",
        pseq="file",
        b="references afterwards",
    ),
    Ev.STORE_CLOSED: Meaning(
        "clean stop of a persistent store; FILE_STATE rows of every file precede",
        a="messages",
        b="references",
        c="files",
    ),
    Ev.GC_START: Meaning(
        "combine begins",
        a="destination (left)",
        b="source (right), the same when it is combined alone",
        c="valid bytes of both",
    ),
    Ev.GC_MOVE: Meaning("a record got a new place", msg="the message", a="file", b="offset", c="bytes"),
    Ev.GC_DONE: Meaning(
        "combine ended and is on disk",
        a="destination",
        b="source, the same when it was combined alone",
        c="bytes reclaimed",
    ),
    Ev.COMPACT_START: Meaning(
        "compaction in place begins", a="file", b="valid bytes", c="where its last record ends"
    ),
    Ev.COMPACT_MOVE: Meaning(
        "a record was copied into a hole of its file",
        msg="the message",
        a="file",
        pseq="its old offset",
        b="its new offset",
        c="bytes",
    ),
    Ev.COMPACT_DONE: Meaning(
        "the copies are on disk", a="file", b="where the file will be cut", c="bytes copied"
    ),
    Ev.TRUNCATE: Meaning(
        "a compacted file was cut; nobody reads old places any more",
        a="file",
        b="its new size",
        pseq="mark of the youngest reader that could know an old place",
        c="bytes that were cut off",
    ),
    Ev.ALARM_SET: Meaning(
        "publishers are blocked",
        flag="ALARM_MEMORY or ALARM_DISK",
        a="bytes of memory in use, or free on the disk",
        b="limit, bytes",
    ),
    Ev.ALARM_CLEAR: Meaning(
        "publishers go on, if the other alarm is not set",
        flag="ALARM_MEMORY or ALARM_DISK",
        a="bytes of memory in use, or free on the disk",
        b="limit, bytes",
    ),
    Ev.ALARM_BLOCKED: Meaning("a publisher (thread, coroutine or connection) waits until no alarm is set"),
    Ev.ALARM_UNBLOCKED: Meaning("it goes on, or has given up"),
    Ev.CREDIT_BLOCKED: Meaning(
        "the actor has no credit left towards a peer, and waits: a thread stands still, a channel's "
        "connection is not read, a queue grants its publishers nothing",
        peer="who grants none",
    ),
    Ev.CREDIT_UNBLOCKED: Meaning(
        "it does not wait for that peer any more", flag="CREDIT_*", peer="who granted none"
    ),
    Ev.RUN_START: Meaning(
        "a broker opened the data directory",
        pseq="msg_store_write_buffer, 0 = not said",
        a="boot number of the directory",
        b="1 = fsync, 0 = os",
        c="msg_store_file_size_limit",
    ),
    Ev.RUN_END: Meaning("clean end of the run", a="boot number"),
}

OF_CONSUMERS = frozenset(event for event, meaning in REGISTRY.items() if meaning.peer == CONSUMER)
"""Events whose `peer` is a consumer's number, not an actor's."""
