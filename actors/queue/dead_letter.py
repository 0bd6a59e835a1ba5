"""Copies of messages for the dead-letter exchange (rabbit_dead_letter:publish).

The copy is a new message that says in its headers what happened (queue/x_death.py); its properties are stored as AMQP's
bytes, as if a client had sent them.  Which messages are copied, and when, is decided in queue/drops.py.

Source: docs/reference/classic-queue.md#dead-lettering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from warrenmq.actors.queue.recovery import QueueSpec
from warrenmq.actors.sending.message_sender import Flow, MessageSender
from warrenmq.erlang.amqp_table import properties_of_bytes
from warrenmq.erlang.amqp_table_writer import bytes_of_properties
from warrenmq.errors import NotFound
from warrenmq.log import Log
from warrenmq.message.plain_properties import dict_of_plain, properties_as_plain
from warrenmq.message.queue_message import Publication
from warrenmq.message.stored import StoredMessage, decode
from warrenmq.queue.arguments import QueueArguments
from warrenmq.queue.unconfirmed import UNANSWERED, Promise
from warrenmq.queue.x_death import REJECTED, Death, is_cycle, with_death, without_cc
from warrenmq.runtime import Server

_CYCLES_LOGGED = 100
"""Different cycles that are logged."""


class DeadLetterPublisher:
    """Publishes in the name of one queue process; copies carry no confirm.

    _cycles   queues of cycles that were logged
    """

    def __init__(
        self, process: Server, spec: QueueSpec, log: Log, forward: Callable[[str, Publication, Promise], bool]
    ) -> None:
        """`forward` publishes to a queue that sleeps (MessageSender)."""
        self._spec = spec
        self._log = log
        self._wall_ns = process.runtime.wall_ns
        self._exchange = spec.arguments.dead_letter_exchange
        self._routing_key = spec.arguments.dead_letter_routing_key
        self._cycles: set[tuple[str, ...]] = set()
        credit = spec.settings.credit_flow_default_credit[0]
        self._sender = MessageSender(
            process.runtime, spec.ids, Flow, credit, process.trace, spec.address, forward
        )

    def set(self, arguments: QueueArguments) -> None:
        """Go by other arguments from now on."""
        self._exchange = arguments.dead_letter_exchange
        self._routing_key = arguments.dead_letter_routing_key

    @property
    def exchange(self) -> str | None:
        """The dead-letter exchange, None if the queue has none or it does not exist."""
        name = self._exchange
        return name if name == "" or name in self._spec.router.exchanges else None

    def publish(self, stored: Iterable[bytes], reason: str) -> None:
        """Publish copies of messages, which are given as a queue stores them."""
        for each in stored:
            self._publish(decode(each), reason)

    def _publish(self, message: StoredMessage, reason: str) -> None:
        """Publish a copy, and tell the trace if no queue got it."""
        keys = tuple(message.routing_keys) if self._routing_key is None else (self._routing_key,)
        exchange = self.exchange
        if exchange is None or not self._copy(message, reason, exchange, keys):
            self._sender.unrouted(1, self._exchange or "", keys[0], late=True)

    def _copy(self, message: StoredMessage, reason: str, exchange: str, keys: tuple[str, ...]) -> bool:
        """Publish a copy; False if no queue got it, as far as the trace would know."""
        stored = message.stored_properties
        if isinstance(stored, bytes):
            plain: dict[str, Any] = properties_of_bytes(stored)
        else:  # of a Python publisher, whose default is persistent
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
        if self._routing_key is not None:
            headers = without_cc(headers)
        plain["headers"] = headers
        try:
            properties = bytes_of_properties(plain)
            queues = self._spec.router.route(exchange, keys[0], dict_of_plain(headers), keys[1:])
        except ValueError as error:
            self._log.warning(
                "a message cannot be dead-lettered: it has properties that AMQP has not", error=str(error)
            )
            return False
        except NotFound:  # deleted this moment
            return False
        if reason != REJECTED:
            queues = self._without_cycles(queues, headers)
        if not queues:
            return False
        publication = self._sender.publication(
            exchange, keys, [message.body], properties, persistent=plain.get("delivery_mode") == 2,
            priority=plain.get("priority", 0),
        )  # fmt: skip
        trace = self._sender.trace
        before = 0 if trace is None else trace.seq
        self._sender.send(queues, publication, UNANSWERED)
        return trace is None or trace.seq > before

    def _without_cycles(self, queues: tuple[str, ...], headers: list[Any]) -> tuple[str, ...]:
        """Leave out queues that the message reached in a cycle without ever being rejected: it would come round for ever."""
        cycling = tuple(queue for queue in queues if is_cycle(queue, headers))
        if cycling and cycling not in self._cycles and len(self._cycles) < _CYCLES_LOGGED:
            self._cycles.add(cycling)
            self._log.warning(
                "messages are dropped: their dead-letter queues are a cycle, logged once", queues=cycling
            )
        return tuple(queue for queue in queues if queue not in cycling)
