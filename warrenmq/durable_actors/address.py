"""DurableRef: the address of a durable actor, whether it runs, here or elsewhere, or not.

    ref.tell(Place(order=7))            a persistent publish to the actor's queue; the Confirm says that it is on disk
    ref.ask(Total(), timeout=5)         the same, and waits for what on_receive returns

An actor's queue is called as its address, and is declared with a queue for the messages that it gave up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

from pykka import Timeout

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.broker import Broker
from warrenmq.checks import is_a, seconds, shown
from warrenmq.durable_actors.codec import Codec
from warrenmq.durable_actors.replies import replies_of
from warrenmq.errors import ArgumentTypeError
from warrenmq.message.properties import Properties

AGAIN = "again"
"""The property `app_id` of a question that may be asked again, with the same id: whoever handles it keeps the answer."""
BACKOFF = (1.0, 5.0, 30.0, 120.0)
"""Seconds between attempts."""
_ID_BYTES = 16


@dataclass(slots=True)
class Handling:
    """The message that an actor is handling; messages that it sends meanwhile have ids that follow from this one's."""

    message_id: str | None
    make_safe: Callable[[], None]
    """Has the message on the disk: what it leads to elsewhere does not outlive it."""
    told: int = 0

    def next_id(self, address: str) -> str | None:
        """The id of the next message told: the same when the message is handled again after a crash, so that
        receivers see duplicates.
        """
        if self.message_id is None:
            return None
        self.told += 1
        whole = f"{self.message_id}\0{self.told}\0{address}".encode()
        return blake2b(whole, digest_size=_ID_BYTES).hexdigest()


handling: ContextVar[Handling | None] = ContextVar("handling", default=None)


class DurableRef:
    """The address of an actor, over its queue; what DurableActor.start returns has these two methods as well."""

    def __init__(self, broker: Broker, address: str, codec: Codec) -> None:
        self.broker = broker
        self.address = address
        self._codec = codec

    def tell(self, message: Any, *, delay: float | timedelta | None = None, at: datetime | None = None,
             message_id: str | None = None) -> Confirm:  # fmt: skip
        """Send a message; it is on disk when the Confirm says so, and handled once the actor runs, not before
        `delay` or `at`.

        `message_id` says which messages are one and the same: an actor with a state handles the second of two not at all,
        unless it was restarted and the first had changed and told nothing.
        Inside on_receive of a durable actor it is sent when that returns, and not at all if it raises.
        ArgumentTypeError: the actor's codec cannot write it.
        """
        return self._publish(message, {"delay": delay, "at": at}, message_id, Properties())

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """Send a message and wait for what `on_receive` returns; with block=False a Pykka future.

        pykka.Timeout after `timeout` seconds, AskFailed when the actor gave the message up; it may be handled later all the
        same.  Blocked if it could not be sent in that time, as an alarm is set.
        """
        limit, began = seconds("timeout", timeout), self.broker.runtime.monotonic_ns()
        current = handling.get()
        if current is not None:
            current.make_safe()
        replies = replies_of(self.broker)
        correlation, future = replies.expect(self._codec)
        publishing = self.broker.inside.client.publishing.own
        pending, publishing.pending = publishing.pending, None  # a question is not put off: its asker waits
        try:
            properties = Properties(
                reply_to=replies.queue, correlation_id=correlation, app_id=None if current is None else AGAIN
            )
            replies.watch(
                correlation, self._publish(message, {"timeout": limit if block else None}, None, properties)
            )
        except BaseException:
            replies.forget(correlation)
            raise
        finally:
            publishing.pending = pending
        if not block:
            return future
        try:
            spent = (self.broker.runtime.monotonic_ns() - began) / 1e9
            return future.get(timeout=None if limit is None else max(0.0, limit - spent))
        except Timeout:
            # Pykka's own text tells what was left of the time when the question had been sent
            msg = f"no answer of {self.address} in {limit:g} s; the message may be handled later all the same"
            raise Timeout(msg) from None
        finally:
            replies.forget(correlation)

    def _publish(self, message: Any, options: Any, message_id: str | None, more: Properties) -> Confirm:
        body, name = self._codec.encode(message)
        if message_id is None and (current := handling.get()) is not None:
            message_id = current.next_id(self.address)
        if message_id is None:
            message_id = self.broker.runtime.token_bytes(_ID_BYTES).hex()
        properties = Properties(
            content_type=self._codec.content_type, type=name, message_id=message_id, reply_to=more.reply_to,
            correlation_id=more.correlation_id, app_id=more.app_id,
        )  # fmt: skip
        return self.broker.publish("", self.address, body, properties=properties, **options)

    def __repr__(self) -> str:
        return f"<DurableRef {self.address!r}>"


def declare(broker: Broker, address: str, retries: Mapping[str, Any]) -> None:
    """Declare an actor's queue, the queue of the messages that it gave up, and the retry policy."""
    if not is_a(retries, Mapping):
        raise ArgumentTypeError("retries is the arguments of retry_policy, as in {'max_attempts': 5}")
    options: dict[str, Any] = {"max_attempts": 5, "backoff": BACKOFF, "dead_letter": f"{address}-failed"}
    if unknown := [each for each in retries if each not in options]:
        raise ArgumentTypeError(f"retries has {shown(unknown[0])}, which is none of {', '.join(options)}")
    options |= retries
    queue = broker.declare_queue(address)
    if is_a(options["dead_letter"], str):
        broker.declare_queue(options["dead_letter"])
    queue.retry_policy(**options)
