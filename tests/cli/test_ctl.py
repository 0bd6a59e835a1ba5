"""`warrenmq ctl`: rabbitmqctl's commands and columns over the HTTP API of a server."""

import argparse
import json
import os
import re
import subprocess

import pytest

from tests.management.conftest import api, shared_api, start  # noqa: F401  # fixtures
from tests.support.directories import say
from tests.transcripts import rabbitmq
from warrenmq.cli._ctl_commands import ACTIONS
from warrenmq.cli.ctl import shown


@pytest.fixture
def ctl(api, monkeypatch):  # noqa: F811
    monkeypatch.setenv("WARRENMQ_MANAGEMENT_URL", f"http://guest:guest@127.0.0.1:{api.port}")

    def call(*words):
        status, out = say("ctl", *words)
        assert status == 0
        return out

    return call


def test_lists_have_rabbitmqctls_columns(ctl, api):  # noqa: F811
    assert ctl("list_queues") == ""
    api("PUT", "queues/%2F/jobs", {"durable": True, "arguments": {"x-max-length": 5}})
    assert ctl("list_queues") == "name\tmessages\njobs\t0\n"
    assert ctl("list_queues", "name", "durable", "arguments", "nonsense") == (
        'name\tdurable\targuments\tnonsense\njobs\ttrue\t{"x-max-length": 5}\t\n'
    )
    assert ctl("list_exchanges").splitlines()[:3] == ["name\ttype", "\tdirect", "amq.direct\tdirect"]
    assert ctl("list_bindings").splitlines() == [
        "source_name\tsource_kind\tdestination_name\tdestination_kind\trouting_key\targuments",
        "\texchange\tjobs\tqueue\tjobs\t[]",
    ]
    assert ctl("list_users") == "user\ttags\nguest\t[administrator]\n"
    assert ctl("list_permissions") == "user\tconfigure\twrite\tread\nguest\t.*\t.*\t.*\n"
    assert ctl("list_vhosts") == "name\n/\n"
    assert ctl("list_connections") == ctl("list_channels") == ctl("list_consumers") == ""
    assert json.loads(ctl("--json", "list_queues"))[0]["name"] == "jobs"
    assert "queues\t1" in ctl("status").splitlines()


def test_the_bytes_and_the_memory_of_queues_are_listed(ctl, api):  # noqa: F811
    ask = (
        "list_queues",
        "name",
        "message_bytes",
        "message_bytes_ready",
        "message_bytes_unacknowledged",
        "memory",
    )
    for name, arguments in (("jobs", {}), ("ranked", {"x-max-priority": 2})):
        api("PUT", f"queues/%2F/{name}", {"durable": True, "arguments": arguments})
    assert ctl(*ask).splitlines()[1:] == ["jobs\t0\t0\t0\t0", "ranked\t0\t0\t0\t0"]
    for name in ("jobs", "ranked"):
        for size in (10, 5_000):
            body = {"properties": {"delivery_mode": 2}, "routing_key": name, "payload": "x" * size, "payload_encoding": "string"}  # fmt: skip
            api("POST", "exchanges/%2F/amq.default/publish", body)
    for row in (line.split("\t") for line in ctl(*ask).splitlines()[1:]):
        assert row[1:4] == ["5010", "5010", "0"]
        assert int(row[4]) > 0
    assert json.loads(ctl("--json", "list_queues", "name", "message_bytes"))[0] == {
        "name": "jobs",
        "message_bytes": 5010,
    }


def test_options_stand_before_or_behind_the_command(ctl, api, capsys):  # noqa: F811
    assert ctl("list_vhosts", "--json") == ctl("--json", "list_vhosts")
    capsys.readouterr()
    ctl("list_vhosts", "-q")
    ctl("-q", "list_vhosts")
    assert capsys.readouterr().err == ""
    ctl("list_vhosts")
    assert "Listing vhosts" in capsys.readouterr().err


def test_users_policies_and_queues_are_changed(ctl, api, tmp_path):  # noqa: F811
    ctl("add_user", "bob", "secret")
    ctl("set_user_tags", "bob", "monitoring", "management")
    ctl("set_permissions", "bob", "^a", "^b", ".*")
    ctl("add_vhost", "v1")
    ctl("set_permissions", "-p", "v1", "bob", "", "", "")
    assert ctl("list_user_permissions", "bob") == "vhost\tconfigure\twrite\tread\n/\t^a\t^b\t.*\nv1\t\t\t\n"
    ctl("set_topic_permissions", "bob", "amq.topic", "^a", ".*")
    assert ctl("list_topic_permissions") == "user\texchange\twrite\tread\nbob\tamq.topic\t^a\t.*\n"
    assert ctl("list_user_topic_permissions", "bob").splitlines()[1:] == ["/\tamq.topic\t^a\t.*"]
    ctl("set_topic_permissions", "bob", "other/x", "^b", "")
    ctl("clear_topic_permissions", "bob", "amq.topic")
    assert ctl("list_topic_permissions").splitlines()[1:] == ["bob\tother/x\t^b\t"]
    assert api("DELETE", "topic-permissions/%2F/bob/amq.topic")[0] == 404
    ctl("set_topic_permissions", "bob", "amq.topic", "^a", ".*")
    ctl("clear_topic_permissions", "bob")
    assert ctl("list_topic_permissions") == ""
    ctl("change_password", "bob", "other")
    assert api.get("whoami", user="bob", password="other")["tags"] == ["monitoring", "management"]
    ctl("set_policy", "--priority", "3", "--apply-to", "queues", "short", "^jobs", '{"max-length": 2}')
    ctl("set_operator_policy", "bound", "", '{"expires": 1000}')
    assert ctl("list_policies").splitlines()[1] == '/\tshort\t^jobs\tqueues\t{"max-length": 2}\t3'
    assert ctl("list_operator_policies").splitlines()[1] == '/\tbound\t\tall\t{"expires": 1000}\t0'
    ctl("clear_operator_policy", "bound")
    ctl("clear_policy", "short")
    ctl("set_vhost_limits", '{"max-queues": 5}')
    assert ctl("list_vhost_limits") == 'vhost\tvalue\n/\t{"max-queues": 5}\n'
    ctl("clear_vhost_limits")
    api("PUT", "queues/%2F/jobs", {"durable": True})
    ctl("export_definitions", str(tmp_path / "all.json"))
    ctl("purge_queue", "jobs")
    ctl("delete_queue", "--if-empty", "jobs")
    assert ctl("list_queues") == ""
    ctl("import_definitions", str(tmp_path / "all.json"))
    assert ctl("list_queues") == "name\tmessages\njobs\t0\n"
    ctl("delete_vhost", "v1")
    ctl("delete_user", "bob")
    ctl("ping")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("delete_queue", "nope"), "there is no such thing at .*: queues / nope"),
        (("add_user", "guest", "x"), "user 'guest' is there already"),
        (("set_policy", "p", "(", "{}"), "refused: Validation failed: pattern should be regular expression"),
        (("set_policy", "p", "", "{"), "the definition '{' is no JSON"),
        (("--url", "http://guest:wrong@127.0.0.1:{port}", "list_queues"), "user 'guest' is refused: Login failed"),
        (("--url", "http://127.0.0.1:1", "list_queues"), "there is no management API at 127.0.0.1:1: Connection refused"),
        (("--url", "nonsense", "list_queues"), "nonsense is no address of a management API"),
        (("--url", "http://u:secret@[::1", "ping"), r"http://\.\.\.@\[::1 is no address of a management API"),
        (("--url", f"http://{'a' * 70}.x", "ping"), "is no address of a management API"),
        (("set_policy", "--priority", "high", "p", "", "{}"), "the priority 'high' is no whole number"),
    ],
)  # fmt: skip
def test_what_is_refused_is_one_sentence(shared_api, capsys, monkeypatch, words, said):  # noqa: F811
    monkeypatch.setenv("WARRENMQ_MANAGEMENT_URL", f"http://guest:guest@127.0.0.1:{shared_api.port}")
    words = [word.replace("{port}", str(shared_api.port)) if "http" in word else word for word in words]
    status, out = say("ctl", *words)
    assert (status, out) == (2, "")
    assert re.search(said, capsys.readouterr().err)


@pytest.mark.parametrize("data", [b'{"password_hash": "secret"', b"\xff"])
def test_a_file_that_is_none_of_definitions_is_not_shown(tmp_path, capsys, data):
    path = tmp_path / "definitions.json"
    path.write_bytes(data)
    assert say("ctl", "import_definitions", str(path))[0] == 2
    said = capsys.readouterr().err
    assert f"{path} is no file of definitions" in said
    assert "secret" not in said


def test_definitions_on_stdout_are_one_json_object(ctl):
    assert json.loads(ctl("--json", "export_definitions", "-")) == json.loads(ctl("export_definitions", "-"))


def test_the_status_of_a_cluster_is_that_of_the_node_that_answers(api):  # noqa: F811
    class Cluster:
        def call(self, method, path):
            found = api.get(path)
            return [{**found[0], "name": "rabbit@other", "os_pid": "1"}, *found] if path == "nodes" else found

    assert ACTIONS["status"].does(Cluster(), argparse.Namespace())["pid"] == str(os.getpid())


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, ""),
        (True, "true"),
        (["a", "b"], "[a, b]"),
        ({"a": 1}, '{"a": 1}'),
        ({}, "[]"),
        ([], "[]"),
        (5, "5"),
        ("a", "a"),
    ],
)
def test_values_are_cells(value, cell):
    assert shown(value) == cell


@pytest.mark.skipif(
    not os.path.exists("/usr/bin/rabbitmqadmin") or bool(rabbitmq.why_not()), reason="no rabbitmqadmin"
)
def test_the_real_rabbitmqadmin_works(api):  # noqa: F811
    def admin(*words):
        done = subprocess.run(
            ["/usr/bin/rabbitmqadmin", "-P", str(api.port), "-f", "raw_json", *words],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    admin("declare", "queue", "name=jobs", "durable=true", 'arguments={"x-max-length": 9}')
    admin("declare", "exchange", "name=e", "type=topic")
    admin("declare", "binding", "source=e", "destination=jobs", "routing_key=a.#")
    admin("publish", "exchange=e", "routing_key=a.b", "payload=hello", 'properties={"delivery_mode":2}')
    (message,) = json.loads(admin("get", "queue=jobs", "ackmode=ack_requeue_false"))
    assert (message["payload"], message["exchange"]) == ("hello", "e")
    admin(
        "declare",
        "policy",
        "name=p",
        "pattern=^j",
        'definition={"max-length":3}',
        "apply-to=queues",
        "priority=1",
    )
    assert json.loads(admin("list", "queues"))[0]["policy"] == "p"
    admin("delete", "policy", "name=p")
    admin("declare", "vhost", "name=v")
    admin("declare", "user", "name=u", "password=p", "tags=monitoring")
    admin("declare", "permission", "vhost=v", "user=u", "configure=", "write=", "read=.*")
    admin(
        "delete", "binding", "source=e", "destination_type=queue", "destination=jobs", "properties_key=a.%23"
    )
    admin("delete", "queue", "name=jobs")
    assert json.loads(admin("list", "queues")) == []
