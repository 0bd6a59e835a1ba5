"""The page for Prometheus, read with the parser of its own client."""

import http.client

import pika
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.limits import LIMIT


def scrape(api, path="/metrics"):
    connection = http.client.HTTPConnection(api.host, api.port, timeout=LIMIT)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/plain; version=")
        text = response.read().decode()
    finally:
        connection.close()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


OF_QUEUE = ("protocol", "amqp091"), ("queue_type", "rabbit_classic_queue")


def test_what_clients_do_is_counted_under_rabbitmqs_names(api):
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.server.port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("jobs")
        for _ in range(3):
            channel.basic_publish("", "jobs", b"x")
        channel.basic_publish("", "nowhere", b"x")
        channel.basic_get("jobs")[0]
        channel.basic_ack(1)
        channel.basic_nack(channel.basic_get("jobs")[0].delivery_tag)
        channel.basic_consume("jobs", lambda *_: None, auto_ack=True)
        connection.process_data_events(0)
        channel.queue_declare("other")
        channel.queue_delete("other")
        found = scrape(api)
    expected = {
        ("rabbitmq_connections",): 1, ("rabbitmq_channels",): 1, ("rabbitmq_queues",): 1, ("rabbitmq_consumers",): 1,
        ("rabbitmq_queue_messages_ready",): 0, ("rabbitmq_queue_messages_published_total",): 3,
        ("rabbitmq_channel_messages_published_total",): 4, ("rabbitmq_channel_messages_unroutable_dropped_total",): 1,
        ("rabbitmq_channel_get_ack_total",): 2, ("rabbitmq_channel_messages_acked_total",): 1,
        ("rabbitmq_channel_messages_delivered_total",): 2, ("rabbitmq_channel_messages_redelivered_total",): 1,
        ("rabbitmq_global_messages_received_total", ("protocol", "amqp091")): 4,
        ("rabbitmq_global_messages_delivered_total", *OF_QUEUE): 4,
        ("rabbitmq_queues_created_total",): 2, ("rabbitmq_queues_deleted_total",): 1,
        ("rabbitmq_connections_opened_total",): 1, ("rabbitmq_alarms_memory_used_watermark",): 0,
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == expected
    assert scrape(api)["rabbitmq_channel_messages_published_total",] == 4  # the channel is closed


def test_each_queue_has_a_line_where_that_is_asked_for(api):
    api("PUT", "queues/%2F/a%22b", {})
    found = scrape(api, "/metrics/per-object")
    assert found["rabbitmq_queue_messages_ready", ("queue", 'a"b'), ("vhost", "/")] == 0


@pytest.mark.parametrize("name", ["rabbitmq_identity_info", "rabbitmq_build_info"])
def test_the_page_says_whose_it_is(api, name):
    (key,) = [key for key in scrape(api) if key[0] == name]
    assert dict(key[1:]).keys() & {"rabbitmq_node", "rabbitmq_version"}
