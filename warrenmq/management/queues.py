"""Queues of the HTTP API: list, declare, delete, purge, get messages (rabbit_mgmt_wm_queue and its like)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pykka import ActorDeadError

from warrenmq.actors.vhost.messages import DeclareQueue, DeleteQueue
from warrenmq.amqp.channel.declarations import DEAD_LETTER
from warrenmq.broker.broker import Broker
from warrenmq.broker.delivery import Delivery, Subscription
from warrenmq.directory.definitions import QueueRecord
from warrenmq.errors import Error, NotFound
from warrenmq.management.errors import bad_request, not_found
from warrenmq.management.history import span_of
from warrenmq.management.http import Reply, Request, Route, encode
from warrenmq.management.inputs import arguments_of, flag, require, require_other, whole
from warrenmq.management.messages import json_of_properties
from warrenmq.management.site import Site, bytes_of, lengths_of, stats_of
from warrenmq.queue.asleep import NEVER_USED
from warrenmq.queue.messages import CountBytes, Get, Got, Info, ListConsumers, Purge, QueueFigures
from warrenmq.supervisors.broker_sup import VHOST_PROCESS

SOON_COUNTED = 10_000
"""Messages whose bytes are counted even if no column of theirs is asked for: some milliseconds of the queue's time, once."""
MOST_MESSAGES = 10_000
"""Messages of one get."""
ACK_MODES = {
    "ack_requeue_true": (False, True), "reject_requeue_true": (False, True), "ack_requeue_false": (True, False),
    "reject_requeue_false": (False, False),
}  # fmt: skip
"""ackmode -> whether the message is acked, and if not whether it goes back."""


def row(site: Site, broker: Broker, record: QueueRecord, query: Mapping[str, str]) -> dict[str, Any]:
    """JSON object of one queue."""
    vhost = broker.inside.vhost
    figures = _figures(site, broker, record.name, query)
    path = ("queue", vhost.name, record.name)
    found = {
        "name": record.name, "vhost": vhost.name, "durable": record.durable, "auto_delete": record.auto_delete,
        "exclusive": record.exclusive, "arguments": record.arguments, "type": "classic", "node": site.name,
        "state": "running" if record.name in vhost.figures else "down", "consumers": figures.consumers,
        **site.with_rates(lengths_of(figures), path, span_of(query, "lengths")),
        "message_stats": site.with_rates(stats_of(figures), path, span_of(query, "msg_rates")),
    }  # fmt: skip
    applied = vhost.policies.of("queue", record.name)
    found["policy"] = None if applied.policy is None else applied.policy.name
    found["operator_policy"] = None if applied.operator is None else applied.operator.name
    found["effective_policy_definition"] = applied.definition()
    return found | {"memory": figures.memory, **bytes_of(figures)}


def _figures(site: Site, broker: Broker, queue: str, query: Mapping[str, str]) -> QueueFigures:
    """The figures of a queue, with the bytes of its messages if they are asked for as columns, or soon counted.

    A queue counts them from when they are first asked for; to begin, it reads the headers of all its messages in its index.
    """
    known = site.figures(broker, queue)
    if known is None or bytes_of(known):
        return known or NEVER_USED.counts
    few = known.ready + known.unacked <= SOON_COUNTED and queue not in broker.inside.vhost.asleep
    if few or "bytes" in query.get("columns", ""):
        with suppress(Error, ActorDeadError):
            broker.inside.client.calls.call_queue(queue, CountBytes())
    return site.figures(broker, queue) or known


def list_queues(site: Site, request: Request) -> Any:
    """GET /api/queues and /api/queues/vhost."""
    return [
        row(site, broker, record, request.query)
        for broker in site.visible_brokers(request.account, request.at.get("vhost"))
        for record in broker.inside.vhost.records()
    ]


def show(site: Site, request: Request) -> Any:
    """GET /api/queues/vhost/name."""
    broker, record = _existing(site, request)
    found = row(site, broker, record, request.query)
    consumers = []
    with suppress(Error, ActorDeadError):
        consumers = broker.inside.client.calls.call_queue(record.name, ListConsumers())[0]
    found["consumer_details"] = [consumer_row(site, broker, record.name, each) for each in consumers]
    found |= {"deliveries": [], "incoming": []}
    return found


def consumer_row(site: Site, broker: Broker, queue: str, consumer: Any) -> dict[str, Any]:
    """JSON object of one consumer."""
    return {
        "queue": {"name": queue, "vhost": broker.inside.vhost.name}, "consumer_tag": consumer.consumer_tag,
        "ack_required": consumer.ack_required, "prefetch_count": consumer.prefetch, "exclusive": consumer.exclusive,
        "active": consumer.active, "activity_status": "up" if consumer.active else "waiting",
        "arguments": dict(consumer.arguments or {}), "channel_details": _channel_details(site, broker, consumer.channel),
    }  # fmt: skip


def _channel_details(site: Site, broker: Broker, channel: Any) -> dict[str, Any]:
    info = None if channel is None else site.describe(broker, channel)
    if info is None:
        return {}
    return {
        "connection_name": info.connection, "name": f"{info.connection} ({info.number})", "node": site.name,
        "number": info.number, "user": info.user,
    }  # fmt: skip


def consumers(site: Site, request: Request) -> Any:
    """GET /api/consumers and /api/consumers/vhost."""
    found = []
    for broker in site.visible_brokers(request.account, request.at.get("vhost")):
        for record in broker.inside.vhost.records():
            figures = site.figures(broker, record.name)
            if figures is None or not figures.consumers:
                continue
            with suppress(Error, ActorDeadError):
                infos = broker.inside.client.calls.call_queue(record.name, ListConsumers())[0]
                found += [consumer_row(site, broker, record.name, each) for each in infos]
    return found


def declare(site: Site, request: Request) -> Any:
    """PUT /api/queues/vhost/name: 201 when it is new, 204 when it was there."""
    vhost, name = request.at["vhost"], request.at["name"]
    user = site.at_work(request.account, vhost)
    broker, body = site.broker(vhost), request.json()
    require(user.may_configure(name), "queue", name, request)
    durable, auto_delete = flag(body, "durable", True), flag(body, "auto_delete", False)
    record = QueueRecord(name, durable, False, auto_delete, arguments_of(body))
    known = broker.inside.vhost.queue(name) is not None
    if not known:
        require_other(body, DEAD_LETTER, "queue", name, request, user)
    broker.inside.client.calls.call_named(VHOST_PROCESS, DeclareQueue(record))
    return Reply(204 if known else 201)


def delete(site: Site, request: Request) -> None:
    """DELETE /api/queues/vhost/name?if-empty=true&if-unused=true."""
    broker, record = _existing(site, request)
    user = site.at_work(request.account, broker.inside.vhost.name)
    require(user.may_configure(record.name), "queue", record.name, request)
    broker.inside.vhost.check_exclusive_access(record, None)
    message = DeleteQueue(record.name, request.flag("if-unused"), request.flag("if-empty"))
    broker.inside.client.calls.call_named(VHOST_PROCESS, message)


def purge(site: Site, request: Request) -> None:
    """DELETE /api/queues/vhost/name/contents."""
    broker, record = _existing(site, request)
    user = site.at_work(request.account, broker.inside.vhost.name)
    require(user.may_read(record.name), "queue", record.name, request)
    broker.inside.vhost.check_exclusive_access(record, None)
    broker.inside.client.calls.call_queue(record.name, Purge())


def actions(site: Site, request: Request) -> None:
    """POST /api/queues/vhost/name/actions: accepts sync and cancel_sync and does nothing, as there are no mirrors."""
    _existing(site, request)
    _, (action,) = request.fields("action")
    if action not in ("sync", "cancel_sync"):
        raise bad_request(f"unknown action {action}")


def get(site: Site, request: Request) -> Any:
    """POST /api/queues/vhost/name/get: up to `count` messages, acked or requeued."""
    broker, record = _existing(site, request)
    user = site.at_work(request.account, broker.inside.vhost.name)
    require(user.may_read(record.name), "queue", record.name, request)
    body, (count, encoding) = request.fields("count", "encoding")
    mode = body.get("ackmode")
    if mode is None:  # before 3.7
        mode = (
            "ack_requeue_true" if str(body.get("requeue", "true")).lower() == "true" else "ack_requeue_false"
        )
    if type(mode) is not str or mode not in ACK_MODES:
        raise bad_request(f"ackmode is {mode}; use {', '.join(ACK_MODES)}")
    if encoding not in ("auto", "base64"):
        raise bad_request(f"encoding is {encoding}; use auto or base64")
    most = min(whole(count, "count"), MOST_MESSAGES)
    truncate = body.get("truncate")
    longest = None if truncate is None else whole(truncate, "truncate")
    ack, requeue = ACK_MODES[mode]
    broker.inside.vhost.check_exclusive_access(record, None)
    client = broker.inside.client
    asked = Get(client.next_consumer_id(), no_ack=False, timeout=0.0)
    found, deliveries = [], []
    try:
        for _ in range(most):
            got, ref = client.calls.call_queue(record.name, asked)
            if not isinstance(got, Got):
                break
            subscription = Subscription(client, record.name, ref, asked.consumer, no_ack=False)
            deliveries.append(Delivery(subscription, got.tag, got.message))
            found.append(_message(deliveries[-1], got.ready, encoding, longest))
    except BaseException:
        # the client gets none of them
        ack, requeue = False, True
        raise
    finally:
        for delivery in reversed(deliveries):
            if ack:
                delivery.ack()
            else:
                delivery.nack(requeue=requeue)
        if deliveries:  # waits its turn behind these, so that the client's next request sees them
            client.calls.call_queue(record.name, Info())
    return Reply(200, encode(found))


def _message(delivery: Delivery, ready: int, encoding: str, longest: int | None) -> dict[str, Any]:
    size, payload = len(delivery.body), delivery.body[:longest]
    text: str | None = None
    if encoding == "auto":
        with suppress(UnicodeDecodeError):
            text = payload.decode()
    return {
        "payload_bytes": size, "redelivered": delivery.redelivered, "exchange": delivery.exchange,
        "routing_key": delivery.routing_key, "message_count": ready,
        "properties": json_of_properties(delivery.properties),
        "payload": base64.b64encode(payload).decode() if text is None else text,
        "payload_encoding": "base64" if text is None else "string",
    }  # fmt: skip


def _existing(site: Site, request: Request) -> tuple[Broker, QueueRecord]:
    broker = site.visible(request.account, request.at["vhost"])
    try:
        return broker, broker.inside.vhost.existing_queue(request.at["name"])
    except NotFound:
        raise not_found() from None


ROUTES = (
    Route("GET", "queues", list_queues),
    Route("GET", "queues/{vhost}", list_queues),
    Route("GET", "queues/{vhost}/{name}", show),
    Route("PUT", "queues/{vhost}/{name}", declare),
    Route("DELETE", "queues/{vhost}/{name}", delete),
    Route("DELETE", "queues/{vhost}/{name}/contents", purge),
    Route("POST", "queues/{vhost}/{name}/actions", actions),
    Route("POST", "queues/{vhost}/{name}/get", get),
    Route("GET", "consumers", consumers),
    Route("GET", "consumers/{vhost}", consumers),
)
