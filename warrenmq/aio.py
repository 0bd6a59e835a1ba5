"""warrenmq for asyncio: the same broker, awaited; nothing here blocks the event loop.

    async with warrenmq.aio.open("data/") as broker:
        jobs = await broker.declare_queue("jobs")
        await jobs.publish(b"payload")                  # returns when it is on disk
        async for delivery in jobs.consume(prefetch=100):
            delivery.ack()

Calls that may wait (open, declare, get, close) run in a worker thread; publishes and deliveries do not: confirms
and messages come back to the loop through `call_soon_threadsafe`.

A task may be cancelled anywhere: a broker that it was about to open is closed again, and a message that it was about to get goes back to its
queue (with `no_ack` it is gone); a publish may have taken effect or not.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from warrenmq import opening as _opening
from warrenmq.broker import broker as _broker
from warrenmq.broker.arguments import Named, check_bodies, name
from warrenmq.broker.broker import QueueHandle as _Queue
from warrenmq.broker.consumer import DEFAULT_PREFETCH, DOWN, ConsumeOptions, consume_options
from warrenmq.broker.consumer import Consumer as _Consumer
from warrenmq.cancellable import in_thread, to_the_end
from warrenmq.checks import is_a, seconds, whole
from warrenmq.errors import Blocked, BrokerClosed, Error
from warrenmq.node.alarms import BlockedPublisher
from warrenmq.trace.events import AlarmBlocked, AlarmUnblocked
from warrenmq.trace.writers import writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from os import PathLike
    from types import TracebackType

    from warrenmq.actors.sending.confirms import Confirm
    from warrenmq.broker.broker import Watermark
    from warrenmq.broker.delivery import Delivery, Message
    from warrenmq.broker.message_options import MessageOptions
    from warrenmq.broker.retry import Backoff, RetryPolicy
    from warrenmq.broker.stats import Stats
    from warrenmq.message.properties import Properties
    from warrenmq.queue.messages import QueueInfo
    from warrenmq.runtime import Channel
    from warrenmq.settings import Settings
    from warrenmq.vhost.policies import Policy

_write_blocked, _write_unblocked = writer(AlarmBlocked), writer(AlarmUnblocked)


def open(path: str | PathLike[str], *, settings: Settings | Mapping[str, Any] | None = None,  # noqa: A001
         trace: str | PathLike[str] | None = None, vhost: str = "/", shared: bool = False,
         unconfirmed: Literal["fail", "repeat"] = "fail") -> Broker:  # fmt: skip
    """Async version of `warrenmq.open`; use the result with `async with`, or call its `start` and `close`."""
    return Broker(
        lambda: _opening.open(
            path, settings=settings, trace=trace, vhost=vhost, shared=shared, unconfirmed=unconfirmed
        )
    )


DELIVERIES_PER_TAKE = 128
"""Deliveries that one trip to the consumer's channel brings."""
GRACE = 0.25
"""Seconds beyond the timeout of a `get` in which its consumer may end."""
IN_A_THREAD = 0.1
"""Seconds that a publish without credit waits in a worker thread before it makes room for others."""


class Broker:
    """An open data directory for one event loop."""

    def __init__(self, start: Callable[[], _broker.Broker]) -> None:
        self._start = start
        self._sync: _broker.Broker | None = None

    async def start(self) -> Self:
        """Open or recover the directory; raises as `warrenmq.open` does."""
        self._sync = await in_thread(self._start, _broker.Broker.close)
        return self

    async def close(self, timeout: float | None = 60.0) -> tuple[str, ...]:  # noqa: ASYNC109  # the face's own signature
        """Async version of `warrenmq.Broker.close`."""
        return () if self.is_forked else await to_the_end(partial(self.sync.close, timeout))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:  # fmt: skip
        await self.close()

    @property
    def is_forked(self) -> bool:
        """True if this process is a forked child: then there is nothing to close."""
        return self._sync is not None and self._sync.runtime.forked_from is not None

    @property
    def sync(self) -> _broker.Broker:
        """The broker underneath, for calls that are not wrapped here."""
        if self._sync is None:
            msg = "the broker is not started; use `async with warrenmq.aio.open(...)` or await its start()"
            raise BrokerClosed(msg)
        self._sync.runtime.check_process()  # here: in a forked child a worker thread may never come
        return self._sync

    @property
    def is_open(self) -> bool:
        """True if it takes calls: False before `start`, once closed, or when its supervision tree gave up."""
        return self._sync is not None and self._sync.is_open

    @property
    def is_owner(self) -> bool:
        """Async version of `warrenmq.Broker.is_owner`."""
        return self.sync.is_owner

    @property
    def trace_path(self) -> str | None:
        """See `warrenmq.Broker.trace_path`."""
        return self.sync.trace_path

    def mark(self, text: str) -> None:
        """See `warrenmq.Broker.mark`; it never waits."""
        self.sync.mark(text)

    def would_block(
        self, exchange: str | Named, routing_key: str, properties: Properties | None = None
    ) -> bool:
        """True if a publish would wait in a thread, as `warrenmq.Broker.would_block` has it."""
        return self.sync.would_block(name("exchange", exchange), routing_key, properties)

    async def declare_queue(self, name: str = "", *, durable: bool = True, exclusive: bool = False,
                            auto_delete: bool = False, arguments: Mapping[str, Any] | None = None) -> Queue:  # fmt: skip
        """Async version of `warrenmq.Broker.declare_queue`."""
        declare = partial(self.sync.declare_queue, name, durable=durable, exclusive=exclusive, auto_delete=auto_delete,
                          arguments=arguments)  # fmt: skip
        return Queue(self, await asyncio.to_thread(declare))

    async def declare_exchange(self, name: str, type: str = "direct", *, durable: bool = True,
                               auto_delete: bool = False, internal: bool = False,
                               arguments: Mapping[str, Any] | None = None) -> Exchange:  # fmt: skip
        """Async version of `warrenmq.Broker.declare_exchange`."""
        declare = partial(self.sync.declare_exchange, name, type, durable=durable, auto_delete=auto_delete,
                          internal=internal, arguments=arguments)  # fmt: skip
        return Exchange(self, (await asyncio.to_thread(declare)).name)

    async def bind(self, destination: str | Named, source: str | Named, routing_key: str = "",
                   arguments: Mapping[str, Any] | None = None, *, destination_type: str | None = None) -> None:  # fmt: skip
        """Async version of `warrenmq.Broker.bind`."""
        kind = _kind(destination, destination_type)
        await asyncio.to_thread(
            self.sync.bind, destination, source, routing_key, arguments, destination_type=kind
        )

    async def unbind(self, destination: str | Named, source: str | Named, routing_key: str = "",
                     arguments: Mapping[str, Any] | None = None, *, destination_type: str | None = None) -> None:  # fmt: skip
        """Async version of `warrenmq.Broker.unbind`."""
        kind = _kind(destination, destination_type)
        await asyncio.to_thread(
            self.sync.unbind, destination, source, routing_key, arguments, destination_type=kind
        )

    async def queue(self, name: str) -> Queue:
        """Async version of `warrenmq.Broker.queue`."""
        return Queue(self, await asyncio.to_thread(self.sync.queue, name))

    async def queues(self) -> list[Queue]:
        """Async version of `warrenmq.Broker.queues`."""
        return [Queue(self, each) for each in await asyncio.to_thread(self.sync.queues)]

    async def delete_exchange(self, name: str | Named, *, if_unused: bool = False) -> None:
        """Async version of `warrenmq.Broker.delete_exchange`."""
        await asyncio.to_thread(self.sync.delete_exchange, name, if_unused=if_unused)

    def tx(self) -> Transaction:
        """An async context manager: what is published and acknowledged through it takes effect together at its end, none
        of it on an exception.

        A task has no thread of its own, so what belongs to the transaction is said to it: `tx.publish`, `tx.ack`, `tx.nack`.
        """
        return Transaction(self)

    async def delete_queue(
        self, name: str | Named, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Async version of `warrenmq.Broker.delete_queue`."""
        return await asyncio.to_thread(self.sync.delete_queue, name, if_unused=if_unused, if_empty=if_empty)

    async def purge(self, name: str | Named) -> int:
        """Async version of `warrenmq.Broker.purge`."""
        return await asyncio.to_thread(self.sync.purge, name)

    async def stats(self) -> Stats:
        """Async version of `warrenmq.Broker.stats`."""
        return await asyncio.to_thread(self.sync.stats)

    async def set_policy(self, name: str, pattern: str, definition: Mapping[str, Any], *, apply_to: str = "all",
                         priority: int = 0, operator: bool = False) -> None:  # fmt: skip
        """Async version of `warrenmq.Broker.set_policy`."""
        change = partial(self.sync.set_policy, apply_to=apply_to, priority=priority, operator=operator)
        await asyncio.to_thread(change, name, pattern, definition)

    async def clear_policy(self, name: str, *, operator: bool = False) -> None:
        """Async version of `warrenmq.Broker.clear_policy`."""
        await asyncio.to_thread(partial(self.sync.clear_policy, name, operator=operator))

    async def policies(self) -> list[Policy]:
        """Async version of `warrenmq.Broker.policies`."""
        return await asyncio.to_thread(self.sync.policies)

    async def set_vm_memory_high_watermark(self, watermark: Watermark) -> int:
        """Async version of `warrenmq.Broker.set_vm_memory_high_watermark`."""
        return await asyncio.to_thread(self.sync.set_vm_memory_high_watermark, watermark)

    async def set_disk_free_limit(self, limit: Watermark) -> int:
        """Async version of `warrenmq.Broker.set_disk_free_limit`."""
        return await asyncio.to_thread(self.sync.set_disk_free_limit, limit)

    async def publish(self, exchange: str | Named, routing_key: str, body: bytes, *,
                      properties: Properties | None = None, persistent: bool = True, mandatory: bool = False,
                      timeout: float | None = None, **options: Unpack[MessageOptions]) -> None:  # noqa: ASYNC109  # fmt: skip
        """Publish, and return when it is confirmed; raises as `Confirm.result` does.

        Waits while an alarm is set or a queue grants no credit; Blocked after `timeout` seconds of that.  Keywords are those of
        `warrenmq.Broker.publish`, `delay` and `at` among them.
        """
        exchange = name("exchange", exchange)
        publish = partial(self.sync.publish, exchange, routing_key, body, properties=properties, persistent=persistent,
                          mandatory=mandatory, **options)  # fmt: skip
        await self._confirmed(publish, exchange, routing_key, timeout)

    async def publish_many(self, exchange: str | Named, routing_key: str, bodies: Iterable[bytes], *,
                           properties: Properties | None = None, persistent: bool = True, mandatory: bool = False,
                           timeout: float | None = None, **options: Unpack[MessageOptions]) -> None:  # noqa: ASYNC109  # fmt: skip
        """Publish many in one cast, and return when all are confirmed."""
        check_bodies(bodies)
        exchange = name("exchange", exchange)
        publish = partial(self.sync.publish_many, exchange, routing_key, list(bodies), properties=properties,
                          persistent=persistent, mandatory=mandatory, **options)  # fmt: skip
        await self._confirmed(publish, exchange, routing_key, timeout)

    async def _confirmed(self, publish: partial[Confirm], exchange: str, routing_key: str,
                         timeout: float | None) -> None:  # noqa: ASYNC109  # fmt: skip
        confirm = await self._accepted(publish, exchange, routing_key, timeout)
        if not confirm.done():
            loop = asyncio.get_running_loop()
            known = loop.create_future()

            def wake() -> None:
                if not known.done():
                    known.set_result(None)

            confirm.on_settled(partial(loop.call_soon_threadsafe, wake))
            await known
        confirm.result(0)

    async def _accepted(self, publish: partial[Confirm], exchange: str, routing_key: str,
                        timeout: float | None) -> Confirm:  # noqa: ASYNC109  # fmt: skip
        """Publish, waiting for the alarms here, in the loop, however many do; in a thread, and never long, for credit.

        Were it the threads that waited for an alarm, a few publishers would keep all of them, and those who could end
        the alarm by consuming would get none.
        """
        broker, clock = self.sync, asyncio.get_running_loop().time
        if not broker.inside.client.has_later and not {"delay", "at"}.isdisjoint(publish.keywords):
            await asyncio.to_thread(broker.inside.client.have_later)
        limit = seconds("timeout", timeout)
        deadline = math.inf if limit is None else clock() + limit
        refused = False
        while True:
            broker.check_open()
            if broker.inside.alarms.active and clock() < deadline:
                await self._alarms_cleared(exchange, routing_key, deadline)
            left = max(0.0, min(deadline - clock(), IN_A_THREAD))
            try:
                if (
                    left
                    and not broker.inside.alarms.active
                    and (
                        refused
                        or broker.would_block(exchange, routing_key, publish.keywords.get("properties"))
                    )
                ):
                    return await asyncio.to_thread(publish, timeout=left)
                return publish(timeout=0)
            except Blocked:
                if clock() >= deadline:
                    raise
                refused = True

    async def _alarms_cleared(self, exchange: str, routing_key: str, deadline: float) -> None:
        """Return when no alarm is set, the deadline has passed or the broker is being closed."""
        loop, broker, news = asyncio.get_running_loop(), self.sync, asyncio.Event()
        task = asyncio.current_task()
        name = "asyncio" if task is None else task.get_name()
        who = BlockedPublisher(name, exchange, routing_key, broker.runtime.wall_ns())

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: there is nothing to wake
                loop.call_soon_threadsafe(news.set)

        alarms, trace = broker.inside.alarms, broker.inside.client.trace()
        ticket = alarms.add_waiting(who, wake)
        if trace is not None:
            _write_blocked(trace)
        try:
            if alarms.active and broker.is_open:
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        news.wait(), None if deadline == math.inf else deadline - loop.time()
                    )
        finally:
            alarms.remove_waiting(ticket)
            if trace is not None:
                _write_unblocked(trace)


class Queue(Named):
    """A declared queue."""

    def __init__(self, broker: Broker, queue: _Queue) -> None:
        self._broker = broker
        self._queue = queue
        self.name = queue.name

    async def publish(self, body: bytes, *, properties: Properties | None = None, persistent: bool = True,
                      mandatory: bool = False, timeout: float | None = None,  # noqa: ASYNC109
                      **options: Unpack[MessageOptions]) -> None:  # fmt: skip
        """Publish, and return when it is confirmed (see Broker.publish)."""
        await self._broker.publish("", self.name, body, properties=properties, persistent=persistent,
                                   mandatory=mandatory, timeout=timeout, **options)  # fmt: skip

    async def publish_many(self, bodies: Iterable[bytes], *, properties: Properties | None = None,
                           persistent: bool = True, mandatory: bool = False, timeout: float | None = None,  # noqa: ASYNC109
                           **options: Unpack[MessageOptions]) -> None:  # fmt: skip
        """Publish many in one cast, and return when all are confirmed."""
        await self._broker.publish_many("", self.name, bodies, properties=properties, persistent=persistent,
                                        mandatory=mandatory, timeout=timeout, **options)  # fmt: skip

    async def get(self, timeout: float | None = None, *, no_ack: bool = False) -> Delivery | None:  # noqa: ASYNC109
        """Async version of `warrenmq.QueueHandle.get`."""
        self._broker.sync.check_open()
        timeout = seconds("timeout", timeout)
        if not timeout:
            return await in_thread(partial(self._queue.get, None, no_ack=no_ack), _requeue)
        delivery = None
        clock = asyncio.get_running_loop().time
        end = clock() + timeout + GRACE
        consumer = self.consume(1, no_ack)
        try:
            try:
                delivery = await consumer.get(timeout)
            finally:
                # if it takes longer, it is cancelled as soon as the owner of the directory answers
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(min(end, clock() + GRACE)):
                        await consumer.cancel()
        except asyncio.CancelledError:  # while the consumer was cancelled
            _requeue(delivery)
            raise
        return delivery

    def consume(self, prefetch: int = DEFAULT_PREFETCH, no_ack: bool = False, *,
                exclusive: bool = False, priority: int = 0) -> Consumer:  # fmt: skip
        """Async version of `warrenmq.QueueHandle.consume`: an async iterator over deliveries, and an async context manager; it
        subscribes at the first use.
        """
        return Consumer(self._broker, self.name, consume_options(prefetch, no_ack, exclusive, priority))

    async def retry_policy(self, max_attempts: int = 5, backoff: Backoff = 1.0,
                           dead_letter: str | Named | None = None) -> RetryPolicy:  # fmt: skip
        """Async version of `warrenmq.QueueHandle.retry_policy`."""
        to: Any = dead_letter
        if is_a(dead_letter, Exchange):
            to = _broker.Exchange(self._broker.sync, to.name)
        return await asyncio.to_thread(self._queue.retry_policy, max_attempts, backoff, to)

    async def peek(self, n: int = 1) -> list[Message]:
        """Async version of `warrenmq.QueueHandle.peek`."""
        return await asyncio.to_thread(self._queue.peek, n)

    async def info(self) -> QueueInfo:
        """Async version of `warrenmq.QueueHandle.info`."""
        return await asyncio.to_thread(self._queue.info)

    async def length(self) -> int:
        """Ready messages; `len` cannot be awaited."""
        return (await self.info()).ready

    async def purge(self) -> int:
        """Async version of `warrenmq.QueueHandle.purge`."""
        return await asyncio.to_thread(self._queue.purge)

    async def delete(self, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Async version of `warrenmq.QueueHandle.delete`."""
        return await asyncio.to_thread(self._queue.delete, if_unused=if_unused, if_empty=if_empty)

    def __str__(self) -> str:
        return self.name


class Exchange(Named):
    """A declared exchange."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker = broker
        self.name = name

    async def publish(self, routing_key: str, body: bytes, *, properties: Properties | None = None,
                      persistent: bool = True, mandatory: bool = False, timeout: float | None = None,  # noqa: ASYNC109
                      **options: Unpack[MessageOptions]) -> None:  # fmt: skip
        """Publish to this exchange, and return when it is confirmed (see Broker.publish)."""
        await self._broker.publish(self.name, routing_key, body, properties=properties, persistent=persistent,
                                   mandatory=mandatory, timeout=timeout, **options)  # fmt: skip

    def __str__(self) -> str:
        return self.name


class Transaction:
    """An async transaction, made by `Broker.tx`; use it with `async with`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._steps: list[Callable[[], object]] = []

    def publish(self, exchange: str | Named, routing_key: str, body: bytes, *, properties: Properties | None = None,
                persistent: bool = True, mandatory: bool = False, timeout: float | None = None,
                **options: Unpack[MessageOptions]) -> None:  # fmt: skip
        """Publish at the end; what is wrong with the message is raised there."""
        publish = partial(self._broker.sync.publish, name("exchange", exchange), routing_key, body, properties=properties,
                          persistent=persistent, mandatory=mandatory, timeout=timeout, **options)  # fmt: skip
        self._steps.append(publish)

    def ack(self, delivery: Delivery, multiple: bool = False) -> None:
        """Acknowledge a delivery at the end."""
        self._steps.append(partial(delivery.ack, multiple))

    def nack(self, delivery: Delivery, requeue: bool = True, multiple: bool = False) -> None:
        """Give a delivery back, or drop it, at the end."""
        self._steps.append(partial(delivery.nack, requeue, multiple))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:  # fmt: skip
        steps, self._steps = self._steps, []
        if kind is None:
            await asyncio.to_thread(self._commit, steps)

    def _commit(self, steps: list[Callable[[], object]]) -> None:
        with self._broker.sync.tx():
            for step in steps:
                step()


def _kind(destination: str | Named, given: str | None) -> str:
    if given is not None:
        return given
    return "exchange" if is_a(destination, Exchange) else "queue"


class _WakingChannel:
    """A consumer's channel that wakes its event loop; `put` is called in other threads."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self.news = asyncio.Event()
        self.subscribe_again = False
        """The queue process died: the next take will wait for its successor."""
        self.get = channel.get
        self.get_nowait = channel.get_nowait
        self.empty = channel.empty
        self.qsize = channel.qsize

    def put(self, item: object, /) -> None:
        self._channel.put(item)
        if item is DOWN:
            self.subscribe_again = True
        with suppress(RuntimeError):  # the loop is closed: there is nothing to wake
            self._loop.call_soon_threadsafe(self.news.set)


async def _taken(consumer: _Consumer, channel: _WakingChannel) -> list[Delivery]:
    """Take what is there; in a worker thread if the consumer has to subscribe again for that."""
    if not channel.subscribe_again:
        return consumer.take(DELIVERIES_PER_TAKE, 0)
    channel.subscribe_again = False
    try:
        return await in_thread(partial(consumer.take, DELIVERIES_PER_TAKE, 0), _requeue_all)
    except BaseException:
        channel.subscribe_again = True
        raise


def _requeue(delivery: Delivery | None) -> None:
    if delivery is not None:
        with suppress(Error):  # it is not to be acked, or its queue is gone
            delivery.nack()


def _requeue_all(deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        _requeue(delivery)


class Consumer:
    """Deliveries for `async for`; acks are ordinary methods of the delivery, they never wait."""

    def __init__(self, broker: Broker, queue: str, options: ConsumeOptions) -> None:
        self._broker = broker
        self._queue, self._options = queue, options
        self._consumer: _Consumer | None = None
        self._channel: _WakingChannel | None = None
        self._ready: deque[Delivery] = deque()
        self._at_work = asyncio.Lock()
        """Held by the task that subscribes or takes: several may wait for deliveries of one consumer."""

    async def _started(self, limit: float | None = None) -> tuple[_Consumer, _WakingChannel]:
        """Subscribe once; Empty when an owner in another process does not answer within so many seconds."""
        if self._consumer is None or self._channel is None:
            async with self._at_work:
                return await self._start(limit)
        return self._consumer, self._channel

    async def _start(self, limit: float | None) -> tuple[_Consumer, _WakingChannel]:
        if self._consumer is None or self._channel is None:
            broker = self._broker.sync
            channel = self._channel = _WakingChannel(broker.runtime.channel())
            subscribe = partial(
                _Consumer, broker.inside.client, self._queue, **self._options, channel=channel, timeout=limit
            )
            self._consumer = await in_thread(subscribe, _Consumer.cancel)
        return self._consumer, self._channel

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        if not await self._arrived(None):
            raise StopAsyncIteration
        return self._ready.popleft()

    @property
    def ended(self) -> bool:
        """True if there will be no more deliveries: cancelled, the queue deleted, or the broker closed."""
        return not self._ready and self._consumer is not None and self._consumer.ended

    async def get(self, timeout: float | None = None) -> Delivery | None:  # noqa: ASYNC109  # the face's own signature
        """The next delivery; None when none came within `timeout` seconds, or when there will be no more."""
        return self._ready.popleft() if await self._arrived(seconds("timeout", timeout)) else None

    async def take(self, most: int, timeout: float | None = None) -> list[Delivery]:  # noqa: ASYNC109
        """Up to `most` deliveries that are there; waits for the first as `get` does."""
        most = whole("most", most, 1, sys.maxsize)
        await self._arrived(seconds("timeout", timeout))
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    async def _arrived(self, limit: float | None) -> bool:
        """Wait until there is a delivery; False when there will be none, or after so many seconds."""
        clock = asyncio.get_running_loop().time
        deadline = None if limit is None else clock() + limit
        try:
            consumer, channel = await self._started(limit)
        except Empty:
            return False
        self._broker.sync.runtime.check_process()
        while not self._ready:
            channel.news.clear()
            async with self._at_work:
                self._ready.extend(await _taken(consumer, channel))
            if not self._ready:
                left = None if deadline is None else deadline - clock()
                if consumer.ended or (left is not None and left <= 0):
                    return False
                with suppress(TimeoutError):
                    await asyncio.wait_for(channel.news.wait(), left)
        return True

    async def cancel(self) -> None:
        """Cancel the consumer; deliveries not yet handed out are requeued."""
        if self._consumer is not None and not self._broker.is_forked:
            while self._ready:
                self._ready.pop().nack()
            await to_the_end(self._consumer.cancel)

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:  # fmt: skip
        await self.cancel()
