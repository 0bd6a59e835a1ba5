"""The HTTP API: field names, status codes and texts as RabbitMQ 3.10.8 has them."""

import math
import ssl
from concurrent.futures import ThreadPoolExecutor

import pytest

import warrenmq
from warrenmq.management import messages, queues
from warrenmq.patterns import CANNOT_BE_MATCHED

ROOT = "%2F"


def declare(api, name="jobs", **body):
    assert api("PUT", f"queues/{ROOT}/{name}", {"durable": True, **body})[0] in (201, 204)


def publish(api, key, payload="hello", exchange="amq.default", **properties):
    body = {"routing_key": key, "payload": payload, "payload_encoding": "string", "properties": properties}
    return api("POST", f"exchanges/{ROOT}/{exchange}/publish", body)


def take(api, queue, **body):
    asked = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"} | body
    return api("POST", f"queues/{ROOT}/{queue}/get", asked)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("GET", "nope", None, 404, "Not Found"),
        ("GET", "queues/%2F/nope", None, 404, "Not Found"),
        ("GET", "queues/nope", None, 404, "Not Found"),
        ("DELETE", "queues/%2F/nope", None, 404, "Not Found"),
        ("GET", "connections/nope", None, 404, "Not Found"),
        ("PATCH", "queues/%2F/jobs", None, 405, "use DELETE, GET, PUT"),
        ("PUT", "queues/%2F/jobs", {"durable": False}, 400,
         "inequivalent arg 'durable' for queue 'jobs' in vhost '/': received 'false' but current is 'true'"),
        ("PUT", "queues/%2F/jobs", "x", 400,
         "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"),
        ("PUT", "queues/%2F/new", {"arguments": {"x-max-length": -1}}, 400,
         "invalid arg 'x-max-length' for queue 'new' in vhost '/': {value_negative,-1}"),
        ("PUT", "exchanges/%2F/e", {}, 400, "[{key_missing,type}]"),
        ("POST", "exchanges/%2F/amq.default/publish", {"properties": {}, "routing_key": "a"}, 400,
         "[{key_missing,payload},{key_missing,payload_encoding}]"),
        ("POST", "exchanges/%2F/nope/publish", {"routing_key": "a", "payload": "", "payload_encoding": "string"}, 400,
         "404 NOT_FOUND - no exchange 'nope' in vhost '/'"),
        ("POST", "exchanges/%2F/amq.topic/publish",
         {"routing_key": "k" * 256, "payload": "", "payload_encoding": "string"}, 400,
         "routing_key is 'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk...; give at most 255 bytes of UTF-8, "
         "which is what AMQP has room for"),
        ("POST", "exchanges/%2F/amq.topic/publish",
         {"payload": "", "payload_encoding": "string", "properties": {"app_id": "ä" * 128}}, 400,
         "property app_id is 'ääääääääääääääääääääääääääääääääääääääääääääääääääääääää...; give at most 255 bytes of "
         "UTF-8, which is what AMQP has room for"),
        ("POST", "bindings/%2F/e/amq.topic/q/jobs", {"routing_key": "k" * 256}, 400,
         "a binding's routing key 'kkkkkkkkkkkkkkkkkkkk'... is too long: AMQP has room for 255 bytes of UTF-8"),
        ("PUT", "users/bob", {"password": "x"}, 400, "tags_not_present"),
        ("PUT", "permissions/%2F/guest", {"configure": ""}, 400, "[{key_missing,write},{key_missing,read}]"),
        ("DELETE", "vhosts/%2F", None, 400, "the virtual host / cannot be deleted: it owns the data directory"),
        ("GET", "queues?page=9", None, 400, "page out of range, page: 9 page size: 100, len: 1"),
        ("GET", "queues?use_regex=true&name=(", None, 400,
         "name is no regular expression that can be looked for: missing ), unterminated subpattern at position 0"),
        ("GET", "queues?use_regex=true&name=(a%2B)%2B$", None, 400,
         "name is no regular expression that can be looked for: " + CANNOT_BE_MATCHED),
        ("GET", "health/checks/port-listener/1", None, 503, "No active listener"),
        ("GET", "health/checks/protocol-listener/mqtt", None, 503, "No active listener"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_rabbitmqs_words(shared_api, method, path, body, status, said):
    declare(shared_api)
    found, answer = shared_api(method, path, body)
    assert (found, answer["reason"]) == (status, said)


def test_names_are_looked_for_as_text_or_as_a_regular_expression(api):
    for name in ("jobs.a", "jobs-b", "other"):
        declare(api, name)
    for wanted, names in (
        ("name=JOBS", ["jobs-b", "jobs.a"]),
        ("name=jobs.*", []),
        ("use_regex=true&name=^JOBS.[ab]$", ["jobs-b", "jobs.a"]),
        ("use_regex=true&name=^(other|jobs%5B.%5Da)$", ["jobs.a", "other"]),
    ):
        status, rows = api("GET", f"queues?columns=name&{wanted}")
        assert (status, sorted(row["name"] for row in rows)) == (200, names), wanted


def test_a_queue_is_declared_once_and_shown(api):
    arguments = {"x-max-length": 5, "x-message-ttl": 60_000}
    assert api("PUT", "queues/%2F/a%2Fb", {"durable": True, "arguments": arguments}) == (201, None)
    assert api("PUT", "queues/%2F/a%2Fb", {"durable": True, "arguments": arguments}) == (204, None)
    row = api.get("queues/%2F/a%2Fb")
    expected = {"name": "a/b", "vhost": "/", "durable": True, "auto_delete": False, "exclusive": False, "state": "running",
                "arguments": arguments, "messages": 0, "messages_ready": 0, "consumers": 0, "type": "classic"}  # fmt: skip
    assert expected.items() <= row.items()
    assert [each["name"] for each in api.get("queues/%2F")] == ["a/b"]
    assert api("DELETE", "queues/%2F/a%2Fb") == (204, None)
    assert api.get("queues") == []


def test_rates_have_a_history_when_it_is_asked_for(api):
    declare(api)
    for _ in range(3):
        publish(api, "jobs")
    take(api, "jobs", count=2)
    api.management.site._take()
    query = "msg_rates_age=60&msg_rates_incr=5&lengths_age=60&lengths_incr=5"
    for row in (
        api.get(f"queues/%2F/jobs?{query}"),
        api.get(f"queues?{query}")[0],
        api.get(f"vhosts/%2F?{query}"),
    ):
        stats = row["message_stats"]
        assert [stats[name] for name in ("publish", "get", "deliver", "ack", "deliver_get")] == [
            3,
            2,
            0,
            2,
            2,
        ]
        for details in stats["publish_details"], row["messages_details"]:
            assert len(details["samples"]) == 13
            assert {"rate", "avg", "avg_rate"} < details.keys()
        assert row["messages"] == 1
    assert len(api.get(f"overview?{query}")["message_stats"]["publish_details"]["samples"]) == 13
    assert api.get("queues/%2F/jobs")["message_stats"]["publish_details"].keys() == {"rate"}
    assert api("GET", "queues?msg_rates_age=9&msg_rates_incr=0")[0] == 400


def test_messages_are_published_got_and_given_back(api):
    declare(api)
    assert publish(api, "jobs", delivery_mode=2, headers={"h": [1, "a"]}) == (200, {"routed": True})
    assert publish(api, "nope") == (200, {"routed": False})
    (message,) = take(api, "jobs", ackmode="ack_requeue_true")[1]
    assert message == {
        "payload": "hello", "payload_bytes": 5, "payload_encoding": "string", "exchange": "", "routing_key": "jobs",
        "message_count": 0, "redelivered": False, "properties": {"delivery_mode": 2, "headers": {"h": [1, "a"]}},
    }  # fmt: skip
    (message,) = take(api, "jobs", encoding="base64", truncate=2)[1]
    assert (message["payload"], message["redelivered"], message["payload_bytes"]) == ("aGU=", True, 5)
    assert take(api, "jobs")[1] == []


@pytest.mark.parametrize("wrong", [{"truncate": "abc"}, {"truncate": -1}, {"count": "x"}, {"ackmode": []}])
def test_a_get_that_is_refused_takes_nothing(shared_api, wrong):
    """With a truncate that is no number the first message was acked, and went to nobody."""
    declare(shared_api, "refused")
    publish(shared_api, "refused")
    assert take(shared_api, "refused", **wrong)[0] == 400
    (message,) = take(shared_api, "refused")[1]
    assert message["redelivered"] is False


def test_what_a_get_took_before_it_failed_goes_back(api, monkeypatch):
    declare(api)
    publish(api, "jobs")

    def fail(*_):
        raise warrenmq.Error("it cannot be read")

    with monkeypatch.context() as patched:
        patched.setattr(queues, "_message", fail)
        assert take(api, "jobs")[0] == 400
    (message,) = take(api, "jobs")[1]
    assert message["redelivered"] is True


def test_numbers_that_json_has_not_are_null(api):
    queue = api.management.site.broker("/").declare_queue("jobs", arguments={"x-a": [math.inf, 1.5]})
    queue.publish(b"", headers={"n": math.nan}).result()
    (message,) = take(api, "jobs")[1]
    assert message["properties"]["headers"] == {"n": None}
    assert api.get("queues/%2F/jobs")["arguments"] == {"x-a": [None, 1.5]}


def test_messages_given_back_keep_their_order(api):
    declare(api)
    for text in "abc":
        publish(api, "jobs", text)
    for _ in range(2):
        found = take(api, "jobs", count=5, ackmode="reject_requeue_true")[1]
        assert [(each["payload"], each["message_count"]) for each in found] == [("a", 2), ("b", 1), ("c", 0)]
    assert api("DELETE", "queues/%2F/jobs?if-empty=true")[0] == 400
    assert api("DELETE", "queues/%2F/jobs/contents") == (204, None)
    assert api("DELETE", "queues/%2F/jobs?if-empty=true") == (204, None)


def test_bindings_are_found_by_their_properties_key(api):
    declare(api)
    api("PUT", "exchanges/%2F/e", {"type": "topic"})
    path = "bindings/%2F/e/e/q/jobs"
    for body in ({"routing_key": "a.#"}, {"routing_key": "a.#", "arguments": {"x": 1}}, {}):
        assert api("POST", path, body)[0] == 201
        assert api.headers["location"].startswith("jobs/")
    rows = api.get(path)
    assert [each["properties_key"] for each in rows][::2] == ["a.%23", "~"]
    assert rows == api.get("exchanges/%2F/e/bindings/source")
    assert len(api.get("queues/%2F/jobs/bindings")) == 4  # and that of the default exchange
    for row in rows:
        key = row["properties_key"].replace("%", "%25")  # as a segment of a path
        assert api.get(f"{path}/{key}") == row
        assert api("DELETE", f"{path}/{key}")[0] == 204
    assert api.get(path) == []
    assert api("DELETE", "exchanges/%2F/e")[0] == 204


def test_lists_come_in_pages_and_columns(api):
    for name in ("b", "a", "c1", "c2"):
        declare(api, name)
    page = api.get("queues?page=1&page_size=2&sort=name&sort_reverse=true&columns=name")
    assert page == {
        "items": [{"name": "c2"}, {"name": "c1"}], "page": 1, "page_count": 2, "page_size": 2, "item_count": 2,
        "filtered_count": 4, "total_count": 4,
    }  # fmt: skip
    assert api.get("queues?page=1&name=c&columns=name")["filtered_count"] == 2
    assert api.get("queues?columns=name,message_stats.publish&sort=name")[0] == {
        "name": "a", "message_stats": {"publish": 0},
    }  # fmt: skip


def test_users_and_permissions_outlast_a_restart(start):
    api = start()
    assert api("PUT", "users/bob", {"password": "secret", "tags": "monitoring,x"})[0] == 201
    assert api("PUT", "permissions/%2F/bob", {"configure": "^b", "write": "", "read": ".*"})[0] == 201
    start.end()
    api = start()
    assert api.get("users/bob")["tags"] == ["monitoring", "x"]
    assert api.get("whoami", user="bob", password="secret") == {"name": "bob", "tags": ["monitoring", "x"]}
    assert api.get("users/bob/permissions") == [
        {"user": "bob", "vhost": "/", "configure": "^b", "write": "", "read": ".*"}
    ]
    assert api("PUT", "queues/%2F/b1", {}, user="bob", password="secret")[0] == 201
    status, body = api("PUT", "queues/%2F/a1", {}, user="bob", password="secret")
    assert status == 401
    assert body["reason"] == "ACCESS_REFUSED - access to queue 'a1' in vhost '/' refused for user 'bob'"
    assert api("DELETE", "users/bob")[0] == 204
    assert api("GET", "whoami", user="bob", password="secret")[0] == 401


def test_users_that_are_changed_at_the_same_time_are_all_kept(start):
    """Two changes wrote one file: requests had 500, and what was kept was that of either."""
    api = start()
    with ThreadPoolExecutor(4) as threads:
        made = threads.map(
            lambda n: api("PUT", f"users/u{n}", {"password_hash": "", "tags": ""})[0], range(24)
        )
        assert {*made} == {201}
    assert len(api.get("users")) == 25
    start.end()
    assert len(start().get("users")) == 25


def test_a_change_that_cannot_be_kept_is_none(api, tmp_path):
    """It was answered as a defect, and held until the next start; so did a virtual host, whose messages were then gone."""
    assert api("PUT", "vhosts/old", {})[0] == 201
    (tmp_path / "data" / "users.json.new").mkdir()  # in the way of the next users.json
    for path, body in (
        ("users/bob", {"password_hash": "", "tags": ""}),
        ("permissions/%2F/guest", {"configure": "", "write": "", "read": ""}),
        ("vhosts/new", {}),
    ):
        status, answer = api("PUT", path, body)
        assert (status, answer["error"]) == (503, "service_unavailable")
    assert api("POST", "definitions", {"vhosts": [{"name": "new"}]})[0] == 503
    assert api("DELETE", "vhosts/old")[0] == 503
    (tmp_path / "data" / "users.json.new").rmdir()
    assert [api("DELETE", "vhosts/old")[0] for _ in range(2)] == [204, 404]
    assert [len(api.get(path)) for path in ("users", "vhosts")] == [1, 1]
    assert api.get("permissions/%2F/guest")["write"] == ".*"


def test_somebody_can_always_log_in(shared_api):
    shared_api("PUT", "users/one", {"password_hash": "", "tags": ""})
    everybody = [each["name"] for each in shared_api.get("users")]
    assert shared_api("POST", "users/bulk-delete", {"users": everybody})[0] == 400
    assert shared_api("POST", "users/bulk-delete", {"users": ["one", "one"]})[0] == 204
    assert shared_api("POST", "users/bulk-delete", {"users": ["one"]})[0] == 400


@pytest.mark.parametrize(
    ("tags", "path", "status"),
    [("", "overview", 401), ("other", "overview", 401), ("management", "overview", 200), ("management", "nodes", 401),
     ("monitoring", "nodes", 200), ("monitoring", "users", 401), ("policymaker", "users", 401), ("administrator", "users", 200)],
)  # fmt: skip
def test_tags_say_what_a_user_may_see(shared_api, tags, path, status):
    shared_api("PUT", "users/u", {"password": "p", "tags": tags})
    assert shared_api("GET", path, user="u", password="p")[0] == status


def test_a_user_sees_his_own_virtual_hosts(api):
    declare(api)
    api("PUT", "vhosts/other", {})
    api("PUT", "queues/other/mine", {})
    api("PUT", "users/u", {"password": "p", "tags": "management"})
    api("PUT", "permissions/other/u", {"configure": "", "write": "", "read": ".*"})
    mine = {"user": "u", "password": "p"}
    assert [each["name"] for each in api.get("vhosts", **mine)] == ["other"]
    assert [each["name"] for each in api.get("queues", **mine)] == ["mine"]
    assert api("GET", "queues/%2F", **mine)[0] == 401
    assert api("GET", "queues/%2F/jobs", **mine)[0] == 401
    assert len(api.get("queues")) == 2


def test_a_virtual_host_is_made_used_and_deleted(start):
    api = start()
    assert api("PUT", "vhosts/v%2F1", {"description": "d", "tags": "a,b"})[0] == 201
    assert api("PUT", "vhosts/v%2F1", {})[0] == 204
    assert api.get("permissions/v%2F1/guest")["configure"] == ".*"  # who made it may use it, as in RabbitMQ
    assert api("PUT", "queues/v%2F1/q", {"durable": True})[0] == 201
    start.end()
    api = start()
    assert [each["name"] for each in api.get("queues/v%2F1")] == ["q"]
    assert api("DELETE", "vhosts/v%2F1")[0] == 204
    assert [each["name"] for each in api.get("vhosts")] == ["/"]
    assert api("PUT", "vhosts/v%2F1", {})[0] == 201
    assert api.get("queues/v%2F1") == []
    assert api("PUT", "permissions/v%2F1/guest", {"configure": "", "write": "", "read": ".*"})[0] == 204
    assert api("PUT", "vhosts/v%2F1", {})[0] == 204
    assert api.get("permissions/v%2F1/guest")["configure"] == ""
    one = {"user": "guest", "vhost": "v2", "configure": "x", "write": "", "read": ""}
    assert (
        api("POST", "definitions", {"vhosts": [{"name": "v2"}, {"name": "v3"}], "permissions": [one]})[0]
        == 204
    )
    assert [api.get(f"permissions/{name}/guest")["configure"] for name in ("v2", "v3")] == ["x", ".*"]


def test_health_checks_and_overview(api):
    port = api.server.port
    for path in ("aliveness-test/%2F", "health/checks/alarms", "health/checks/local-alarms", "health/checks/virtual-hosts",
                 "health/checks/protocol-listener/amqp", f"health/checks/port-listener/{port}", "healthchecks/node",
                 "health/checks/node-is-quorum-critical"):  # fmt: skip
        assert api.get(path)["status"] == "ok"
    declare(api)
    publish(api, "jobs")
    found = api.get("overview")
    assert found["object_totals"] == {
        "queues": 2,
        "exchanges": 7,
        "connections": 0,
        "channels": 0,
        "consumers": 0,
    }
    assert found["queue_totals"]["messages"] == 1
    (node,) = api.get("nodes")
    assert api.get(f"nodes/{node['name']}") | {"uptime": 0} | {"fd_used": 0} == node | {"uptime": 0} | {
        "fd_used": 0
    }


def test_an_alarm_fails_the_health_check(api, monkeypatch):
    monkeypatch.setattr(messages, "BLOCKED_TIMEOUT", 0.01)
    declare(api)
    broker = api.management.site.brokers()[0]
    broker.set_vm_memory_high_watermark(0.0)
    status, body = publish(api, "jobs")
    assert (status, body["error"]) == (503, "service_unavailable")
    status, body = api("GET", "health/checks/alarms")
    assert (status, body["status"], body["alarms"][0]["resource"]) == (503, "failed", "memory")
    broker.set_vm_memory_high_watermark(1.0)
    assert api.get("health/checks/alarms") == {"status": "ok"}


def test_a_user_writes_and_binds_the_topics_that_are_his(api):
    api("PUT", "users/bob", {"password": "p", "tags": "management"})
    api("PUT", "permissions/%2F/bob", {"configure": ".*", "write": ".*", "read": ".*"})
    mine = {"user": "bob", "password": "p"}
    api("PUT", "queues/%2F/q", {})
    assert api("GET", "topic-permissions/%2F/bob")[0] == 404
    row = {"exchange": "amq.topic", "write": "^{username}[.]", "read": "^(bob|{vhost})"}
    assert api("PUT", "topic-permissions/%2F/bob", row)[0] == 201
    assert api("PUT", "topic-permissions/%2F/bob", row)[0] == 204
    assert api("PUT", "topic-permissions/%2F/nobody", row)[0] == 404
    assert api("PUT", "topic-permissions/%2F/bob", {**row, "write": "("})[0] == 400
    listed = [{"user": "bob", "vhost": "/", **row}]
    for path in (
        "topic-permissions",
        "topic-permissions/%2F/bob",
        "users/bob/topic-permissions",
        "vhosts/%2F/topic-permissions",
    ):
        assert api.get(path) == listed
    assert api.get("definitions")["topic_permissions"] == listed

    def publish(key, exchange="amq.topic", **headers):
        body = {
            "properties": {"headers": headers},
            "routing_key": key,
            "payload": "x",
            "payload_encoding": "string",
        }
        status, answer = api("POST", f"exchanges/%2F/{exchange}/publish", body, **mine)
        return answer["reason"] if status != 200 else answer["routed"]

    said = "ACCESS_REFUSED - access to topic '{}' in exchange 'amq.topic' in vhost '/' refused for user 'bob'"
    assert publish("bobx") == said.format("bobx")
    assert publish("bob.x") is False
    assert publish("bob.x", CC=["else"]) == said.format("else")
    assert publish("else", "amq.direct") is False
    pair = "bindings/%2F/e/amq.topic/q/q"
    assert api("POST", pair, {"routing_key": "alice.#"}, **mine)[1]["reason"] == said.format("alice.#")
    assert api("POST", pair, {"routing_key": "/x"}, **mine)[0] == 201
    assert api("POST", pair, {"routing_key": "alice.#"})[0] == 201
    assert api("DELETE", f"{pair}/alice.%23", **mine)[0] == 401
    assert api("DELETE", "topic-permissions/%2F/bob")[0] == 204
    assert api.get("topic-permissions") == []
    assert publish("alice.x") is True


@pytest.mark.parametrize(
    ("path", "body"),
    [("queues/%2F/u1", {"arguments": {"x-dead-letter-exchange": "amq.fanout"}}),
     ("queues/%2F/u1", {"arguments": {"x-dead-letter-exchange": ""}}),
     ("exchanges/%2F/u1", {"type": "fanout", "arguments": {"alternate-exchange": "amq.fanout"}})],
)  # fmt: skip
def test_messages_are_sent_on_only_where_a_user_may_write(shared_api, path, body):
    """A queue or an exchange declared here sent them to exchanges that AMQP refuses the user."""
    shared_api("PUT", "users/u", {"password": "p", "tags": "management"})
    shared_api("PUT", "permissions/%2F/u", {"configure": "^u", "write": "^u", "read": "^u"})
    status, answer = shared_api("PUT", path, body, user="u", password="p")
    assert (status, "refused for user 'u'" in answer["reason"]) == (401, True)
    shared_api("PUT", "permissions/%2F/u", {"configure": "^u", "write": "^amq", "read": "^u"})
    assert shared_api("PUT", path, body, user="u", password="p")[0] == 201
    assert shared_api("DELETE", path)[0] == 204


def test_certificates_that_expire_soon_are_told(api, certificate):
    assert api.get("health/checks/certificate-expiration/1/months") == {"status": "ok"}
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    context.load_verify_locations(certificate[0])
    context.verify_mode = ssl.CERT_REQUIRED
    _, port = api.server.listen("127.0.0.1", 0, context)
    assert api.get("health/checks/certificate-expiration/0/days") == {"status": "ok"}
    status, body = api("GET", "health/checks/certificate-expiration/100/years")
    assert (status, body["reason"]) == (503, "Certificates expiring")
    (row,) = body["expired"]
    assert (row["port"], row["protocol"]) == (port, "amqps")
    assert [row["certfile_expires_on"]] == row["cacertfile_expires_on"]
    for path in ("1/fortnights", "-1/days", "x/days"):
        assert api("GET", f"health/checks/certificate-expiration/{path}")[0] == 400
