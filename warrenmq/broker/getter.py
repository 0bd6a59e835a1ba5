"""Getter: the gets of one handle of a queue, whoever waits for their answers."""

from __future__ import annotations

from typing import Any

from warrenmq.broker.consumer import ack_deadline
from warrenmq.broker.delivery import Delivery, Subscription
from warrenmq.broker.parts import BrokerClient
from warrenmq.checks import flag, seconds
from warrenmq.queue.messages import Get, Got


class Getter:
    """Makes requests for one message, and deliveries of their answers; keeps one id for all, as a consumer has."""

    def __init__(self, client: BrokerClient, queue: str, *, ack_in_time: bool = True) -> None:
        """`ack_in_time`: consumer_timeout holds."""
        self._queue = queue
        self._id = client.next_consumer_id()
        self._ack_deadline = ack_deadline(client.settings) if ack_in_time else None

    def request(self, timeout: float | None, no_ack: bool) -> Get:
        """The request of one get; an error for an argument that is wrong."""
        patience = seconds("timeout", timeout) or 0.0
        return Get(self._id, flag("no_ack", no_ack), patience, ack_deadline=self._ack_deadline)

    def delivery(self, client: BrokerClient, request: Get, reply: object, ref: Any) -> Delivery | None:
        """The message with which the process `ref` answered; None for none."""
        if not isinstance(reply, Got):
            return None
        subscription = Subscription(client, self._queue, ref, self._id, no_ack=request.no_ack)
        return Delivery(subscription, reply.tag, reply.message)
