"""`--url` where no broker can be used: a sentence that names host, port and what is wrong, and exit status 2."""

import io
import os
import socket
import threading
import time

import pytest

import warrenmq
from tests.support.limits import LIMIT
from warrenmq.amqp import serve
from warrenmq.cli import main

pytest.importorskip("pika")


@pytest.fixture
def port(tmp_path):
    """Of a broker with one queue."""
    with warrenmq.open(tmp_path) as broker, serve(broker, port=0) as server:
        broker.declare_queue("q")
        yield server.port


@pytest.fixture
def listening():
    """Start a server that does this with its connections; gives the port."""
    listeners = []

    def start(does):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    does(connection)

        threading.Thread(target=accept, daemon=True).start()
        return listener.getsockname()[1]

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def http(connection):
    connection.recv(100)
    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")


def other_version(connection):
    connection.recv(8)
    connection.sendall(b"AMQP\x03\x01\x00\x00")


def hangs_up(_connection):
    return


def is_silent(_connection):
    time.sleep(3)


def said(capsys, verb, url, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    assert main([verb, "q", "--url", url]) == 2
    lines = capsys.readouterr().err.splitlines()  # the broker of this process logs there, too
    assert "Traceback" not in "".join(lines)
    [line] = [line for line in lines if line.startswith(f"warrenmq {verb}: ")]
    return line


@pytest.mark.parametrize("verb", ["publish", "consume"])
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("amqp://127.0.0.1:1", "127.0.0.1:1 cannot be used: no broker listens there"),
        ("amqp://[::1]:1", "[::1]:1 cannot be used: "),
        ("amqp://no.such.host.invalid", "no.such.host.invalid:5672 cannot be used: there is no host called"),
        ("amqp://" + "a" * 80, "there is no host called"),
        ("amqp://guest:wrong@127.0.0.1:PORT", "it refuses the user 'guest'"),
        ("amqp://nobody:guest@127.0.0.1:PORT", "it refuses the user 'nobody'"),
        ("amqp://127.0.0.1:PORT/elsewhere", "into the virtual host 'elsewhere'"),
        ("amqps://127.0.0.1:PORT", "TLS failed"),
        ("amqp://me:secret@127.0.0.1:99999", "amqp://...@127.0.0.1:99999 is no URL"),
        ("http://127.0.0.1", "is no URL of a broker"),
    ],
)
def test_the_error_says_what_is_wrong_with_a_url(capsys, monkeypatch, port, verb, url, words):
    line = said(capsys, verb, url.replace("PORT", str(port)), monkeypatch)
    assert words in line
    assert "secret" not in line


@pytest.mark.parametrize("verb", ["publish", "consume"])
@pytest.mark.parametrize("does", [http, other_version, hangs_up])
def test_a_server_of_another_kind_is_no_broker(capsys, monkeypatch, listening, verb, does):
    assert "no AMQP 0-9-1 broker answers there" in said(
        capsys, verb, f"amqp://127.0.0.1:{listening(does)}", monkeypatch
    )


@pytest.mark.parametrize("verb", ["publish", "consume"])
def test_a_server_that_says_nothing_does_not_answer(capsys, monkeypatch, listening, verb):
    url = f"amqp://127.0.0.1:{listening(is_silent)}?stack_timeout=1&socket_timeout=1&connection_attempts=1"
    assert "it does not answer" in said(capsys, verb, url, monkeypatch)


def test_a_line_is_published_before_the_next_one_comes(monkeypatch, tmp_path):
    """Lines of a pipe that goes on (tail -f) stayed here until there were a thousand."""
    reads, writes = os.pipe()
    got = []
    with warrenmq.open(tmp_path) as broker, serve(broker, port=0) as server:
        queue = broker.declare_queue("q")

        def write():
            for line in (b"1\n2\n", b"3\n", b"4\n5"):
                os.write(writes, line)
                if not line.endswith(b"\n"):
                    os.close(writes)
                for _ in line.split():
                    delivery = queue.get(timeout=LIMIT)
                    got.append(delivery and delivery.body)

        writer = threading.Thread(target=write)
        writer.start()
        with open(reads, encoding="utf-8") as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            assert main(["publish", "q", "--url", f"amqp://127.0.0.1:{server.port}"]) == 0
        writer.join()
    assert got == [b"1", b"2", b"3", b"4", b"5"]
