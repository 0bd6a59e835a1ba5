"""Publishing messages that come from another directory into one queue, past the exchanges, with their original heads.

A message that is moved keeps the exchange and the routing keys that it was published with, and its properties, so it
cannot be routed again; and each has a head of its own.  Confirms, credit and alarms are those of any publisher.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.client import Client
from warrenmq.broker.publisher import WaitingFlow
from warrenmq.message.queue_message import Publication
from warrenmq.queue.messages import Info, Publish
from warrenmq.routing.delayed import is_store
from warrenmq.trace.events import PRIORITY_SHIFT


class MigratedMessage(NamedTuple):
    """One message of another directory."""

    head: bytes
    """The stored message up to its body (stored_message.encode_head)."""
    properties_size: int
    """Bytes of the encoded properties, for the embed rule."""
    body: bytes
    expiration: int | None = None
    """Milliseconds until it expires, or in a queue of delayed messages until it is due; None = it does not."""
    priority: int = 0


class MigrationPublisher:
    """Publishes migrated messages into one queue; for one thread, and nothing else may publish to the queue meanwhile."""

    def __init__(self, client: Client, queue: str) -> None:
        self._client = client
        self._queue = queue
        credit = client.settings.credit_flow_default_credit[0]
        ref = client.calls.address(queue)
        info = client.calls.call_actor(ref, Info())
        self._flow = WaitingFlow(client.runtime, ref, credit, client.trace())
        self._next_seq_ids: list[int] = [*(info.next_seq_ids or (info.next_seq_id,))]

    def priority_of(self, message: MigratedMessage) -> int:
        """The priority of the queue that a message goes to; 0 of one without priorities."""
        return min(message.priority, len(self._next_seq_ids) - 1)

    def next_seq_id(self, priority: int) -> int:
        """The sequence id that the queue will give the next message of a priority; that is in its bits from
        PRIORITY_SHIFT on.
        """
        return priority << PRIORITY_SHIFT | self._next_seq_ids[priority]

    def put(self, messages: Sequence[MigratedMessage]) -> Confirm:
        """Publish messages of one priority, all persistent; settled when all of them are safe."""
        self._client.publishing.own.wait_for_turn("", self._queue, None)
        publications = list(self._publications(messages))
        confirm = Confirm(self._client.runtime, len(publications))
        for publication in publications:
            self._flow.spend(len(publication.bodies), sum(map(len, publication.bodies)))
            self._flow.send(Publish(publication, confirm, self._flow))
        self._next_seq_ids[self.priority_of(messages[0])] += len(messages)
        return confirm

    def _publications(self, messages: Sequence[MigratedMessage]) -> Iterator[Publication]:
        """Make a Publication for each run of messages that are alike but for their bodies."""
        ids = self._client.engine.vhost.ids
        prefix, msg_id = ids.prefix, ids.take(len(messages))
        waits, now = is_store(self._queue), self._client.runtime.wall_ns() // 1_000
        start = 0
        for stop in range(1, len(messages) + 1):
            head, size, _, expiration, priority = messages[start]
            if stop < len(messages) and messages[stop]._replace(body=b"") == messages[start]._replace(
                body=b""
            ):
                continue
            bodies = [each.body for each in messages[start:stop]]
            due = now + (expiration or 0) * 1_000 if waits else 0
            yield Publication(prefix, msg_id, head, size, bodies, True, expiration, priority, due)
            msg_id += len(bodies)
            start = stop
