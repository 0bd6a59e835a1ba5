"""DurableRef: the address of a durable actor, whether it runs, here or elsewhere, or not.

    ref.tell(Place(order=7))            a persistent publish to the actor's queue; the Confirm says that it is on disk
    ref.ask(Total(), timeout=5)         the same, and waits for what on_receive returns

An answer comes to a queue of the asking process's own, which is gone when that is; the question is handled all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

from pykka import Future

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.broker import Broker
from warrenmq.broker.consumer import Consumer
from warrenmq.durable_actors.codec import Codec
from warrenmq.errors import AskFailed
from warrenmq.message.properties import Properties
from warrenmq.message.stored import body_of
from warrenmq.queue.messages import Deliveries
from warrenmq.runtime import Lock

ANSWER, FAILURE = "answer", "failure"
"""The property `app_id` of an answer: a value, or a sentence on why there is no value."""
AGAIN = "again"
"""The property `app_id` of a question that may be asked again, with the same id: whoever handles it keeps the answer."""
_ID_BYTES = 16


@dataclass(slots=True)
class Handling:
    """The message that an actor is handling; messages that it sends meanwhile have ids that follow from this one's."""

    message_id: str | None
    make_safe: Callable[[], None]
    """Has the message on the disk: what it leads to elsewhere does not outlive it."""
    told: int = 0

    def next_id(self, address: str) -> str | None:
        """The id of the next message told: the same when the message is handled again after a crash, so that receivers see duplicates."""
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
        """Send a message; it is on disk when the Confirm says so, and handled once the actor runs, not before `delay` or `at`.

        `message_id` says which messages are one and the same: an actor with a state handles the second of two not at all.
        Inside on_receive of a durable actor it is sent when that returns, and not at all if it raises.
        ArgumentTypeError: the actor's codec cannot write it.
        """
        return self._publish(message, {"delay": delay, "at": at}, message_id, Properties())

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """Send a message and wait for what `on_receive` returns; with block=False a Pykka future.

        pykka.Timeout after `timeout` seconds, AskFailed when the actor gave the message up; it may be handled later all the
        same.
        """
        current = handling.get()
        if current is not None:
            current.make_safe()
        replies = _replies_of(self.broker)
        correlation, future = replies.expect(self._codec)
        publishing = self.broker.inside.client.publishing.own
        pending, publishing.pending = publishing.pending, None  # a question is not put off: its asker waits
        try:
            properties = Properties(
                reply_to=replies.queue, correlation_id=correlation, app_id=None if current is None else AGAIN
            )
            replies.watch(correlation, self._publish(message, {}, None, properties))
        except BaseException:
            replies.forget(correlation)
            raise
        finally:
            publishing.pending = pending
        if not block:
            return future
        try:
            return future.get(timeout=timeout)
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


class _Replies:
    """The queue for answers to this process, and the futures that wait for them; `put` is called in the queue's thread."""

    def __init__(self, broker: Broker) -> None:
        self._waiting: dict[str, tuple[Codec, Future[Any]]] = {}
        self.ended = False
        """The queue is gone: the next question makes another one."""
        self._runtime = broker.runtime
        declared = broker.declare_queue(durable=False, auto_delete=True)  # it goes with its consumer
        self.queue = declared.name
        self._consumer = Consumer(
            broker.inside.client,
            declared.name,
            0,
            no_ack=True,
            exclusive=False,
            priority=0,
            channel=self,
            ack_in_time=False,
        )

    def expect(self, codec: Codec) -> tuple[str, Future[Any]]:
        """Register an expected answer; returns its correlation id and its future.

        Registered first, looked for the end second; the end is noted first, and whoever is registered told second.
        """
        correlation = self._runtime.token_bytes(_ID_BYTES).hex()
        future = self._runtime.future()
        self._waiting[correlation] = codec, future
        if self.ended:  # meanwhile
            self._end()
        return correlation, future

    def watch(self, correlation: str, confirm: Confirm) -> None:
        """Expect no answer any more when the question turns out to be lost."""

        def look() -> None:
            if (error := confirm.exception()) is not None:
                self._fail(correlation, str(error))

        confirm.on_settled(look)

    def _fail(self, correlation: str, why: str) -> None:
        _, future = self._waiting.pop(correlation, (None, None))
        if future is not None:
            try:
                raise AskFailed(why)  # set_exception takes what is being handled
            except AskFailed:
                future.set_exception()

    def forget(self, correlation: str) -> None:
        """Drop an expected answer."""
        self._waiting.pop(correlation, None)

    # -- a consumer's channel, into which its queue puts

    def put(self, item: object, /) -> None:
        """Handle deliveries, or the end of the queue."""
        if not isinstance(item, Deliveries):
            self._end()
            return
        for fetched in item.messages:
            properties = fetched.decoded().properties
            codec, future = self._waiting.pop(properties.correlation_id or "", (None, None))
            if codec is None or future is None:
                continue
            try:
                value = codec.decode(body_of(fetched.payload, fetched.size), properties.type)
                if properties.app_id == FAILURE:
                    raise AskFailed(str(value))  # set_exception takes what is being handled
                future.set(value)
            except Exception:  # noqa: BLE001 - the asker raises it
                future.set_exception()

    def _end(self) -> None:
        self.ended = True
        for correlation in list(self._waiting):
            self._fail(
                correlation,
                "the queue for answers is gone; the message is handled, or was, but nobody will say so",
            )

    def get(self, timeout: float | None = None) -> object:
        """Not supported: deliveries are handled in `put`."""
        raise NotImplementedError

    def get_nowait(self) -> object:
        """Not supported: deliveries are handled in `put`."""
        raise NotImplementedError

    def empty(self) -> bool:
        """Always empty: deliveries are handled in `put`."""
        return True

    def qsize(self) -> int:
        """Always empty: deliveries are handled in `put`."""
        return 0


class _Asking:
    """The queue for answers to the asks of one broker; made by the first."""

    def __init__(self, making: Lock) -> None:
        self._making = making
        """Held while a queue for answers is made."""
        self._replies: _Replies | None = None

    def replies(self, broker: Broker) -> _Replies:
        """The queue for answers, another one if that is gone."""
        with self._making:
            if self._replies is None or self._replies.ended:
                self._replies = _Replies(broker)
            return self._replies


def _replies_of(broker: Broker) -> _Replies:
    kept = broker.inside.kept
    found: _Asking = kept.get(_Asking) or kept.setdefault(_Asking, _Asking(broker.runtime.lock()))
    return found.replies(broker)
