"""Async publishes: what they wait for without a thread, credit apart."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from functools import partial

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.aio.waking import waker
from warrenmq.broker.broker import Broker
from warrenmq.checks import seconds
from warrenmq.errors import Blocked
from warrenmq.node.alarms import BlockedPublisher
from warrenmq.trace.events import AlarmBlocked, AlarmUnblocked
from warrenmq.trace.writers import writer

_write_blocked, _write_unblocked = writer(AlarmBlocked), writer(AlarmUnblocked)

IN_A_THREAD = 0.1
"""Seconds that a publish without credit waits in a worker thread before it makes room for others."""


async def confirmed(broker: Broker, publish: partial[Confirm], exchange: str, routing_key: str,
                    timeout: float | None) -> None:  # noqa: ASYNC109  # fmt: skip
    """Publish, and return when it is confirmed; raises as `Confirm.result` does."""
    confirm = await _accepted(broker, publish, exchange, routing_key, timeout)
    if not confirm.done():
        settled = asyncio.Event()
        confirm.on_settled(waker(settled.set))
        await settled.wait()
    confirm.result(0)


async def _accepted(broker: Broker, publish: partial[Confirm], exchange: str, routing_key: str,
                    timeout: float | None) -> Confirm:  # noqa: ASYNC109  # fmt: skip
    """Publish, waiting for the alarms here, in the loop, however many do; in a thread, and never long, for credit.

    Were it the threads that waited for an alarm, a few publishers would keep all of them, and those who could end
    the alarm by consuming would get none.
    """
    clock = asyncio.get_running_loop().time
    if not broker.inside.client.has_later and not {"delay", "at"}.isdisjoint(publish.keywords):
        await asyncio.to_thread(broker.inside.client.have_later)
    limit = seconds("timeout", timeout)
    deadline = math.inf if limit is None else clock() + limit
    refused = False
    while True:
        broker.check_open()
        if broker.inside.alarms.active and clock() < deadline:
            await _alarms_cleared(broker, exchange, routing_key, deadline)
        left = max(0.0, min(deadline - clock(), IN_A_THREAD))
        try:
            # a queue that sleeps is started in a thread, however short the time
            if not broker.inside.alarms.active and (
                refused or broker.would_block(exchange, routing_key, publish.keywords.get("properties"))
            ):
                return await asyncio.to_thread(publish, timeout=left)
            return publish(timeout=0)
        except Blocked:
            if clock() >= deadline:
                raise
            refused = True


async def _alarms_cleared(broker: Broker, exchange: str, routing_key: str, deadline: float) -> None:
    """Return when no alarm is set, the deadline has passed or the broker is being closed."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    task = asyncio.current_task()
    name = "asyncio" if task is None else task.get_name()
    who = BlockedPublisher(name, exchange, routing_key, broker.runtime.wall_ns())
    alarms, trace = broker.inside.alarms, broker.inside.client.trace()
    ticket = alarms.add_waiting(who, waker(news.set))
    if trace is not None:
        _write_blocked(trace)
    try:
        if alarms.active and broker.is_open:
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), None if deadline == math.inf else deadline - loop.time())
    finally:
        alarms.remove_waiting(ticket)
        if trace is not None:
            _write_unblocked(trace)
