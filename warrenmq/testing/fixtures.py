"""The pytest fixture `server`: a broker for AMQP clients, on a free port of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from warrenmq.amqp import open_vhosts, serve
from warrenmq.broker.broker import Broker
from warrenmq.settings import Settings


@dataclass(frozen=True, slots=True)
class RunningServer:
    """The address for clients (user guest, password guest, virtual host /), and the broker behind it."""

    host: str
    port: int
    url: str
    broker: Broker


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A broker of the test's own on an empty directory; it ends with the test.

    A confirm means that the operating system has the message (durability=os), as no test pulls the plug of this machine.
    """
    directory = tmp_path_factory.mktemp("warrenmq")
    (broker,) = open_vhosts(str(directory), Settings(durability="os"), ["/"])
    with closing(broker), serve(broker, host="127.0.0.1", port=0) as running:
        yield RunningServer(running.host, running.port, running.url, broker)
