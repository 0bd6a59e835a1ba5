"""warrenmq for asyncio: the same broker, awaited; nothing here blocks the event loop.

    async with warrenmq.aio.open("data/") as broker:
        jobs = await broker.declare_queue("jobs")
        await jobs.publish(b"payload")                  # returns when it is on disk
        async for delivery in jobs.consume(prefetch=100):
            delivery.ack()

A delivery's `ack`, `nack` and `reject` never wait; `retry` and `dead_letter` may wait for the disk, so
`await asyncio.to_thread(delivery.retry)`.

Calls that may wait (open, declare, close) run in a worker thread; publishes, deliveries and, where this
process owns the directory, `get` do not: confirms, messages and answers come back to the loop through
`call_soon_threadsafe`.

A task may be cancelled anywhere: a broker that it was about to open is closed again, and a message that it
was about to get goes back to its queue (with `no_ack` it is gone); a publish may have taken effect or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Literal

from warrenmq import opening as _opening
from warrenmq.aio.broker import Broker, Exchange, Queue, Transaction
from warrenmq.aio.consumer import Consumer
from warrenmq.settings import Settings

__all__ = ["Broker", "Consumer", "Exchange", "Queue", "Transaction", "open"]


def open(path: str | PathLike[str], *, settings: Settings | Mapping[str, Any] | None = None,  # noqa: A001
         trace: str | PathLike[str] | None = None, vhost: str = "/", shared: bool = False,
         unconfirmed: Literal["fail", "repeat"] = "fail") -> Broker:  # fmt: skip
    """Async version of `warrenmq.open`; use the result with `async with`, or call its `start` and `close`."""
    return Broker(
        lambda: _opening.open(
            path, settings=settings, trace=trace, vhost=vhost, shared=shared, unconfirmed=unconfirmed
        )
    )
