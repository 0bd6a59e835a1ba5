"""One server for all tests of clients: each test uses queues of its own."""

import pytest

from tests.support.served import Served


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory):
    server = Served(tmp_path_factory.mktemp("served") / "data")
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


@pytest.fixture
def server(shared_server):
    assert shared_server.is_running
    return shared_server


@pytest.fixture
def own_server(tmp_path):
    """A server that the test may stop and kill."""
    server = Served(tmp_path / "data")
    yield server
    if server.is_running:
        server.stop()
