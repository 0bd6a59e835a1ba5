"""The rows of queue processes, publishers and channels, then those of exchanges and bindings."""

from __future__ import annotations

from warrenmq.trace.schema import (
    ACTOR,
    CHECKSUM,
    CONSUMER,
    COUNT,
    LIMIT,
    LOWEST,
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
from warrenmq.trace.words import (
    BodyReport,
    Bound,
    ConfirmKind,
    ConsumerEnd,
    ConsumerFlag,
    DeliverFlag,
    DropReason,
    Ev,
    ExchangeType,
    Overflow,
    PublishFlag,
    QosScope,
    Recovery,
    Settle,
    State,
    Trigger,
)

_BODY_SHIFT, _BODY_BITS = 48, 15
MOST_BODY_SIZE = (1 << _BODY_BITS) - 1
"""The largest body size that PUBLISH tells."""
_CHECKSUM_SHIFT, _CHECKSUM_BITS = 32, 16
_WRITTEN_SHIFT, _WRITTEN_BITS = 32, 31
_LOW = 4
"""Bits of a flag that hold a reason; above them is one more bit."""
_CONSUMER_SHIFT, _CONSUMER_BITS, _TAG_BITS = 32, 31, 32
"""A consumer and a delivery tag in one column; each is cut to its bits."""


# queue process


class Publish(
    Event[T],
    event=Ev.PUBLISH,
    says="{actor} took in {messages}[ from {publisher}][, {flags}][, bodies of {body_size} beside the index][; {message_ids}]",
):
    """Messages entered the queue; the row is also the receive of their SENDs when `send` is above 0.

    The checksum, here and of a delivery, is one more than the sum of what each message is stored with as its
    CRC-32, times one more than its sequence id, modulo 65,535: it tells when bodies are exchanged, and those
    of rows add up.  Rows whose first sequence id is among the first 64 of 1,024 have one, rows of more than
    64 messages as large a part of them (is_checked).
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

    Of version 1 a publish has two records, and all that wait are written.  Of version 2 they are of one
    segment, that of `first`: all acks in it that wait, and all publishes, or none.  So from `first` on these
    are the first ones that were not written yet.
    """

    trigger: T = in_flag(Trigger, "why")
    size: T = in_a(SIZE, "bytes", bits=_WRITTEN_SHIFT)
    records: T = in_b(COUNT, "records", bits=_WRITTEN_SHIFT)
    offset_or_body_bytes: T = in_c(
        SIZE, "version 1: file offset of the first byte; version 2: bytes of these that are bodies"
    )
    first: T = in_pseq(
        LOWEST, "the lowest sequence id among them; not said if neither `published` nor `acked` is", default=0
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
            "reason", (DropReason.REJECTED, DropReason.EXPIRED, DropReason.MAXLEN, DropReason.DELIVERY_LIMIT)
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
    """A consumer was cancelled, or did not ack in time, or its channel has ended (of getters, too, that hold
    messages); REQUEUE rows follow of what it gives back.
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
    in_force: T = in_flag(
        YES_NO,
        "1 = what is too much is dropped at once, as its virtual host is up",
        default=0,
        shift=_LOW + 1,
        bits=1,
    )


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

    Written before the disk is asked, so that a deletion which is cut off has this row in any case.  The queue's
    process writes it; if that is dead, and of the queue of a delayed exchange, the vhost process does, as another
    actor of the queue's name.
    """


class Nacks(Event[T], event=Ev.NACKED, says="{actor} nacked {count} messages of {queue}; {message_ids}"):
    """Publishers were told that a queue process has ended before it confirmed their messages.

    The actor that finds the process dead writes it, as an actor of the queue's, before the supervisor hears
    of the end.  A queue that may not write what it took in, since its files may not grow (`ulimit -f`),
    writes it itself.
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
    since: T = in_pseq(
        COUNT, "t of the actor's row before, after which it was routed; 0 = not said", default=0
    )


class Routed(
    Event[T],
    event=Ev.ROUTED,
    says="{actor} publishes to exchange {exchange}[ with key {routing_key}] from here on",
):
    """The exchange and the routing key of an actor's publishes from here on, until its next such row.

    Written when they change, or the number of queues does: an actor that has no such row publishes through
    the default exchange, straight to queues, and of that the keys are not said.  The receivers of the SENDs
    are the queues that were chosen.
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
    """Messages were found at recovery: one row a run of consecutive sequence ids, and of consecutive message
    ids where they are known.
    """

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
