"""The connections of an attached process to the process that owns the directory.

    work        calls, consumers, gets
    publishing  made with the first publish, as the owner stops reading a connection that publishes while an alarm is set,
                and acks must get through then
    its own     of each consumer without a prefetch count or without acks, except of exclusive queues: not read while too much of it
                is unread

A channel is taken from the idle ones, or opened, for each call; and kept by a handle for as long as it holds what it got.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from warrenmq.actors.vhost.messages import DeleteExchange, DeleteQueue, Unbind
from warrenmq.errors import Error, ResourceLocked
from warrenmq.message.properties import Properties
from warrenmq.queue.messages import Consume, Get, Got
from warrenmq.runtime import Runtime
from warrenmq.runtime.shortage import shortage
from warrenmq.runtime.thread_event import ThreadEvent, hold
from warrenmq.shared.calling import CallChannel
from warrenmq.shared.connection import GOODBYE, ClientConnection
from warrenmq.shared.consuming import FIRST_WAIT, LONGEST_WAIT, ConsumerChannel, GetChannel
from warrenmq.shared.errors import LinkLost, anew
from warrenmq.shared.patience import Unanswered, left, limited
from warrenmq.shared.publishing import PublishChannel, Unconfirmed

GiveUp = Callable[[list[Unconfirmed], Error], None]


class Attachment:
    """The connections to one owner; losing any of them ends the attachment."""

    def __init__(self, directory: str, vhost: str, runtime: Runtime, lost: Callable[[Attachment, Error], None],
                 give_up: GiveUp, blocked: Callable[[str | None], None]) -> None:  # fmt: skip
        """`lost` is called once, when the owner is gone; `give_up` with publishes that will have no answer, before that;
        `blocked` as ClientConnection's on_blocked.  All three in a connection's thread.
        """
        self._directory, self._vhost, self._runtime = directory, vhost, runtime
        self._lost, self._give_up, self._blocked = lost, give_up, blocked
        self._lock = threading.RLock()
        """A thread that holds it does not wait for the owner, as a connection's thread may want it."""
        self._opening = threading.Lock()
        """Held by the thread that opens the channel for publishes; whoever takes it may wait for the owner."""
        self._idle: list[CallChannel] = []
        """Channels for calls that nobody uses now."""
        self._idle_getters: list[GetChannel] = []
        self._getters: dict[int, GetChannel] = {}
        """The channel of each handle that has fetched a message, by the handle's consumer id."""
        self._connections: list[ClientConnection] = []
        self._publish: PublishChannel | None = None
        """The channel for publishes, on `_publishing`; None before the first."""
        self._publishing: ClientConnection | None = None
        self._over = ThreadEvent()
        """Set when the owner is gone, or with `close`."""
        self._work = self._connect()

    def _connect(self, *, publishes: bool = False) -> ClientConnection:
        """A connection to the owner; LinkLost when the attachment is over, as it would be the next owner's."""
        try:
            connection = ClientConnection(
                self._directory, self._vhost, self._ended, self._alarmed, publishes=publishes
            )
            connection.open()
        except OSError as why:
            if (refused := shortage(why, "warrenmq-attached")) is None:
                raise
            raise refused from why
        try:
            with self._lock:
                if self._over.is_set():
                    raise LinkLost("the owner ended")
                self._connections = [each for each in self._connections if each.ended is None] + [connection]
        except BaseException:
            connection.close_soon()
            raise
        return connection

    @property
    def is_over(self) -> bool:
        """True once the owner is gone."""
        return self._over.is_set()

    # -- calls

    def call(self, request: Any, queue: str = "") -> tuple[Any, Any]:
        """Carry out a request of the Broker API; returns the answer and the channel that stands for the queue's process.

        All that this process published and acked before has happened then.  LinkLost when the owner goes.
        """
        self.sync()
        if isinstance(request, Get):
            return self._get(queue, request)
        if isinstance(request, Consume):
            return None, self._consume(queue, request)
        with self.calling() as channel:
            answer = channel.perform(request, queue), None
        if isinstance(request, DeleteExchange | DeleteQueue | Unbind) and self._publish is not None:
            self._publish.forget_exchanges()
        return answer

    @contextmanager
    def calling(self) -> Iterator[CallChannel]:
        """Context manager that lends a channel for synchronous calls; it is closed if a signal's handler interrupts one."""
        channel = None
        try:
            with self._lock:
                if self._idle:
                    channel = self._idle[-1]
                    del self._idle[-1]
            if channel is None:
                channel = CallChannel(self._work).open()
            yield channel
        except Error:
            raise
        except BaseException:
            if channel is not None:
                channel.close_soon()
            raise
        finally:
            if channel is not None and channel.error is None:
                self._idle.append(channel)

    def sync(self) -> None:
        """Wait until the owner has processed everything that this process sent it."""
        for connection in list(self._connections):
            for channel in list(connection.channels.values()):
                channel.sync()

    # -- consuming

    def _consume(self, queue: str, request: Consume) -> ConsumerChannel:
        own = None if request.prefetch and not request.no_ack else self._connect()
        try:
            return ConsumerChannel(own or self._work, request, queue, own).open()
        except ResourceLocked:
            if own is None:
                raise
            own.close_soon()
            # the queue may be exclusive to the connection that declared it
            return ConsumerChannel(self._work, request, queue, None).open()
        except BaseException:
            if own is not None:
                own.close_soon()
            raise

    def _get(self, queue: str, request: Get) -> tuple[Got | None, GetChannel]:
        deadline = self._runtime.monotonic_ns() + round(request.timeout * 1e9)
        wait = FIRST_WAIT
        while True:
            channel = self._getter(request.consumer)
            try:
                got = channel.get(queue, request)
            finally:
                with self._lock:
                    channel.users -= 1
                self._put_back(channel)
            left = (deadline - self._runtime.monotonic_ns()) / 1e9
            if got is not None or left <= 0:
                return got, channel
            if self._over.wait(min(wait, left)):
                raise LinkLost("the owner ended")
            wait = min(2 * wait, LONGEST_WAIT)

    def _getter(self, getter: int) -> GetChannel:
        """The channel of a handle, which has one more user now."""
        while True:
            with self._lock:
                channel = self._getters.get(getter)
                if (channel is None or channel.error is not None) and self._idle_getters:
                    channel = self._getters[getter] = self._idle_getters[-1]
                    del self._idle_getters[-1]
                if channel is not None and channel.error is None:
                    channel.users += 1
                    return channel
            self._idle_getters.append(GetChannel(self._work, self._put_back).open())

    def _put_back(self, channel: GetChannel) -> None:
        """Return the channel to the pool unless it has unacked messages; drop it if it is closed."""
        with self._lock:
            if channel.error is None and not channel.is_idle:
                return
            self._getters = {key: each for key, each in self._getters.items() if each is not channel}
            if channel.error is None and channel not in self._idle_getters:
                self._idle_getters.append(channel)

    # -- publishing

    def publish(self, item: Unconfirmed) -> None:
        """Send a publish.  Raises an error for an invalid publish, and LinkLost (nothing was sent) when the owner is gone."""
        while True:
            channel = self._publish_channel()
            if not channel.knows(item.exchange):
                with self.calling() as asking:
                    asking.ask("check_publish", exchange=item.exchange)
                channel.know(item.exchange)
            try:
                channel.publish(item)
            except Error as why:
                if (ended := channel.connection.ended) is not None:
                    raise anew(ended) from why
                if channel.error is None or str(why) != str(channel.error):
                    raise
                continue  # closed for another's publish, which is nothing to this one
            return

    def check(self, exchange: str, routing_key: str, properties: Properties | None) -> None:
        """Raise what is wrong with a publish; LinkLost when the owner is gone."""
        if exchange:
            with self.calling() as asking:
                asking.ask("check_publish", exchange=exchange)
        self._publish_channel().check(exchange, routing_key, properties)

    def has_room(self) -> bool:
        """True if a publish need not wait."""
        channel = self._publish
        return channel is None or channel.connection.has_room()

    def wait_for_room(self, timeout: float | None = None) -> bool:
        """Wait until a publish need not wait; False after `timeout` seconds."""
        channel = self._publish
        return channel is None or channel.connection.wait_for_room(timeout)

    def _publish_channel(self) -> PublishChannel:
        channel = self._publish
        if channel is None or channel.error is not None:
            channel = hold(self._opening, left(), Unanswered, self._open_publish_channel)
        return channel

    def _open_publish_channel(self) -> PublishChannel:
        channel = self._publish
        if channel is None or channel.error is not None:
            if self._publishing is None or self._publishing.ended is not None:
                self._publishing = self._connect(publishes=True)
            channel = self._publish = PublishChannel(self._publishing, self._give_up).open()
        return channel

    # -- the end

    def _ended(self, connection: ClientConnection) -> None:
        with self._lock:
            if self._over.is_set():
                return
            self._over.set()
        assert connection.ended is not None
        for each in list(self._connections):
            if each is not connection:
                each.close_soon(connection.ended)
        self._lost(self, connection.ended)

    def _alarmed(self, reason: str | None) -> None:
        with self._lock:
            if not self._over.is_set():  # nobody would clear the alarm of an owner that is gone
                self._blocked(reason)

    def close(self, timeout: float | None = None) -> None:
        """Close all connections; unacked messages are requeued.  An owner that does not answer is left after
        a few seconds.
        """
        with self._lock:
            self._over.set()
        connections = list(self._connections)
        for each in connections:
            each.close_soon()

        def close() -> None:
            for each in connections:
                each.close()

        limited(GOODBYE if timeout is None else min(timeout, GOODBYE), close)

    def abandon(self) -> None:
        """Close this process's descriptors in a forked child, without sending anything to the owner."""
        for each in self._connections:
            each.abandon()
