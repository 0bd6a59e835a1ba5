"""Where messages go that leave a queue unconsumed: nowhere, or to the dead-letter exchange (rabbit_dead_letter).

    rejected    a consumer wants nobody to have them
    expired     their time to live is over
    maxlen      the queue is too long, or was when they came (reject-publish-dlx)

At most once, as in RabbitMQ's classic queues: the original is gone as soon as its copy was sent, and nobody waits for the
copy's confirm.  Without such an exchange, or while it is missing, messages are dropped without a word.  Purged and
deleted messages are not dead-lettered.  The copy is a new message that says in its headers what happened
(queue/x_death.py); its properties are stored as AMQP's bytes, as if a client had sent them.

Source: docs/reference/classic-queue.md#dead-lettering.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warrenmq.actors.sending.message_sender import Flow, MessageSender
from warrenmq.erlang.amqp_table import properties_of_bytes
from warrenmq.erlang.amqp_table_writer import bytes_of_properties
from warrenmq.errors import NotFound
from warrenmq.message.plain_properties import dict_of_plain, properties_as_plain
from warrenmq.message.stored import decode
from warrenmq.queue.unconfirmed import UNANSWERED
from warrenmq.queue.x_death import REJECTED, Death, is_cycle, with_death, without_cc
from warrenmq.queue_index.record import HEADER_BYTES
from warrenmq.trace.events import DEAD_LETTERED, DROP_EXPIRED, DROP_MAXLEN, DROP_REJECTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from warrenmq.actors.queue.recovery import QueueSpec
    from warrenmq.backing_queue.protocol import BackingQueue
    from warrenmq.log import Log
    from warrenmq.message.queue_message import Fetched
    from warrenmq.message.stored import StoredMessage
    from warrenmq.runtime import Server

EXPIRED, MAXLEN = "expired", "maxlen"
AT_ONCE = 256
"""Messages that are fetched, sent on and acked together."""

_FLAGS = {REJECTED: DROP_REJECTED, EXPIRED: DROP_EXPIRED, MAXLEN: DROP_MAXLEN}
_CYCLES_TOLD = 100
"""Different cycles that the log is told of."""


class DeadLetters:
    """The way out for what nobody consumed; it belongs to the queue process.

    `gone` is told what has left the queue's front: (sequence ids, DROP_* flag, of expired ones the time).
    """

    def __init__(self, process: Server, spec: QueueSpec, vq: BackingQueue, log: Log,
                 gone: Callable[[list[int], int, int], None]) -> None:  # fmt: skip
        self._spec = spec
        self._vq = vq
        self._log = log
        self._gone = gone
        self._wall_ns = process.runtime.wall_ns
        self._exchange = spec.arguments.dead_letter_exchange
        self._routing_key = spec.arguments.dead_letter_routing_key
        self._cycles: set[tuple[str, ...]] = set()
        credit = spec.settings.credit_flow_default_credit[0]
        self._sender = MessageSender(process.runtime, spec.ids, Flow, credit, process.trace, spec.address)

    @property
    def exchange(self) -> str | None:
        """Where they go now; None = nowhere."""
        name = self._exchange
        return name if name == "" or name in self._spec.router.exchanges else None

    def drop_head(self, count: int, reason: str, now: int = 0) -> None:
        """So many messages at the queue's front leave it, AT_ONCE at the most; `now` is when they were found to be expired."""
        flag = _FLAGS[reason]
        if self.exchange is None:
            self._gone(self._vq.drop(count), flag, now)
        else:
            fetched = self._vq.fetch(count, ack_required=True)
            self._send_on(fetched, reason)
            self._gone(self._vq.ack([message.seq_id for message in fetched]), flag | DEAD_LETTERED, now)

    def reject(self, seqs: list[int]) -> list[tuple[list[int], int]]:
        """These were delivered, and rejected; returns those that left the queue, with the flags of their DROP rows.

        A message whose body cannot be read a second time leaves as well, and goes nowhere.
        """
        if self.exchange is None:
            return [(self._vq.ack(seqs), DROP_REJECTED)]
        fetched = self._vq.unacked_messages(seqs)
        self._send_on(fetched, REJECTED)
        whole = {message.seq_id for message in fetched}
        damaged = [seq for seq in seqs if seq not in whole]
        return [(self._vq.ack(whole), DROP_REJECTED | DEAD_LETTERED), (self._vq.ack(damaged), DROP_REJECTED)]

    def copy(self, stored: bytes, reason: str) -> None:
        """Send the copy of a message that is in no queue; `stored` is what a queue would have stored."""
        self._publish(decode(stored), reason)

    def _send_on(self, fetched: list[Fetched], reason: str) -> None:
        for message in fetched:
            self.copy(message.payload if message.in_store else message.payload[HEADER_BYTES:], reason)

    def _publish(self, message: StoredMessage, reason: str) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        stored = message.stored_properties
        if isinstance(stored, bytes):
            plain: dict[str, Any] = properties_of_bytes(stored)
        else:  # of a Python publisher, who has to say so to have a message that is not persistent
            plain = {"delivery_mode": 2, **properties_as_plain(message.properties)}
        headers = plain.get("headers", [])
        time = self._wall_ns() // 1_000_000_000
        death = Death(
            reason,
            self._spec.name,
            time,
            message.exchange,
            message.routing_keys[0],
            plain.pop("expiration", None),
        )
        headers = with_death(headers, death)
        keys = tuple(message.routing_keys)
        if self._routing_key is not None:
            keys, headers = (self._routing_key,), without_cc(headers)
        plain["headers"] = headers
        try:
            properties = bytes_of_properties(plain)
            queues = self._spec.router.route(exchange, keys[0], dict_of_plain(headers), keys[1:])
        except ValueError as error:
            self._log.warning(
                "a message cannot be dead-lettered: it has properties that AMQP has not", error=str(error)
            )
            return
        except NotFound:  # deleted this moment
            return
        if reason != REJECTED:
            queues = self._without_cycles(queues, headers)
        publication = self._sender.publication(
            exchange, keys, [message.body], properties, persistent=plain.get("delivery_mode") == 2,
            priority=plain.get("priority", 0),
        )  # fmt: skip
        self._sender.send(queues, publication, UNANSWERED)

    def _without_cycles(self, queues: tuple[str, ...], headers: list[Any]) -> tuple[str, ...]:
        """A message that came in a circle, and that nobody rejected on the way, would come round for ever."""
        cycling = tuple(queue for queue in queues if is_cycle(queue, headers))
        if cycling and cycling not in self._cycles and len(self._cycles) < _CYCLES_TOLD:
            self._cycles.add(cycling)
            self._log.warning(
                "messages are dropped: their dead-letter queues are a cycle, told once", queues=cycling
            )
        return tuple(queue for queue in queues if queue not in cycling)
