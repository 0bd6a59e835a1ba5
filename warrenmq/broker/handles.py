"""Handles of declared queues and exchanges, as an application holds them.

A handle is a name and the broker that it belongs to: whatever is the broker's to do (route, delete, purge) it asks
that for, and what is one queue's (get, consume, peek, info) it asks the queue's process for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import Empty
from typing import Protocol, Unpack

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.arguments import Named
from warrenmq.broker.consumer import DEFAULT_PREFETCH, Consumer, consume_options
from warrenmq.broker.delivery import Delivery, Message
from warrenmq.broker.getter import Getter
from warrenmq.broker.message_options import MessageOptions
from warrenmq.broker.parts import BrokerClient
from warrenmq.broker.retry import Backoff, RetryPolicy
from warrenmq.checks import is_a, whole
from warrenmq.errors import Error
from warrenmq.message.properties import Properties
from warrenmq.queue.messages import Info, Peek, QueueInfo

MOST_PEEKED = (1 << 31) - 1


class HasClient(Protocol):
    """The inside of a broker (broker.py, Inside)."""

    @property
    def client(self) -> BrokerClient: ...


class HandlesBroker(Protocol):
    """The broker that a handle belongs to (broker.py)."""

    check_open: Callable[[], None]

    @property
    def inside(self) -> HasClient: ...
    def publish(self, exchange: str, routing_key: str, body: bytes, *, properties: Properties | None, persistent: bool,
                mandatory: bool, timeout: float | None, **options: Unpack[MessageOptions]) -> Confirm: ...  # fmt: skip
    def publish_many(self, exchange: str, routing_key: str, bodies: Iterable[bytes], *, properties: Properties | None,
                     persistent: bool, mandatory: bool, timeout: float | None,
                     **options: Unpack[MessageOptions]) -> Confirm: ...  # fmt: skip
    def queue(self, name: str) -> QueueHandle: ...
    def purge(self, name: str) -> int: ...
    def delete_queue(self, name: str, *, if_unused: bool, if_empty: bool) -> int: ...


class Exchange(Named):
    """A declared exchange."""

    def __init__(self, broker: HandlesBroker, name: str) -> None:
        self._broker = broker
        self.name = name

    def publish(self, routing_key: str, body: bytes, *, properties: Properties | None = None,
                persistent: bool = True, mandatory: bool = False, timeout: float | None = None,
                **options: Unpack[MessageOptions]) -> Confirm:  # fmt: skip
        """Publish to this exchange, as `Broker.publish` does."""
        return self._broker.publish(self.name, routing_key, body, properties=properties, persistent=persistent,
                                    mandatory=mandatory, timeout=timeout, **options)  # fmt: skip

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r}>"


class QueueHandle(Named):
    """A declared queue; `len(queue)` is how many messages are ready.  Any number of handles may stand for one queue."""

    def __init__(self, broker: HandlesBroker, name: str, *, ack_in_time: bool = True) -> None:
        """`ack_in_time`: consumer_timeout holds for what `get` returns."""
        self._broker = broker
        self.name = name
        self._getter = Getter(broker.inside.client, name, ack_in_time=ack_in_time)

    def publish(self, body: bytes, *, properties: Properties | None = None, persistent: bool = True,
                mandatory: bool = False, timeout: float | None = None,
                **options: Unpack[MessageOptions]) -> Confirm:  # fmt: skip
        """Publish to this queue, through the default exchange (see Broker.publish)."""
        return self._broker.publish("", self.name, body, properties=properties, persistent=persistent,
                                    mandatory=mandatory, timeout=timeout, **options)  # fmt: skip

    def publish_many(self, bodies: Iterable[bytes], *, properties: Properties | None = None,
                     persistent: bool = True, mandatory: bool = False,
                     timeout: float | None = None, **options: Unpack[MessageOptions]) -> Confirm:  # fmt: skip
        """Publish many bodies in one cast; the Confirm covers all of them."""
        return self._broker.publish_many("", self.name, bodies, properties=properties, persistent=persistent,
                                         mandatory=mandatory, timeout=timeout, **options)  # fmt: skip

    def get(self, timeout: float | None = None, *, no_ack: bool = False) -> Delivery | None:
        """One message, or None: at once when `timeout` is None or 0, else when none came within `timeout` s.

        It goes back to the queue, and settling it has no effect any more, after `consumer_timeout`; at once
        if a signal's handler interrupts the call.
        """
        request = self._getter.request(timeout, no_ack)
        client = self._broker.inside.client
        try:
            return self._getter.delivery(client, request, *client.calls.call_queue(self.name, request))
        except Error:
            raise
        except Empty:  # the owner, another process, did not answer in time
            client.calls.give_up(self.name, request)
            return None
        except BaseException:  # of a signal's handler: KeyboardInterrupt, a timeout
            client.calls.give_up(self.name, request)
            raise

    def consume(self, prefetch: int = DEFAULT_PREFETCH, no_ack: bool = False, *,
                exclusive: bool = False, priority: int = 0) -> Consumer:  # fmt: skip
        """An iterator over deliveries, up to `prefetch` of them unacked (0 = no limit).

        With `no_ack` a message is gone once it is delivered.  An exclusive consumer is the queue's only one
        (AccessRefused otherwise).  One of a lower `priority` gets messages only while all above it hold as many as
        they may (x-priority).
        """
        return Consumer(
            self._broker.inside.client, self.name, **consume_options(prefetch, no_ack, exclusive, priority)
        )

    def retry_policy(self, max_attempts: int = 5, backoff: Backoff = 1.0,
                     dead_letter: str | QueueHandle | Exchange | None = None) -> RetryPolicy:  # fmt: skip
        """Say what `Delivery.retry` does with this queue's messages, from now until the broker is closed.

        A message is delivered `max_attempts` times; `backoff` is the seconds until the next time: a number, a
        list with one for each attempt, or a function of the number of attempts (broker/retry.py has
        `exponential`).  After the last one it goes to `dead_letter`, a queue's name, a QueueHandle or an
        Exchange; None rejects it, for the queue's own dead-letter exchange.  NotFound: there is no such queue
        or exchange.
        """
        self._broker.check_open()
        policy = RetryPolicy.of(max_attempts, backoff, dead_letter, exchange=is_a(dead_letter, Exchange))
        if policy.dead_letter_exchange == "":
            self._broker.queue(policy.dead_letter_routing_key or "")
        elif policy.dead_letter_exchange is not None:
            self._broker.inside.client.publishing.own.check(
                policy.dead_letter_exchange, policy.dead_letter_routing_key or "", None
            )
        self._broker.inside.client.retry_policies[self.name] = policy
        return policy

    def peek(self, n: int = 1) -> list[Message]:
        """The first `n` ready messages, as they would be delivered; they stay where they are, unmarked.

        All of them are read into memory.
        """
        request = Peek(whole("n", n, 0, MOST_PEEKED))
        return [Message(each) for each in self._broker.inside.client.calls.call_queue(self.name, request)[0]]

    def info(self) -> QueueInfo:
        """The counts of the queue's process (see QueueInfo); what this thread published and acked before is in them."""
        info: QueueInfo = self._broker.inside.client.calls.call_queue(self.name, Info())[0]
        return info

    def purge(self) -> int:
        """Drop all ready messages; returns how many."""
        return self._broker.purge(self.name)

    def delete(self, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete the queue, as `Broker.delete_queue`; returns how many messages were ready."""
        return self._broker.delete_queue(self.name, if_unused=if_unused, if_empty=if_empty)

    def __len__(self) -> int:
        return self.info().ready

    def __bool__(self) -> bool:
        return True  # an empty queue is still a queue

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<QueueHandle {self.name!r}>"
