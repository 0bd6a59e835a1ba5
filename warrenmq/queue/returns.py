"""x-delivery-limit: how often a message came back to its queue, and what is done with one that came back too often.

    came back               nacked or rejected with requeue, not acked in time, its channel ended
    did not                 it was on its way to a consumer that cancelled

    limit   came back       then
    2       1, 2 times      it is ready again, and has the header x-delivery-count when it is delivered
    2       3 times         dead-lettered, for the reason delivery_limit, or dropped

A durable queue keeps the counts for its next start (return_counts.py), as RabbitMQ's quorum queues do in
their log.  Messages that were delivered and not settled when the owner's process died did not come back:
nobody knows which of it the application had begun with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warrenmq.message.header_changes import encoded_with_headers
from warrenmq.message.queue_message import Fetched
from warrenmq.message.stored import decode
from warrenmq.queue.return_counts import ReturnCounts
from warrenmq.queue.setting import QueueSetting
from warrenmq.queue_index.protocol import QueueFiles
from warrenmq.queue_index.record import HEADER_BYTES

X_DELIVERY_COUNT = "x-delivery-count"


class Returns:
    """The messages of one queue that came back and are still there.

    counts   sequence id -> how often; empty in a queue without a limit
    """

    def __init__(self, queue: QueueSetting, index: QueueFiles) -> None:
        """The counts of the last run hold for the messages that are still in the index."""
        self._limit = queue.arguments.delivery_limit
        self._kept = ReturnCounts(queue.disk, queue.directory) if queue.durable else None
        self.counts: dict[int, int] = {}
        if self._kept is not None:
            if self._limit is not None:
                self.counts = self._kept.read(index.live_runs())
            else:
                self._kept.remove()

    def set_limit(self, limit: int | None) -> None:
        """Go by another limit from now on; without one nothing is counted."""
        self._limit = limit
        if limit is None:
            self.counts.clear()
            if self._kept is not None:
                self._kept.remove()

    def came_back(self, seqs: Iterable[int]) -> list[int]:
        """Count messages that come back; returns those that did so too often."""
        if self._limit is None:
            return []
        counts = self.counts
        too_often: list[int] = []
        changed: list[int] = []
        for seq in seqs:
            counts[seq] = count = counts.get(seq, 0) + 1
            (too_often if count > self._limit else changed).append(seq)
        if changed and self._kept is not None:
            self._kept.add(changed, counts)
        return too_often

    def forget(self, seqs: Iterable[int]) -> None:
        """Forget messages that have left the queue."""
        if self.counts:
            for seq in seqs:
                self.counts.pop(seq, None)

    def told(self, fetched: Sequence[Fetched]) -> list[Fetched]:
        """Messages on their way to a consumer, with the header that says how often they came back."""
        return [
            each if (count := self.counts.get(each.seq_id)) is None else _told(each, count)
            for each in fetched
        ]


def _told(fetched: Fetched, count: int) -> Fetched:
    stored = fetched.payload if fetched.in_store else fetched.payload[HEADER_BYTES:]
    payload = encoded_with_headers(decode(stored), {X_DELIVERY_COUNT: count})
    return fetched._replace(payload=payload, in_store=True)
