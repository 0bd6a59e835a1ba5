"""AMQP's tx: publishes and acks of one thread that take effect together, or not at all.

As in RabbitMQ the commit is atomic for this thread only: until it happens nothing is sent, and then everything
is, and waited for.  A crash in the middle of a commit may leave a part of it
(docs/reference/classic-queue.md#transactions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.errors import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pykka import ActorRef

    from warrenmq.broker.broker import Broker
    from warrenmq.broker.handles import Exchange
    from warrenmq.message.properties import Properties


class Transaction:
    """What `Broker.tx` returns: a context manager that keeps its thread's publishes and acks until its end."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._publishing = broker.publishing()
        self._steps: list[Callable[[], Confirm | None]] = []
        self._promises: list[Confirm] = []
        """What publishers hold; each is settled as its publish is, after the commit."""

    def publish(self, exchange: str | Exchange, routing_key: str, body: bytes, *, properties: Properties | None = None,
                persistent: bool = True, mandatory: bool = False, timeout: float | None = None) -> Confirm:  # fmt: skip
        """As Broker.publish inside the transaction; PreconditionFailed when this thread is not in it."""
        if self._broker.publishing().transaction is not self:
            msg = "this thread is not in the transaction; publish inside its `with`, in the thread that entered it"
            raise PreconditionFailed(msg)
        return self._broker.publish(exchange, routing_key, body, properties=properties, persistent=persistent,
                                    mandatory=mandatory, timeout=timeout)  # fmt: skip

    # -- for the broker

    def add_publish(self, *message: Any) -> Confirm:
        """As Publishing.publish, at the commit; what is wrong with the message is refused now."""
        exchange, _, _, properties, *_ = message
        self._publishing.check(exchange, properties)
        promise = Confirm(self._publishing.runtime)
        self._promises.append(promise)
        self._steps.append(lambda: _follow(self._publishing.publish(*message), promise))
        return promise

    def add_settle(self, ref: ActorRef[Any], message: Any) -> None:
        """Cast an ack or reject, at the commit."""
        self._steps.append(lambda: self._publishing.cast(ref, message))

    def __enter__(self) -> Transaction:
        if self._publishing.transaction is not None:
            msg = "this thread is in a transaction already; end that one first"
            raise PreconditionFailed(msg)
        self._publishing.transaction = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        self._publishing.transaction = None
        if kind is None:
            self._publishing.runtime.check_process()
        else:
            for promise in self._promises:
                promise.nack("the transaction was rolled back")
            return
        for step in self._steps:
            step()
        for promise in self._promises:
            promise.result()


def _follow(answer: Confirm, promise: Confirm) -> None:
    """Settle a promise as another is settled."""

    def settle(settled: Confirm) -> None:
        if (error := settled.exception()) is None:
            promise.confirm()
        else:
            promise.fail(error)

    answer.add_done_callback(settle)
