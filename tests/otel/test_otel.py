"""Spans of publishes and deliveries, with OpenTelemetry's own SDK."""

import pika
import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import warrenmq
from tests.support.limits import LIMIT
from warrenmq.amqp import serve
from warrenmq.otel import Tracing, destination

SENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
"""A traceparent."""


@pytest.fixture
def exported():
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exported):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    yield Tracing(provider)
    provider.shutdown()


@pytest.fixture
def broker(tmp_path):
    with warrenmq.open(tmp_path / "data") as broker:
        yield broker


def test_a_delivery_is_a_child_of_its_publish(broker, tracing, exported):
    jobs = broker.declare_queue("jobs")
    properties = warrenmq.Properties(message_id="m1", correlation_id="c1", headers={"mine": 1})
    tracing.publish(jobs, b"hello", properties=properties).result(5)
    delivery = jobs.get()
    assert delivery.properties.headers["mine"] == 1
    with tracing.process(delivery) as span:
        assert span.is_recording()
    published, processed = exported.get_finished_spans()
    assert (published.name, published.kind) == ("publish jobs", SpanKind.PRODUCER)
    assert (processed.name, processed.kind) == ("process jobs", SpanKind.CONSUMER)
    assert processed.parent.span_id == published.context.span_id
    assert processed.context.trace_id == published.context.trace_id
    assert dict(published.attributes) == {
        "messaging.system": "rabbitmq", "messaging.operation.name": "publish", "messaging.operation.type": "send",
        "messaging.destination.name": "jobs", "messaging.message.body.size": 5, "messaging.message.id": "m1",
        "messaging.rabbitmq.destination.routing_key": "jobs", "messaging.message.conversation_id": "c1",
    }  # fmt: skip


def test_the_keywords_of_a_publish_are_its_own_too(broker, tracing, exported):
    jobs = broker.declare_queue("jobs")
    given = {"headers": {"mine": 1}, "message_id": "m1", "priority": 3, "delay": 0.01}
    tracing.publish(jobs, b"hello", **given).result(5)
    found = jobs.get(timeout=LIMIT).properties
    assert (found.headers["mine"], "traceparent" in found.headers) == (1, True)
    assert (found.message_id, found.priority) == ("m1", 3)
    assert exported.get_finished_spans()[0].attributes["messaging.message.id"] == "m1"
    with pytest.raises(ValueError, match="headers is given twice"):
        tracing.publish(jobs, b"hello", properties=found, headers={"mine": 2})


def test_an_exception_is_recorded_and_goes_on(broker, tracing, exported):
    jobs = broker.declare_queue("jobs")
    jobs.publish(b"x").result(5)
    with pytest.raises(ZeroDivisionError), tracing.process(jobs.get()):
        _ = 1 / 0
    (span,) = exported.get_finished_spans()
    assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "ZeroDivisionError")
    assert [event.name for event in span.events] == ["exception"]
    assert span.parent is None


def test_a_publish_to_an_exchange_that_is_not_there_is_recorded(broker, tracing, exported):
    exchange = broker.declare_exchange("e")
    broker.delete_exchange(exchange)
    with pytest.raises(warrenmq.NotFound):
        tracing.publish(exchange, b"x", routing_key="k")
    (span,) = exported.get_finished_spans()
    assert (span.name, span.status.status_code) == ("publish e:k", StatusCode.ERROR)


@pytest.mark.parametrize("headers", [{"traceparent": SENT}, {"Traceparent": SENT, "tracestate": 7, "x": [1]}])
def test_a_client_of_amqp_brings_its_context(broker, tracing, exported, headers):
    jobs = broker.declare_queue("jobs")
    with serve(broker, port=0) as server, pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", server.port)
    ) as connection:  # fmt: skip
        connection.channel().basic_publish("", "jobs", b"x", pika.BasicProperties(headers=headers))
        with tracing.process(jobs.get(timeout=5)):
            pass
    (span,) = exported.get_finished_spans()
    assert f"{span.parent.trace_id:032x}" == SENT[3:35]


@pytest.mark.parametrize(
    ("exchange", "key", "name"),
    [("", "jobs", "jobs"), ("logs", "a.b", "logs:a.b"), ("logs", "", "logs"), ("", "", "amq.default")],
)
def test_a_destination_has_its_name_of_the_conventions(exchange, key, name):
    assert destination(exchange, key) == name
