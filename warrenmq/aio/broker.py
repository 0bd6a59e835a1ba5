"""The async Broker, and its queues, exchanges and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from queue import Empty
from types import TracebackType
from typing import Any, Self, Unpack

from warrenmq.aio.cancellable import in_thread, to_the_end
from warrenmq.aio.consumer import Consumer, requeue
from warrenmq.aio.publishing import confirmed
from warrenmq.aio.waking import WakingChannel
from warrenmq.broker import arguments as check
from warrenmq.broker import broker as _broker
from warrenmq.broker.arguments import Named, check_bodies, name
from warrenmq.broker.broker import Watermark
from warrenmq.broker.calls import process_died
from warrenmq.broker.consumer import DEFAULT_PREFETCH, consume_options
from warrenmq.broker.delivery import Delivery, Message
from warrenmq.broker.getter import Getter
from warrenmq.broker.handles import Exchange as _Exchange
from warrenmq.broker.handles import QueueHandle as _Queue
from warrenmq.broker.message_options import OF_PROPERTIES, MessageOptions, read_options
from warrenmq.broker.retry import Backoff, RetryPolicy
from warrenmq.broker.stats import Stats
from warrenmq.checks import is_a, of_this_process
from warrenmq.errors import AccessRefused, BrokerClosed, Error
from warrenmq.message.properties import Properties
from warrenmq.queue.messages import QueueInfo
from warrenmq.runtime import CallFailed
from warrenmq.vhost.policies import Policy

GRACE = 0.25
"""Seconds beyond the timeout of a `get` in which its consumer may end."""


class Broker:
    """An open data directory for one event loop."""

    __reduce__ = of_this_process

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
        """See `warrenmq.Broker.is_owner`."""
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

        Waits while an alarm is set or a queue grants no credit; Blocked after `timeout` seconds of that.
        Keywords are those of `warrenmq.Broker.publish`, `delay` and `at` among them.
        """
        exchange = name("exchange", exchange)
        publish = partial(self.sync.publish, exchange, routing_key, body, properties=properties, persistent=persistent,
                          mandatory=mandatory, **options)  # fmt: skip
        await confirmed(self.sync, publish, exchange, routing_key, timeout)

    async def publish_many(self, exchange: str | Named, routing_key: str, bodies: Iterable[bytes], *,
                           properties: Properties | None = None, persistent: bool = True, mandatory: bool = False,
                           timeout: float | None = None, **options: Unpack[MessageOptions]) -> None:  # noqa: ASYNC109  # fmt: skip
        """Publish many in one cast, and return when all are confirmed."""
        check_bodies(bodies)
        exchange = name("exchange", exchange)
        publish = partial(self.sync.publish_many, exchange, routing_key, list(bodies), properties=properties,
                          persistent=persistent, mandatory=mandatory, **options)  # fmt: skip
        await confirmed(self.sync, publish, exchange, routing_key, timeout)


class Queue(Named):
    """A declared queue."""

    def __init__(self, broker: Broker, queue: _Queue) -> None:
        self._broker = broker
        self._queue = queue
        self._getter = Getter(broker.sync.inside.client, queue.name)
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
        broker, getter = self._broker.sync, self._getter
        broker.check_open()
        request, clock = getter.request(timeout, no_ack), asyncio.get_running_loop().time
        end = clock() + request.timeout
        client, news = broker.inside.client, asyncio.Event()
        give_up = partial(client.calls.give_up, self.name, request)
        box = WakingChannel(broker.runtime.channel(), news, give_up)
        if (asked := client.calls.ask_queue(self.name, request, box)) is not None:
            sender, ref = asked
            try:
                await news.wait()
                return getter.delivery(client, request, sender.wait(0), ref)
            except CallFailed as failure:
                if failure.handling:
                    raise process_died(request, failure) from failure
            except Error:
                raise
            except BaseException:  # the task is cancelled, or collected with its loop
                give_up()
                raise
            finally:
                sender.end()
        if request.timeout:
            return await self._get_later(max(0.0, end - clock()), no_ack)
        return await in_thread(partial(self._queue.get, None, no_ack=no_ack), requeue)

    async def _get_later(self, timeout: float, no_ack: bool) -> Delivery | None:  # noqa: ASYNC109
        """Wait by a consumer, or in a thread where the queue or its other consumers would notice one that comes and goes."""
        clock = asyncio.get_running_loop().time
        end = clock() + timeout
        minds = partial(self._broker.sync.inside.client.calls.minds_consumers, self.name, timeout)
        with suppress(AccessRefused):  # of an exclusive consumer, beside which a get is welcome
            try:
                if not await asyncio.to_thread(minds):
                    return await self._get_by_consumer(max(0.0, end - clock()), no_ack)
            except Empty:  # the owner, another process, did not answer in time
                return None
        return await in_thread(partial(self._queue.get, max(0.0, end - clock()), no_ack=no_ack), requeue)

    async def _get_by_consumer(self, timeout: float, no_ack: bool) -> Delivery | None:  # noqa: ASYNC109
        """Wait for a message that comes from another process, or of a queue without a process, without a thread for that."""
        delivery = None
        clock = asyncio.get_running_loop().time
        end = clock() + timeout + GRACE
        consumer = self.consume(1)  # without acks it would get all that is there
        try:
            try:
                delivery = await consumer.get(timeout)
            finally:
                # if it takes longer, it is cancelled as soon as the owner of the directory answers
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(min(end, clock() + GRACE)):
                        await consumer.cancel()
        except asyncio.CancelledError:  # while the consumer was cancelled
            requeue(delivery)
            raise
        if no_ack and delivery is not None:
            delivery.ack()
        return delivery

    def consume(self, prefetch: int = DEFAULT_PREFETCH, no_ack: bool = False, *,
                exclusive: bool = False, priority: int = 0) -> Consumer:  # fmt: skip
        """Async version of `warrenmq.QueueHandle.consume`: an async iterator over deliveries, and an async
        context manager; it subscribes at the first use.
        """
        return Consumer(self._broker.sync, self.name, consume_options(prefetch, no_ack, exclusive, priority))

    async def retry_policy(self, max_attempts: int = 5, backoff: Backoff = 1.0,
                           dead_letter: str | Named | None = None) -> RetryPolicy:  # fmt: skip
        """Async version of `warrenmq.QueueHandle.retry_policy`."""
        to: Any = dead_letter
        if is_a(dead_letter, Exchange):
            to = _Exchange(self._broker.sync, to.name)
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

    __reduce__ = of_this_process

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._steps: list[Callable[[], object]] = []

    def publish(self, exchange: str | Named, routing_key: str, body: bytes, *, properties: Properties | None = None,
                persistent: bool = True, mandatory: bool = False, timeout: float | None = None,
                **options: Unpack[MessageOptions]) -> None:  # fmt: skip
        """Publish at the end, as body and properties are now; what is wrong with the other arguments is raised there."""
        broker = self._broker.sync
        fields = {each: options.pop(each, None) for each in OF_PROPERTIES}  # type: ignore[misc]  # their names
        plain = check.properties(read_options(properties, fields, broker.runtime.wall_ns).properties)
        publish = partial(broker.publish, name("exchange", exchange), routing_key,
                          check.body(body, broker.settings.max_message_size), properties=plain,
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
