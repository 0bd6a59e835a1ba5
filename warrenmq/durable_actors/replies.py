"""The answers to the asks of a process: a queue of its own, which is gone when the process is; the questions
are handled all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from pykka import Future

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.broker import Broker
from warrenmq.broker.consumer import Consumer
from warrenmq.durable_actors.codec import Codec
from warrenmq.errors import AskFailed, Error
from warrenmq.message.stored import body_of
from warrenmq.queue.messages import Deliveries
from warrenmq.runtime import Lock

ANSWER, FAILURE = "answer", "failure"
"""The property `app_id` of an answer: a value, or a sentence on why there is no value."""
_ID_BYTES = 16


class _Handled(SimpleQueue[Any]):
    """A consumer's channel that keeps nothing: each item is handled at once, in the queue's thread."""

    def __init__(self, handle: Callable[[object], None]) -> None:
        self.handle = handle

    def put(self, item: object, /) -> None:  # type: ignore[override]
        """Handle an item."""
        self.handle(item)


class _Replies:
    """The queue for answers to this process, and the futures that wait for them."""

    def __init__(self, broker: Broker) -> None:
        self._waiting: dict[str, tuple[Codec, Future[Any]]] = {}
        self.ended = False
        """The queue is gone: the next question makes another one."""
        self._runtime = broker.runtime
        declared = broker.declare_queue(durable=False, auto_delete=True)  # it goes with its consumer
        self.queue = declared.name
        self._consumer = Consumer(
            broker.inside.client, declared.name, 0, no_ack=True, exclusive=False, priority=0,
            channel=_Handled(self._handle), ack_in_time=False,
        )  # fmt: skip

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

    def _handle(self, item: object) -> None:
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
                if self._replies is not None:
                    # one that was restarted has no consumer, and would stay
                    with suppress(Error):
                        broker.delete_queue(self._replies.queue)
                self._replies = _Replies(broker)
            return self._replies


def replies_of(broker: Broker) -> _Replies:
    """The queue for answers to this process."""
    kept = broker.inside.kept
    found: _Asking = kept.get(_Asking) or kept.setdefault(_Asking, _Asking(broker.runtime.lock()))
    return found.replies(broker)
