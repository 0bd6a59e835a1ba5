"""AMQP's tx: publishes and acks of one thread that take effect together, or not at all.

As in RabbitMQ the commit is atomic for this thread only: until it happens nothing is sent, and then everything
is, and waited for.  A crash in the middle of a commit may leave a part of it (reference/classic-queue.md, 5.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warrenmq.errors import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from warrenmq.actors.confirms import Confirm


class Transaction:
    """What `Broker.tx` returns; publishes and acks of its thread are kept here until its end."""

    def __init__(self, local: Any) -> None:
        self._local = local
        self._steps: list[tuple[Callable[[], Any], Confirm | None]] = []

    def add(self, step: Callable[[], Any], confirm: Confirm | None) -> None:
        """Keep a publish (with the promise that its publisher holds) or an ack for the commit."""
        self._steps.append((step, confirm))

    def __enter__(self) -> Transaction:
        if getattr(self._local, "transaction", None) is not None:
            msg = "this thread is in a transaction already; end that one first"
            raise PreconditionFailed(msg)
        self._local.transaction = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        self._local.transaction = None
        steps, self._steps = self._steps, []
        if kind is not None:
            for _step, confirm in steps:
                if confirm is not None:
                    confirm.nack("the transaction was rolled back")
            return
        real = [(step(), confirm) for step, confirm in steps]
        for answer, confirm in real:
            if confirm is not None:
                answer.add_done_callback(
                    lambda settled, waiting=confirm: waiting.confirm()
                    if settled.exception() is None
                    else waiting.fail(settled.exception())
                )
        for _answer, confirm in real:
            if confirm is not None:
                confirm.result()
