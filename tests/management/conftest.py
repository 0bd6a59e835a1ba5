"""A server with its management API in this process, and a client of it."""

import base64
import http.client
import json
import socket
from urllib.parse import urlsplit

import pytest

from tests.support.limits import LIMIT
from tests.support.served import Served
from warrenmq.amqp import load_users, open_vhosts, serve
from warrenmq.management import manage
from warrenmq.settings import Settings


class Api:
    """A client of one API: each call is (status, body as JSON)."""

    def __init__(self, host, port, management=None, server=None):
        self.host, self.port = host, port
        self.management, self.server = management, server

    def __call__(self, method, path, body=None, *, user="guest", password="guest", headers=(), raw=None):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=LIMIT)
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        try:
            connection.request(
                method, f"/api/{path}", data, {"Authorization": f"Basic {token}", **dict(headers)}
            )
            response = connection.getresponse()
            read = response.read()
            self.headers = response.headers
            return response.status, json.loads(read) if read else None
        finally:
            connection.close()

    def get(self, path, **options):
        status, body = self("GET", path, **options)
        assert status == 200, body
        return body

    def bytes(self, data, *, shut=False):
        """Send bytes on a socket and return all bytes received until it is closed."""
        with socket.create_connection((self.host, self.port), timeout=LIMIT) as raw:
            raw.sendall(data)
            if shut:
                raw.shutdown(socket.SHUT_WR)
            found = b""
            while piece := raw.recv(65_536):
                found += piece
            return found


class Servers:
    """Servers on one directory, one after the other."""

    def __init__(self, data):
        self.data = data
        self._running = []

    def __call__(self, file=None, **settings):
        users = load_users(self.data, file)
        brokers = open_vhosts(self.data, Settings.load(environ={}, **settings), users.vhosts)
        server = serve(brokers, port=0, users=users)
        management = manage(server, port=0)
        self._running.append((management, server, brokers))
        return Api(management.host, management.port, management, server)

    def end(self):
        while self._running:
            management, server, brokers = self._running.pop()
            management.close()
            server.close()
            for broker in reversed(brokers):
                broker.close()


@pytest.fixture
def start(tmp_path):
    servers = Servers(str(tmp_path / "data"))
    yield servers
    servers.end()


@pytest.fixture
def api(start):
    return start()


@pytest.fixture(scope="module")
def shared_api(tmp_path_factory):
    """One, in a process of its own, for all tests of a file that leave nothing behind."""
    served = Served(tmp_path_factory.mktemp("shared") / "data", "--management", "0")
    address = urlsplit(served.management)
    yield Api(address.hostname, address.port)
    assert served.stop() == 0
    assert "Traceback" not in served.log.read_text()
