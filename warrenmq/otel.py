"""OpenTelemetry for publishes and deliveries: trace context in headers, spans by the semantic conventions for messaging.

    tracing = warrenmq.otel.Tracing()
    tracing.publish(jobs, b"resize cat.jpg")          # span "publish jobs"; the message carries its context
    for delivery in jobs.consume():
        with tracing.process(delivery):               # span "process jobs", a child of the publisher's, wherever that ran
            handle(delivery.body)

It needs opentelemetry-api (the extra `otel`); which spans are kept, and where they go, is up to the program's
SDK.  The headers are those of W3C trace context as other libraries for RabbitMQ write them (`traceparent`,
`tracestate`), so a publisher with pika and a consumer here, or the other way round, are one trace.

Source: OpenTelemetry's semantic conventions for messaging spans, and for RabbitMQ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from time import time_ns
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.delivery import Delivery
from warrenmq.broker.handles import Exchange, QueueHandle
from warrenmq.broker.message_options import OF_PROPERTIES, read_options
from warrenmq.message.properties import Properties
from warrenmq.version import version

SYSTEM = "rabbitmq"
"""messaging.system: the conventions' name for brokers that work as RabbitMQ does."""


class Tracing:
    """Makes spans of publishes and deliveries; for any thread."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """`provider` is the process's own unless it is given."""
        self._tracer = trace.get_tracer("warrenmq", version(), provider)

    def publish(self, to: QueueHandle | Exchange, body: bytes, *, routing_key: str = "",
                properties: Properties | None = None, **options: Any) -> Confirm:  # fmt: skip
        """Publish to a queue, or to an exchange with a routing key, as their `publish` does; returns the Confirm.

        `options` are the other keywords of `publish`.  The span ends when the message is sent, not when it is
        safe.  Raises what `publish` raises, which the span records unless it is of the message's properties.
        """
        exchange, key = (to.name, routing_key) if isinstance(to, Exchange) else ("", to.name)
        fields = {name: options.pop(name) for name in OF_PROPERTIES if name in options}
        properties = read_options(properties, fields, time_ns).properties or Properties()
        attributes = _attributes("publish", "send", exchange, key, len(body), properties)
        name = f"publish {destination(exchange, key)}"
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes):
            headers = dict(properties.headers or {})
            propagate.inject(headers)
            sent = replace(properties, headers=headers)
            if isinstance(to, Exchange):
                return to.publish(key, body, properties=sent, **options)
            return to.publish(body, properties=sent, **options)

    @contextmanager
    def process(self, delivery: Delivery) -> Iterator[Span]:
        """The span of dealing with a delivery; it is the current one inside, and records an exception that leaves it."""
        properties = delivery.properties
        exchange, key = delivery.exchange, delivery.routing_key
        attributes = _attributes("process", "process", exchange, key, len(delivery.body), properties)
        attributes["messaging.rabbitmq.message.delivery_tag"] = delivery.tag
        with self._tracer.start_as_current_span(
            f"process {destination(exchange, key)}", context=propagate.extract(_texts(properties.headers or {})),
            kind=SpanKind.CONSUMER, attributes=attributes, record_exception=False, set_status_on_exception=False,
        ) as span:  # fmt: skip
            try:
                yield span
            except BaseException as error:
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
                span.set_attribute("error.type", type(error).__qualname__)
                raise


def destination(exchange: str, routing_key: str) -> str:
    """messaging.destination.name as the conventions for RabbitMQ have it.

    | exchange | routing key | name         |
    | -------- | ----------- | ------------ |
    |          | jobs        | jobs         |
    | logs     | a.b         | logs:a.b     |
    | logs     |             | logs         |
    |          |             | amq.default  |
    """
    return ":".join(filter(None, (exchange, routing_key))) or "amq.default"


def _attributes(
    operation: str, kind: str, exchange: str, key: str, size: int, properties: Properties
) -> dict[str, Any]:
    optional = {
        "messaging.rabbitmq.destination.routing_key": key,
        "messaging.message.id": properties.message_id,
        "messaging.message.conversation_id": properties.correlation_id,
    }
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": destination(exchange, key),
        "messaging.message.body.size": size,
        **{name: value for name, value in optional.items() if value},
    }


def _texts(headers: Mapping[str, Any]) -> dict[str, str]:
    """The headers that are texts: a context is nothing else, and a client may have sent anything."""
    return {name.lower(): value for name, value in headers.items() if isinstance(value, str)}
