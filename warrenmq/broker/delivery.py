"""Delivery: a message that a queue handed out, and the ways to settle it.

Acks are casts, from any thread, to the incarnation of the queue process that the message came from: its
Subscription.  When that process dies, the message comes again and acks of the old delivery are void, as in
RabbitMQ.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from pykka import ActorRef

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.message_options import seconds_of
from warrenmq.broker.parts import BrokerClient, Transacted
from warrenmq.broker.retry import RetryPolicy, attempts
from warrenmq.checks import flag, of_this_process
from warrenmq.errors import ForkedProcess, NotFound, PreconditionFailed
from warrenmq.message.properties import Properties
from warrenmq.message.queue_message import Fetched
from warrenmq.message.stored import StoredMessage, body_of
from warrenmq.queue.collected import OpenAcks
from warrenmq.queue.failure import after_failure
from warrenmq.queue.messages import Ack, AckUpTo, Reject
from warrenmq.routing.delayed import LATER, X_DELAYED_TO


class Subscription:
    """One incarnation of a consumer in one incarnation of its queue process: where its acks go."""

    __slots__ = (
        "_acks", "_behind", "_copies", "client", "consumer_id", "lapsed", "no_ack", "queue", "ref", "runtime", "settled_up_to",
    )  # fmt: skip

    def __init__(
        self, client: BrokerClient, queue: str, ref: ActorRef[Any], consumer_id: int, *, no_ack: bool
    ) -> None:
        self.client = client
        self.runtime = client.runtime
        self.queue = queue
        self.ref = ref
        self.consumer_id = consumer_id
        self.no_ack = no_ack
        self.settled_up_to = 0
        """The largest tag of an ack, nack or reject with multiple."""
        self.lapsed: PreconditionFailed | ForkedProcess | None = None
        """The error of each settle from now on: the deliveries went back to the queue (consumer_timeout), or
        belong to the parent process.
        """
        self._acks = OpenAcks(consumer_id)
        self._copies: dict[int, None] = {}
        """Tags of deliveries whose copies (`retry`) are not known to be safe."""
        self._behind: dict[int, Ack | Reject] = {}
        """By tag, settlements of several that these are among: sent behind theirs, or a copy that fails would
        have lost its original.
        """

    def ack_one(self, tag: int) -> Transacted | None:
        """Send the ack of one delivery; returns and raises as `settle` does."""
        self.check(tag)
        return self.client.ack_one(self.ref, self._acks, tag)

    def settle(self, tag: int, message: Ack | Reject) -> Transacted | None:
        """Send an ack of several, or a reject; returns the transaction that keeps it.

        PreconditionFailed when this delivery cannot be settled any more.
        """
        self.check(tag)
        before = self.settled_up_to
        if message.multiple:
            self.settled_up_to = tag
            if self._copies and self.client.publishing.own.pending is None:
                # noted first, looked for copies second; `_has_copy` does it the other way round
                self._behind[tag] = message
                self._send_those_behind()
                return None
        if (pending := self.client.settle(self.ref, message)) is not None:
            pending.on_roll_back(partial(setattr, self, "settled_up_to", before))
        return pending

    def check(self, tag: int) -> None:
        """PreconditionFailed when this delivery cannot be settled any more."""
        if self.runtime.forked_from is not None:
            self.runtime.check_process()
        if not self.client.engine.is_open:
            self.client.engine.check_open()
        if self.lapsed is not None:
            raise self.lapsed
        if self.no_ack:
            msg = f"a delivery of queue {self.queue!r} was consumed with no_ack: there is nothing to ack"
            raise PreconditionFailed(msg)
        if tag <= self.settled_up_to:
            msg = f"delivery {tag} of queue {self.queue!r} was settled already, by one with multiple=True"
            raise PreconditionFailed(msg)

    def copy(
        self, tag: int, message: StoredMessage, seconds: float | None, policy: RetryPolicy | None
    ) -> Confirm:
        """Publish a message that failed, and settle its delivery when that is known to be safe, or not."""
        self._copies[tag] = None
        try:
            confirm = self._published_again(message, seconds, policy)
        except BaseException:
            self._has_copy(tag)
            raise
        confirm.on_settled(partial(self._follow, tag, confirm))
        return confirm

    def _published_again(
        self, message: StoredMessage, seconds: float | None, policy: RetryPolicy | None
    ) -> Confirm:
        """Publish it back to this queue after so many seconds, or where the policy sends dead letters."""
        client = self.client
        publishing, now = client.publishing.own, client.runtime.wall_ns() // 1_000
        if publishing.pending is not None:
            raise PreconditionFailed(
                "a delivery cannot be retried inside a transaction; retry it outside, or nack it"
            )
        back = {} if seconds is None else {X_DELAYED_TO: self.queue}
        properties, persistent = after_failure(
            message, self.queue, now // 1_000_000, back, is_dead=seconds is None
        )
        if seconds is not None:
            client.have_later()
            due = now + round(seconds * 1_000_000)
            return publishing.publish_copy((LATER,), message, properties, persistent=persistent, due=due)
        assert policy is not None
        assert policy.dead_letter_exchange is not None
        key = policy.dead_letter_routing_key
        queues = publishing.queues_of(
            policy.dead_letter_exchange,
            message.routing_keys[0] if key is None else key,
            message.properties.headers,
        )
        if not queues:
            to = policy.dead_letter_exchange or f"queue {key!r}"
            raise NotFound(
                f"the last attempt failed, and no queue takes the dead letter: {to} leads nowhere; declare or bind one"
            )
        return publishing.publish_copy(queues, message, properties, persistent=persistent)

    def _follow(self, tag: int, confirm: Confirm) -> None:
        """A copy is safe, so its original is acked; or it is not, so the original goes back.  Called in any thread."""
        if confirm.exception() is None:
            self.client.cast(self.ref, Ack(self.consumer_id, tag))
        else:
            self.client.cast(self.ref, Reject(self.consumer_id, tag, multiple=False, requeue=True))
        self._has_copy(tag)

    def _has_copy(self, tag: int) -> None:
        """A delivery is no longer being copied."""
        del self._copies[tag]
        self._send_those_behind()

    def _send_those_behind(self) -> None:
        """Send what waited for copies, as far as these are settled."""
        for tag in tuple(self._behind):
            if any(copied <= tag for copied in tuple(self._copies)):
                return
            if (message := self._behind.pop(tag, None)) is not None:  # else another thread sends it
                self.client.cast(self.ref, message)


class Delivery:
    """One message as a consumer gets it; settle it with `ack`, `nack` or `reject`."""

    __slots__ = ("_decoded", "_fetched", "_settled", "_subscription", "body", "tag")

    __reduce__ = of_this_process

    def __init__(self, subscription: Subscription, tag: int, fetched: Fetched) -> None:
        self._subscription = subscription
        self._fetched = fetched
        self._decoded: StoredMessage | None = None
        self._settled = False
        self.tag = tag
        """Delivery tag, from 1, for each consumer."""
        payload = fetched.payload
        self.body: bytes = payload[len(payload) - fetched.size :]  # as body_of has it

    @property
    def redelivered(self) -> bool:
        """True if it may have been delivered before."""
        return self._fetched.redelivered

    @property
    def exchange(self) -> str:
        """The exchange it was published to ("" = default)."""
        return self._stored().exchange

    @property
    def routing_key(self) -> str:
        """The routing key it was published with."""
        return self._stored().routing_keys[0]

    @property
    def properties(self) -> Properties:
        """AMQP's basic properties; all None when the publisher gave none."""
        return self._stored().properties

    def ack(self, multiple: bool = False) -> None:  # the promised signature
        """Settle it, and with `multiple` all older ones of this consumer: they will not come again.

        From any thread.  Raises PreconditionFailed when it was settled before, BrokerClosed after close.
        """
        if flag("multiple", multiple):
            self._settle(AckUpTo(self._subscription.consumer_id, self.tag), "acked")
            return
        if self._settled:
            self._check_unsettled("acked")
        if (pending := self._subscription.ack_one(self.tag)) is not None:
            pending.on_roll_back(self._unsettle)
        self._settled = True

    def nack(self, requeue: bool = True, multiple: bool = False) -> None:
        """Put it back to its old place in the queue, or with requeue=False drop or dead-letter it."""
        many, back = flag("multiple", multiple), flag("requeue", requeue)
        self._settle(Reject(self._subscription.consumer_id, self.tag, many, back), "nacked")

    def reject(self, requeue: bool = True) -> None:
        """Reject one delivery (basic.reject, AMQP's older form of `nack`)."""
        back = flag("requeue", requeue)
        self._settle(
            Reject(self._subscription.consumer_id, self.tag, multiple=False, requeue=back), "rejected"
        )

    @property
    def attempt(self) -> int:
        """The number of this attempt: 1 plus the earlier retries and rejections of the message in this queue."""
        return attempts(self.properties.headers, self._subscription.queue)

    def retry(self, delay: float | timedelta | None = None) -> bool:
        """Publish a delayed copy, so that it is delivered again later; returns at once, and acks it when its copy is on disk.

        After `delay` seconds, else as the queue's `retry_policy` says, else at once; behind the messages that are in the
        queue then.  False if this was the last attempt: then it is dead-lettered as the policy says, after which it is acked.
        Raises what `ack` does, PreconditionFailed inside a transaction, and NotFound as `dead_letter` does.
        """
        return self.retried(delay)[0]

    def retried(self, delay: float | timedelta | None = None) -> tuple[bool, Confirm | None]:
        """`retry`, with the answer to its copy; None if it was rejected."""
        self._check_unsettled("given back")
        policy = self._policy
        again = policy is None or self.attempt < policy.max_attempts
        if delay is not None:
            seconds = seconds_of("delay", delay)
        else:
            seconds = policy.seconds_after(self.attempt) if policy is not None and again else 0.0
        return again, self._copy(seconds) if again else self.dead_lettered()

    def dead_letter(self) -> None:
        """Send it where the queue's `retry_policy` says, as after the last attempt, or reject it; acked when it is there.

        NotFound, when no queue takes it: then it is not settled.
        """
        self.dead_lettered()

    def dead_lettered(self) -> Confirm | None:
        """`dead_letter`, with the answer to its copy; None if it was rejected."""
        self._check_unsettled("dead-lettered")
        if self._policy is None or self._policy.dead_letter_exchange is None:
            self.reject(requeue=False)
            return None
        return self._copy(None)

    @property
    def _policy(self) -> RetryPolicy | None:
        return self._subscription.client.retry_policies.get(self._subscription.queue)

    def _copy(self, seconds: float | None) -> Confirm:
        subscription = self._subscription
        subscription.check(self.tag)
        confirm = subscription.copy(self.tag, self._stored(), seconds, self._policy)
        self._settled = True
        return confirm

    def _settle(self, message: Ack | Reject, how: str) -> None:
        self._check_unsettled(how)
        if (pending := self._subscription.settle(self.tag, message)) is not None:
            pending.on_roll_back(self._unsettle)
        self._settled = True

    def _unsettle(self) -> None:
        self._settled = False

    def _check_unsettled(self, how: str) -> None:
        if self._settled:
            msg = f"delivery {self.tag} of queue {self._subscription.queue!r} cannot be {how}: it was settled already"
            raise PreconditionFailed(msg)

    def _stored(self) -> StoredMessage:
        if self._decoded is None:
            self._decoded = self._fetched.decoded()
        return self._decoded

    def __repr__(self) -> str:
        return f"<Delivery {self.tag} of {self._subscription.queue!r}, {len(self.body)} bytes>"


class Message:
    """One message as `QueueHandle.peek` shows it, without taking it off the queue."""

    __slots__ = ("body", "exchange", "properties", "redelivered", "routing_key")

    def __init__(self, fetched: Fetched) -> None:
        stored = fetched.decoded()
        self.body: bytes = body_of(fetched.payload, fetched.size)
        self.exchange = stored.exchange
        """The exchange it was published to ("" = default)."""
        self.routing_key = stored.routing_keys[0] if stored.routing_keys else ""
        self.properties: Properties = stored.properties
        """AMQP's basic properties; all None when the publisher gave none."""
        self.redelivered = fetched.redelivered
        """True if it may have been delivered before."""

    def __repr__(self) -> str:
        return f"<Message to {self.routing_key!r}, {len(self.body)} bytes>"
