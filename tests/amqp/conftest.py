"""A simulated broker with one client and one channel, and a node for clients that speak frames; a file may have its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.amqp.channels import Client
from tests.amqp.connections import SimulatedNode
from tests.support.simulated import SimulatedHost
from warrenmq.broker.broker import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    host = SimulatedHost(1, traced=False)
    yield host.open()
    host.sim.close()


@pytest.fixture
def client(broker):
    return Client(broker)


@pytest.fixture
def channel(client):
    return client.open(1)


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    node = SimulatedNode()
    yield node
    node.close()
