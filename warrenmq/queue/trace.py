"""The rows that a queue writes to the trace: one method for each kind (trace/events.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warrenmq.message.runs import delivery_runs, owned_runs, publication_runs, runs, tagged_runs
from warrenmq.trace.events import (
    CLEAN,
    CONFIRM_DURABLE,
    CONFIRM_TRANSIENT,
    CREDIT_GRANTED,
    DIRTY,
    DROP_LOST,
    EXCLUSIVE,
    GET,
    IGNORED,
    IN_STORE,
    LIMITED,
    MULTIPLE,
    NO_ACK,
    OVERFLOW_DROP_HEAD,
    OVERFLOW_REJECT,
    OVERFLOW_REJECT_DLX,
    PERSISTENT,
    REDELIVERED,
    RETURNED,
    SINGLE_ACTIVE,
    WANTS_CONFIRM,
    WRITTEN,
    Ev,
)
from warrenmq.trace.settled import settled_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pykka import ActorRef

    from warrenmq.message.queue_message import Fetched
    from warrenmq.message.queue_message import Publication as Published
    from warrenmq.queue.arguments import QueueArguments
    from warrenmq.queue.channel_record import Consumer
    from warrenmq.queue.messages import Ack, Reject
    from warrenmq.queue.unconfirmed import Publication
    from warrenmq.queue_index.v1.recovery import Found
    from warrenmq.trace.recorder import ActorTrace

# Plain numbers: looking up an enum's member costs as much as writing the row.
_RECV, _PUBLISH, _CONFIRM, _DELIVER = int(Ev.RECV), int(Ev.PUBLISH), int(Ev.CONFIRM), int(Ev.DELIVER)
_ACK, _ON_DISK = int(Ev.ACK), int(Ev.ON_DISK)
_OVERFLOWS = {
    "drop-head": OVERFLOW_DROP_HEAD, "reject-publish": OVERFLOW_REJECT, "reject-publish-dlx": OVERFLOW_REJECT_DLX,
}  # fmt: skip
_REST_INTERVAL = 1_000_000_000
"""Nanoseconds between two QUEUE_RESTS rows of a queue whose consumers have no room."""


class QueueTrace:
    """A queue's rows.  It belongs to the queue process, as its ActorTrace does."""

    def __init__(self, trace: ActorTrace, trace_id_of: Callable[[ActorRef[Any]], int]) -> None:
        """`trace_id_of(channel)` is its number in the trace."""
        self._trace = trace
        self._trace_id_of = trace_id_of
        self._rested = -_REST_INTERVAL
        """When a QUEUE_RESTS row was written last."""

    def recovered(
        self,
        found: Found,
        live: Iterable[tuple[int, int]],
        lost: Sequence[int],
        arguments: QueueArguments,
        *,
        clean: bool,
    ) -> None:
        """What the directory held; `live` are the runs of messages, `lost` are damaged ones beside them.  And the queue's
        limits, if it has any.

        QUEUE_RECOVERED comes last: a reader that meets it knows that the runs are all there.  A damaged message counts
        as recovered, and as dropped right behind that.
        """
        recovered = [*live, *runs(sorted(lost))]
        for first, count in recovered:
            self._trace.emit(Ev.RECOVERED, a=first, b=count)
        total, dropped = sum(count for _, count in recovered), found.dropped - len(found.lost)
        self._trace.emit(
            Ev.QUEUE_RECOVERED, CLEAN if clean else DIRTY, a=total, b=found.next_seq_id, c=dropped
        )
        length, size = arguments.max_length, arguments.max_length_bytes
        if (length, size) != (None, None) or arguments.single_active_consumer:
            flag = _OVERFLOWS[arguments.overflow] | (SINGLE_ACTIVE if arguments.single_active_consumer else 0)
            self._trace.emit(
                Ev.QUEUE_LIMITS, flag, a=-1 if length is None else length, b=-1 if size is None else size
            )
        self.dropped(sorted(lost), DROP_LOST)

    def received(self, sender: int, pseq: int) -> None:
        """A message that led to no row of its own."""
        self._trace.emit(_RECV, peer=sender, pseq=pseq)

    def published(self, first: int, count: int, msg: int, sender: int, pseq: int, sends: int, t: int,
                  durable: bool, in_store: bool, *, answered: bool) -> None:  # fmt: skip
        """Also the receive row of `sends` Publishes, the last one sent at `t`."""
        self._trace.observe(t)
        flag = (
            (PERSISTENT if durable else 0)
            | (WANTS_CONFIRM if answered else 0)
            | (IN_STORE if in_store else 0)
        )
        self._trace.emit(_PUBLISH, flag, msg, sender, pseq, first, count, sends)

    def confirmed_at_once(self, owed: Publication) -> None:
        """A transient message is confirmed without waiting for a sync."""
        first, count, msg, _ = owed
        self._trace.emit(_CONFIRM, CONFIRM_TRANSIENT, msg, a=first, b=count)

    def confirmed(self, complete: Sequence[Publication]) -> None:
        """Publishers are about to hear of it."""
        for first, count, msg in publication_runs(complete):
            self._trace.emit(_CONFIRM, CONFIRM_DURABLE, msg, a=first, b=count)

    def on_disk(self, msg_ids: list[bytes], reason: str) -> None:
        """The store reported bodies."""
        flag = WRITTEN if reason == "written" else IGNORED
        for msg_id in msg_ids:
            self._trace.emit(_ON_DISK, flag, msg=int.from_bytes(msg_id[8:], "big"))

    def delivered(self, consumer: Consumer, fetched: Sequence[Fetched], first_tag: int, *, get: bool) -> None:
        """Messages leave for a consumer."""
        flag = (NO_ACK if consumer.no_ack else 0) | (GET if get else 0)
        tag = first_tag
        for first, count, redelivered in delivery_runs(fetched):
            self._trace.emit(
                _DELIVER,
                flag | (REDELIVERED if redelivered else 0),
                peer=consumer.id,
                a=first,
                b=count,
                c=tag,
            )
            tag += count

    def acked(self, seqs: list[int], asked: Ack, sender: int, pseq: int) -> None:
        """What an Ack settled; also its receive row."""
        if not seqs:
            self.received(sender, pseq)
        flag = MULTIPLE if asked.multiple else 0
        by = settled_by(asked.consumer, asked.tag)
        if len(seqs) == 1:  # by far the commonest
            self._trace.emit(_ACK, flag, 0, sender, pseq, seqs[0], 1, by)
            return
        for first, count in runs(seqs):
            self._trace.emit(_ACK, flag, 0, sender, pseq, first, count, by)
            pseq = 0

    def acked_each(
        self, seqs: list[int], consumer: int, tags: Mapping[int, int], sender: int, pseq: int
    ) -> None:
        """What an Acks settled, with the tag that named each; also its receive row."""
        if not seqs:
            self.received(sender, pseq)
        for first, count, tag in tagged_runs(seqs, tags):
            self._trace.emit(_ACK, 0, 0, sender, pseq, first, count, settled_by(consumer, tag))
            pseq = 0

    def blocked(self, store: int) -> None:
        """The store grants no credit, so this queue grants its publishers none."""
        self._trace.emit(Ev.CREDIT_BLOCKED, peer=store)

    def unblocked(self, store: int) -> None:
        """It has granted some."""
        self._trace.emit(Ev.CREDIT_UNBLOCKED, CREDIT_GRANTED, peer=store)

    def requeued(self, seqs: list[int], asked: Reject) -> None:
        """Messages went back to their places, as a client asked."""
        by = settled_by(asked.consumer, asked.tag)
        for first, count in runs(seqs):
            self._trace.emit(Ev.REQUEUE, MULTIPLE if asked.multiple else 0, a=first, b=count, c=by)

    def returned(self, seqs: list[int], held: Mapping[int, int]) -> None:
        """Messages went back to their places because their consumers are gone."""
        for first, count, consumer in owned_runs((seq, held[seq]) for seq in seqs):
            self._trace.emit(Ev.REQUEUE, RETURNED, a=first, b=count, c=settled_by(consumer, 0))

    def rejected(self, seqs: list[int], flag: int, asked: Reject) -> None:
        """Messages left the queue because a client rejected them for good."""
        by = settled_by(asked.consumer, asked.tag)
        for first, count in runs(seqs):
            self._trace.emit(Ev.DROP, flag, pseq=int(asked.multiple), a=first, b=count, c=by)

    def consumer_added(self, consumer: Consumer) -> None:
        """Messages are pushed to a consumer from now on."""
        channel = consumer.channel
        flag = (
            (NO_ACK if consumer.no_ack else 0)
            | (EXCLUSIVE if consumer.exclusive else 0)
            | (LIMITED if channel.limiter is not None else 0)
        )
        of_channel = 0 if channel.ref is None else self._trace_id_of(channel.ref)
        self._trace.emit(
            Ev.CONSUMER_ADDED, flag, 0, consumer.id, of_channel, consumer.prefetch, consumer.priority
        )

    def consumer_gone(self, consumer: Consumer, flag: int, taken: int | None) -> None:
        """It gives back what was delivered after the tag `taken`; None = nothing."""
        last = -1 if taken is None else taken
        self._trace.emit(Ev.CONSUMER_GONE, flag, 0, consumer.id, 0, last, len(consumer.unacked))

    def rests(self, ready: int, with_room: int, consumers: int) -> None:
        """Nothing is to be done, although messages are ready."""
        now = self._trace.now()
        if with_room or now - self._rested >= _REST_INTERVAL:
            self._rested = now
            self._trace.emit(Ev.QUEUE_RESTS, a=ready, b=with_room, c=consumers)

    def dropped(self, seqs: list[int], flag: int, now: int = 0) -> None:
        """Messages left the queue without a consumer; those that had expired, at a time of the wall clock."""
        for first, count in runs(seqs):
            self._trace.emit(Ev.DROP, flag, a=first, b=count, c=now)

    def expire(self, first: int, publications: Sequence[Published], expiries: Sequence[int]) -> None:
        """Messages that were just published have a time to live."""
        for publication, expiry in zip(publications, expiries, strict=True):
            count = len(publication.bodies)
            if expiry:
                self._trace.emit(Ev.EXPIRY, a=first, b=count, c=expiry)
            first += count

    def closed(self, messages: int, next_seq_id: int) -> None:
        """A clean stop."""
        self._trace.emit(Ev.QUEUE_CLOSED, a=messages, b=next_seq_id)
