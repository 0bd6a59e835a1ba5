"""Writing a queue's trace rows, with a method for each kind (trace/events/)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from pykka import ActorRef

from warrenmq.message.queue_message import Fetched, checksum_of
from warrenmq.message.queue_message import Publication as Published
from warrenmq.message.runs import delivery_runs, message_runs, owned_runs, publication_runs, runs, tagged_runs
from warrenmq.queue.arguments import QueueArguments
from warrenmq.queue.channel_record import Consumer
from warrenmq.queue.messages import Ack, Reject
from warrenmq.queue.unconfirmed import Publication
from warrenmq.queue_index.v1.recovery import Found
from warrenmq.trace import events
from warrenmq.trace.events import (
    CLEAN,
    CONFIRM_DURABLE,
    CONFIRM_TRANSIENT,
    CREDIT_GRANTED,
    DEAD_LETTERED,
    DIRTY,
    DROP_LOST,
    EMPTY,
    EXCLUSIVE,
    GET,
    IGNORED,
    IN_STORE,
    LIMITED,
    MOST_BODY_SIZE,
    MULTIPLE,
    NO_ACK,
    OVERFLOW_DROP_HEAD,
    OVERFLOW_REJECT,
    OVERFLOW_REJECT_DLX,
    PERSISTENT,
    REDELIVERED,
    RETURNED,
    WANTS_CONFIRM,
    WRITTEN,
    is_checked,
)
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_recv, _write_publish = writer(events.Recv), writer(events.Publish)
_write_confirm, _write_on_disk = writer(events.Confirm), writer(events.OnDisk)
_write_nacked = writer(events.Nacks)
_write_deliver, _write_ack = writer(events.Deliver), writer(events.Ack)
_write_requeue = writer(events.Requeue)
_write_drop = writer(events.Drop)
_write_expiry = writer(events.Expiry)
_write_consumer_added, _write_consumer_gone = writer(events.ConsumerAdded), writer(events.ConsumerGone)
_write_blocked, _write_unblocked = writer(events.CreditBlocked), writer(events.CreditUnblocked)
_write_limits, _write_rests = writer(events.QueueLimits), writer(events.QueueRests)
_write_found, _write_recovered = writer(events.Recovered), writer(events.QueueRecovered)
_write_closed, _write_deleted = writer(events.QueueClosed), writer(events.QueueDeleted)
_OVERFLOWS = {
    "drop-head": OVERFLOW_DROP_HEAD, "reject-publish": OVERFLOW_REJECT, "reject-publish-dlx": OVERFLOW_REJECT_DLX,
}  # fmt: skip
_REST_INTERVAL = 1_000_000_000
"""Nanoseconds between two QUEUE_RESTS rows of a queue whose consumers have no room."""


class QueueTrace:
    """Writes the rows of one queue; used by the queue process only, as its ActorTrace is."""

    def __init__(self, trace: ActorTrace, trace_id_of: Callable[[ActorRef[Any]], int]) -> None:
        """`trace_id_of(channel)` gives a channel's number in the trace."""
        self._trace = trace
        self._trace_id_of = trace_id_of
        self._rested = -_REST_INTERVAL
        """Time of the last QUEUE_RESTS row."""
        self._waiting: QueueArguments | None = None
        """Those whose limits are not in force yet."""

    def recovered(
        self,
        found: Found,
        live: Iterable[tuple[int, int]],
        lost: Sequence[int],
        arguments: QueueArguments,
        *,
        clean: bool,
        is_up: bool,
    ) -> None:
        """The messages that recovery found (`live`: Index.live_messages; `lost`: damaged ones beside them),
        and the queue's limits, which are in force if the vhost `is_up`.

        QUEUE_RECOVERED comes after all runs.  A damaged message counts as recovered, and is dropped right after that.
        """
        total = 0
        for first, count, message in message_runs(chain(live, ((seq_id, 0) for seq_id in sorted(lost)))):
            _write_found(self._trace, first, count, message)
            total += count
        dropped = found.dropped - len(found.lost)
        flag = CLEAN if clean else DIRTY if total or dropped or found.next_seq_id else EMPTY
        _write_recovered(self._trace, flag, total, found.next_seq_id, dropped)
        limits = arguments.max_length, arguments.max_length_bytes
        if limits != (None, None) or arguments.single_active_consumer:
            self.limits(arguments, in_force=is_up)
        self.dropped(sorted(lost), DROP_LOST)

    def limits(self, arguments: QueueArguments, *, in_force: bool) -> None:
        """The queue's limits, from here on."""
        self._waiting = None if in_force else arguments
        length, size = arguments.max_length, arguments.max_length_bytes
        _write_limits(
            self._trace,
            _OVERFLOWS[arguments.overflow],
            -1 if length is None else length,
            -1 if size is None else size,
            single_active=arguments.single_active_consumer,
            in_force=in_force,
        )

    def go_ahead(self) -> None:
        """The vhost is up: limits that were told before are in force now."""
        if self._waiting is not None:
            self.limits(self._waiting, in_force=True)

    def received(self, sender: int, send: int) -> None:
        """The receive row of a message without a row of its own."""
        _write_recv(self._trace, 0, sender, send)

    def published(self, first: int, count: int, msg: int, sender: int, send: int, sends: int, t: int,
                  durable: bool, in_store: bool, size: int, *, answered: bool,
                  taken: Callable[[int, int], Iterable[tuple[int, bytes, bool]]]) -> None:  # fmt: skip
        """Write a PUBLISH row, which is also the receive row of `sends` Publishes, the last one sent at `t`;
        `size` is that of all bodies, `taken(first, count)` gives the messages as stored.
        """
        self._trace.observe(t)
        flag = (
            (PERSISTENT if durable else 0)
            | (WANTS_CONFIRM if answered else 0)
            | (IN_STORE if in_store else 0)
        )
        checksum = checksum_of(taken(first, count)) if is_checked(first, count) else 0
        body_size = 0 if in_store else min(size // count, MOST_BODY_SIZE)
        _write_publish(self._trace, flag, msg, sender, send, first, count, body_size, checksum, sends)

    def confirmed_at_once(self, owed: Publication) -> None:
        """A transient message is confirmed without waiting for a sync."""
        first, count, msg, _ = owed
        _write_confirm(self._trace, CONFIRM_TRANSIENT, msg, first, count)

    def confirmed(self, complete: Sequence[Publication]) -> None:
        """Publishers are about to be sent their confirms."""
        for first, count, msg in publication_runs(complete):
            _write_confirm(self._trace, CONFIRM_DURABLE, msg, first, count)

    def nacked(self, given_up: Sequence[Publication]) -> None:
        """Publishers are about to be told that their messages are not written."""
        for _, count, msg, _ in given_up:
            _write_nacked(self._trace, msg, self._trace.id, count)

    def on_disk(self, msg_ids: list[bytes], reason: str) -> None:
        """The store reported bodies."""
        report = WRITTEN if reason == "written" else IGNORED
        for msg_id in msg_ids:
            _write_on_disk(self._trace, report, int.from_bytes(msg_id[8:], "big"))

    def delivered(self, consumer: Consumer, fetched: Sequence[Fetched], first_tag: int, *, get: bool) -> None:
        """Messages are delivered to a consumer."""
        flag = (NO_ACK if consumer.no_ack else 0) | (GET if get else 0)
        for place, run in delivery_runs(fetched):
            first, _, _, redelivered, _ = run[0]
            checksum = 0
            if is_checked(first, len(run)):
                checksum = checksum_of([(seq, payload, in_store) for seq, payload, _, _, in_store in run])
            _write_deliver(
                self._trace,
                flag | (REDELIVERED if redelivered else 0),
                consumer.id,
                checksum,
                first,
                len(run),
                first_tag + place,
            )

    def acked(self, seqs: list[int], asked: Ack, sender: int, send: int) -> None:
        """The messages that an Ack settled; also its receive row."""
        if not seqs:
            self.received(sender, send)
        trace, multiple, consumer, tag = self._trace, asked.multiple, asked.consumer, asked.tag
        if len(seqs) == 1:  # by far the most common case
            _write_ack(trace, multiple, sender, send, seqs[0], 1, consumer, tag)
            return
        for first, count in runs(seqs):
            _write_ack(trace, multiple, sender, send, first, count, consumer, tag)
            send = 0

    def acked_each(
        self, seqs: list[int], consumer: int, tags: Mapping[int, int], sender: int, send: int
    ) -> None:
        """The messages that an Acks settled, each with its tag; also the receive row."""
        if not seqs:
            self.received(sender, send)
        for first, count, tag in tagged_runs(seqs, tags):
            _write_ack(self._trace, False, sender, send, first, count, consumer, tag)
            send = 0

    def blocked(self, store: int) -> None:
        """The store grants no credit, so this queue grants its publishers none."""
        _write_blocked(self._trace, store)

    def unblocked(self, store: int) -> None:
        """The store has granted credit again."""
        _write_unblocked(self._trace, CREDIT_GRANTED, store)

    def requeued(self, seqs: list[int], asked: Reject) -> None:
        """A client rejected messages, and they were requeued."""
        cause = MULTIPLE if asked.multiple else 0
        for first, count in runs(seqs):
            _write_requeue(self._trace, cause, first, count, asked.consumer, asked.tag)

    def returned(self, seqs: list[int], held: Mapping[int, int]) -> None:
        """Messages were requeued because their consumers are gone."""
        for first, count, consumer in owned_runs((seq, held[seq]) for seq in seqs):
            _write_requeue(self._trace, RETURNED, first, count, consumer)

    def rejected(self, seqs: list[int], flag: int, asked: Reject) -> None:
        """A client rejected messages, and they were dropped."""
        for first, count in runs(seqs):
            _write_drop(
                self._trace,
                flag & ~DEAD_LETTERED,
                first,
                count,
                dead_lettered=flag & DEAD_LETTERED != 0,
                multiple=asked.multiple,
                consumer=asked.consumer,
                delivery_tag=asked.tag,
            )

    def consumer_added(self, consumer: Consumer) -> None:
        """A consumer was added."""
        channel = consumer.channel
        flag = (
            (NO_ACK if consumer.no_ack else 0)
            | (EXCLUSIVE if consumer.exclusive else 0)
            | (LIMITED if channel.limiter is not None else 0)
        )
        of_channel = 0 if channel.ref is None else self._trace_id_of(channel.ref)
        _write_consumer_added(
            self._trace, flag, consumer.id, of_channel, consumer.prefetch, consumer.priority
        )

    def consumer_gone(self, consumer: Consumer, reason: int, taken: int | None) -> None:
        """A consumer is gone; deliveries after the tag `taken` go back (None = none)."""
        last = -1 if taken is None else taken
        _write_consumer_gone(self._trace, reason, consumer.id, last, held=len(consumer.unacked))

    def rests(self, ready: int, with_room: int, consumers: int) -> None:
        """Messages are ready, and none can be delivered now."""
        now = self._trace.now()
        if with_room or now - self._rested >= _REST_INTERVAL:
            self._rested = now
            _write_rests(self._trace, ready, with_room, consumers)

    def dropped(self, seqs: list[int], flag: int, now: int = 0) -> None:
        """Messages were dropped; `now` is the wall clock's time at which they had expired."""
        for first, count in runs(seqs):
            _write_drop(
                self._trace,
                flag & ~DEAD_LETTERED,
                first,
                count,
                dead_lettered=flag & DEAD_LETTERED != 0,
                expired_at=now,
            )

    def expire(self, first: int, publications: Sequence[Published], expiries: Sequence[int]) -> None:
        """Expiries of messages that were just published."""
        for publication, expiry in zip(publications, expiries, strict=True):
            count = len(publication.bodies)
            if expiry:
                _write_expiry(self._trace, first, count, expiry)
            first += count

    def deleted(self) -> None:
        """The queue's deletion is about to be written."""
        _write_deleted(self._trace)

    def closed(self, messages: int, next_seq_id: int) -> None:
        """A clean stop."""
        _write_closed(self._trace, messages, next_seq_id)
