"""Hostile input at the HTTP door: oversized, half, slow, wrong token, wrong Host.  The server answers others meanwhile and after."""

import socket
import ssl

import pytest

from tests.support.limits import LIMIT
from warrenmq.amqp.net import tls
from warrenmq.management import asgi, server

HEAD = b"Host: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"


def status(answer):
    return int(answer.split(b" ", 2)[1]) if answer else None


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"GET /api/overview HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET /api/overview HTTP/1.1\r\nHost: localhost.evil.example:15672\r\n\r\n", 421),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405),
        (b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
        (b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer abc\r\n\r\n", 401),
        (b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic !!!\r\n\r\n", 401),
        (b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic Z3Vlc3Q=\r\n\r\n", 401),
        (b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n", 200),
        (b"GET /api/overview HTTP/1.1\r\nHost: [::1]:1\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n", 200),
        (b"GET /../../etc/passwd HTTP/1.1\r\n" + HEAD + b"\r\n", 404),
        (b"GET /api/queues/%2F/" + b"a" * 9_000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n", 414),
        (b"GET /api/queues/%ff%fe/%zz HTTP/1.1\r\n" + HEAD + b"\r\n", 404),
        (b"PUT /api/queues/%2F/q HTTP/1.1\r\n" + HEAD + b"Content-Length: 99999999999\r\n\r\n", 413),
        (b"PUT /api/queues/%2F/q HTTP/1.1\r\n" + HEAD + b"Content-Length: 3\r\n\r\n{]}", 400),
        (b"PUT /api/queues/%2F/q HTTP/1.1\r\n" + HEAD + b"Content-Length: -3\r\n\r\n", 400),
        (b"PUT /api/queues/%2F/q HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"AMQP\x00\x00\x09\x01", None),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000, 400),
    ],
)  # fmt: skip
def test_bad_requests_are_answered(shared_api, sent, answered):
    if b"\r\n\r\n" in sent:
        sent = sent.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    assert status(shared_api.bytes(sent, shut=sent[:1] in (b"A", b"\x16"))) == answered
    assert shared_api.get("whoami")["name"] == "guest"


@pytest.mark.parametrize("name", ["", "v" * 256])
def test_definitions_make_no_virtual_host_that_no_client_can_name(shared_api, name):
    assert shared_api("POST", "definitions", {"vhosts": [{"name": name}]})[0] == 400
    assert name not in [each["name"] for each in shared_api.get("vhosts")]


def test_no_queue_has_the_folder_of_another_ones_priority(shared_api):
    """RabbitMQ keeps priority 5 of `jobs` as `jobs` NUL 5, and so does the folder's name: they shared it, messages and all."""
    assert shared_api("PUT", "queues/%2F/jobs%00%05", {})[0] == 400
    for name in ("jobs%00", "%00", "a%00%C3%A9"):
        assert shared_api("PUT", f"queues/%2F/{name}", {})[0] == 201
        assert shared_api("DELETE", f"queues/%2F/{name}")[0] == 204


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 3_000])
def test_a_pattern_that_cannot_be_compiled_is_refused(shared_api, pattern):
    row = {"configure": "", "exchange": "amq.topic", "write": pattern, "read": ""}
    for path in ("permissions/%2F/guest", "topic-permissions/%2F/guest"):
        status, body = shared_api("PUT", path, row)
        assert (status, "is no regular expression" in body["reason"]) == (400, True)


def test_a_head_that_does_not_come_is_not_waited_for(api, monkeypatch):
    monkeypatch.setattr(server, "HEAD_TIMEOUT", 0.05)
    assert api.bytes(b"") == b""
    assert api.bytes(b"GET /api/overview HTTP/1.1\r\nHo") == b""
    assert api.get("whoami")["name"] == "guest"


@pytest.mark.parametrize("data", [b"", b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n"])
def test_who_begins_tls_and_does_not_go_on_is_disconnected_and_told(
    api, certificate, monkeypatch, data, logs
):
    monkeypatch.setattr(tls, "TLS_HANDSHAKE", 0.05)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    with (
        server.manage(api.server, port=0, tls=context, site=api.management.site) as secure,
        socket.create_connection(("127.0.0.1", secure.port), timeout=LIMIT) as raw,
    ):
        raw.sendall(data)
        # nothing, or an alert
        assert raw.recv(4096)[:4] in (b"", b"\x15\x03\x01\x00", b"\x15\x03\x03\x00")
    (line,) = [each for each in logs if "handshake" in each["event"]]
    assert line["reason"] in ("it was not over after 0 s", tls.NO_TLS), line


def test_a_body_that_does_not_come_is_not_waited_for(api, monkeypatch):
    monkeypatch.setattr(asgi, "BODY_TIMEOUT", 0.05)
    answer = api.bytes(b"PUT /api/queues/%2F/q HTTP/1.1\r\n" + HEAD + b"Content-Length: 10\r\n\r\n{")
    assert status(answer) == 408
    assert api.get("queues") == []


def test_a_body_without_announced_length_is_limited(api, monkeypatch):
    monkeypatch.setattr(asgi, "MOST_BODY", 100)
    chunk = b"40\r\n" + b" " * 64 + b"\r\n"
    answer = api.bytes(
        b"PUT /api/queues/%2F/q HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + 4 * chunk
    )
    assert status(answer) == 413


def test_half_a_body_changes_nothing(api):
    api.bytes(b"PUT /api/queues/%2F/q HTTP/1.1\r\n" + HEAD + b"Content-Length: 10\r\n\r\n{", shut=True)
    assert api.get("queues") == []


def test_a_defect_of_a_handler_is_answered(api, monkeypatch):
    def broken(*_):
        raise RuntimeError("secret")

    monkeypatch.setattr(asgi, "answer", broken)
    status, body = api("GET", "whoami")
    assert (status, body["reason"]) == (500, "a defect of the server; its log has more")
