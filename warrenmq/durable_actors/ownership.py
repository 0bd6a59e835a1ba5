"""The ownership of a durable actor's address: of the incarnations of an actor one at a time takes and settles its messages.

A successor ends it for its predecessor, which may still be running: from then on that one writes and acks nothing, and what it held
comes again, in front of what came later.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from pykka import ActorDeadError

from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.broker.consumer import Consumer
from warrenmq.broker.delivery import Delivery
from warrenmq.broker.parts import BrokerClient
from warrenmq.errors import Error
from warrenmq.queue.messages import Drain, Info
from warrenmq.runtime import Channel, Lock


class Ownership:
    """The ownership of an address by one incarnation: its consumer, and its unsettled deliveries."""

    def __init__(self, client: BrokerClient, settling: Lock) -> None:
        self._client = client
        self.consumer: OwnedConsumer | None = None
        self.unsettled: list[Delivery] = []
        self.is_over = False
        self.settling = settling
        """Held from the look at `is_over` to the last ack, so that a successor reads the snapshot before all of it or behind it."""

    def end(self) -> None:
        """Requeue unsettled deliveries; from now on this incarnation writes and acks nothing."""
        with self.settling:
            self.is_over = True
            if self.consumer is None:
                return
            self.consumer.cancel()
            for delivery in self.unsettled:
                with suppress(Error):
                    delivery.nack()
            self.unsettled = []
            with suppress(Error, ActorDeadError):
                # a consume would overtake the nacks; to a process that is not there any more there are none
                queue = self._client.runtime.whereis(queue_name(self.consumer.queue))
                self._client.calls.call_actor(queue, Info())


class OwnedConsumer(Consumer):
    """The consumer of an ownership, which can be ended from the moment on at which the queue may know the consumer."""

    def __init__(
        self, ownership: Ownership, client: BrokerClient, address: str, prefetch: int, channel: Channel
    ) -> None:
        ownership.consumer = self
        super().__init__(
            client, address, prefetch, no_ack=False, exclusive=False, priority=0, channel=channel, ack_in_time=False,
        )  # fmt: skip

    def wait_until_safe(self) -> bool:
        """Wait until what was delivered is on the disk, if its publishers want a confirm; False if the disk is full.

        ActorDeadError or ProcessDied if the queue's process is dead: then it comes again, or is lost.
        """
        is_safe: bool = self._client.calls.call_actor(self._subscription.ref, Drain())
        return is_safe


class Addresses:
    """The owners of a broker's addresses."""

    def __init__(self, taking_over: Lock) -> None:
        self.taking_over = taking_over
        """Held while an incarnation takes over an address."""
        self.owners: dict[str, Ownership] = {}


class NotifyingQueue:
    """The consumer's channel: calls `notify` for each item put into it, in the queue's thread."""

    def __init__(self, notify: Callable[[], object]) -> None:
        self._items: SimpleQueue[Any] = SimpleQueue()
        self._notify = notify

    def put(self, item: Any, /) -> None:
        """Add an item and call `notify`."""
        self._items.put(item)
        self._notify()

    def get(self, *, timeout: float | None = None) -> Any:
        """Take an item; queue.Empty if there is none, as the actor never waits here."""
        return self._items.get(timeout=timeout) if timeout else self._items.get_nowait()

    def get_nowait(self) -> Any:
        """Take an item; queue.Empty if there is none."""
        return self._items.get_nowait()

    def empty(self) -> bool:
        """True if the channel is empty."""
        return self._items.empty()

    def qsize(self) -> int:
        """The number of items in the channel."""
        return self._items.qsize()
