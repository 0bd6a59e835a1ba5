"""Definitions: exported, imported, at the start of a server, and what of a file is not applied."""

import json
import logging

import pytest

from warrenmq.amqp.access.passwords import hash_password
from warrenmq.amqp.access.users import read_definitions
from warrenmq.management.definitions import import_file, parse

FILE = {
    "rabbit_version": "3.10.8", "product_name": "RabbitMQ",
    "users": [{"name": "app", "password_hash": hash_password("secret"), "tags": "administrator", "limits": {"max-channels": 9}}],
    "vhosts": [{"name": "/"}, {"name": "other"}],
    "permissions": [{"user": "app", "vhost": name, "configure": ".*", "write": ".*", "read": ".*"} for name in ("/", "other")],
    "topic_permissions": [],
    "parameters": [
        {"value": {"pattern": "^q", "definition": {"max-length": 50}, "priority": 1, "apply-to": "queues"}, "vhost": "/",
         "component": "operator_policy", "name": "o1"},
        {"value": {"max-queues": 7}, "vhost": "other", "component": "vhost-limits", "name": "limits"},
    ],
    "global_parameters": [{"name": "internal_cluster_id", "value": "x"}],
    "policies": [{"vhost": "/", "name": "p1", "pattern": "^q", "apply-to": "queues", "definition": {"max-length": 100}, "priority": 1}],
    "queues": [{"name": "q1", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 60}},
               {"name": "q2", "vhost": "other", "durable": True, "auto_delete": False, "arguments": {}}],
    "exchanges": [{"name": "e1", "vhost": "/", "type": "topic", "durable": True, "auto_delete": False, "internal": False,
                   "arguments": {}}],
    "bindings": [{"source": "e1", "vhost": "/", "destination": "q1", "destination_type": "queue", "routing_key": "k.#",
                  "arguments": {"a": 1}}],
}  # fmt: skip
BINDING = {"source": "amq.direct", "vhost": "/", "destination": "amq.fanout"}
MINE = {"user": "app", "password": "secret"}
DECLARED = ("parameters", "policies", "queues", "exchanges", "bindings", "permissions")


def test_what_is_exported_can_be_imported_elsewhere(api, tmp_path):
    assert api("POST", "definitions", FILE) == (204, None)
    exported = api.get("definitions", **MINE)
    for key in DECLARED:
        assert [row for row in FILE[key] if row not in exported[key]] == []
    assert api("POST", "definitions", exported, **MINE) == (204, None)
    assert api.get("definitions") == exported
    only = api.get("definitions/other")
    assert only["queues"] == [{"name": "q2", "durable": True, "auto_delete": False, "arguments": {}}]
    assert api("POST", "definitions/%2F", only) == (204, None)
    assert {row["name"] for row in api.get("queues/%2F")} == {"q1", "q2"}
    assert api.get("users/app")["limits"] == {"max-channels": 9}


def test_bindings_of_exclusive_queues_are_not_exported(api):
    """Without their queues an import could not apply them, and answered 400."""
    broker = api.management.site.broker("/")
    for name in ("mine", "all"):
        broker.bind(broker.declare_queue(name, exclusive=name == "mine"), "amq.fanout")
    exported = api.get("definitions")
    assert [row["destination"] for row in exported["bindings"]] == ["all"]
    assert api("POST", "definitions", exported) == (204, None)


def test_a_file_that_makes_no_sense_changes_nothing(api):
    for body in (
        {"users": [{"name": "x"}]},
        {"queues": {}},
        {"queues": [{"vhost": "/"}]},
        {"topic_permissions": [{}]},
        {"users": [{"name": "x", "password_hash": "", "limits": [1]}]},
        # the virtual host's process died of these, and after three the server
        *({"bindings": [BINDING | {"destination_type": kind}]} for kind in ("other", None, ["queue"], 1)),
        {"bindings": [BINDING | {"routing_key": None}]},
        {"vhosts": [{"name": "new", "metadata": {"tags": [1]}}]},
        {"vhosts": [{"name": "new", "description": 1}]},
    ):
        assert api("POST", "definitions", {"vhosts": [{"name": "new"}], **body})[0] == 400
    assert [row["name"] for row in api.get("vhosts")] == ["/"]
    assert api.get("aliveness-test/%2F")["status"] == "ok"


def test_a_virtual_host_has_what_its_metadata_say(api):
    """RabbitMQ writes description and tags there; they were lost."""
    about = {"description": "for jobs", "tags": ["a", "b"]}
    definitions = {
        "vhosts": [{"name": "/", "limits": [], "metadata": about | {"default_queue_type": "classic"}}]
    }
    assert api("POST", "definitions", definitions) == (204, None)
    assert {key: api.get("vhosts/%2F")[key] for key in about} == about
    assert api.get("definitions")["vhosts"] == [{"name": "/", **about}]


def test_what_is_not_applied_is_told(api):
    rows = [{"name": "s", "vhost": "/", "arguments": {"x-queue-type": "stream"}}, {"name": "n", "vhost": "new"},
            {"name": "a", "vhost": "/"}]  # fmt: skip
    status, answer = api("POST", "definitions", {"queues": rows, "shovels": [1]})
    told = (
        "not applied: shovels (1); queue 's' of type stream; all of vhost 'new', which the file does not list"
    )
    assert (status, answer["reason"]) == (400, told)
    assert [row["name"] for row in api.get("queues")] == ["a"]


@pytest.mark.parametrize(
    ("definitions", "left"),
    [
        (FILE, []),
        ({"global_parameters": [{"name": "x", "value": 1}]}, ["global_parameters (1)"]),
        ({"parameters": [{"component": "shovel", "name": "s", "vhost": "/", "value": {}}]}, ["parameter 's' of shovel"]),
        ({"queues": [{"name": "q", "vhost": "/", "type": "quorum"}]}, ["queue 'q' of type quorum"]),
        ({"exchanges": [{"name": "e", "vhost": "/", "type": "x-random"}]}, ["exchange 'e' of type x-random"]),
        ({"exchanges": [{"name": "amq.topic", "vhost": "/", "type": "topic"}]}, []),
    ],
)  # fmt: skip
def test_parts_that_are_not_applied_are_named(definitions, left):
    assert parse(definitions).left == left


def test_a_quorum_queue_of_a_file_can_be_taken_as_classic():
    rows = {"queues": [{"name": "q", "vhost": "/", "arguments": {"x-queue-type": "quorum"}}]}
    assert parse(rows, quorum_as_classic=True).left == []


def test_a_server_imports_its_file_and_warns_once(start, tmp_path, caplog):
    path = tmp_path / "definitions.json"
    more = {
        "queues": [*FILE["queues"], {"name": "s", "vhost": "/", "arguments": {"x-queue-type": "stream"}}],
        "shovels": [{}],
    }
    path.write_text(json.dumps(FILE | more))
    api = start(str(path))
    with caplog.at_level(logging.WARNING):
        import_file(api.management.site.brokers(), str(path), read_definitions(str(path)))
    (line,) = [record.getMessage() for record in caplog.records if "not applied" in record.getMessage()]
    assert "shovels (1); queue 's' of type stream" in line
    assert {row["name"] for row in api.get("queues", **MINE)} == {"q1", "q2"}
    assert api("GET", "overview")[0] == 401  # there is no guest
