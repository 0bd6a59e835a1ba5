"""AMQP's tx: publishes and acks of one thread that take effect together, or not at all.

As in RabbitMQ the commit is atomic for this thread only: until it happens nothing is sent, and then everything
is, and waited for.  A crash in the middle of a commit may leave a part of it (reference/classic-queue.md, 5.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warrenmq.actors.confirms import Confirm
from warrenmq.errors import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pykka import ActorRef

    from warrenmq.publisher import Publishing


class Transaction:
    """What `Broker.tx` returns: a context manager that keeps its thread's publishes and acks until its end."""

    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing
        self._steps: list[Callable[[], Confirm | None]] = []
        self._promises: list[Confirm] = []
        """What publishers hold; each is settled as its publish is, after the commit."""

    def publish(self, *message: Any) -> Confirm:
        """As Publishing.publish, at the commit; an exchange that is not there is refused now."""
        exchange, *_ = message
        self._publishing.check_exchange(exchange)
        promise = Confirm(self._publishing.runtime)
        self._promises.append(promise)
        self._steps.append(lambda: _follow(self._publishing.publish(*message), promise))
        return promise

    def settle(self, ref: ActorRef[Any], message: Any) -> None:
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
