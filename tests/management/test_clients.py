"""The requests of tools that manage a RabbitMQ, as they send them: Terraform's provider (rabbit-hole), rabbitmqadmin."""

from urllib.parse import quote, unquote

import pika
import pytest

V = "t%20v"
_GUEST = {"configure": ".*", "write": ".*", "read": ".*"}
_POLICY = {
    "vhost": "t v",
    "pattern": ".*",
    "apply-to": "queues",
    "name": "p",
    "priority": 0,
    "definition": {"max-length": 9},
}

TERRAFORM = [
    ("PUT", f"vhosts/{V}", {"description": "d", "tags": [], "tracing": False}, 201, None),
    ("GET", f"vhosts/{V}", None, 200, {"name": "t v", "description": "d", "tracing": False}),
    ("PUT", f"vhosts/{V}", {"tracing": True}, 400, {"error": "bad_request"}),
    ("PUT", f"vhost-limits/{V}/max-queues", {"value": 10}, 204, None),
    ("GET", f"vhost-limits/{V}", None, 200, [{"vhost": "t v", "value": {"max-queues": 10}}]),
    ("DELETE", f"vhost-limits/{V}/max-connections", None, 204, None),
    ("DELETE", f"vhost-limits/{V}/max-queues", None, 204, None),
    ("GET", f"vhost-limits/{V}", None, 200, []),
    ("PUT", "users/u", {"name": "u", "tags": "management,x", "password": "p"}, 201, None),
    ("GET", "users/u", None, 200, {"name": "u", "tags": ["management", "x"]}),
    ("PUT", "users/u", {"name": "u", "tags": "", "password": "p"}, 204, None),
    ("PUT", f"permissions/{V}/u", {"configure": "", "write": ".*", "read": ""}, 201, None),
    ("GET", f"permissions/{V}/u", None, 200, {"user": "u", "vhost": "t v", "configure": "", "write": ".*", "read": ""}),
    ("DELETE", f"permissions/{V}/u", None, 204, None),
    ("GET", f"permissions/{V}/u", None, 404, {"error": "Object Not Found"}),
    ("PUT", f"permissions/{V}/guest", _GUEST, 204, None),  # it has them, as it made the virtual host
    ("PUT", f"exchanges/{V}/ex", {"type": "topic", "durable": True, "auto_delete": False, "arguments": {}}, 201, None),
    ("GET", f"exchanges/{V}/ex", None, 200, {"name": "ex", "type": "topic", "durable": True, "arguments": {}}),
    ("PUT", f"queues/{V}/q%2F1", {"type": "", "durable": True, "arguments": {"x-message-ttl": 5000}}, 201, None),
    ("GET", f"queues/{V}/q%2F1", None, 200, {"name": "q/1", "durable": True, "arguments": {"x-message-ttl": 5000}}),
    ("PUT", f"policies/{V}/p", _POLICY, 201, None),
    ("GET", f"policies/{V}/p", None, 200, _POLICY),
    ("PUT", f"operator-policies/{V}/p", _POLICY, 201, None),
    ("GET", f"operator-policies/{V}/p", None, 200, _POLICY),
    ("DELETE", f"operator-policies/{V}/p", None, 204, None),
    ("DELETE", f"policies/{V}/p", None, 204, None),
    ("GET", f"policies/{V}/p", None, 404, {"error": "Object Not Found"}),
    ("PUT", f"parameters/shovel/{V}/s", {"value": {"src-uri": "amqp://", "dest-uri": "amqp://"}}, 400, {"error": "bad_request"}),
    ("PUT", f"parameters/federation-upstream/{V}/f", {"value": {"uri": "amqp://"}}, 400, {"error": "bad_request"}),
    ("GET", f"parameters/shovel/{V}/s", None, 404, {"error": "Object Not Found"}),
    ("DELETE", f"queues/{V}/q%2F1?", None, 204, None),
    ("DELETE", "users/u", None, 204, None),
    ("DELETE", f"vhosts/{V}", None, 204, None),
    ("GET", f"vhosts/{V}", None, 404, {"error": "Object Not Found"}),
]  # fmt: skip
"""Create, read, update and delete of its resources, in that order."""

ADMIN = [
    ("PUT", "exchanges/%2F/a", {"vhost": "/", "name": "a", "type": "direct", "auto_delete": "false", "durable": "true",
                                "internal": "false", "arguments": {}}, 201, None),
    ("PUT", "queues/%2F/a", {"vhost": "/", "name": "a", "auto_delete": "false", "durable": "true", "arguments": {}}, 201, None),
    ("POST", "bindings/%2F/e/a/q/a", {"vhost": "/", "source": "a", "destination": "a", "destination_type": "queue",
                                      "routing_key": "", "arguments": {}}, 201, None),
    ("GET", "bindings?columns=source,destination,routing_key&sort=source&sort_reverse=true", None, 200,
     [{"source": "a", "destination": "a", "routing_key": ""}, {"source": "", "destination": "a", "routing_key": "a"}]),
    ("POST", "exchanges/%2F/a/publish", {"vhost": "/", "exchange": "a", "name": "a", "routing_key": "", "properties": {},
                                         "payload": "x", "payload_encoding": "string"}, 200, {"routed": True}),
    ("POST", "queues/%2F/a/get", {"vhost": "/", "queue": "a", "count": "1", "ackmode": "ack_requeue_false",
                                  "encoding": "auto"}, 200, [{"payload": "x", "routing_key": "", "exchange": "a"}]),
    ("GET", "queues?columns=name,messages", None, 200, [{"name": "a", "messages": 0}]),
    ("GET", "overview?columns=rabbitmq_version,queue_totals.messages,object_totals.queues", None, 200,
     {"rabbitmq_version": "3.10.8", "queue_totals": {"messages": 0}, "object_totals": {"queues": 1}}),
    ("PUT", "vhost-limits/%2F/max-queues", {"vhost": "/", "name": "max-queues", "value": 5}, 204, None),
    ("DELETE", "vhost-limits/%2F/max-queues", None, 204, None),
    ("DELETE", "bindings/%2F/e/a/q/a/~", None, 204, None),
    ("DELETE", "queues/%2F/a/contents", None, 204, None),
    ("DELETE", "queues/%2F/a", None, 204, None),
    ("DELETE", "exchanges/%2F/a", None, 204, None),
]  # fmt: skip


def has(expected, found):
    """True if an answer has at least these fields."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            key in found and has(each, found[key]) for key, each in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(found, list) and len(expected) == len(found) and all(map(has, expected, found))
    return bool(expected == found)


@pytest.mark.parametrize("requests", [TERRAFORM, ADMIN], ids=["terraform", "rabbitmqadmin"])
def test_a_tools_requests_have_the_answers_that_it_expects(shared_api, requests):
    for method, path, body, status, answer in requests:
        found = shared_api(method, path, body)
        assert found[0] == status, (method, path, found)
        assert has(answer, found[1]), (method, path, found)


@pytest.mark.parametrize("key", ["", "#", "a.*.b", "a b", "~", "a~b", "%23", "ü", "plain"])
def test_a_bindings_location_leads_to_its_properties_key(shared_api, key):
    """Terraform's provider keeps what it decodes from the last segment, and takes a binding that it does not find for deleted."""
    pair = "bindings/%2F/e/amq.topic/q/bound"
    assert shared_api("PUT", "queues/%2F/bound", {"durable": True})[0] in (201, 204)
    assert shared_api("POST", pair, {"routing_key": "#", "arguments": {"other": 1}})[0] == 201
    assert shared_api("POST", pair, {"routing_key": key, "arguments": {}})[0] == 201
    kept = unquote(shared_api.headers["location"].rsplit("/", 1)[-1])
    (found,) = [each for each in shared_api.get(pair) if each["properties_key"] == kept]
    assert (found["routing_key"], found["arguments"]) == (key, {})
    path = f"{pair}/{quote(kept, safe='')}"
    assert shared_api.get(path) == found
    assert shared_api("DELETE", path)[0] == 204
    assert found not in shared_api.get(pair)


RATE = {"rate": float}
LENGTHS = {f"messages{which}": int for which in ("", "_ready", "_unacknowledged")} | {
    f"messages{which}_details": RATE for which in ("", "_ready", "_unacknowledged")
}
STATS = dict.fromkeys(
    ("publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "deliver_get", "ack"), int
)
STATS |= {f"{name}_details": RATE for name in tuple(STATS)}
BYTES = {"recv_oct": int, "send_oct": int, "recv_oct_details": RATE, "send_oct_details": RATE}
DECODED = {
    "overview": {
        "management_version": str, "rabbitmq_version": str, "erlang_version": str, "node": str, "message_stats": STATS,
        "queue_totals": LENGTHS, "exchange_types": [{"name": str, "description": str, "enabled": bool}],
        "object_totals": dict.fromkeys(("consumers", "queues", "exchanges", "connections", "channels"), int),
        "listeners": [{"node": str, "protocol": str, "ip_address": str, "port": int}],
    },
    "nodes": [{
        "name": str, "type": str, "running": bool, "os_pid": str, "fd_used": int, "fd_total": int, "sockets_used": int,
        "sockets_total": int, "mem_used": int, "mem_limit": int, "mem_alarm": bool, "disk_free": int, "disk_free_limit": int,
        "disk_free_alarm": bool, "processors": int, "run_queue": int, "uptime": int,
    }],
    "vhosts": [{"name": str, "tracing": bool, "description": str, "tags": [str]} | LENGTHS],
    "users": [{"name": str, "password_hash": str, "hashing_algorithm": str, "tags": [str]}],
    "permissions": [{"user": str, "vhost": str, "configure": str, "write": str, "read": str}],
    "connections": [{
        "name": str, "node": str, "channels": int, "state": str, "type": str, "port": int, "peer_port": int, "host": str,
        "peer_host": str, "ssl": bool, "protocol": str, "user": str, "vhost": str, "timeout": int, "frame_max": int,
        "channel_max": int, "connected_at": int, "client_properties": dict, **BYTES,
    }],
    "channels": [{
        "number": int, "name": str, "prefetch_count": int, "consumer_count": int, "messages_unacknowledged": int,
        "messages_unconfirmed": int, "messages_uncommitted": int, "acks_uncommitted": int, "confirm": bool,
        "transactional": bool, "user": str, "vhost": str, "node": str, "message_stats": STATS,
        "connection_details": {"name": str, "peer_port": int, "peer_host": str},
    }],
    "exchanges": [{
        "name": str, "vhost": str, "type": str, "durable": bool, "auto_delete": bool, "internal": bool, "arguments": dict,
    }],
    "queues": [{
        "name": str, "vhost": str, "durable": bool, "auto_delete": bool, "exclusive": bool, "arguments": dict, "node": str,
        "consumers": int, "message_stats": STATS, "state": str, "type": str, **LENGTHS,
    }],
    "bindings": [{
        "source": str, "vhost": str, "destination": str, "destination_type": str, "routing_key": str, "arguments": dict,
        "properties_key": str,
    }],
}  # fmt: skip
"""Field -> the type that rabbit-hole, which Terraform's provider and many exporters use, decodes it as: Go takes no other."""


def wrong_fields(wanted, found, path=""):
    """The paths of fields that are missing or of another type."""
    if isinstance(wanted, list):
        for each in found if isinstance(found, list) else [None]:
            yield from wrong_fields(wanted[0], each, f"{path}[]")
    elif isinstance(wanted, dict):
        for name, kind in wanted.items():
            yield from wrong_fields(
                kind, found.get(name) if isinstance(found, dict) else None, f"{path}.{name}"
            )
    elif type(found) is not wanted and not (wanted is float and type(found) is int):
        yield f"{path}: {found!r}"


def test_fields_have_the_types_that_a_typed_client_decodes(api):
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.server.port)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"x")
        channel.basic_get("q")
        assert [
            wrong for path, wanted in DECODED.items() for wrong in wrong_fields(wanted, api.get(path), path)
        ] == []
        for exact in ("queues/%2F/q", "vhosts/%2F", "users/guest", "exchanges/%2F/amq.topic"):
            kind = exact.partition("/")[0]
            assert list(wrong_fields(DECODED[kind][0], api.get(exact), exact)) == []
        # Spring Boot's health indicator shows the version that the server tells, and is down without one.
        assert isinstance(connection._impl.server_properties["version"], str)
