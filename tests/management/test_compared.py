"""The HTTP API beside RabbitMQ's: recorded from 3.10.8 with two queues, an exchange, a binding, a consumer and a connection."""

import json
from pathlib import Path

import pika
import pytest

RECORDED = json.loads(Path(__file__).with_name("recorded_3_10_8.json").read_text())
"""Path -> status, and the keys of the answer, or of its first row."""
LEFT_OUT = {
    # of the Erlang machine, its Mnesia and Raft
    "garbage_collection", "release_series_support_status", "context_switches", "gc_bytes_reclaimed", "gc_num",
    "metrics_gc_queue_length", "mnesia_disk_tx_count", "mnesia_ram_tx_count", "ra_open_file_metrics",
    # not counted here
    "msg_store_read_count", "msg_store_write_count", "queue_index_read_count", "queue_index_write_count", "recv_cnt", "send_cnt",
    "send_pend",
    # in the overview only
    "channel_closed", "channel_created", "connection_closed", "connection_created", "queue_created", "queue_declared",
    "queue_deleted",
    # of certificates, and of who declared what
    "peer_cert_issuer", "peer_cert_subject", "peer_cert_validity", "ssl_cipher", "ssl_hash", "ssl_key_exchange",
    "user_who_performed_action",
}  # fmt: skip


def is_left_out(key):
    return key in LEFT_OUT or (key.startswith("io_") and key != "io_sync_count") or key.endswith("_details")


@pytest.fixture
def like_rabbitmq(api):
    properties = {"connection_name": "probe"}
    parameters = pika.ConnectionParameters("127.0.0.1", api.server.port, client_properties=properties)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("q1", durable=True, arguments={"x-message-ttl": 60_000_000})
        channel.exchange_declare("e1", "topic", durable=True)
        channel.queue_bind("q1", "e1", "k.#", arguments={"a": 1})
        channel.queue_declare("q2")
        channel.basic_consume("q2", lambda *_: None)
        connection.process_data_events(0)
        yield api


def test_statuses_and_fields_are_rabbitmqs(like_rabbitmq):
    wrong = []
    for path, (status, keys) in RECORDED.items():
        found, body = like_rabbitmq("GET", path)
        rows = body if isinstance(body, list) else [body]
        missing = [key for key in keys or () if not rows or (key not in rows[0] and not is_left_out(key))]
        if found != status or missing:
            wrong.append((path, found, status, missing))
    assert wrong == []
