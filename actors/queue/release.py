"""Publishes delayed messages whose time has come, in the name of the queue that they waited in.

Each is routed as the bindings are now: by the delayed exchange that it came to, or by the exchange that it
names.  Its x-delay is negative from here on, so no exchange delays it again and its receiver sees how long it
waited (rabbit_delayed_message: route, swap_delay_header).  A message that no queue gets is dropped, as in
RabbitMQ.

Every queue answers each message.  The answers come in the threads of those queues: they are collected in a deque, and one
Answered tells of all that are there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from warrenmq.actors.queue.recovery import QueueSpec
from warrenmq.actors.sending.message_sender import Flow, MessageSender
from warrenmq.backing_queue.delayed import DueMessage
from warrenmq.errors import NotFound
from warrenmq.log import Log
from warrenmq.message.header_changes import with_headers
from warrenmq.message.properties import Properties
from warrenmq.message.queue_message import Publication
from warrenmq.message.stored import StoredMessage, decode, encode
from warrenmq.queue.unconfirmed import Promise
from warrenmq.routing.delayed import X_DELAY, X_DELAYED_TO, exchange_of
from warrenmq.routing.delayed import delay_of as delay_of_headers
from warrenmq.routing.message_options import parse_expiration
from warrenmq.runtime import Server


def delay_of(publication: Publication) -> int:
    """The milliseconds that the header x-delay of a publication says."""
    return delay_of_headers(decode(encode(publication.head, b"")).properties.headers)


class _Owed:
    """One queue's answer to one message."""

    __slots__ = ("_queue", "_releases", "_seq_id")

    def __init__(self, releases: Releases, seq_id: int, queue: str) -> None:
        self._releases = releases
        self._seq_id = seq_id
        self._queue = queue

    def confirm(self) -> None:
        """Note that the queue has the message safe."""
        self._releases.note(self._seq_id, self._queue, safe=True)

    def nack(self, why: str) -> None:  # noqa: ARG002  # the interface of a promise
        """Note that the queue does not have the message safe."""
        self._releases.note(self._seq_id, self._queue, safe=False)

    def fail(self, error: Exception) -> None:
        """Note that the queue refused the message."""
        self.nack(str(error))

    def parts(self, count: int) -> list[_Owed]:
        """Answer for each of `count` parts; a single message has one."""
        return [self] * count


class Releases:
    """Belongs to one queue process; `note` may be called from any thread.

    _owed     sequence id -> the queues that have not answered yet
    _refused  sequence id -> the queues that did not take it: the next release goes to these alone
    """

    def __init__(self, process: Server, spec: QueueSpec, log: Log, tell: Callable[[], object],
                 forward: Callable[[str, Publication, Promise], bool]) -> None:  # fmt: skip
        """`tell()` sends the process an Answered; `forward` publishes to a queue that sleeps (MessageSender)."""
        self._spec = spec
        self._log = log
        self._tell = tell
        self._exchange = exchange_of(spec.name)
        self._owed: dict[int, set[str]] = {}
        self._refused: dict[int, set[str]] = {}
        self._answers: deque[tuple[int, str, bool]] = deque()
        self._told = False
        credit = spec.settings.credit_flow_default_credit[0]
        self._sender = MessageSender(
            process.runtime, spec.ids, Flow, credit, process.trace, spec.address, forward
        )

    def publish(self, messages: list[DueMessage]) -> None:
        """Publish messages whose time has come."""
        for each in messages:
            self._publish(each)

    def note(self, seq_id: int, queue: str, *, safe: bool) -> None:
        """Take in the answer of one queue."""
        self._answers.append((seq_id, queue, safe))
        # notified first, looked at second; the reader of the answers does it the other way round
        if not self._told:
            self._told = True
            self._tell()

    def answers(self) -> tuple[list[int], list[int]]:
        """The messages that all queues have answered since the last time: those that are safe, and those that are not."""
        self._told = False
        done: list[int] = []
        failed: list[int] = []
        while self._answers:
            seq_id, queue, safe = self._answers.popleft()
            owed = self._owed.get(seq_id)
            if owed is None or queue not in owed:
                continue  # answered before
            owed.discard(queue)
            if not safe:
                self._refused.setdefault(seq_id, set()).add(queue)
            if not owed:
                del self._owed[seq_id]
                (failed if seq_id in self._refused else done).append(seq_id)
        return done, failed

    def _publish(self, due: DueMessage) -> None:
        message = decode(due.stored)
        headers: Mapping[str, Any] = message.properties.headers or {}
        delay, back_to = delay_of_headers(headers), headers.get(X_DELAYED_TO)
        changes: dict[str, int | None] = {X_DELAY: -delay} if delay else {}
        if self._exchange is None and isinstance(back_to, str):
            changes[X_DELAYED_TO] = None
        stored = message.stored_properties
        properties: Properties | bytes | None = stored if isinstance(stored, bytes) else message.properties
        if changes:
            properties, headers = with_headers(message, changes)
        again = self._refused.pop(due.seq_id, None)
        queues = self._queues(message, headers, back_to if X_DELAYED_TO in changes else None)
        if again is not None:
            queues = tuple(queue for queue in queues if queue in again)
        if not queues:
            self._owed[due.seq_id] = {""}
            self.note(due.seq_id, "", safe=True)
            return
        basic = message.properties
        publication = self._sender.publication(
            message.exchange,
            tuple(message.routing_keys),
            [message.body],
            properties,
            persistent=due.persistent or (not self._spec.durable and basic.delivery_mode != 1),
            expiration=parse_expiration(basic.expiration),
            priority=basic.priority or 0,
        )
        self._owed[due.seq_id] = {*queues}
        for queue in queues:
            self._sender.send((queue,), publication, _Owed(self, due.seq_id, queue))

    def _queues(self, message: StoredMessage, headers: Any, back_to: str | None) -> tuple[str, ...]:
        router, keys = self._spec.router, message.routing_keys
        if back_to is not None:
            return router.route("", back_to)
        exchange = message.exchange if self._exchange is None else self._exchange
        try:
            return router.route(exchange, keys[0], headers, tuple(keys[1:]))
        except NotFound:
            self._log.warning(
                "a delayed message is dropped: its exchange was deleted meanwhile", exchange=exchange
            )
            return ()
