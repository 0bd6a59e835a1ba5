"""SharedClient: the client behind Broker, Consumer and Transaction that works over the current link to the owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from pykka import ActorRef

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.amqp.wire.codec import raw_properties
from warrenmq.broker.broker import Broker
from warrenmq.broker.engine import CLOSED
from warrenmq.broker.parts import Transacted
from warrenmq.broker.publisher import wait_for_alarms
from warrenmq.broker.retry import RetryPolicy
from warrenmq.errors import Blocked, BrokerClosed, Nacked, ProcessDied, Refusal
from warrenmq.message.properties import Properties
from warrenmq.message.stored import StoredMessage
from warrenmq.queue.collected import OpenAcks
from warrenmq.queue.messages import Ack, Consume, Get, Reject
from warrenmq.runtime import Channel, Runtime
from warrenmq.runtime.calls import From
from warrenmq.runtime.life import inbox_of
from warrenmq.runtime.seams import PerThread
from warrenmq.settings import Settings
from warrenmq.shared.attachment import Attachment
from warrenmq.shared.calling import check_named, may_repeat
from warrenmq.shared.consuming import ConsumerChannel, GetChannel
from warrenmq.shared.errors import LinkLost
from warrenmq.shared.links import LATE, NO_ANSWER, Links, Owned
from warrenmq.shared.patience import Unanswered, left, limited
from warrenmq.shared.publishing import Unconfirmed
from warrenmq.trace.recorder import ActorTrace


class SharedEngine:
    """The open state of a shared broker, and the consumers that end when it closes."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self.consumers: dict[int, Channel] = {}

    @property
    def is_open(self) -> bool:
        """True until the broker is closed, or no owner can be found any more."""
        return not self._links.is_closed

    @property
    def trace_path(self) -> str | None:
        """The folder of this process's trace; None while another process owns the directory."""
        link = self._links.current
        return link.broker.trace_path if isinstance(link, Owned) else None

    @property
    def is_closed(self) -> bool:
        """True once the broker was closed."""
        return self._links.is_closed

    def check_open(self) -> None:
        """Raise BrokerClosed once the broker is closed."""
        self._links.check_open()

    def end_consumers(self) -> None:
        """End every consumer's iterator."""
        for channel in list(self.consumers.values()):
            channel.put(CLOSED)


def _same(answer: Any) -> Any:
    return answer


class SharedCalls:
    """Synchronous requests to the owner's processes (the counterpart of ActorCalls, broker/calls.py)."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def call_named(self, name: str, request: Any) -> Any:
        """Send a request to a named process of the supervision tree."""
        return self._over_link(request, lambda owned: owned.call_named(name, request), "")[0]

    def call_queue(self, queue: str, request: Any) -> tuple[Any, Any]:
        """Send a request to a queue's process; returns the answer and the process (or channel) that answered.

        Unanswered, which is a queue.Empty, if the request has a timeout and the owner does not answer in time.
        """
        check_named(queue)
        timeout = request.timeout if isinstance(request, Consume) else None
        if isinstance(request, Get):  # one that does not wait for a message still waits for the answer
            timeout = request.timeout or None
        answer: tuple[Any, Any] = limited(
            timeout, lambda: self._over_link(request, lambda owned: owned.call_queue(queue, request), queue)
        )
        return answer

    def ask_queue(self, queue: str, request: Any, box: Channel) -> tuple[From, ActorRef[Any]] | None:
        """Send a request to a queue's process of this one, as ActorCalls.ask_queue does; None while another
        process owns the directory.
        """
        link = self._links.current
        with suppress(BrokerClosed):  # or the owner's supervisor gave up: `call_queue` finds out
            return link.client.calls.ask_queue(queue, request, box) if isinstance(link, Owned) else None
        return None

    def check_queue(self, name: str) -> None:
        """Raise NotFound or ResourceLocked unless the queue is there and may be used."""

        def attached(link: Attachment) -> None:
            link.sync()
            with link.calling() as channel:
                channel.ask("queue", queue=name)

        def owned(link: Owned) -> None:
            link.broker.queue(name)

        self._links.at_owner(owned, attached)

    def minds_consumers(self, queue: str, timeout: float) -> bool:
        """See ActorCalls; Unanswered, which is a queue.Empty, if the owner does not answer within `timeout` seconds."""

        def owned(link: Owned) -> bool:
            return link.client.calls.minds_consumers(queue, timeout)

        def attached(link: Attachment) -> bool:
            link.sync()
            with link.calling() as channel:
                return bool(channel.ask("minds_consumers", queue=queue))

        return limited(timeout, lambda: self._links.at_owner(owned, attached))

    def call_actor(self, ref: Any, request: Any) -> Any:
        """Send a request to one process: a consumer's cancel."""
        if isinstance(ref, ConsumerChannel):
            ref.cancel(request)
            return None
        link = self._links.current
        return link.client.calls.call_actor(ref, request) if isinstance(link, Owned) else None

    def _over_link(self, request: Any, owned: Callable[[Any], Any], queue: str) -> Any:
        while True:
            link = self._links.link()
            if isinstance(link, Owned):
                with suppress(LinkLost):
                    answer = self._links.use(link, lambda here: owned(here.client.calls))
                    return answer if queue else (answer, None)
                continue
            try:
                return link.call(request, queue)
            except LinkLost as why:
                # the connection keeps the error, whose frames would keep a consumer that is dropped from being cancelled
                why.__traceback__ = None
                if not may_repeat(request):
                    raise _unknown(request) from why

    def give_up(self, queue: str, request: Get | Consume) -> None:
        """Have the owner take back what a request took whose caller was interrupted."""
        if request.undo is not None:
            request.undo()
        if isinstance(link := self._links.current, Owned):
            link.client.calls.give_up(queue, request)

    def ask(
        self, here: Callable[[Broker], Any], name: str, there: Callable[[Any], Any] = _same, **arguments: Any
    ) -> Any:
        """Do `here` with the broker of this process if it is the owner, else make a call of amqp/channel/rpc.py to the owner,
        whose answer `there` makes the same of.
        """

        def attached(link: Attachment) -> Any:
            link.sync()
            with link.calling() as channel:
                return there(channel.ask(name, **arguments))

        return self._links.at_owner(lambda link: here(link.broker), attached)


def _unknown(request: Any) -> ProcessDied:
    return ProcessDied(
        f"the process that owned the directory ended during {type(request).__name__}, which may or may not have taken effect "
        "and was not repeated"
    )


class SharedPublishing:
    """The publishing side of one thread (the counterpart of broker/publisher.py, Publishing)."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self.pending: Transacted | None = None
        """The transaction that this thread is in."""

    def wait_for_turn(self, exchange: str, routing_key: str, timeout: float | None,
                      properties: Properties | None = None) -> None:  # fmt: skip
        """Wait while an alarm or flow control blocks publishers, as Publishing.wait_for_turn does, and while
        there is no owner.
        """
        clock = self._links.runtime.monotonic_ns
        deadline = None if timeout is None else clock() + round(timeout * 1e9)

        def more() -> float | None:
            return None if deadline is None else max(0.0, (deadline - clock()) / 1e9)

        def owned(link: Owned) -> None:
            local = link.client.publishing.own
            local.pending = self.pending
            try:
                local.wait_for_turn(exchange, routing_key, more(), properties)
            finally:
                local.pending = None

        while True:
            link = self._links.current or self._links.wait(more())
            if link is None:
                raise Blocked("the directory has no owner for now, nothing was published; try again later")
            if not isinstance(link, Owned):
                break
            with suppress(LinkLost):
                self._links.use(link, owned)
                return
        if (alarms := self._links.alarms).active:
            wait_for_alarms(alarms, self._links.runtime, exchange, routing_key, more, self._links.check_open)
        if deadline is not None and self.pending is None and not link.wait_for_room(more()):
            raise Blocked(
                "the owner of the directory is behind and takes no more for now, nothing was published; try again later"
            )

    def publish(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties | None,
                persistent: bool, mandatory: bool) -> Confirm:  # fmt: skip
        """Publish a message, as Publishing.publish does."""
        links = self._links
        while True:
            link = links.current or links.link()
            if isinstance(link, Owned):
                with suppress(LinkLost):
                    return links.use(
                        link,
                        lambda owned: owned.client.publishing.own.publish(
                            exchange, routing_key, bodies, properties, persistent, mandatory
                        ),
                    )
                continue
            confirm = Confirm(links.runtime)
            if not bodies:
                with suppress(LinkLost):
                    link.check(exchange, routing_key, properties)
                    confirm.confirm()
                    return confirm
                continue
            if not link.wait_for_room(left()):
                raise Unanswered
            with suppress(LinkLost):
                link.publish(
                    Unconfirmed(exchange, routing_key, bodies, properties, persistent, mandatory, confirm)
                )
                return confirm

    def publish_one(self, exchange: str, routing_key: str, body: bytes, properties: Properties | None,
                    persistent: bool, mandatory: bool) -> Confirm:  # fmt: skip
        """Publish one message, as Publishing.publish_one does."""
        link = self._links.current
        if isinstance(link, Owned):
            try:
                return link.client.publishing.own.publish_one(
                    exchange, routing_key, body, properties, persistent, mandatory
                )
            except BrokerClosed:  # nothing was sent; `publish` finds out what it means
                pass
        return self.publish(exchange, routing_key, [body], properties, persistent, mandatory)

    def publish_later(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties | None,
                      persistent: bool, due: int) -> Confirm:  # fmt: skip
        """Publish a delayed message, as Publishing.publish_later does; waits for the confirm while another
        process owns the directory.
        """

        def owned(link: Owned) -> Confirm:
            return link.client.publishing.own.publish_later(
                exchange, routing_key, bodies, properties, persistent, due
            )

        def attached(link: Attachment) -> Confirm:
            return self._asked(
                link, "publish_later", exchange=exchange, routing_key=routing_key, bodies=bodies,
                properties=raw_properties(properties), persistent=persistent, due=due,
            )  # fmt: skip

        return self._links.at_owner(owned, attached)

    def publish_copy(self, queues: tuple[str, ...], message: StoredMessage, properties: Properties | bytes, *,
                     persistent: bool, due: int = 0) -> Confirm:  # fmt: skip
        """Publish a copy of a delivered message, as Publishing.publish_copy does; waits likewise."""

        def owned(link: Owned) -> Confirm:
            return link.client.publishing.own.publish_copy(
                queues, message, properties, persistent=persistent, due=due
            )

        def attached(link: Attachment) -> Confirm:
            before = message.stored_properties
            return self._asked(
                link, "publish_copy", queues=list(queues), exchange=message.exchange, routing_keys=message.routing_keys,
                body=message.body, persistent=persistent, due=due,
                properties=properties if isinstance(properties, bytes) else raw_properties(properties),
                before=before if isinstance(before, bytes) else raw_properties(message.properties),
            )  # fmt: skip

        return self._links.at_owner(owned, attached)

    def _asked(self, link: Attachment, name: str, **arguments: Any) -> Confirm:
        confirm = Confirm(self._links.runtime)
        try:
            with link.calling() as channel:
                channel.ask(name, **arguments)
        except LinkLost:
            confirm.fail(Nacked(NO_ANSWER))
        except Unanswered:
            confirm.fail(Nacked(LATE))
        except Refusal as refused:
            confirm.fail(refused)
        else:
            confirm.confirm()
        return confirm

    def queues_of(
        self, exchange: str, routing_key: str, headers: Mapping[str, Any] | None
    ) -> tuple[str, ...]:
        """Return the queues that a message would be routed to, as Publishing.queues_of does."""
        raw = raw_properties(Properties(headers=None if headers is None else dict(headers)))

        def owned(link: Owned) -> tuple[str, ...]:
            return link.client.publishing.own.queues_of(exchange, routing_key, headers)

        def attached(link: Attachment) -> tuple[str, ...]:
            with link.calling() as channel:
                return tuple(channel.ask("route", exchange=exchange, routing_key=routing_key, properties=raw))

        return self._links.at_owner(owned, attached)

    def promise(self) -> Confirm:
        """Make a Confirm for a publish that is sent later."""
        return Confirm(self._links.runtime)

    def check(self, exchange: str, routing_key: str, properties: Properties | None) -> None:
        """Raise what `publish` would, as far as it can be known."""
        self._links.at_owner(
            lambda link: link.client.publishing.own.check(exchange, routing_key, properties),
            lambda link: link.check(exchange, routing_key, properties),
        )

    def would_block(self, exchange: str, routing_key: str, properties: Properties | None) -> bool:
        """True if `publish` would wait."""
        link = self._links.current
        if isinstance(link, Owned):
            return link.client.publishing.own.would_block(exchange, routing_key, properties)
        return link is None or not link.has_room()

    def cast(self, ref: Any, message: Any) -> None:
        """Send a consumer's ack or reject; see `cast` of this module."""
        cast(self._links, ref, message)


def cast(links: Links, ref: Any, message: Any) -> None:
    """Send a consumer's ack or reject; one for a queue's process of an owner that is gone has nothing to settle."""
    if isinstance(ref, ConsumerChannel | GetChannel):
        ref.settle(message)
    elif isinstance(link := links.current, Owned):
        link.broker.runtime.cast(ref, message, link.client.trace())


class SharedClient:
    """The client of a shared broker: publishing, settling and consumers (the counterpart of Client, broker/client.py)."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.engine = SharedEngine(links)
        self.calls = SharedCalls(links)
        self.next_consumer_id = links.next_consumer_id
        self.retry_policies: dict[str, RetryPolicy] = {}
        self.publishing = PerThread(partial(SharedPublishing, self.links))

    @property
    def runtime(self) -> Runtime:
        """The runtime whose threads wait in this process."""
        return self.links.runtime

    @property
    def settings(self) -> Settings:
        """The settings that this process opened the broker with; the owner applies its own."""
        return self.links.arguments.settings

    def trace(self) -> ActorTrace | None:
        """The calling thread's trace, in the owner."""
        link = self.links.current
        return link.client.trace() if isinstance(link, Owned) else None

    def ack_one(self, ref: Any, acks: OpenAcks, tag: int) -> Transacted | None:
        """Send the ack of one delivery; returns as `settle`."""
        link = self.links.current
        if (
            isinstance(link, Owned)
            and not isinstance(ref, ConsumerChannel | GetChannel)
            and self.publishing.own.pending is None
        ):
            return link.client.ack_one(ref, acks, tag)
        return self.settle(ref, Ack(acks.consumer, tag))

    def settle(self, ref: Any, message: Any) -> Transacted | None:
        """Send a consumer's message to its queue; returns the transaction that keeps it, as Client.settle does."""
        publishing = self.publishing.own
        if publishing.pending is not None and isinstance(message, Ack | Reject):
            publishing.pending.settle(ref, message)
            return publishing.pending
        publishing.cast(ref, message)
        return None

    def cast(self, ref: Any, message: Any) -> None:
        """Send a consumer's ack or reject at once, outside any transaction."""
        cast(self.links, ref, message)

    def have_later(self) -> None:
        """Declare the queue that holds delayed messages; an owner in another process declares it with the
        first delayed publish.
        """
        link = self.links.link()
        if isinstance(link, Owned):
            link.client.have_later()

    @property
    def has_later(self) -> bool:
        """True if the queue of delayed messages exists, or if the owner is another process."""
        link = self.links.current
        return link.client.has_later if isinstance(link, Owned) else True

    def on_end(self, ref: Any, notice: Callable[[Any], None]) -> Any:
        """Register a callback for the end of a process or channel, as Client.on_end does."""
        return ref.on_end(notice) if isinstance(ref, ConsumerChannel) else inbox_of(ref).on_close(notice)

    def forget(self, ref: Any, key: Any) -> None:
        """Remove a callback, as Client.forget does."""
        if isinstance(ref, ConsumerChannel):
            ref.forget(key)
        else:
            inbox_of(ref).forget(key)
