"""`warrenmq serve` and `hash-password`, as processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pika
import pika.exceptions
import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.source_tree import ROOT
from warrenmq.amqp.access.passwords import PasswordHash, hash_password
from warrenmq.cli import main


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "warrenmq", *arguments]


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server on a free port, and its URL."""
    process = subprocess.Popen(command("serve", "--port", "0", *arguments), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, cwd=ROOT)  # fmt: skip
    logs: list[str] = []
    reader = threading.Thread(target=lambda: logs.extend(process.stderr or []))
    reader.start()
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        assert ready[:1] == ["ready"], logs
        yield process, ready[1]
    finally:
        process.kill()
        process.wait()
        reader.join()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def connect(url: str, **more) -> pika.BlockingConnection:
    parameters = pika.URLParameters(url + "/%2F")
    for name, value in more.items():
        setattr(parameters, name, value)
    return pika.BlockingConnection(parameters)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_confirmed_messages_are_there_after_the_server_was_ended(tmp_path, number):
    data = str(tmp_path / "data")
    with serving("--data", data) as (process, url):
        assert url.startswith("amqp://127.0.0.1:")
        connection = connect(url)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"kept", pika.BasicProperties(delivery_mode=2))
        process.send_signal(number)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as raised:
            connection.process_data_events(LIMIT)
        assert raised.value.reply_code == 320
        assert process.wait() == 0
    with serving("--data", data, "--setting", "heartbeat=17") as (process, url):
        connection = connect(url)
        assert connection.channel().basic_get("q", auto_ack=True)[2] == b"kept"
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


def test_several_virtual_hosts_are_worlds_apart(tmp_path):
    users = tmp_path / "definitions.json"
    row = {"user": "me", "configure": ".*", "write": ".*", "read": ".*"}
    users.write_text(json.dumps({
        "users": [{"name": "me", "password_hash": hash_password("p"), "tags": []}],
        "vhosts": [{"name": "/"}, {"name": "other"}, {"name": "shut"}],
        "permissions": [row | {"vhost": "/"}, row | {"vhost": "other"}],
    }))  # fmt: skip
    me = {"credentials": pika.PlainCredentials("me", "p")}
    with serving("--data", str(tmp_path / "data"), "--users", str(users)) as (process, url):
        for vhost in ("/", "other"):
            connection = connect(url, virtual_host=vhost, **me)
            channel = connection.channel()
            assert channel.queue_declare("q", durable=True).method.message_count == 0
            channel.basic_publish("", "q", vhost.encode())
            connection.close()
        connection = connect(url, virtual_host="other", **me)
        assert connection.channel().basic_get("q")[2] == b"other"
        connection.close()
        with pytest.raises(
            pika.exceptions.ProbableAccessDeniedError, match="access to vhost 'shut' refused for user 'me'"
        ):
            connect(url, virtual_host="shut", **me)
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(url)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


def test_a_traced_run_can_be_replayed(tmp_path):
    trace = str(tmp_path / "trace")
    with serving("--data", str(tmp_path / "data"), "--trace", trace) as (process, url):
        connection = connect(url)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        for _ in range(20):
            channel.basic_publish("", "q", b"x" * 5000, pika.BasicProperties(delivery_mode=2))
        for _ in range(20):
            channel.basic_ack(channel.basic_get("q")[0].delivery_tag)
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    done = subprocess.run(
        command("replay", "--engine", "python", trace), capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def refused(capsys) -> Iterator[Callable[..., str]]:
    """Runs the verb in this process; what it says when it will not."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}

    def run(*arguments: str) -> str:
        assert main(["serve", *arguments]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        return said.err.splitlines()[-1].removeprefix("warrenmq serve: ")

    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_directory_in_use_is_refused(refused, tmp_path):
    data = str(tmp_path / "data")
    with warrenmq.open(data):
        assert f"{data} is in use by process {os.getpid()}" in refused("--data", data, "--port", "0")


def test_virtual_hosts_that_are_there_and_not_served_are_told(refused, tmp_path, capsys):
    """As after `recover` of several: nothing said that their messages are not served."""
    data = str(tmp_path / "data")
    for vhost in ("/", "orders"):
        with warrenmq.open(data, vhost=vhost) as broker:
            broker.declare_queue("q").publish(b"x").result(LIMIT)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--data", data, "--port", str(taken.getsockname()[1])]) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if "are not served" in line]
    assert len(told) == 1
    assert "vhosts=['orders']" in told[0]


def test_a_port_in_use_is_refused(refused, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refused("--data", str(tmp_path / "data"), "--port", port)
    assert said == f"cannot listen on 127.0.0.1:{port}: Address already in use."


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--setting foo=1", "foo is not a setting"),
        ("--users NOWHERE", "the users file NOWHERE cannot be read: No such file or directory."),
        ("--users FILE", "the users file FILE cannot be used: it is no JSON (Expecting value"),
        ("--setting heartbeat=often", "heartbeat = 'often' must be a whole number from 0 to 65535."),
        ("--setting heartbeat", "--setting heartbeat: it must be KEY=VALUE."),
        ("--config NOWHERE", "the settings file NOWHERE cannot be read: No such file or directory."),
        ("--tls-key FILE", "TLS needs a certificate: --tls-cert FILE"),
        ("--tls-cert FILE", "the files of TLS (FILE) cannot be used:"),
        ("--data FILE", "FILE cannot be used as a data directory:"),
        ("--trace FILE", "FILE cannot hold a trace: File exists."),
        (f"--port 0 --host {'h' * 70}", f"cannot listen on {'h' * 70}:0: no host can have this name."),
        (
            f"--port 0 --management {'h' * 70}:0",
            f"cannot listen on {'h' * 70}:0: no host can have this name.",
        ),
    ],
)
def test_impossible_arguments_are_refused_in_one_sentence(refused, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text("no json")
    assert refused("--data", "DATA", *arguments.split()).startswith(said)


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_terminal_that_is_gone_ends_a_server_unless_nohup_says_otherwise(refused, tmp_path, before):
    """SIGHUP killed it: the next start recovered, and marked all messages as redelivered."""
    signal.signal(signal.SIGHUP, before)
    refused("--data", str(tmp_path), "--setting", "foo=1")
    assert (signal.getsignal(signal.SIGHUP) == before) == (before == signal.SIG_IGN)


def test_a_password_that_is_no_text_is_refused(capsys):
    assert main(["hash-password", "\udcff"]) == 2
    assert capsys.readouterr().err == "warrenmq hash-password: the password is no text in UTF-8.\n"


def test_hash_password_reads_a_line():
    done = subprocess.run(
        command("hash-password"), input="secret\n", capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert PasswordHash(done.stdout.strip()).matches(b"secret")
    done = subprocess.run(
        command("hash_password"), input="\n", capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2
