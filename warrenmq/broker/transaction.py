"""AMQP's tx: publishes and acks of one thread that take effect together, or not at all.

As in RabbitMQ the commit is atomic for this thread only: until it happens nothing is sent, and then everything
is, and waited for.  A crash in the middle of a commit may leave a part of it
(docs/reference/classic-queue.md#transactions).
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, Unpack

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.arguments import Named
from warrenmq.broker.message_options import MessageOptions
from warrenmq.broker.parts import BrokerClient
from warrenmq.broker.publisher import Pending
from warrenmq.checks import of_this_process
from warrenmq.errors import PreconditionFailed
from warrenmq.message.properties import Properties


class Transaction:
    """A context manager that keeps its thread's publishes and acks until its end; made by `Broker.tx`."""

    __reduce__ = of_this_process

    def __init__(
        self,
        client: BrokerClient,
        publish: Callable[..., Confirm],
        repeats: Callable[[Exception], bool] | None = None,
    ) -> None:
        """`publish` is the broker's; `repeats` as in Pending.commit."""
        self._client = client
        self._repeats = repeats
        self._publish = publish
        self._pending: Pending | None = None

    def publish(self, exchange: str | Named, routing_key: str, body: bytes, *, properties: Properties | None = None,
                persistent: bool = True, mandatory: bool = False, timeout: float | None = None,
                **options: Unpack[MessageOptions]) -> Confirm:  # fmt: skip
        """Publish inside the transaction, as Broker.publish does; PreconditionFailed when this thread is not in it."""
        if self._pending is None or self._client.publishing.own.pending is not self._pending:
            msg = "this thread is not in the transaction; publish inside its `with`, in the thread that entered it"
            raise PreconditionFailed(msg)
        return self._publish(exchange, routing_key, body, properties=properties, persistent=persistent,
                             mandatory=mandatory, timeout=timeout, **options)  # fmt: skip

    def __enter__(self) -> Self:
        publishing = self._client.publishing.own
        if publishing.pending is not None:
            raise PreconditionFailed("this thread is in a transaction already; end that one first")
        self._pending = publishing.pending = Pending(publishing)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        pending, self._pending = self._pending, None
        assert pending is not None, "it was entered"
        pending.publishing.pending = None
        if kind is None:
            self._client.runtime.check_process()
            pending.commit(self._repeats)
        else:
            pending.roll_back()
