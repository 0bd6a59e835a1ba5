"""`warrenmq serve` as operators start it: with a rabbitmq.conf, JSON logs, systemd's notify and its sockets."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request

import pika
import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.shared_directory import opened
from tests.support.source_tree import ROOT
from warrenmq.cli import _systemd, main, parser, serve
from warrenmq.cli._server_conf import read_conf
from warrenmq.errors import CallerError


def begin(*arguments, **options):
    process = subprocess.Popen(
        [sys.executable, "-m", "warrenmq", "serve", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=ROOT, **options,
    )  # fmt: skip
    lines = {}
    while "ready" not in lines:
        word, _, url = process.stdout.readline().strip().partition(" ")
        assert word, process.stderr.read()
        lines[url.partition(":")[0] if word == "management" else word] = url
    return process, lines


def end(process):
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    return err


def test_a_server_of_a_rabbitmq_conf(tmp_path, certificate):
    definitions = tmp_path / "definitions.json"
    definitions.write_text(json.dumps({"queues": [{"name": "q", "vhost": "/", "durable": True}, {
        "name": "s", "vhost": "/", "type": "stream"}], "users": [], "permissions": []}))  # fmt: skip
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text(
        "listeners.tcp.default = 0\nlisteners.tcp.second = 127.0.0.1:0\nmanagement.tcp.port = 0\ndefault_user = admin\n"
        f"management.ssl.port = 0\nmanagement.ssl.certfile = {certificate[0]}\nmanagement.ssl.keyfile = {certificate[1]}\n"
        f"default_pass = secret\nlog.file = {tmp_path}/serve.log\nlog.file.formatter = json\nheartbeat = 33\n"
        "tcp_listen_options.backlog = 99\n"
    )
    process, said = begin("--data", str(tmp_path / "data"), "--config", str(conf))
    try:
        url = said["ready"].replace("amqp://", "amqp://admin:secret@")
        with pika.BlockingConnection(pika.URLParameters(f"{url}/%2F")) as connection:
            assert connection._impl.params.heartbeat == 33
            connection.channel().queue_declare("mine")
        request = urllib.request.Request(
            f"{said['https'].replace('127.0.0.1', 'localhost')}/api/overview",
            headers={"Authorization": "Basic YWRtaW46c2VjcmV0"},
        )
        trusting = ssl.create_default_context(cafile=certificate[0])
        with urllib.request.urlopen(request, timeout=LIMIT, context=trusting) as answer:
            protocols = [each["protocol"] for each in json.load(answer)["listeners"]]
            assert protocols == ["amqp", "amqp", "http", "https"]
        port = int(said["https"].rsplit(":", 1)[1])
        for data in (b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\n\r\n", os.urandom(500)):
            with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as plain:
                plain.sendall(data)
                assert b"HTTP" not in plain.recv(4096)  # nothing, or an alert
        added = urllib.request.Request(
            f"{said['http']}/api/vhosts/more", b"", dict(request.header_items()), method="PUT"
        )
        with pytest.raises(warrenmq.AccessRefused, match="does not serve the virtual host 'more'"):
            opened(tmp_path / "data", vhost="more")
        urllib.request.urlopen(added, timeout=LIMIT).close()
        with opened(tmp_path / "data", vhost="more") as attached:
            attached.declare_queue("q").publish(b"x").result(LIMIT)
            added.method = "DELETE"
            urllib.request.urlopen(added, timeout=LIMIT).close()
            with pytest.raises(warrenmq.BrokerClosed, match="does not serve the virtual host 'more'"):
                attached.queue("q")
        added.method = "PUT"
        urllib.request.urlopen(added, timeout=LIMIT).close()
    finally:
        err = end(process)
    assert err == ""
    events = [json.loads(line) for line in (tmp_path / "serve.log").read_text().splitlines()]
    assert "Server startup complete" in [each["event"] for each in events]
    (told,) = [each for each in events if "no effect" in each["event"]]
    assert (told["level"], told["keys"]) == ("warning", "tcp_listen_options.backlog")
    assert (
        sum(each.get("address", "").startswith("amqp://") and "started" in each["event"] for each in events)
        == 2
    )


def test_a_mistake_in_the_file_is_one_sentence(tmp_path, capsys):
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text("cluster_name = x\n")
    assert main(["serve", "--data", str(tmp_path / "data"), "--config", str(conf)]) == 2
    assert capsys.readouterr().err == (
        f"warrenmq serve: {conf}, line 1: cluster_name is refused: this server is one node, without a cluster; "
        "take the line out.\n"
    )


TLS_IN_THE_FILE = "ssl_options.certfile = {}\nssl_options.keyfile = {}\n"


@pytest.mark.parametrize(
    ("text", "arguments", "found"),
    [
        ("", (), [(5672, False)]),
        ("", ("--port", "0"), [(0, False)]),
        ("listeners.tcp = none", ("--port", "0"), [(0, False)]),
        ("listeners.tcp.default = 1", ("--port", "2"), [(2, False)]),
        (TLS_IN_THE_FILE, (), [(5671, True)]),
        (TLS_IN_THE_FILE, ("--port", "2"), [(2, True)]),
        (TLS_IN_THE_FILE + "listeners.ssl.default = 1", ("--port", "2"), [(2, False), (1, True)]),
        (TLS_IN_THE_FILE + "listeners.ssl.default = 1\nlisteners.tcp = none", (), [(1, True)]),
        (TLS_IN_THE_FILE + "listeners.ssl.default = 1\nlisteners.tcp = none", ("--port", "2"), [(2, True)]),
    ],
)
def test_a_port_of_the_command_line_wins_and_never_turns_tls_into_plain(
    tmp_path, certificate, text, arguments, found
):
    (tmp_path / "conf").write_text(text.format(*certificate) + "\n")
    args = parser({"serve": serve}).parse_args(
        ["serve", "--data", "d", "--config", str(tmp_path / "conf"), *arguments]
    )
    listeners = serve._listeners(args, read_conf(args.config), {})
    assert [(port, tls is not None) for _, port, tls, _ in listeners] == found


def test_systemd_is_told_and_its_sockets_are_used(tmp_path):
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news,
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        news.bind(str(tmp_path / "notify"))
        news.settimeout(LIMIT)
        port = listening.getsockname()[1]
        # what becomes the server puts the socket at descriptor 3 first, so that LISTEN_PID is its own
        start = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3); "
            "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1', LISTEN_FDNAMES='amqp'); "
            "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
        )
        serve = ["-m", "warrenmq", "serve", "--data", str(tmp_path / "data"), "--log-json"]
        process = subprocess.Popen(
            [sys.executable, "-c", start, str(listening.fileno()), *serve],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, pass_fds=[listening.fileno()],
            env=os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
        )  # fmt: skip
        assert process.stdout.readline() == f"ready amqp://127.0.0.1:{port}\n"
        assert news.recv(1000).decode() == f"READY=1\nSTATUS=serving amqp://127.0.0.1:{port}"
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).close()
        err = end(process)
        assert news.recv(1000) == b"STOPPING=1"
    assert {json.loads(line)["level"] for line in err.splitlines()} <= {"info", "warning"}


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, {}),
        ({"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {}),
        ({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "x"}, {}),
    ],
)
def test_sockets_of_another_process_are_left_alone(environ, found):
    assert _systemd.inherited(environ) == found
    assert environ == {}


def test_a_descriptor_that_is_no_listener_is_refused(monkeypatch):
    with socket.socket() as plain:
        monkeypatch.setattr(_systemd, "FIRST", os.dup(plain.fileno()))
        with pytest.raises(CallerError, match="is no listening TCP socket"):
            _systemd.inherited({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})


def test_that_nobody_listens_to_the_news_is_no_error(tmp_path):
    _systemd.notify("READY=1", str(tmp_path / "nothing"))
    _systemd.notify("READY=1", None)
