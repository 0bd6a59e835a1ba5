"""Connections, channels and consumers of real clients in the HTTP API."""

import threading

import pika
import pytest

from tests.support.limits import LIMIT


@pytest.fixture
def client(api):
    parameters = pika.ConnectionParameters(
        "127.0.0.1", api.server.port, client_properties={"connection_name": "mine"}
    )
    with pika.BlockingConnection(parameters) as connection:
        yield connection


def test_a_connection_its_channels_and_consumers_are_shown(api, client):
    channel = client.channel()
    channel.confirm_delivery()
    channel.queue_declare("jobs")
    for _ in range(3):
        channel.basic_publish("", "jobs", b"x")
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume("jobs", lambda *_: None, consumer_tag="tag")
    client.process_data_events(0)
    (row,) = api.get("connections")
    expected = {"user": "guest", "vhost": "/", "state": "running", "channels": 1, "protocol": "AMQP 0-9-1",
                "user_provided_name": "mine", "peer_host": "127.0.0.1", "auth_mechanism": "PLAIN", "ssl": False}  # fmt: skip
    assert expected.items() <= row.items()
    assert row["client_properties"]["product"] == "Pika Python Client Library"
    (shown,) = api.get("channels")
    expected = {"number": 1, "user": "guest", "confirm": True, "transactional": False, "consumer_count": 1,
                "messages_unacknowledged": 2, "prefetch_count": 2, "name": f"{row['name']} (1)"}  # fmt: skip
    assert expected.items() <= shown.items()
    assert shown["message_stats"]["publish"] == 3
    assert shown["message_stats"]["deliver"] == 2
    (consumer,) = api.get("consumers")
    assert (consumer["consumer_tag"], consumer["prefetch_count"], consumer["ack_required"]) == (
        "tag",
        2,
        True,
    )
    assert consumer["channel_details"]["name"] == shown["name"]
    assert api.get("queues/%2F/jobs")["consumer_details"] == [consumer]
    assert api.get("overview")["object_totals"]["channels"] == 1


def test_a_connection_is_closed_from_outside(api, client):
    (row,) = api.get("connections")
    assert api("DELETE", f"connections/{row['name'].replace(' ', '%20')}")[0] == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        client.process_data_events(time_limit=LIMIT)
    assert (closed.value.reply_code, closed.value.reply_text) == (
        320, "CONNECTION_FORCED - Closed via management plugin",
    )  # fmt: skip


def test_what_ended_channels_did_stays_counted(api, client):
    channel = client.channel()
    channel.queue_declare("jobs")
    channel.basic_publish("", "jobs", b"x")
    channel.basic_publish("", "nowhere", b"x")
    assert channel.basic_get("jobs", auto_ack=True)[2] == b"x"
    assert channel.basic_get("jobs") == (None, None, None)
    channel.close()
    stats = api.get("overview")["message_stats"]
    assert {name: stats[name] for name in ("publish", "drop_unroutable", "get_no_ack", "get_empty", "deliver_get")} == {
        "publish": 2, "drop_unroutable": 1, "get_no_ack": 1, "get_empty": 1, "deliver_get": 1,
    }  # fmt: skip


def test_deleting_a_virtual_host_closes_its_connections(api):
    api("PUT", "vhosts/v", {})
    api("PUT", "permissions/v/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    parameters = pika.ConnectionParameters("127.0.0.1", api.server.port, "v")
    connection = pika.BlockingConnection(parameters)
    connection.channel().queue_declare("q")
    deleted = []
    thread = threading.Thread(target=lambda: deleted.append(api("DELETE", "vhosts/v")))
    thread.start()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="vhost 'v' is deleted"):
        connection.process_data_events(time_limit=LIMIT)
    thread.join()
    assert deleted == [(204, None)]


def open_to(api, **options):
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.server.port, **options))


def test_limits_on_connections_hold(api):
    api("PUT", "vhost-limits/%2F/max-connections", {"value": 1})
    with (
        open_to(api),
        pytest.raises(
            pika.exceptions.ProbableAccessDeniedError, match=r"\(530\).*connection limit \(1\) is reached"
        ),
    ):
        open_to(api)
    api("DELETE", "vhost-limits/%2F/max-connections")
    api("PUT", "user-limits/guest/max-connections", {"value": 0})
    with pytest.raises(
        pika.exceptions.ProbableAccessDeniedError, match=r"user connection limit \(0\) is reached"
    ):
        open_to(api)
    api("DELETE", "user-limits/guest/max-connections")
    open_to(api).close()


def test_a_limit_on_channels_holds_over_all_connections_of_a_user(api, client):
    api("PUT", "user-limits/guest/max-channels", {"value": 1})
    client.channel()
    other = open_to(api)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="maximum allowed user limit"):
        other.channel()


def test_connections_channels_and_exchanges_have_rates_with_a_history(api, client):
    channel = client.channel()
    channel.queue_declare("jobs")
    channel.exchange_declare("logs", "fanout")
    channel.queue_bind("jobs", "logs")
    for exchange, key in (("", "jobs"), ("logs", ""), ("logs", "")):
        channel.basic_publish(exchange, key, b"x")
    channel.queue_declare("jobs", passive=True)  # the channel has dealt with what it was sent
    api.management.site._take()
    spans = "data_rates_age=60&data_rates_incr=5&msg_rates_age=60&msg_rates_incr=5"
    (connection,), (shown,) = api.get(f"connections?{spans}"), api.get(f"channels?{spans}")
    assert connection["recv_oct"] > 100 < connection["send_oct"]
    logs = api.get(f"exchanges/%2F/logs?{spans}")["message_stats"]
    assert (logs["publish_in"], logs["publish_out"]) == (2, 2)
    for stats, name in (
        (connection, "recv_oct"), (connection, "send_oct"), (shown["message_stats"], "publish"),
        (logs, "publish_in"), (logs, "publish_out"),
    ):  # fmt: skip
        assert stats[f"{name}_details"].keys() == {"rate", "samples", "avg", "avg_rate"}, name
        assert len(stats[f"{name}_details"]["samples"]) == 13
    client.close()  # what it published still counts
    stats = {each["name"]: each.get("message_stats") for each in api.get("exchanges")}
    assert stats["logs"]["publish_in"] == 2
    assert stats[""]["publish_in"] == 1
    assert stats["amq.topic"] is None
    api("DELETE", "exchanges/%2F/logs")
    api.management.site._take()
    api("PUT", "exchanges/%2F/logs", {"type": "fanout"})
    assert "message_stats" not in api.get("exchanges/%2F/logs")
