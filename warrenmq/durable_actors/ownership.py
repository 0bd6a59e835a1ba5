"""The ownership of a durable actor's address: of the incarnations of an actor one at a time takes and settles its messages.

A successor ends it for its predecessor, which may still be running: from then on that one writes and acks
nothing, and what it held comes again, in front of what came later.
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
from warrenmq.errors import Blocked, BrokerClosed, Error, ProcessDied
from warrenmq.queue.messages import Drain, Info
from warrenmq.runtime import Channel, Lock
from warrenmq.seams.disk_errors import FULL


class Ownership:
    """The ownership of an address by one incarnation: its consumer, and the messages at hand.

    at_hand    deliveries that were taken and not settled yet
    is_safe    they are on the disk
    are_void   they come again whatever is done about them, as the process of their queue died
    is_over    another incarnation owns the address, or this one has ended
    settling   held from the look at `is_over` to the last ack, so that a successor reads the snapshot before all of it or behind it
    """

    def __init__(self, client: BrokerClient, settling: Lock) -> None:
        self._client = client
        self.consumer: OwnedConsumer | None = None
        self.at_hand: list[Delivery] = []
        self.is_safe = self.are_void = self.is_over = False
        self.settling = settling

    def take(self, most: int) -> list[Delivery]:
        """Take messages that have arrived, unless there are some at hand."""
        with self.settling:
            if self.is_over or self.at_hand or self.consumer is None:
                return []
            self.is_safe = self.are_void = False
            # there will be news of a queue that is being restarted
            with suppress(BrokerClosed, ProcessDied):
                self.at_hand = self.consumer.take(most, 0)
            return self.at_hand

    @property
    def has_lost_queue(self) -> bool:
        """True if the queue was deleted, or the broker closed."""
        # cancelled by `end`, it is over before
        return self.consumer is not None and self.consumer.ended and not self.is_over

    def wait_until_safe(self) -> None:
        """Wait until the messages at hand are on the disk; Blocked if there is no room, ProcessDied if they may be lost."""
        assert self.consumer is not None
        try:
            self.is_safe = self.consumer.drain()
        except (ActorDeadError, ProcessDied) as error:
            self.are_void = True
            raise ProcessDied(
                f"the process of queue {self.consumer.queue!r} died, so its messages come again"
            ) from error
        if not self.is_safe:
            raise Blocked(FULL)

    def end(self) -> None:
        """Requeue the messages at hand; from now on this incarnation writes and acks nothing."""
        with self.settling:
            self.is_over = True
            if self.consumer is None:
                return
            self.consumer.cancel()
            for delivery in self.at_hand:
                with suppress(Error):
                    delivery.nack()
            self.at_hand = []
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

    def drain(self) -> bool:
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


class NotifyingQueue(SimpleQueue[Any]):
    """The consumer's channel: calls `notify` for each item put into it, in the queue's thread."""

    def __init__(self, notify: Callable[[], object]) -> None:
        self._notify = notify

    def put(self, item: Any, /) -> None:  # type: ignore[override]
        """Add an item and call `notify`."""
        super().put(item)
        self._notify()
