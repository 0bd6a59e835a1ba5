"""What a queue process says in the trace: one method for each kind of row (trace/events.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warrenmq.storage.runs import delivery_runs, publication_runs, runs
from warrenmq.trace.events import (
    CLEAN,
    CONFIRM_DURABLE,
    CONFIRM_TRANSIENT,
    CREDIT_GRANTED,
    DIRTY,
    GET,
    IGNORED,
    IN_STORE,
    NO_ACK,
    PERSISTENT,
    REDELIVERED,
    WANTS_CONFIRM,
    WRITTEN,
    Ev,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warrenmq.actors.channel_record import Consumer
    from warrenmq.storage.index_recovery import Found
    from warrenmq.storage.queue_message import Fetched
    from warrenmq.storage.queue_message import Publication as Published
    from warrenmq.storage.unconfirmed import Publication
    from warrenmq.trace.recorder import ActorTrace

# Plain numbers: looking up an enum's member costs as much as writing the row.
_RECV, _PUBLISH, _CONFIRM, _DELIVER = int(Ev.RECV), int(Ev.PUBLISH), int(Ev.CONFIRM), int(Ev.DELIVER)
_ACK, _ON_DISK = int(Ev.ACK), int(Ev.ON_DISK)


class QueueTrace:
    """A queue's rows.  It belongs to the queue process, as its ActorTrace does."""

    def __init__(self, trace: ActorTrace) -> None:
        self._trace = trace

    def recovered(self, found: Found, live: Iterable[tuple[int, int]], *, clean: bool) -> None:
        """What the directory held; `live` are the runs of messages.

        QUEUE_RECOVERED comes last: a reader that meets it knows that the runs are all there.
        """
        for first, count in live:
            self._trace.emit(Ev.RECOVERED, a=first, b=count)
        flag = CLEAN if clean else DIRTY
        self._trace.emit(Ev.QUEUE_RECOVERED, flag, a=found.count, b=found.next_seq_id, c=found.dropped)

    def received(self, sender: int, pseq: int) -> None:
        """A message that led to no row of its own."""
        self._trace.emit(_RECV, peer=sender, pseq=pseq)

    def published(self, first: int, count: int, msg: int, sender: int, pseq: int, sends: int, t: int,
                  durable: bool, in_store: bool, *, answered: bool) -> None:  # fmt: skip
        """Also the receive row of `sends` Publishes, the last one sent at `t`."""
        self._trace.observe(t)
        flag = (PERSISTENT if durable else 0) | (WANTS_CONFIRM if answered else 0) | (IN_STORE if in_store else 0)
        self._trace.emit(_PUBLISH, flag, msg, sender, pseq, first, count, sends)

    def confirmed_at_once(self, owed: Publication) -> None:
        """A transient message's publisher is told without waiting for a sync."""
        first, count, msg, _ = owed
        self._trace.emit(_CONFIRM, CONFIRM_TRANSIENT, msg, a=first, b=count)

    def confirmed(self, complete: Sequence[Publication]) -> None:
        """Publishers are about to be told."""
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
                _DELIVER, flag | (REDELIVERED if redelivered else 0), peer=consumer.id, a=first, b=count, c=tag
            )
            tag += count

    def acked(self, seqs: list[int], sender: int, pseq: int) -> None:
        """Also the receive row of an Ack."""
        if not seqs:
            self.received(sender, pseq)
        for first, count in runs(seqs):
            self._trace.emit(_ACK, 0, 0, sender, pseq, first, count)
            pseq = 0

    def blocked(self, store: int) -> None:
        """The store grants no credit, so this queue grants its publishers none."""
        self._trace.emit(Ev.CREDIT_BLOCKED, peer=store)

    def unblocked(self, store: int) -> None:
        """It has granted some."""
        self._trace.emit(Ev.CREDIT_UNBLOCKED, CREDIT_GRANTED, peer=store)

    def requeued(self, seqs: list[int]) -> None:
        """Messages went back to their places."""
        for first, count in runs(seqs):
            self._trace.emit(Ev.REQUEUE, a=first, b=count)

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
